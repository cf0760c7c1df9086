//! What was seen in the last minutes: a sample of every pool at each look, and
//! what happened between two looks. Bounded, however many processes come and go.

use std::collections::{HashMap, HashSet, VecDeque};

use memcuda::stats_page::Counters;
use memcuda::units::show_bytes;
use serde::Serialize;

use crate::survey::{Key, Row};

/// Samples that are kept of a pool: ten minutes of one each second.
pub const SAMPLES: usize = 600;
/// Most pools that are remembered, ended ones included.
const POOLS: usize = 1024;
/// Events that are kept.
const EVENTS: usize = 200;
/// Growths that follow each other within this time are told as one.
const TOGETHER_MS: u64 = 5000;

/// What a pool held at one look, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When, in milliseconds of the Unix epoch.
    pub time_ms: u64,
    pub live: u64,
    pub pending: u64,
    pub idle: u64,
    pub physical: u64,
}

struct Series {
    samples: VecDeque<Sample>,
    last: Counters,
    command: String,
    alive: bool,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    time_ms: u64,
    kind: &'static str,
    pid: Option<u32>,
    device: Option<u64>,
    text: String,
    /// Of growths: how much.
    #[serde(skip)]
    bytes: u64,
}

/// The last minutes.
#[derive(Default)]
pub struct History {
    series: HashMap<Key, Series>,
    events: VecDeque<Event>,
    changes: u64,
    began: bool,
}

impl History {
    /// Adds a look: what was seen, and whose page could not be read, who has not ended.
    pub fn add(&mut self, rows: &[Row], unread: &[(u32, String)], time_ms: u64) {
        let seen: HashSet<Key> = rows.iter().map(Row::key).collect();
        let unread: HashSet<u32> = unread.iter().map(|(pid, _)| *pid).collect();
        let is_there = |key: &Key| seen.contains(key) || unread.contains(&key.1);
        self.end(is_there, time_ms);
        for row in rows {
            self.add_row(row, time_ms);
        }
        let oldest = time_ms.saturating_sub(SAMPLES as u64 * 1000);
        self.series.retain(|_, series| {
            series.alive
                || series
                    .samples
                    .back()
                    .is_some_and(|last| last.time_ms >= oldest)
        });
        self.began = true;
    }

    fn end(&mut self, is_there: impl Fn(&Key) -> bool, time_ms: u64) {
        let ended = self
            .series
            .iter_mut()
            .filter(|(key, series)| series.alive && !is_there(key));
        let mut events = Vec::new();
        for (&(_, pid, device), series) in ended {
            series.alive = false;
            let held = show_bytes(series.last.pool.physical_bytes);
            let text = format!("{} {pid} ended; it held {held}", series.command);
            events.push((device, pid, text));
        }
        events.sort();
        for (device, pid, text) in events {
            self.tell(time_ms, "ended", Some((pid, device)), text, 0);
        }
    }

    fn add_row(&mut self, row: &Row, time_ms: u64) {
        let pool = &row.counters.pool;
        let sample = Sample {
            time_ms,
            live: pool.live_bytes,
            // What is pending is idle, too; here each byte counts once.
            pending: pool.pending_bytes.min(pool.idle_bytes),
            idle: pool.idle_bytes.saturating_sub(pool.pending_bytes),
            physical: pool.physical_bytes,
        };
        let whose = Some((row.pid, row.counters.ordinal));
        let who = format!("{} {}", row.command, row.pid);
        let room = self.series.contains_key(&row.key()) || self.has_room();
        match self.series.get_mut(&row.key()) {
            Some(series) => {
                let before = std::mem::replace(&mut series.last, row.counters).pool;
                series.alive = true;
                series.samples.push_back(sample);
                if series.samples.len() > SAMPLES {
                    series.samples.pop_front();
                }
                let (was, is) = (before.physical_bytes, pool.physical_bytes);
                if is > was {
                    self.tell(time_ms, "grew", whose, who.clone(), is - was);
                } else if is < was {
                    self.tell(time_ms, "gave back", whose, who.clone(), was - is);
                }
                if let failed @ 1.. = pool.out_of_memory.saturating_sub(before.out_of_memory) {
                    let text = format!("{who}: {failed} allocations failed for lack of memory");
                    self.tell(time_ms, "out of memory", whose, text, 0);
                }
                if let stalls @ 1.. = pool.stalls.saturating_sub(before.stalls) {
                    let ms = pool.stall_ns.saturating_sub(before.stall_ns) / 1_000_000;
                    let text = format!("{who}: {stalls} requests waited, {ms} ms in all");
                    self.tell(time_ms, "stalled", whose, text, 0);
                }
            }
            None if room => {
                let series = Series {
                    samples: VecDeque::from([sample]),
                    last: row.counters,
                    command: row.command.clone(),
                    alive: true,
                };
                self.series.insert(row.key(), series);
                // What was there before the server is no news.
                if self.began {
                    self.tell(time_ms, "began", whose, format!("{who} began to use it"), 0);
                }
            }
            None => {}
        }
    }

