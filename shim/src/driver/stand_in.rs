//! What our pool lends in the place of the driver's memory pool of a device,
//! counted as that would count it: in bytes as asked for. Only counts.
//!
//! The driver's pool keeps freed memory up to its release threshold and gives
//! back what is over it at the next wait. Ours keeps more, but says the same:
//! what is over the threshold is as good as free.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A sum that the driver's memory pool keeps of itself, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// Held from the device.
    Reserved,
    /// The most held since the peak was last set.
    ReservedPeak,
    /// Lent to the program.
    Used,
    /// The most lent since the peak was last set.
    UsedPeak,
}

/// What our pool has lent in the driver's place, in bytes, and the most that it
/// had since its peak was last started anew.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lent {
    /// Now.
    pub now: u64,
    /// The most since.
    pub peak: u64,
}

/// What is not the pool's to remember. Our pool has one peak of what it lends;
/// where one sum's peak is started anew, the others keep theirs here.
#[derive(Default)]
pub struct StandIn {
    /// The most that the driver's could hold of what was lent before the pool's peak began.
    most: AtomicU64,
    used_peak: AtomicU64,
    reserved_peak: AtomicU64,
    /// The driver's pool's, as the program last set it.
    threshold: AtomicU64,
}

impl StandIn {
    /// The program set the release threshold: what the one before had let go stays gone (as if
    /// it had been waited for). The pool's peak, which is of before, is started anew.
    pub fn set_threshold(&self, bytes: u64, lent: Lent) {
        self.trim(self.threshold.load(Relaxed), lent, 0);
        self.threshold.store(bytes, Relaxed);
    }

    /// The driver's would give back what it holds beyond `keep` bytes, but for what is lent
    /// and `busy` bytes, which were freed and are still in use. The pool's peak is started anew.
    pub fn trim(&self, keep: u64, lent: Lent, busy: u64) {
        let most = self.most.load(Relaxed).max(lent.peak);
        self.note_peaks(lent);
        self.most
            .store(most.min(keep.max(lent.now + busy)), Relaxed);
    }

    /// Of `idle` bytes of our pool, those that the driver's would keep.
    pub fn kept(&self, lent: Lent, idle: u64) -> u64 {
        let most = self.most.load(Relaxed).max(lent.peak);
        let freed = (most - lent.now).min(idle);
        let threshold = self.threshold.load(Relaxed);
        freed.min(threshold.saturating_sub(lent.now))
    }

    /// A sum, where our pool has `idle` bytes.
    pub fn sum(&self, sum: Sum, lent: Lent, idle: u64) -> u64 {
        match sum {
            Sum::Reserved => lent.now + self.kept(lent, idle),
            Sum::ReservedPeak => self.reserved_peak.load(Relaxed).max(lent.peak),
            Sum::Used => lent.now,
            Sum::UsedPeak => self.used_peak.load(Relaxed).max(lent.peak),
        }
    }

    /// Before the pool's peak is started anew, for the sake of this sum's: that
    /// goes on from what is held now.
    pub fn restart(&self, sum: Sum, lent: Lent, idle: u64) {
        self.note_peaks(lent);
        match sum {
            Sum::ReservedPeak => {
                let reserved = self.sum(Sum::Reserved, lent, idle);
                self.reserved_peak.store(reserved, Relaxed);
            }
            Sum::UsedPeak => self.used_peak.store(lent.now, Relaxed),
            Sum::Reserved | Sum::Used => {}
        }
    }

    fn note_peaks(&self, lent: Lent) {
        for peak in [&self.most, &self.used_peak, &self.reserved_peak] {
            peak.fetch_max(lent.peak, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_and_peaks_stay_until_they_are_set() {
        let sums = StandIn::default();
        let all = |now, peak, idle, threshold| {
            sums.threshold.store(threshold, Relaxed);
            let lent = Lent { now, peak };
            [Sum::Used, Sum::UsedPeak, Sum::Reserved, Sum::ReservedPeak]
                .map(|sum| sums.sum(sum, lent, idle))
        };
        let lent = |now, peak| Lent { now, peak };
        assert_eq!(all(5096, 5096, 0, 0), [5096, 5096, 5096, 5096]);
        assert_eq!(all(1000, 5096, 8192, u64::MAX), [1000, 5096, 5096, 5096]);
        // Over the threshold, or given back, or lent otherwise.
        assert_eq!(all(1000, 5096, 8192, 0), [1000, 5096, 1000, 5096]);
        assert_eq!(all(1000, 5096, 8192, 2048), [1000, 5096, 2048, 5096]);
        assert_eq!(all(1000, 5096, 0, u64::MAX), [1000, 5096, 1000, 5096]);
        // One peak anew, and then the other: each has its own beginning.
        sums.restart(Sum::UsedPeak, lent(1000, 5096), 8192);
        assert_eq!(all(1000, 1000, 0, 0), [1000, 1000, 1000, 5096]);
        sums.restart(Sum::ReservedPeak, lent(1000, 3000), 0);
        assert_eq!(all(1000, 1000, 0, 0), [1000, 3000, 1000, 1000]);
        // What was freed is what was once lent, whichever peak was set since.
        assert_eq!(all(1000, 1000, 8192, u64::MAX), [1000, 3000, 5096, 1000]);
    }

    #[test]
    fn what_went_back_is_not_kept() {
        let sums = StandIn::default();
        let lent = |now, peak| Lent { now, peak };
        let reserved = |lent| sums.sum(Sum::Reserved, lent, 8192);
        // Freed while nothing was kept, and then all is to be.
        sums.set_threshold(u64::MAX, lent(0, 4096));
        assert_eq!(reserved(lent(0, 0)), 0);
        // What is freed from now on is kept, until there is a trim: then so much of it.
        assert_eq!(reserved(lent(1000, 3000)), 3000);
        sums.trim(2000, lent(1000, 3000), 0);
        assert_eq!(reserved(lent(1000, 1000)), 2000);
        assert_eq!(reserved(lent(0, 1000)), 2000);
        // To less than is in use, or more than is held: what is in use; as it was.
        sums.trim(500, lent(900, 1000), 200);
        assert_eq!(reserved(lent(0, 1000)), 1100);
        sums.trim(9000, lent(0, 1000), 0);
        assert_eq!(reserved(lent(0, 0)), 1100);
        assert_eq!(sums.kept(lent(0, 0), 600), 600);
        // A lower threshold lets go of what it does not cover, for good.
        sums.set_threshold(300, lent(0, 0));
        assert_eq!(reserved(lent(0, 0)), 300);
        sums.set_threshold(u64::MAX, lent(0, 0));
        assert_eq!(reserved(lent(0, 0)), 300);
        // The peaks are what they were.
        for peak in [Sum::UsedPeak, Sum::ReservedPeak] {
            assert_eq!(sums.sum(peak, lent(0, 0), 8192), 4096);
        }
    }
}
