//! What the page of statistics says of a device's pool and of the pages below
//! torch's expandable segments: one sum of both. Makes neither.

use std::sync::{Mutex, PoisonError};

use memcuda_core::pages::Totals;
use memcuda_core::pool::Stats;

/// What pool and pages of a device said last, and the most that both held.
#[derive(Default)]
pub struct Sums(Mutex<Last>);

#[derive(Default)]
struct Last {
    pool: Stats,
    pages: Totals,
    peak_physical: u64,
}

impl Sums {
    /// The pool says this; `tell` is told the sum.
    pub fn pool(&self, stats: &Stats, tell: impl FnOnce(&Stats)) {
        self.change(|last| last.pool = *stats, tell);
    }

    /// The pages say this.
    pub fn pages(&self, totals: &Totals, tell: impl FnOnce(&Stats)) {
        self.change(|last| last.pages = *totals, tell);
    }

    /// Bytes of pages, and of those that nobody uses.
    pub fn beside(&self) -> (u64, u64) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (last.pages.physical_bytes, last.pages.idle_bytes)
    }

    fn change(&self, change: impl FnOnce(&mut Last), tell: impl FnOnce(&Stats)) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut last);
        tell(&last.sum());
    }
}

impl Last {
    /// The pool's counters, which fronts add to, may be below 0. A peak of what is
    /// live is the sum of both peaks: only the pages know when theirs was.
    fn sum(&mut self) -> Stats {
        let (mut sum, pages) = (self.pool, &self.pages);
        if pages.peak_used_bytes == 0 {
            return sum;
        }
        let add = |into: &mut u64, bytes: u64| *into = into.wrapping_add(bytes);
        add(&mut sum.live_bytes, pages.used_bytes);
        add(&mut sum.granted_bytes, pages.used_bytes);
        add(&mut sum.peak_live_bytes, pages.peak_used_bytes);
        // What fronts have lent is taken off again by who adds them up.
        add(&mut sum.idle_bytes, pages.idle_bytes);
        add(&mut sum.physical_bytes, pages.physical_bytes);
        add(&mut sum.chunks, pages.pages);
        self.peak_physical = self
            .peak_physical
            .max(sum.physical_bytes)
            .max(sum.peak_physical_bytes);
        sum.peak_physical_bytes = self.peak_physical;
        sum
    }
}
