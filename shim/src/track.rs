//! The books of `MEMCUDA_POLICY=track`: what the program holds from the plain
//! driver, per device, as a baseline to compare the pool with.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcuda_core::driver::Address;
use memcuda_core::pool::Stats;

/// Live allocations and each device's sums.
#[derive(Default)]
pub struct Track(Mutex<Books>);

#[derive(Default)]
struct Books {
    blocks: HashMap<Address, (u32, u64)>,
    totals: HashMap<u32, Stats>,
}

impl Track {
    /// An allocation succeeded; the device's sums with it.
    pub fn allocated(&self, device: u32, address: Address, bytes: u64) -> Stats {
        let mut books = self.lock();
        books.blocks.insert(address, (device, bytes));
        let totals = books.totals.entry(device).or_default();
        totals.live_bytes += bytes;
        totals.requests += 1;
        held(totals);
        *totals
    }

    /// A free succeeded: the device and its sums without it. `None` for an
    /// address that was never seen.
    pub fn freed(&self, address: Address) -> Option<(u32, Stats)> {
        let mut books = self.lock();
        let (device, bytes) = books.blocks.remove(&address)?;
        let totals = books.totals.entry(device).or_default();
        totals.live_bytes -= bytes;
        totals.frees += 1;
        held(totals);
        Some((device, *totals))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver holds what the program holds.
fn held(totals: &mut Stats) {
    totals.granted_bytes = totals.live_bytes;
    totals.physical_bytes = totals.live_bytes;
    totals.peak_live_bytes = totals.peak_live_bytes.max(totals.live_bytes);
    totals.peak_physical_bytes = totals.peak_live_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_kept_per_device_and_unknown_frees_are_left_out() {
        let track = Track::default();
        track.allocated(0, 0x1000, 100);
        track.allocated(1, 0x2000, 7);
        assert_eq!(track.allocated(0, 0x3000, 50).live_bytes, 150);
        let (device, totals) = track.freed(0x1000).unwrap();
        assert_eq!(
            (device, totals.live_bytes, totals.peak_live_bytes),
            (0, 50, 150)
        );
        assert_eq!(track.freed(0x1000), None);
    }
}