    /// Is there room for one pool more? The one that ended first makes some.
    fn has_room(&mut self) -> bool {
        if self.series.len() < POOLS {
            return true;
        }
        let ended = self.series.iter().filter(|(_, series)| !series.alive);
        let since = |series: &Series| series.samples.back().map(|last| last.time_ms);
        let first = ended.min_by_key(|(_, series)| since(series));
        let Some((&key, _)) = first else {
            return false;
        };
        self.series.remove(&key).is_some()
    }

    /// Notes something. Growths of one pool that follow each other are one.
    pub fn tell(
        &mut self,
        time_ms: u64,
        kind: &'static str,
        whose: Option<(u32, u64)>,
        text: String,
        bytes: u64,
    ) {
        self.changes += 1;
        let (pid, device) = (whose.map(|it| it.0), whose.map(|it| it.1));
        let mut event = Event {
            time_ms,
            kind,
            pid,
            device,
            text: text.clone(),
            bytes,
        };
        if bytes > 0 {
            let same = |it: &Event| {
                (it.kind, it.pid, it.device) == (kind, pid, device)
                    && time_ms.saturating_sub(it.time_ms) <= TOGETHER_MS
            };
            if let Some(at) = self.events.iter().rposition(same) {
                event.bytes += self.events.remove(at).map_or(0, |it| it.bytes);
            }
            event.text = format!("{text} {kind} {}", show_bytes(event.bytes));
        }
        self.events.push_back(event);
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }

    /// A number that grows with every event.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The events, the newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().rev()
    }

    /// Samples of a pool that are newer than this, the oldest first.
    pub fn samples(&self, key: &Key, after_ms: u64) -> impl Iterator<Item = &Sample> {
        let samples = self.series.get(key).map(|series| &series.samples);
        let samples = samples.into_iter().flatten();
        samples.filter(move |sample| sample.time_ms > after_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, physical_bytes: u64, out_of_memory: u64) -> Row {
        let mut counters = Counters::default();
        counters.pool.physical_bytes = physical_bytes;
        counters.pool.out_of_memory = out_of_memory;
        Row {
            pid,
            page: u64::from(pid),
            command: "job".to_owned(),
            counters,
            rates: None,
        }
    }

    fn told(history: &History) -> Vec<String> {
        history
            .events()
            .map(|it| format!("{}: {}", it.kind, it.text))
            .collect()
    }

    #[test]
    fn events_are_differences_of_two_looks() {
        let mut history = History::default();
        history.add(&[row(1, 5, 0)], &[], 1000);
        assert!(told(&history).is_empty(), "nothing has happened yet");
        history.add(&[row(1, 1 << 20, 0), row(2, 7, 0)], &[], 2000);
        history.add(&[row(1, 3 << 20, 2)], &[], 3000);
        let all = [
            "out of memory: job 1: 2 allocations failed for lack of memory",
            "grew: job 1 grew 3.0 MiB",
            "ended: job 2 ended; it held 7 B",
            "began: job 2 began to use it",
        ];
        assert_eq!(told(&history), all);
        history.add(&[row(1, 2 << 20, 2)], &[], 4000);
        let unread = [(1, "why".to_owned())];
        history.add(&[], &unread, 5000);
        history.add(&[row(1, 2 << 20, 2)], &[], 6000);
        assert_eq!(told(&history)[0], "gave back: job 1 gave back 1.0 MiB");
    }

    #[test]
    fn all_of_it_is_bounded() {
        let mut history = History::default();
        for look in 0..SAMPLES as u64 + 10 {
            // A process that stays and two that come and go each second.
            let pid = 10 + 2 * look as u32;
            let rows = [row(1, look, look), row(pid, 1, 0), row(pid + 1, 1, 0)];
            history.add(&rows, &[], 1000 * (look + 1));
        }
        let stays = (1, 1, 0);
        assert_eq!(history.samples(&stays, 0).count(), SAMPLES);
        assert_eq!(history.samples(&stays, 600_000).count(), 10);
        assert_eq!(history.events().count(), EVENTS);
        assert!(history.series.len() <= POOLS);
        history.add(&[], &[], 10_000_000);
        assert_eq!(history.series.len(), 0);
    }

    #[test]
    fn what_has_ended_keeps_nobody_out() {
        let mut history = History::default();
        let ended: Vec<Row> = (0..POOLS as u32 - 1).map(|pid| row(pid, 1, 0)).collect();
        history.add(&ended[..10], &[], 1000);
        history.add(&ended, &[], 2000);
        let [one, other, third] = [5000, 5001, 5002].map(|pid| row(pid, 1, 0));
        history.add(std::slice::from_ref(&one), &[], 3000);
        history.add(&[one.clone(), other.clone(), third.clone()], &[], 4000);
        for (row, samples) in [(one, 2), (other, 1), (third, 1)] {
            assert_eq!(
                history.samples(&row.key(), 0).count(),
                samples,
                "{}",
                row.pid
            );
        }
        assert_eq!(told(&history)[0], "began: job 5002 began to use it");
        assert_eq!(history.series.len(), POOLS);
        // Of the living nobody goes.
        let all: Vec<Row> = (0..POOLS as u32 + 1).map(|pid| row(pid, 1, 0)).collect();
        history.add(&all, &[], 5000);
        history.add(&all, &[], 6000);
        assert_eq!(history.series.len(), POOLS);
        assert!(history.series.values().all(|series| series.alive));
    }
}
