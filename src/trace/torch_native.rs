//! A model of PyTorch's native allocator: which segments it would ask the
//! driver for, and give back, while a program asks it for tensors. Follows the
//! rules of its `CUDACachingAllocator` (PyTorch 2.11) with the settings that
//! the shim tells it; does not model private pools, captures, expandable
//! segments and its garbage collection.
//!
//! Segments are of 2 MiB for tensors up to 1 MiB, of 20 MiB below 10 MiB, else
//! of the tensor's size rounded up to 2 MiB. A tensor gets the smallest free
//! block of its stream that is large enough; what is left of it is split off,
//! except that blocks of at least the split size are neither split nor given
//! to smaller tensors. On out-of-memory idle segments go back to the driver, in
//! two rungs: enough large ones of the same stream, then all that are whole.

use std::collections::{BTreeSet, HashMap};

use crate::driver::Address;
use crate::pool::Refusal;
use crate::reclaim::{SMALL_SEGMENT, SPLIT_MB};
use crate::units::MIB;

/// Every block is a multiple of this many bytes.
pub(super) const GRANULE: u64 = 512;
/// Largest tensor, in bytes, that comes from small segments; also the least
/// that is split off a block of another segment.
pub(super) const SMALL: u64 = MIB;
/// Tensors below this many bytes share segments of [`LARGE_SEGMENT`].
const OWN_SEGMENT: u64 = 10 * MIB;
/// Size of shared segments in bytes (`large_segment_size_mb`).
pub(super) const LARGE_SEGMENT: u64 = 20 * MIB;
/// Step of the sizes of all other segments, in bytes.
const STEP: u64 = 2 * MIB;
/// The split size in bytes that the shim sets (`max_split_size_mb`).
const MAX_SPLIT: u64 = SPLIT_MB * MIB;
/// How many bytes larger than its tensor a block of at least the split size is
/// at most (`max_non_split_rounding_mb`).
pub(super) const NON_SPLIT_ROUNDING: u64 = 20 * MIB;

/// What the allocator calls: the runtime's two functions.
pub trait Runtime {
    /// `cudaMalloc` of a segment for this stream of the trace.
    fn malloc(&mut self, bytes: u64, stream: u64) -> Result<Address, Refusal>;
    /// `cudaFree` of a segment that was made for this stream.
    fn free(&mut self, at: Address, bytes: u64, stream: u64);
}

/// Torch's allocator of one device.
#[derive(Default)]
pub struct Allocator {
    blocks: HashMap<Address, Block>,
    /// Free blocks of small segments.
    small: FreeBlocks,
    /// Free blocks of all other segments.
    large: FreeBlocks,
}

/// By stream, size and address.
type FreeBlocks = BTreeSet<(u64, u64, Address)>;

/// A piece of a segment; the pieces of one are linked in the order of their
/// addresses.
#[derive(Clone, Copy)]
struct Block {
    bytes: u64,
    stream: u64,
    small: bool,
    free: bool,
    before: Option<Address>,
    after: Option<Address>,
}

impl Block {
    fn is_whole_segment(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }
}

/// A tensor to be placed.
#[derive(Clone, Copy)]
struct Need {
    bytes: u64,
    stream: u64,
    small: bool,
}

impl Need {
    fn segment(self) -> u64 {
        match self.bytes {
            _ if self.small => SMALL_SEGMENT,
            bytes if bytes < OWN_SEGMENT => LARGE_SEGMENT,
            bytes => bytes.next_multiple_of(STEP),
        }
    }
}

impl Allocator {
    /// A tensor of `bytes` for work on `stream`.
    ///
    /// # Errors
    /// The runtime's refusal after the last rung.
    pub fn malloc(
        &mut self,
        runtime: &mut impl Runtime,
        bytes: u64,
        stream: u64,
    ) -> Result<Address, Refusal> {
        // Beyond this nothing can be rounded up, nor is there such a device.
        let bytes = bytes.clamp(1, 1 << 60).next_multiple_of(GRANULE);
        let need = Need {
            bytes,
            stream,
            small: bytes <= SMALL,
        };
        let at = match self.take_free(need) {
            Some(at) => at,
            None => self.new_segment(runtime, need)?,
        };
        self.split(at, need);
        Ok(at)
    }

    /// The tensor at this address is done with. Joins its block with free
    /// neighbours.
    ///
    /// # Panics
    /// If no tensor is there.
    pub fn free(&mut self, at: Address) {
        let (mut at, mut block) = (at, self.blocks[&at]);
        assert!(!block.free, "freed twice");
        if let Some(before) = block.before.filter(|b| self.blocks[b].free) {
            self.blocks.remove(&at);
            let joined = self.take(before);
            block.bytes += joined.bytes;
            (at, block.before) = (before, joined.before);
        }
        if let Some(after) = block.after.filter(|a| self.blocks[a].free) {
            let joined = self.take(after);
            self.blocks.remove(&after);
            block.bytes += joined.bytes;
            block.after = joined.after;
        }
        if let Some(before) = block.before {
            self.block(before).after = Some(at);
        }
        if let Some(after) = block.after {
            self.block(after).before = Some(at);
        }
        self.blocks.insert(at, block);
        self.give(at);
    }

