//! How the keeper waits. A processor that has fallen asleep takes 50 to 300 us to
//! come back, more than all the rest of an opening; so where a request is likely
//! soon the keeper looks for it again and again for a while before it sleeps.
//! Bounded thrice: so long after each event, a share of all time, and only while
//! there is a processor to spare. Hears nobody and answers nothing itself.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::thread::sched_getcpu;

use super::clients::process;
use super::entries::ClientId;
use super::state::Keeper;

/// How long it is awake after a request, where nobody says otherwise: a process
/// that opens one name opens more.
pub const AFTER_REQUEST: Duration = Duration::from_micros(1000);
/// How many times as long after a process has introduced itself, which is when
/// its CUDA starts, and until it asks.
const NEWCOMER: u32 = 20;
/// Most time awake without anything to do, at once; it comes back by a
/// [`SHARE`]th of all time. Together that is a tenth of any second.
const MOST: Duration = Duration::from_millis(50);
const SHARE: u32 = 20;
/// Between two looks that are so far apart somebody else had the processor.
const CROWDED: Duration = Duration::from_micros(100);
/// How long it is believed that there is one to spare, or none.
const KNOWN: Duration = Duration::from_micros(1000);
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Until when it is worth being awake.
pub struct Awake {
    /// After a request; nothing where it always sleeps at once.
    after: Duration,
    until: Instant,
    /// Who has introduced itself and asked nothing yet, the oldest first.
    newcomers: VecDeque<(Instant, ClientId)>,
    /// The process that was heard last; 0 where that is not seen.
    last: u32,
    /// That may be used.
    processors: usize,
    /// Until when one is to spare, as far as is known.
    spare: Instant,
    /// Until when there is none.
    busy: Instant,
    left: Duration,
    counted: Instant,
}

impl Awake {
    /// With so long after a request.
    pub fn new(after: Duration) -> Self {
        Self::since(after, Instant::now())
    }

    fn since(after: Duration, now: Instant) -> Self {
        Self {
            after,
            until: now,
            newcomers: VecDeque::new(),
            last: 0,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            spare: now,
            busy: now,
            left: MOST,
            counted: now,
        }
    }

    /// A client, of process `pid`, has asked; or has said for the first time who
    /// it `is_new`.
    pub fn heard(&mut self, client: ClientId, pid: u32, is_new: bool, now: Instant) {
        if self.after.is_zero() {
            return;
        }
        self.last = pid;
        self.until = now + self.after;
        self.forget(client);
        if is_new {
            let until = now + self.after * NEWCOMER;
            self.newcomers.push_back((until, client));
        }
    }

    /// A client is gone.
    pub fn forget(&mut self, client: ClientId) {
        self.newcomers.retain(|&(_, other)| other != client);
    }

    /// Until when, if that is worth it now.
    fn until(&mut self, now: Instant) -> Option<Instant> {
        if now < self.busy {
            return None;
        }
        let past = now.saturating_duration_since(self.counted);
        self.left = MOST.min(self.left + past / SHARE);
        self.counted = now;
        while self.newcomers.front().is_some_and(|&(at, _)| at <= now) {
            self.newcomers.pop_front();
        }
        let newest = self.newcomers.back().map(|&(at, _)| at);
        let until = newest.map_or(self.until, |at| at.max(self.until));
        let until = until.min(now + self.left);
        (until > now).then_some(until)
    }

    /// So long it had nothing to do.
    fn spent(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    /// Others want the processor: for a while it sleeps. Who has used up its share in
    /// vain would wait for its next one; who sleeps is woken.
    fn give_way(&mut self, now: Instant) {
        self.busy = now + KNOWN;
    }

    /// Has everything that runs on this machine a processor, and the process that
    /// was heard last another one than this?
    fn is_spare(&mut self, now: Instant) -> bool {
        if now < self.spare {
            return true;
        }
        let enough = process::running().is_some_and(|count| count <= self.processors);
        let spare = enough && process::processor(self.last) != Some(sched_getcpu());
        if spare {
            self.spare = now + KNOWN;
        }
        spare
    }
}

impl Keeper {
    /// Waits until there is something to do; it may be woken for nothing.
    pub(super) fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        let timeout = self.timeout();
        let begun = Instant::now();
        if let Some(until) = self.awake.until(begun) {
            let until = timeout.map_or(until, |timeout| until.min(begun + timeout));
            let ended = self.look(events, begun, until)?;
            self.awake.spent(ended - begun);
            if !events.is_empty() {
                return Ok(());
            }
        }
        let timeout = timeout.map(|timeout| timeout.try_into().unwrap_or_default());
        epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()).map(drop)
    }

    /// Looks until there is something, or so long; when that was.
    fn look(
        &mut self,
        events: &mut Vec<epoll::Event>,
        begun: Instant,
        until: Instant,
    ) -> Result<Instant, Errno> {
        let mut before = begun;
        loop {
            epoll::wait(&self.epoll, spare_capacity(events), Some(&AT_ONCE))?;
            let now = Instant::now();
            if !events.is_empty() || now >= until {
                return Ok(now);
            }
            if now - before > CROWDED || !self.awake.is_spare(now) {
                self.awake.give_way(now);
                return Ok(now);
            }
            before = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_request_is_followed_by_a_short_while_and_a_newcomer_by_a_longer_one() {
        let now = Instant::now();
        let mut awake = Awake::since(MS, now);
        assert_eq!(awake.until(now), None);
        awake.heard(1, 0, false, now);
        assert_eq!(awake.until(now), Some(now + MS));
        assert_eq!(awake.until(now + MS), None);
        awake.heard(1, 0, true, now);
        awake.heard(2, 0, true, now + MS);
        assert_eq!(awake.until(now + MS), Some(now + 21 * MS));
        // It has asked; the other one has not.
        awake.heard(2, 0, false, now + 2 * MS);
        assert_eq!(awake.until(now + 2 * MS), Some(now + 20 * MS));
        awake.forget(1);
        assert_eq!(awake.until(now + 2 * MS), Some(now + 3 * MS));
        assert_eq!(awake.until(now + 3 * MS), None);
    }

    #[test]
    fn nobody_keeps_it_awake_for_more_than_a_tenth_of_a_second() {
        let begun = Instant::now();
        let mut awake = Awake::since(MS, begun);
        let (mut now, mut spent) = (begun, Duration::ZERO);
        let mut client = 0;
        while now < begun + 1000 * MS {
            client += 1;
            awake.heard(client, 0, true, now);
            let until = awake.until(now).map_or(now, |until| until.min(now + MS));
            awake.spent(until - now);
            spent += until - now;
            now = until.max(now + MS / 10);
        }
        assert!(spent > 90 * MS && spent <= 100 * MS, "{spent:?}");
        // Nothing is kept of those whose time is over.
        assert_eq!(awake.until(now + 21 * MS), None);
        assert!(awake.newcomers.is_empty());
        // And it recovers.
        now += 2000 * MS;
        awake.heard(1, 0, true, now);
        assert_eq!(awake.until(now), Some(now + 20 * MS));
    }

    #[test]
    fn it_sleeps_at_once_where_that_is_wanted_or_others_want_the_processor() {
        let now = Instant::now();
        let mut never = Awake::since(Duration::ZERO, now);
        never.heard(1, 0, true, now);
        assert_eq!(never.until(now), None);
        let mut awake = Awake::since(MS, now);
        awake.heard(1, 0, true, now);
        awake.give_way(now);
        awake.heard(2, 0, false, now);
        assert_eq!(awake.until(now), None);
        assert_eq!(awake.until(now + KNOWN), Some(now + 20 * MS));
    }
}
