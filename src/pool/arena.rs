//! Address space: large reservations from which stitches take their ranges.
//! One large reservation costs as little as a small one, and makes "is this
//! address ours?" a comparison. Holds no memory.

use crate::driver::{Address, Driver, Result};
use crate::units::{GIB, MIB};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Alignment of every range, in bytes: the granularity of mappings.
pub const RANGE_ALIGN: u64 = 2 * MIB;

const MOST: usize = 64;
/// Bytes asked for at once; halved where the driver refuses.
const RESERVATION: u64 = 1024 * GIB;

/// The reservations' bounds, readable without a lock.
pub struct Bounds {
    count: AtomicUsize,
    base: [AtomicU64; MOST],
    bytes: [AtomicU64; MOST],
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            base: [const { AtomicU64::new(0) }; MOST],
            bytes: [const { AtomicU64::new(0) }; MOST],
        }
    }
}

impl Bounds {
    /// Is this address inside a reservation?
    pub fn contains(&self, at: Address) -> bool {
        let count = self.count.load(Ordering::Acquire);
        (0..count).any(|i| {
            let base = self.base[i].load(Ordering::Relaxed);
            at.wrapping_sub(base) < self.bytes[i].load(Ordering::Relaxed)
        })
    }

    fn add(&self, base: Address, bytes: u64) -> bool {
        let at = self.count.load(Ordering::Relaxed);
        if at == MOST {
            return false;
        }
        self.base[at].store(base, Ordering::Relaxed);
        self.bytes[at].store(bytes, Ordering::Relaxed);
        self.count.store(at + 1, Ordering::Release);
        true
    }
}

/// Ranges of the reservations that no stitch has.
#[derive(Default)]
pub struct Arena {
    free: Vec<(Address, u64)>,
}

impl Arena {
    /// A range of `bytes` (a multiple of [`RANGE_ALIGN`]), from what is free.
    pub fn take(&mut self, bytes: u64) -> Option<Address> {
        let at = self.free.iter().position(|(_, size)| *size >= bytes)?;
        let (base, size) = self.free[at];
        if size == bytes {
            self.free.swap_remove(at);
        } else {
            self.free[at] = (base + bytes, size - bytes);
        }
        Some(base)
    }

    /// Is nothing free?
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Bytes of addresses that are free.
    #[cfg(test)]
    pub fn free_bytes(&self) -> u64 {
        self.free.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Gives a range back. It goes to the end, so that an address returns as
    /// late as possible: a stale pointer should fault, not find new memory.
    pub fn give(&mut self, at: Address, bytes: u64) {
        self.free.push((at, bytes));
    }
}

/// Reserves more address space, at least `bytes`; no lock is held.
pub fn reserve<D: Driver>(driver: &D, bounds: &Bounds, bytes: u64) -> Result<(Address, u64)> {
    let mut size = RESERVATION.max(bytes.next_power_of_two());
    loop {
        match driver.reserve(size) {
            Ok(base) => {
                if !bounds.add(base, size) {
                    driver.free_reservation(base, size)?;
                    return Err(crate::driver::Code::OUT_OF_MEMORY);
                }
                return Ok((base, size));
            }
            Err(code) if size / 2 < bytes => return Err(code),
            Err(_) => size /= 2,
        }
    }
}