    /// The best fit among the free blocks, if the split size lets it be used.
    fn take_free(&mut self, need: Need) -> Option<Address> {
        let first = (need.stream, need.bytes, 0);
        let found = self.free_blocks(need.small).range(first..).next();
        let &(_, bytes, at) = found.filter(|(stream, ..)| *stream == need.stream)?;
        let fits = match need.bytes >= MAX_SPLIT {
            true => bytes < need.bytes + NON_SPLIT_ROUNDING,
            false => bytes < MAX_SPLIT,
        };
        fits.then(|| self.take(at))?;
        Some(at)
    }

    /// A new segment, as one block that is taken: the ladder.
    fn new_segment(&mut self, runtime: &mut impl Runtime, need: Need) -> Result<Address, Refusal> {
        let bytes = need.segment();
        let mut made = runtime.malloc(bytes, need.stream);
        if made.is_err() && self.release_available(runtime, need) {
            made = runtime.malloc(bytes, need.stream);
        }
        if made.is_err() {
            self.release_cached(runtime);
            made = runtime.malloc(bytes, need.stream);
        }
        let block = Block {
            bytes,
            stream: need.stream,
            small: need.small,
            free: false,
            before: None,
            after: None,
        };
        let at = made?;
        self.blocks.insert(at, block);
        Ok(at)
    }

    /// Torch's `release_available_cached_blocks`: one free block that is large
    /// enough, else the largest ones of the split size or more until there is
    /// enough. Was it enough?
    fn release_available(&mut self, runtime: &mut impl Runtime, need: Need) -> bool {
        let wanted = need.bytes.max(MAX_SPLIT);
        let (stream, free) = (need.stream, self.free_blocks(need.small));
        let first = (stream, wanted, 0);
        if let Some(&(.., at)) = free.range(first..).next().filter(|key| key.0 == stream) {
            self.release(runtime, at);
            return true;
        }
        let mut released = 0;
        while released < wanted {
            let mut below = self.free_blocks(need.small).range(..first);
            let largest = below.next_back().filter(|key| key.0 == stream);
            let Some(&(_, bytes, at)) = largest.filter(|key| key.1 >= MAX_SPLIT) else {
                return false;
            };
            self.release(runtime, at);
            released += bytes;
        }
        true
    }

    /// Torch's `release_cached_blocks`: every segment without a tensor.
    fn release_cached(&mut self, runtime: &mut impl Runtime) {
        let free = self.large.iter().chain(&self.small);
        let whole = free.filter(|(.., at)| self.blocks[at].is_whole_segment());
        let whole: Vec<_> = whole.map(|(.., at)| *at).collect();
        for at in whole {
            self.release(runtime, at);
        }
    }

    /// Gives a segment back to the driver.
    fn release(&mut self, runtime: &mut impl Runtime, at: Address) {
        let block = self.take(at);
        assert!(block.is_whole_segment(), "a part of a segment is released");
        self.blocks.remove(&at);
        runtime.free(at, block.bytes, block.stream);
    }

    /// Makes the rest of a taken block a free one, where the rules split it.
    fn split(&mut self, at: Address, need: Need) {
        let block = self.blocks[&at];
        let rest = block.bytes - need.bytes;
        let splits = match need.small {
            true => rest >= GRANULE,
            false => need.bytes < MAX_SPLIT && rest > SMALL,
        };
        if !splits {
            return;
        }
        let behind = at + need.bytes;
        let part = Block {
            bytes: rest,
            before: Some(at),
            ..block
        };
        self.blocks.insert(behind, part);
        if let Some(after) = block.after {
            self.block(after).before = Some(behind);
        }
        let front = self.block(at);
        (front.bytes, front.after) = (need.bytes, Some(behind));
        self.give(behind);
    }

    /// Takes a block out of the free ones.
    fn take(&mut self, at: Address) -> Block {
        let block = self.block(at);
        block.free = false;
        let block = *block;
        let key = (block.stream, block.bytes, at);
        assert!(self.free_blocks(block.small).remove(&key), "was not free");
        block
    }

    /// Puts a block among the free ones.
    fn give(&mut self, at: Address) {
        let block = self.block(at);
        block.free = true;
        let block = *block;
        let key = (block.stream, block.bytes, at);
        self.free_blocks(block.small).insert(key);
    }

    fn block(&mut self, at: Address) -> &mut Block {
        self.blocks.get_mut(&at).expect("a known block")
    }

    fn free_blocks(&mut self, small: bool) -> &mut FreeBlocks {
        match small {
            true => &mut self.small,
            false => &mut self.large,
        }
    }
}

#[cfg(test)]
#[path = "torch_native_tests.rs"]
mod tests;
