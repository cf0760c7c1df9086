//! The pool's last minute, for the picture of an allocation that fails: what was
//! lent and held at regular moments, and whenever the pool grew or gave back.
//! Kept only where that is asked for, in room that is there from the beginning.
//! Takes samples where the state lock is held anyway; a hit or a free never does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::front::Sum;
use super::state::State;
use super::stats::Stats;
use crate::picture;

/// Regular moments that are kept, and the least time between two.
const REGULAR: usize = 300;
const BETWEEN: Duration = Duration::from_millis(200);
/// Moments at which the pool changed that are kept.
const CHANGES: usize = 256;

/// What was lent and held when.
pub struct Timeline {
    regular: VecDeque<Moment>,
    changes: VecDeque<Moment>,
    /// The last look since the last regular moment.
    between: Option<Moment>,
}

/// One moment.
#[derive(Clone, Copy)]
pub struct Moment {
    /// When.
    pub at: Instant,
    /// Most bytes in use since the regular moment before.
    pub used: u64,
    /// Bytes held.
    pub physical: u64,
    /// Requests so far.
    pub requests: u64,
    /// Those that failed for lack of memory.
    pub failures: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            regular: VecDeque::with_capacity(REGULAR),
            changes: VecDeque::with_capacity(CHANGES),
            between: None,
        }
    }
}

impl Timeline {
    /// A regular moment, if the last one is long ago.
    pub fn look(&mut self, mut now: Moment) {
        // Looks come in between where others ask for memory.
        if let Some(between) = self.between.take() {
            now.used = now.used.max(between.used);
        }
        match self.regular.back() {
            Some(last) if now.at.duration_since(last.at) < BETWEEN => self.between = Some(now),
            _ => add(&mut self.regular, REGULAR, now),
        }
    }

    /// A moment at which other bytes are held than before.
    pub fn change(&mut self, now: Moment) {
        add(&mut self.changes, CHANGES, now);
    }

    /// Bytes held at the last change.
    pub fn held(&self) -> u64 {
        self.changes.back().map_or(0, |last| last.physical)
    }

    /// All moments, and the present one, in order.
    pub fn told(&self, now: Moment) -> Vec<picture::Moment> {
        let regular = self.regular.iter().chain(&self.between);
        let all = regular.chain(&self.changes).chain([&now]);
        let mut all: Vec<Moment> = all.copied().collect();
        all.sort_by_key(|moment| moment.at);
        let told = all.iter().map(|moment| picture::Moment {
            before_us: now.at.duration_since(moment.at).as_micros() as u64,
            used_bytes: moment.used,
            physical_bytes: moment.physical,
            requests: moment.requests,
            failures: moment.failures,
        });
        told.collect()
    }
}

/// Adds a moment, in the place of the oldest one where there is no room.
fn add(moments: &mut VecDeque<Moment>, most: usize, now: Moment) {
    if moments.len() == most {
        moments.pop_front();
    }
    moments.push_back(now);
}

impl State {
    /// A regular moment.
    pub fn look_at_timeline(&mut self) {
        let now = self.timeline.is_some().then(|| self.moment());
        if let (Some(line), Some(now)) = (&mut self.timeline, now) {
            line.look(now);
        }
    }

    /// The pool may hold more or less now.
    pub fn note_change(&mut self) {
        let physical = self.stats.physical_bytes;
        let line = self.timeline.as_ref();
        let changed = line.is_some_and(|line| line.held() != physical);
        let now = changed.then(|| self.moment());
        if let (Some(line), Some(now)) = (&mut self.timeline, now) {
            line.change(now);
        }
    }

    /// All moments up to now.
    pub fn timeline(&self) -> Vec<picture::Moment> {
        let told = |line: &Timeline| line.told(self.moment());
        self.timeline.as_ref().map_or_else(Vec::new, told)
    }

    fn moment(&self) -> Moment {
        let mut stats: Stats = self.stats;
        self.fronts().add_to(&mut stats);
        // Attached memory is in use as long as it is there.
        let own = self.stats.idle_bytes;
        let attached = self.stats.physical_bytes.saturating_sub(own);
        let lent = self.fronts().peak(Sum::Granted).min(own);
        Moment {
            at: Instant::now(),
            used: attached + lent,
            physical: self.stats.physical_bytes,
            requests: stats.requests,
            failures: stats.out_of_memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Settings;
    use crate::pool::tests::{on, pool};
    use crate::units::MIB;

    fn told() -> Settings {
        Settings {
            timeline: true,
            ..Settings::default()
        }
    }

    #[test]
    fn growth_and_regular_moments_are_told_in_order() {
        let pool = pool(told());
        let first = pool.alloc(&on(10, 32 * MIB)).unwrap();
        pool.least_idle();
        let second = pool.alloc(&on(10, 96 * MIB)).unwrap();
        for at in [first, second] {
            let stream = crate::pool::tests::key(10);
            pool.free(at, crate::pool::Release::Stream(stream)).unwrap();
        }
        let before = pool.picture().before;
        let held: Vec<u64> = before.iter().map(|m| m.physical_bytes / MIB).collect();
        assert_eq!(held, [32, 32, 128, 128]);
        // Of the growth: what was in use until then. Of now: the most since the
        // regular moment, though all is free again.
        let used: Vec<u64> = before.iter().map(|m| m.used_bytes / MIB).collect();
        assert_eq!((used[1], used[3]), (32, 128));
        assert!(before.is_sorted_by_key(|m| std::cmp::Reverse(m.before_us)));
        assert_eq!(before[3].requests, 2);
        assert_eq!(before[3].before_us, 0);
    }

    #[test]
    fn it_has_a_bounded_length_and_keeps_the_latest() {
        let mut line = Timeline::default();
        let moment = |second: u64| Moment {
            at: Instant::now() + Duration::from_secs(second),
            used: second,
            physical: second,
            requests: second,
            failures: 0,
        };
        for second in 0..1000 {
            line.look(moment(second));
            line.change(moment(second));
        }
        let capacity = (line.regular.capacity(), line.changes.capacity());
        assert_eq!((line.regular.len(), line.changes.len()), (REGULAR, CHANGES));
        assert!(capacity.0 < 2 * REGULAR && capacity.1 < 2 * CHANGES);
        assert_eq!(line.regular[0].requests, 1000 - REGULAR as u64);
        assert_eq!(line.told(moment(1000)).len(), REGULAR + CHANGES + 1);
    }

    #[test]
    fn what_is_seen_between_two_regular_moments_is_the_later_ones() {
        let began = Instant::now();
        let moment = |milliseconds: u64, bytes: u64| Moment {
            at: began + Duration::from_millis(milliseconds),
            used: bytes,
            physical: bytes,
            requests: 0,
            failures: 0,
        };
        let mut line = Timeline::default();
        for (milliseconds, bytes) in [(0, 32), (100, 128), (150, 64), (300, 16), (400, 96)] {
            line.look(moment(milliseconds, bytes));
        }
        let told = line.told(moment(450, 16));
        let told: Vec<_> = told
            .iter()
            .map(|m| (m.used_bytes, m.physical_bytes))
            .collect();
        assert_eq!(told, [(32, 32), (128, 16), (96, 96), (16, 16)]);
    }

    #[test]
    fn without_the_setting_there_is_none() {
        let pool = pool(Settings::default());
        pool.alloc(&on(10, 32 * MIB)).unwrap();
        pool.least_idle();
        assert_eq!(pool.picture().before, []);
    }
}
