//! A model of PyTorch's native allocator with `expandable_segments:True`, bare:
//! what memcuda native is measured against. Follows the rules of PyTorch 2.11 as
//! long as the device has memory left; does not model private pools, captures,
//! several threads, nor what is unmapped when memory runs out.
//!
//! Tensors up to 1 MiB of one stream are in one range of addresses, all larger
//! ones of that stream in another. A range grows at its end, by pages of 2 and
//! 20 MiB, and never shrinks. A tensor gets the smallest free block that is large
//! enough, the one at the end of the range last; the rest is split off.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::torch_native::{GRANULE, LARGE_SEGMENT, SMALL, SMALL_SEGMENT};
use crate::driver::{Address, Code};
use crate::pool::Refusal;

/// Ranges lie this many bytes apart; no device has as much.
const RANGE: u64 = 1 << 48;

/// Torch's allocator of one device.
pub struct Expandable {
    total_bytes: u64,
    physical_bytes: u64,
    /// By stream, and whether tensors are small.
    ranges: HashMap<(u64, bool), Address>,
    /// By the first address of a range.
    blocks: HashMap<Address, Blocks>,
}

/// The blocks of one range, by offset: they tile it.
#[derive(Default)]
struct Blocks {
    /// Bytes mapped.
    end: u64,
    /// Length, and is it free?
    all: BTreeMap<u64, (u64, bool)>,
    /// Free ones by length and offset.
    free: BTreeSet<(u64, u64)>,
}

impl Expandable {
    /// The allocator of a device of `total_bytes`.
    pub fn new(total_bytes: u64) -> Self {
        Self {
            total_bytes,
            physical_bytes: 0,
            ranges: HashMap::new(),
            blocks: HashMap::new(),
        }
    }

    /// Bytes mapped.
    pub fn physical(&self) -> u64 {
        self.physical_bytes
    }

    /// A tensor of `bytes` for work on `stream`.
    ///
    /// # Errors
    /// Out of memory, where the pages that exist are not enough and no more fit
    /// on the device.
    pub fn malloc(&mut self, bytes: u64, stream: u64) -> Result<Address, Refusal> {
        let bytes = bytes.clamp(1, 1 << 40).next_multiple_of(GRANULE);
        let small = bytes <= SMALL;
        let page = if small { SMALL_SEGMENT } else { LARGE_SEGMENT };
        let range = (self.ranges.len() as u64 + 1) * RANGE;
        let range = *self.ranges.entry((stream, small)).or_insert(range);
        let blocks = self.blocks.entry(range).or_default();
        if let Some(offset) = blocks.take(bytes) {
            return Ok(range + offset);
        }
        let growth = blocks.missing(bytes).next_multiple_of(page);
        if self.physical_bytes + growth > self.total_bytes {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        self.physical_bytes += growth;
        blocks.grow(growth);
        let offset = blocks.take(bytes).expect("the end was made long enough");
        Ok(range + offset)
    }

    /// The tensor at this address is done with.
    ///
    /// # Panics
    /// If no tensor is there.
    pub fn free(&mut self, at: Address) {
        let (range, offset) = (at / RANGE * RANGE, at % RANGE);
        let blocks = self.blocks.get_mut(&range).expect("a known range");
        blocks.give(offset);
    }
}

impl Blocks {
    /// The smallest free block that is large enough, the last one last; what is
    /// left of it stays free.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let at_end = |(length, offset): &(u64, u64)| offset + length == self.end;
        let mut fits = self.free.range((bytes, 0)..).copied();
        let first = fits.next()?;
        let second = at_end(&first).then(|| fits.next()).flatten();
        let (length, offset) = second.unwrap_or(first);
        self.free.remove(&(length, offset));
        self.all.insert(offset, (bytes, false));
        if length > bytes {
            self.all.insert(offset + bytes, (length - bytes, true));
            self.free.insert((length - bytes, offset + bytes));
        }
        Some(offset)
    }

    /// How many bytes must be added at the end for a block of `bytes`.
    fn missing(&self, bytes: u64) -> u64 {
        match self.all.last_key_value() {
            Some((_, (length, true))) => bytes.saturating_sub(*length),
            _ => bytes,
        }
    }

    fn grow(&mut self, bytes: u64) {
        let offset = self.end;
        self.end += bytes;
        self.all.insert(offset, (bytes, false));
        self.give(offset);
    }

    /// Makes a block free and joins it with free neighbours.
    fn give(&mut self, mut offset: u64) {
        let (mut length, was_free) = self.all[&offset];
        assert!(!was_free, "freed twice");
        let behind = offset + length;
        if let Some(&(more, true)) = self.all.get(&behind) {
            self.all.remove(&behind);
            self.free.remove(&(more, behind));
            length += more;
        }
        if let Some((&before, &(more, true))) = self.all.range(..offset).next_back() {
            self.all.remove(&offset);
            self.free.remove(&(more, before));
            (offset, length) = (before, length + more);
        }
        self.all.insert(offset, (length, true));
        self.free.insert((length, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, MIB};

    fn torch() -> Expandable {
        Expandable::new(GIB)
    }

    #[test]
    fn a_range_grows_by_what_its_free_end_leaves_missing() {
        let mut torch = torch();
        let one = torch.malloc(30 * MIB, 0).unwrap();
        assert_eq!(torch.physical(), 40 * MIB);
        // 10 MiB are free at the end.
        let two = torch.malloc(45 * MIB, 0).unwrap();
        assert_eq!((torch.physical(), two - one), (80 * MIB, 30 * MIB));
        torch.malloc(MIB, 0).unwrap();
        assert_eq!(torch.physical(), 82 * MIB, "small ones are elsewhere");
        torch.malloc(2 * MIB, 1).unwrap();
        assert_eq!(torch.physical(), 102 * MIB, "and other streams");
    }

    #[test]
    fn the_smallest_block_is_taken_and_the_end_last() {
        let mut torch = torch();
        let mut at = |mib| torch.malloc(mib * MIB, 0).unwrap();
        let [large, _, small, _] = [at(30), at(2), at(10), at(2)];
        // 16 MiB are free at the end.
        torch.free(large);
        torch.free(small);
        assert_eq!(torch.malloc(10 * MIB, 0), Ok(small));
        // The end is the closest fit for these, but the other is taken.
        assert_eq!(torch.malloc(12 * MIB, 0), Ok(large));
        assert_eq!(torch.malloc(12 * MIB, 0), Ok(large + 12 * MIB));
        assert_eq!(torch.malloc(12 * MIB, 0), Ok(small + 12 * MIB));
        assert_eq!(torch.physical(), 60 * MIB);
    }

    #[test]
    fn neighbours_are_joined_and_nothing_is_lost() {
        let mut torch = torch();
        let at: Vec<_> = (0..6).map(|_| torch.malloc(10 * MIB, 0).unwrap()).collect();
        for i in [0, 2, 1, 5, 3, 4] {
            torch.free(at[i]);
        }
        assert_eq!(torch.malloc(60 * MIB, 0), Ok(at[0]));
        assert_eq!(torch.physical(), 60 * MIB);
    }

    #[test]
    fn a_device_has_an_end() {
        let mut torch = torch();
        assert!(torch.malloc(GIB + 1, 0).is_err());
        assert!(torch.malloc(1020 * MIB, 0).is_ok());
        assert_eq!(torch.malloc(20 * MIB, 0), Err(Code::OUT_OF_MEMORY.into()));
    }
}
