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

/// The sums.
#[derive(Default)]
pub struct StandIn {
    used: AtomicU64,
    used_peak: AtomicU64,
    /// Freed and not lent in this way again.
    freed: AtomicU64,
    reserved_peak: AtomicU64,
    /// The driver's pool's, as the program last set it.
    threshold: AtomicU64,
}

impl StandIn {
    /// An allocation of so many bytes was lent; `idle` bytes of the pool were
    /// left.
    pub fn lent(&self, bytes: u64, idle: u64) {
        let used = self.used.fetch_add(bytes, Relaxed) + bytes;
        if self.freed.load(Relaxed) > 0 {
            let less = |freed: u64| Some(freed.saturating_sub(bytes));
            let _ = self.freed.fetch_update(Relaxed, Relaxed, less);
        }
        raise(&self.used_peak, used);
        raise(
            &self.reserved_peak,
            used + self.freed.load(Relaxed).min(idle),
        );
    }

    /// An allocation of so many bytes was freed.
    pub fn freed(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.freed.fetch_add(bytes, Relaxed);
    }

    /// The program set the release threshold.
    pub fn set_threshold(&self, bytes: u64) {
        self.threshold.store(bytes, Relaxed);
    }

    /// Of `idle` bytes of our pool, those that the driver's would keep.
    pub fn kept(&self, idle: u64) -> u64 {
        let (used, threshold) = (self.used.load(Relaxed), self.threshold.load(Relaxed));
        let freed = self.freed.load(Relaxed).min(idle);
        freed.min(threshold.saturating_sub(used))
    }

    /// A sum, where our pool has `idle` bytes.
    pub fn sum(&self, sum: Sum, idle: u64) -> u64 {
        match sum {
            Sum::Reserved => self.used.load(Relaxed) + self.kept(idle),
            Sum::ReservedPeak => self.reserved_peak.load(Relaxed),
            Sum::Used => self.used.load(Relaxed),
            Sum::UsedPeak => self.used_peak.load(Relaxed),
        }
    }

    /// Starts a peak anew from what is held now; for the other sums, nothing.
    pub fn restart(&self, sum: Sum, idle: u64) {
        let (peak, of) = match sum {
            Sum::ReservedPeak => (&self.reserved_peak, Sum::Reserved),
            Sum::UsedPeak => (&self.used_peak, Sum::Used),
            Sum::Reserved | Sum::Used => return,
        };
        peak.store(self.sum(of, idle), Relaxed);
    }
}

/// Raises a peak, which it seldom is: then nothing is written.
fn raise(peak: &AtomicU64, to: u64) {
    if to > peak.load(Relaxed) {
        peak.fetch_max(to, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_and_peaks_stay_until_they_are_set() {
        let sums = StandIn::default();
        let all = |idle, threshold| {
            sums.set_threshold(threshold);
            [Sum::Used, Sum::UsedPeak, Sum::Reserved, Sum::ReservedPeak].map(|s| sums.sum(s, idle))
        };
        sums.lent(1000, 0);
        sums.lent(4096, 0);
        assert_eq!(all(0, 0), [5096, 5096, 5096, 5096]);
        sums.freed(4096);
        assert_eq!(all(8192, u64::MAX), [1000, 5096, 5096, 5096]);
        // Over the threshold, or given back, or lent otherwise.
        assert_eq!(all(8192, 0), [1000, 5096, 1000, 5096]);
        assert_eq!(all(8192, 2048), [1000, 5096, 2048, 5096]);
        assert_eq!(all(0, u64::MAX), [1000, 5096, 1000, 5096]);
        sums.restart(Sum::UsedPeak, 8192);
        sums.restart(Sum::ReservedPeak, 0);
        assert_eq!(all(0, 0), [1000; 4]);
    }
}
