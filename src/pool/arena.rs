//! Address space: large reservations from which stitches take their ranges.
//! One large reservation costs as little as a small one, and makes "is this
//! address ours?" a comparison. Where the process has few addresses they are
//! short ones, so that the program keeps some. Holds no memory.

use crate::driver::{Address, Code, Driver, Result};
use crate::units::{GIB, HANDLE};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Alignment of every range, in bytes: the granularity of mappings.
pub const RANGE_ALIGN: u64 = HANDLE;

const MOST: usize = 64;
/// Bytes asked for at once...
const RESERVATION: u64 = 1024 * GIB;
/// ...and where addresses are few this part of the device's memory; halved where the driver
/// refuses.
const PART: u64 = 2;
/// What stands for that memory where it is not known.
const DEVICE: u64 = 64 * GIB;

/// The reservations' bounds, readable without a lock.
pub struct Bounds {
    count: AtomicUsize,
    base: [AtomicU64; MOST],
    bytes: [AtomicU64; MOST],
    /// See [`PART`].
    part: u64,
    /// Has the process few addresses?
    few: AtomicBool,
}

impl Bounds {
    /// None yet, for a device of so many bytes. Are there `few` addresses for all?
    pub fn new(device: Option<u64>, few: bool) -> Self {
        let part = device.unwrap_or(DEVICE) / PART;
        Self {
            count: AtomicUsize::new(0),
            base: [const { AtomicU64::new(0) }; MOST],
            bytes: [const { AtomicU64::new(0) }; MOST],
            part: part.next_multiple_of(RANGE_ALIGN),
            few: AtomicBool::new(few),
        }
    }

    /// Should stitches end, as there are few addresses, of those that are reserved most are
    /// taken, and these are more than the device has memory?
    pub fn are_short(&self, free: impl FnOnce() -> u64) -> bool {
        if !self.few.load(Ordering::Relaxed) {
            return false;
        }
        let each = self.bytes.iter().map(|it| it.load(Ordering::Relaxed));
        let reserved = each.sum::<u64>();
        reserved >= PART * self.part && free() < reserved / 2
    }

    /// Is this address inside a reservation?
    pub fn contains(&self, at: Address) -> bool {
        let count = self.count.load(Ordering::Acquire);
        (0..count).any(|i| {
            let base = self.base[i].load(Ordering::Relaxed);
            at.wrapping_sub(base) < self.bytes[i].load(Ordering::Relaxed)
        })
    }

    /// One reservation more; who adds holds the growth lock.
    fn add(&self, base: Address, bytes: u64) {
        let at = self.count.load(Ordering::Relaxed);
        self.base[at].store(base, Ordering::Relaxed);
        self.bytes[at].store(bytes, Ordering::Relaxed);
        self.count.store(at + 1, Ordering::Release);
    }

    /// Can no more be reserved?
    fn are_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) == MOST
    }

    /// No more can be reserved.
    #[cfg(test)]
    pub fn fill(&self) {
        while !self.are_full() {
            self.add(0, 0);
        }
    }
}

/// Ranges of the reservations that no stitch has.
#[derive(Default)]
pub struct Arena {
    free: Ranges,
    /// Those of memory that others may have open still, and close only once something is
    /// exported there again.
    known: Ranges,
    /// Where the range that was taken last ends. The next one lies behind it, so that an
    /// address returns as late as possible: a stale pointer should fault, not find new
    /// memory.
    next: Address,
    /// The last stitch that could not be made lacked them.
    pub is_short: bool,
}

impl Arena {
    /// A range of `bytes` (a multiple of [`RANGE_ALIGN`]), from what is free.
    pub fn take(&mut self, bytes: u64) -> Option<Address> {
        let at = self.find(bytes).or_else(|| {
            for (at, bytes) in std::mem::take(&mut self.known.0) {
                self.free.give(at, bytes);
            }
            self.find(bytes)
        })?;
        self.free.cut(at, bytes);
        self.next = at + bytes;
        Some(at)
    }

    /// The same for what may be exported, from what others know.
    pub fn take_known(&mut self, bytes: u64) -> Option<Address> {
        let at = self.known.closest(bytes)?;
        self.known.cut(at, bytes);
        Some(at)
    }

    fn find(&self, bytes: u64) -> Option<Address> {
        let behind = self.free.first(self.next, bytes);
        behind.or_else(|| self.free.first(0, bytes))
    }

    /// Is nothing free?
    pub fn is_empty(&self) -> bool {
        self.free.0.is_empty()
    }

    /// Bytes of addresses that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free.0.values().chain(self.known.0.values()).sum()
    }

    /// Gives a range back.
    pub fn give(&mut self, at: Address, bytes: u64) {
        self.free.give(at, bytes);
    }

    /// The same of memory that others may have open.
    pub fn give_known(&mut self, at: Address, bytes: u64) {
        self.known.give(at, bytes);
    }
}

