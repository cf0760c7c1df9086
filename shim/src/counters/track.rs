//! The books of `MEMCUDA_POLICY=track`: what the program holds from the plain
//! driver, per device, as a baseline to compare the pool with.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::{Address, Context};
use memcuda_core::lock;
use memcuda_core::pool::Stats;

/// An allocation: its device, its bytes, and the context that it ends with.
pub type Held = (u32, u64, Option<Context>);

/// Live allocations and each device's sums. `publish` is told of a device and its new sums
/// before the books change again.
#[derive(Default)]
pub struct Track(Mutex<Books>);

#[derive(Default)]
struct Books {
    blocks: HashMap<Address, Held>,
    totals: HashMap<u32, Stats>,
}

impl Track {
    /// An allocation succeeded.
    pub fn allocated(
        &self,
        device: u32,
        owner: Option<Context>,
        (address, bytes): (Address, u64),
        publish: impl Fn(u32, &Stats),
    ) {
        let mut books = self.lock();
        // What was there has ended, by a call that nobody has heard of yet.
        if let Some(gone) = books.blocks.insert(address, (device, bytes, owner)) {
            books.end(gone, &publish);
        }
        let totals = books.totals.entry(device).or_default();
        totals.live_bytes += bytes;
        totals.requests += 1;
        held(totals);
        publish(device, totals);
    }

    /// A free begins: once the driver has it, another thread may be given the address.
    /// `None` for one that was never seen.
    pub fn leaves(&self, address: Address, publish: impl Fn(u32, &Stats)) -> Option<Held> {
        let mut books = self.lock();
        let held = books.blocks.remove(&address)?;
        books.end(held, publish);
        Some(held)
    }

    /// It failed.
    pub fn stays(&self, address: Address, left: Held, publish: impl Fn(u32, &Stats)) {
        let mut books = self.lock();
        books.blocks.insert(address, left);
        let (device, bytes, _) = left;
        let totals = books.totals.entry(device).or_default();
        totals.live_bytes += bytes;
        totals.frees -= 1;
        held(totals);
        publish(device, totals);
    }

    /// A context was destroyed, and its memory with it.
    pub fn context_ended(&self, context: Context, publish: impl Fn(u32, &Stats)) {
        let mut books = self.lock();
        let gone = books.blocks.extract_if(|_, held| held.2 == Some(context));
        let gone: Vec<_> = gone.map(|(_, held)| held).collect();
        for held in gone {
            books.end(held, &publish);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        lock::lock(&self.0)
    }
}

impl Books {
    /// One allocation less.
    fn end(&mut self, (device, bytes, _): Held, publish: impl Fn(u32, &Stats)) {
        let totals = self.totals.entry(device).or_default();
        totals.live_bytes -= bytes;
        totals.frees += 1;
        held(totals);
        publish(device, totals);
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
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn sums_are_kept_per_device_and_unknown_frees_are_left_out() {
        let (track, page) = (Track::default(), RefCell::new(HashMap::new()));
        let publish = |device, sums: &Stats| {
            page.borrow_mut().insert(device, *sums);
        };
        let sums = |device| -> Stats { page.borrow()[&device] };
        let context = Some(Context(5));
        track.allocated(0, None, (0x1000, 100), publish);
        track.allocated(1, context, (0x2000, 7), publish);
        track.allocated(0, context, (0x3000, 50), publish);
        assert_eq!(sums(0).live_bytes, 150);
        assert!(track.leaves(0x1000, publish).is_some());
        assert_eq!((sums(0).live_bytes, sums(0).peak_live_bytes), (50, 150));
        assert_eq!((sums(0).requests, sums(0).frees), (2, 1));
        // The driver holds what the program holds, and held as much.
        let physical = (sums(0).physical_bytes, sums(0).peak_physical_bytes);
        assert_eq!(physical, (50, 150));
        assert_eq!(track.leaves(0x1000, publish), None);
        track.allocated(1, Some(Context(6)), (0x4000, 3), publish);
        track.context_ended(Context(5), publish);
        assert_eq!((sums(0).live_bytes, sums(1).live_bytes), (0, 3));
    }

    #[test]
    fn an_address_comes_back_before_its_free_has_returned() {
        let (track, page) = (Track::default(), RefCell::new(Stats::default()));
        let publish = |_, sums: &Stats| *page.borrow_mut() = *sums;
        let counts = || {
            let sums = page.borrow();
            (sums.live_bytes, sums.requests, sums.frees)
        };
        track.allocated(0, None, (0x1000, 100), publish);
        let left = track.leaves(0x1000, publish).unwrap();
        // The driver has freed it, and another thread gets it.
        track.allocated(0, None, (0x1000, 30), publish);
        assert_eq!(counts(), (30, 2, 1));
        let other = track.leaves(0x1000, publish).unwrap();
        assert_eq!(counts(), (0, 2, 2));
        // This one the driver refused.
        track.stays(0x1000, other, publish);
        assert_eq!(counts(), (30, 2, 1));
        // Nor is an end of a context heard of before.
        track.allocated(0, None, (0x1000, 40), publish);
        assert_eq!(counts(), (40, 3, 2));
        assert_ne!(left, other);
    }
}
