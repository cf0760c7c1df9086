//! What the page of statistics says of a device's pool and of the pages below
//! torch's expandable segments: one sum of both, of bytes, counts and times. Where they
//! have a limit, what each is about to make counts for the other. Makes neither.

use std::sync::{Mutex, MutexGuard};

use memcuda_core::lock;
use memcuda_core::pages::Totals;
use memcuda_core::pool::Stats;

/// What pool and pages of a device said last, and the most that both held.
#[derive(Default)]
pub struct Sums(Mutex<Last>);

#[derive(Default)]
struct Last {
    pool: Stats,
    /// What a limit counts of the pool.
    counted: u64,
    pages: Totals,
    peak_physical: u64,
    /// What the pool will hold once what is being made for it is there; 0 where nothing is.
    pool_soon: u64,
    /// The same of the pages.
    pages_soon: u64,
}

impl Sums {
    /// May the pool come to hold so many bytes? If so they count until it says that nothing
    /// is being made for it any more, by 0.
    pub fn pool_claims(&self, bytes: u64, limit: u64) -> bool {
        let mut last = self.lock();
        let pages = last.pages.physical_bytes.max(last.pages_soon);
        let fits = bytes.saturating_add(pages) <= limit;
        if fits || bytes == 0 {
            last.pool_soon = bytes;
        }
        fits
    }

    /// May the pages come to hold so many bytes more? If so they count until the pages say
    /// what they hold, or [`Sums::pages_get_none`].
    pub fn pages_claim(&self, bytes: u64, limit: u64) -> bool {
        let mut last = self.lock();
        let soon = last.pages.physical_bytes + bytes;
        let pool = last.counted.max(last.pool_soon);
        let fits = soon.saturating_add(pool) <= limit;
        if fits {
            last.pages_soon = soon;
        }
        fits
    }

    /// What the pages claimed could not be made.
    pub fn pages_get_none(&self) {
        self.lock().pages_soon = 0;
    }

    /// The pool says this, and so much of it a limit counts; `tell` is told the sum.
    pub fn pool(&self, stats: &Stats, counted: u64, tell: impl FnOnce(&Stats)) {
        self.change(|last| (last.pool, last.counted) = (*stats, counted), tell);
    }

    /// The pages say this.
    pub fn pages(&self, totals: &Totals, tell: impl FnOnce(&Stats)) {
        let change = |last: &mut Last| (last.pages, last.pages_soon) = (*totals, 0);
        self.change(change, tell);
    }

    /// Bytes of pages, and of those that nobody uses.
    pub fn beside(&self) -> (u64, u64) {
        let last = self.lock();
        (last.pages.physical_bytes, last.pages.idle_bytes)
    }

    /// The most bytes that both held together.
    pub fn peak_physical(&self) -> u64 {
        self.lock().peak_physical
    }

    fn change(&self, change: impl FnOnce(&mut Last), tell: impl FnOnce(&Stats)) {
        let mut last = self.lock();
        change(&mut last);
        tell(&last.sum());
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        lock::lock(&self.0)
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
        sums.pool(&pool, 20, |sum| said = *sum);
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
    #[test]
    fn what_one_is_about_to_make_counts_for_the_other() {
        let sums = Sums::default();
        let pool = |bytes| {
            let stats = Stats {
                // What others made counts for them.
                physical_bytes: bytes + 70,
                ..Stats::default()
            };
            sums.pool(&stats, bytes, |_| ());
        };
        let pages = |bytes| {
            let totals = Totals {
                physical_bytes: bytes,
                ..Totals::default()
            };
            sums.pages(&totals, |_| ());
        };
        assert!(sums.pool_claims(60, 100));
        assert!(!sums.pages_claim(50, 100), "the pool is making it");
        assert!(sums.pages_claim(40, 100));
        assert!(!sums.pool_claims(70, 100), "and they are");
        sums.pages_get_none();
        // Once it is there it counts once.
        pool(60);
        assert!(sums.pages_claim(40, 100));
        pages(40);
        assert!(sums.pool_claims(60, 100) && !sums.pool_claims(61, 100));
        // What was exchanged is made again before anybody else has it.
        pool(50);
        assert!(!sums.pages_claim(10, 100));
        sums.pool_claims(0, 100);
        assert!(sums.pages_claim(10, 100));
    }
}