/// Ranges by their first address, and their bytes. No two of them touch.
#[derive(Default)]
struct Ranges(BTreeMap<Address, u64>);

impl Ranges {
    /// The first address, not before this one, from which so many bytes are here.
    fn first(&self, from: Address, bytes: u64) -> Option<Address> {
        let around = self.0.range(..from).next_back().into_iter();
        let mut ranges = around.chain(self.0.range(from..));
        ranges.find_map(|(&start, &size)| {
            let at = start.max(from);
            ((start + size).saturating_sub(at) >= bytes).then_some(at)
        })
    }

    /// Where the shortest range begins that is long enough.
    fn closest(&self, bytes: u64) -> Option<Address> {
        let enough = self.0.iter().filter(|(_, size)| **size >= bytes);
        enough.min_by_key(|(_, size)| **size).map(|(&at, _)| at)
    }

    /// Takes so many bytes out of the range that they lie in.
    fn cut(&mut self, at: Address, bytes: u64) {
        let around = self.0.range(..=at).next_back();
        let (&start, &size) = around.expect("a range around what is taken");
        self.0.remove(&start);
        for (from, to) in [(start, at), (at + bytes, start + size)] {
            if from < to {
                self.0.insert(from, to - from);
            }
        }
    }

    /// Adds a range. It becomes one with those that it touches, or else ever shorter
    /// ones would be left.
    fn give(&mut self, mut at: Address, mut bytes: u64) {
        if let Some(behind) = self.0.remove(&(at + bytes)) {
            bytes += behind;
        }
        if let Some((&before, &size)) = self.0.range(..at).next_back()
            && before + size == at
        {
            (at, bytes) = (before, size + bytes);
        }
        self.0.insert(at, bytes);
    }
}

/// Reserves more address space, at least `bytes`; no lock is held. The last range of a
/// reservation is nobody's: a range never goes on in the next reservation.
pub fn reserve<D: Driver>(driver: &D, bounds: &Bounds, bytes: u64) -> Result<(Address, u64)> {
    if bounds.are_full() {
        return Err(Code::OUT_OF_MEMORY);
    }
    let least = bytes + RANGE_ALIGN;
    let first = match bounds.few.load(Ordering::Relaxed) {
        true => bounds.part,
        false => RESERVATION,
    };
    let mut size = first.max(least);
    loop {
        match driver.reserve(size) {
            Ok(base) => {
                bounds.add(base, size);
                return Ok((base, size - RANGE_ALIGN));
            }
            Err(code) if size == least => return Err(code),
            Err(_) => {
                bounds.few.store(true, Ordering::Relaxed);
                let less = bounds.part.min(size / 2);
                size = less.next_multiple_of(RANGE_ALIGN).max(least);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one_and_return_late() {
        let mut arena = Arena::default();
        arena.give(100, 100);
        let [a, b, c] = [20, 30, 40].map(|bytes| arena.take(bytes).unwrap());
        assert_eq!((a, b, c), (100, 120, 150));
        arena.give(b, 30);
        assert_eq!(arena.take(10), Some(190), "what was never used");
        assert_eq!(arena.take(30), Some(b), "as a whole");
        for (at, bytes) in [(c, 40), (190, 10), (a, 20), (b, 30)] {
            arena.give(at, bytes);
        }
        assert_eq!(arena.free.0, BTreeMap::from([(100, 100)]));
        assert_eq!(arena.take(50), Some(150), "from where it was");
        assert_eq!(arena.take(51), None);
        assert_eq!(arena.take(50), Some(100));
        assert!(arena.is_empty());
    }

    #[test]
    fn ranges_that_others_know_go_to_what_is_like_them_and_to_all_where_nothing_else_is() {
        let mut arena = Arena::default();
        arena.give(0, 100);
        arena.give_known(200, 30);
        arena.give_known(300, 20);
        assert_eq!(arena.take(20), Some(0));
        assert_eq!(arena.take_known(20), Some(300), "the closest");
        assert_eq!(arena.take_known(20), Some(200));
        assert_eq!(arena.take_known(20), None, "none is long enough");
        assert_eq!(arena.take(20), Some(20));
        arena.give(230, 5);
        assert_eq!(arena.take(60), Some(40));
        assert_eq!(arena.take(15), Some(220), "both, as one");
        arena.give_known(GIB, 64 * GIB);
        arena.give(0, 20);
        assert_eq!(arena.take(10), Some(0), "however many they know");
    }

    /// What lies right behind it is the program's own.
    #[test]
    fn addresses_are_inside_a_reservation_up_to_its_end_and_no_further() {
        let bounds = Bounds::new(None, false);
        let (at, bytes) = (2 * RANGE_ALIGN, RANGE_ALIGN);
        bounds.add(at, bytes);
        assert!(bounds.contains(at) && bounds.contains(at + bytes - 1));
        assert!(!bounds.contains(at - 1) && !bounds.contains(at + bytes));
    }
}
