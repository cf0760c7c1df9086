//! What the page of statistics says of a device's pool and of the pages below
//! torch's expandable segments: one sum of both, of bytes, counts and times. Makes
//! neither.

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

    /// The most bytes that both held together.
    pub fn peak_physical(&self) -> u64 {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.peak_physical
    }

    fn change(&self, change: impl FnOnce(&mut Last), tell: impl FnOnce(&Stats)) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut last);
        tell(&last.sum());
    }
}

impl Last {
    fn sum(&mut self) -> Stats {
        let (mut sum, pages) = (self.pool, &self.pages);
        if *pages == Totals::default() {
            return sum;
        }
        pages.add_to(&mut sum);
        self.peak_physical = self
            .peak_physical
            .max(sum.physical_bytes)
            .max(sum.peak_physical_bytes);
        sum.peak_physical_bytes = self.peak_physical;
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memcuda_core::pages::Counts;

    #[test]
    fn pages_count_with_the_pool_and_peaks_stay() {
        let (sums, mut said) = (Sums::default(), Stats::default());
        let pool = Stats {
            live_bytes: 5,
            peak_live_bytes: 7,
            idle_bytes: 20,
            physical_bytes: 20,
            peak_physical_bytes: 30,
            requests: 3,
            // Fronts add what is missing.
            hits: 2_u64.wrapping_neg(),
            driver_ns: 40,
            stalls: 1,
            ..Stats::default()
        };
        sums.pool(&pool, |sum| said = *sum);
        assert_eq!(said, pool, "as without pages");
        let mut pages = Totals {
            physical_bytes: 100,
            idle_bytes: 40,
            used_bytes: 60,
            peak_used_bytes: 90,
            pages: 10,
            counts: Counts {
                requests: 30,
                hits: 10,
                growths: 11,
                mapped: 20,
                frees: 25,
                edges: 5,
                host_waits: 6,
                out_of_memory: 1,
                driver_ns: 500,
                stalls: 2,
                stall_ns: 9000,
            },
        };
        sums.pages(&pages, |sum| said = *sum);
        assert_eq!((said.live_bytes, said.peak_live_bytes), (65, 97));
        assert_eq!((said.idle_bytes, said.physical_bytes), (60, 120));
        assert_eq!((said.peak_physical_bytes, said.chunks), (120, 10));
        assert_eq!(sums.beside(), (100, 40));
        assert_eq!((said.requests, said.hits, said.frees), (33, 8, 25));
        assert_eq!((said.growths, said.handles_mapped), (11, 20));
        assert_eq!((said.out_of_memory, said.driver_ns), (1, 540));
        assert_eq!((said.edges, said.host_waits), (5, 6));
        assert_eq!((said.stalls, said.stall_ns), (3, 9000));
        (pages.physical_bytes, pages.idle_bytes) = (60, 0);
        sums.pages(&pages, |sum| said = *sum);
        assert_eq!((said.physical_bytes, said.peak_physical_bytes), (80, 120));
    }
}
