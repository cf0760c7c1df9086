//! What pages cost the program: calls of the driver, and requests that stood still.
//!
//! Who maps pages asks for memory in several calls: all pages of a stretch of
//! addresses are made, then mapped, then the stretch is opened to the device. A
//! *request* is all of these. Its time runs from the first moment that may last (a
//! page is not there, a call of the driver, a wait for a thread that makes one) to
//! the end of the call that opens the stretch, or that refuses a page. What lies
//! between is in it: after a page was refused on purpose, the waits and calls by
//! which the program gives others up until it is served. One that took longer than
//! 1 ms is a stall and counts whole. So does a call by which pages are given up.
//!
//! Where no call of the driver is made no clock is read. What is given back for
//! somebody else is driver time and nobody's stall; who waits for it stalls.

use std::time::Instant;

use super::Totals;
use crate::pool::timeline::{Moment, Timeline};
use crate::pool::{STALL, Stats};

/// Numbers since the beginning, but for the nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Pages that were mapped for the program, and those that it was refused for lack
    /// of memory.
    pub requests: u64,
    /// Of the mapped ones, those that were there: without a call of the driver.
    pub hits: u64,
    /// Pages made.
    pub growths: u64,
    /// Pages mapped by the driver.
    pub mapped: u64,
    /// Pages that the program has unmapped.
    pub frees: u64,
    /// Orders of a stream behind its own work, for another address.
    pub edges: u64,
    /// Waits on the host for what may still run on pages that were given up.
    pub host_waits: u64,
    /// Pages refused for lack of memory; not those refused on purpose.
    pub out_of_memory: u64,
    /// Nanoseconds in calls of the driver.
    pub driver_ns: u64,
    /// Requests, and calls that gave pages up, that took longer than 1 ms.
    pub stalls: u64,
    /// Nanoseconds that these took.
    pub stall_ns: u64,
}

impl Totals {
    /// This moment.
    pub fn now(&self) -> Moment {
        Moment {
            at: Instant::now(),
            used: self.used_bytes,
            physical: self.physical_bytes,
            requests: self.counts.requests,
            failures: self.counts.out_of_memory,
        }
    }

    /// Adds what there is and what was done to the counters of the pool of the device,
    /// which may be below 0 where fronts add to them. Of physical bytes the peak is not
    /// known here, and that of live ones is the sum of both peaks: only the pages know
    /// when theirs was.
    pub fn add_to(&self, stats: &mut Stats) {
        let counts = &self.counts;
        for (sum, more) in [
            (&mut stats.live_bytes, self.used_bytes),
            (&mut stats.granted_bytes, self.used_bytes),
            (&mut stats.peak_live_bytes, self.peak_used_bytes),
            (&mut stats.idle_bytes, self.idle_bytes),
            (&mut stats.physical_bytes, self.physical_bytes),
            (&mut stats.chunks, self.pages),
            (&mut stats.requests, counts.requests),
            (&mut stats.hits, counts.hits),
            (&mut stats.growths, counts.growths),
            (&mut stats.handles_mapped, counts.mapped),
            (&mut stats.frees, counts.frees),
            (&mut stats.edges, counts.edges),
            (&mut stats.host_waits, counts.host_waits),
            (&mut stats.out_of_memory, counts.out_of_memory),
            (&mut stats.driver_ns, counts.driver_ns),
            (&mut stats.stalls, counts.stalls),
            (&mut stats.stall_ns, counts.stall_ns),
        ] {
            *sum = sum.wrapping_add(more);
        }
    }
}

/// The counts, and the request under way. Who asks for pages of one device holds a
/// lock of its own while it does, so there is one at most.
#[derive(Default)]
pub struct Watch {
    /// What was counted.
    pub counts: Counts,
    /// Since when the request may last.
    since: Option<Instant>,
    /// A page was refused on purpose: what the program gives up now, it gives up to be
    /// served.
    asked: bool,
    /// The last minute, where it is kept.
    pub timeline: Option<Timeline>,
}

impl Watch {
    /// Notes this moment, where that is wanted.
    pub fn look(&mut self, totals: &Totals) {
        if let Some(timeline) = &mut self.timeline {
            let now = totals.now();
            timeline.look(now);
            if timeline.held() != now.physical {
                timeline.change(now);
            }
        }
    }

    /// Makes a call of the driver.
    pub fn call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = call();
        self.counts.driver_ns += nanoseconds(began);
        self.may_last(Some(began));
        answer
    }

    /// What is under way may last, and has since then, if it has.
    pub fn may_last(&mut self, since: Option<Instant>) {
        self.since = self.since.or(since);
    }

    /// Is anything under way that may last?
    pub fn lasts(&self) -> bool {
        self.since.is_some()
    }

    /// A page is refused on purpose.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// The request has its answer. Did it last?
    pub fn answered(&mut self) -> bool {
        self.asked = false;
        let Some(since) = self.since.take() else {
            return false;
        };
        if since.elapsed() > STALL {
            self.counts.stalls += 1;
            self.counts.stall_ns += nanoseconds(since);
        }
        true
    }

    /// Pages were given up, or made in vain: alone, or for the request under way.
    pub fn given_up(&mut self) {
        if !self.asked {
            self.answered();
        }
    }

    /// What was done was for nobody who asks for pages here.
    pub fn not_asked_for(&mut self) {
        self.since = None;
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
