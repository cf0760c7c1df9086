//! The books of `MEMCUDA_POLICY=track`: what the program holds from the plain
//! driver, per device, as a baseline to compare the pool with.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcuda_core::driver::{Address, Context};
use memcuda_core::pool::Stats;

/// An allocation: its device, its bytes, and the context that it ends with.
type Held = (u32, u64, Option<Context>);

/// Live allocations and each device's sums.
#[derive(Default)]
pub struct Track(Mutex<Books>);

#[derive(Default)]
struct Books {
    blocks: HashMap<Address, Held>,
    totals: HashMap<u32, Stats>,
}

impl Track {
    /// An allocation succeeded; the device's sums with it.
    pub fn allocated(
        &self,
        device: u32,
        owner: Option<Context>,
        address: Address,
        bytes: u64,
    ) -> Stats {
        let mut books = self.lock();
        books.blocks.insert(address, (device, bytes, owner));
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
        let held = books.blocks.remove(&address)?;
        Some((held.0, books.end(held)))
    }

    /// A context was destroyed: the devices that lost memory and their sums.
    pub fn context_ended(&self, context: Context) -> HashMap<u32, Stats> {
        let mut books = self.lock();
        let gone = books.blocks.extract_if(|_, held| held.2 == Some(context));
        let gone: Vec<_> = gone.map(|(_, held)| held).collect();
        gone.into_iter()
            .map(|held| (held.0, books.end(held)))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// One allocation less; the device's sums without it.
    fn end(&mut self, (device, bytes, _): Held) -> Stats {
        let totals = self.totals.entry(device).or_default();
        totals.live_bytes -= bytes;
        totals.frees += 1;
        held(totals);
        *totals
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
        let context = Some(Context(5));
        track.allocated(0, None, 0x1000, 100);
        track.allocated(1, context, 0x2000, 7);
        assert_eq!(track.allocated(0, context, 0x3000, 50).live_bytes, 150);
        let (device, totals) = track.freed(0x1000).unwrap();
        assert_eq!(
            (device, totals.live_bytes, totals.peak_live_bytes),
            (0, 50, 150)
        );
        assert_eq!((totals.requests, totals.frees), (2, 1));
        // The driver holds what the program holds, and held as much.
        assert_eq!(
            (totals.physical_bytes, totals.peak_physical_bytes),
            (50, 150)
        );
        assert_eq!(track.freed(0x1000), None);
        track.allocated(1, Some(Context(6)), 0x4000, 3);
        let ended = track.context_ended(Context(5));
        assert_eq!((ended[&0].live_bytes, ended[&1].live_bytes), (0, 3));
    }
}
