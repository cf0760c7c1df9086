//! A model of PyTorch's native allocator with `expandable_segments:True`: which
//! pages it makes, maps and gives back while a program asks it for tensors. Follows
//! the rules of PyTorch 2.11; does not model private pools, captures and several
//! threads.
//!
//! Tensors up to 1 MiB of one stream are in one range of addresses, all larger
//! ones of that stream in another. A tensor gets the smallest free block that is
//! large enough, counting the addresses behind it that have no pages; the rest is
//! split off. Where there is none, pages are mapped at the lowest addresses at
//! which enough is free or unmapped. On out-of-memory every page without a tensor
//! is unmapped, in all ranges, and it is tried again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::torch_native::{GRANULE, NON_SPLIT_ROUNDING, SMALL};
use crate::driver::{Address, Code};
use crate::pool::Refusal;
use crate::reclaim::SMALL_SEGMENT;

/// Ranges lie this many bytes apart; no device has as much.
pub const RANGE: u64 = 1 << 46;
/// A longer tensor fits no device.
const MOST: u64 = 1 << 40;

/// What the allocator calls: the driver's functions for one page each.
pub trait Driver {
    /// `cuMemCreate`: a handle.
    fn create(&mut self, bytes: u64) -> Result<u64, Code>;
    /// `cuMemMap` and `cuMemSetAccess`.
    fn map(&mut self, at: Address, bytes: u64, handle: u64) -> Result<(), Code>;
    /// `cuMemUnmap`.
    fn unmap(&mut self, at: Address, bytes: u64);
    /// `cuMemRelease`.
    fn release(&mut self, handle: u64, bytes: u64);
}

/// Torch's settings.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Bytes of the pages of larger tensors (`large_segment_size_mb`).
    pub page: u64,
    /// Tensors below this many bytes take no free block of as many
    /// (`max_split_size_mb`).
    pub max_split: u64,
}

/// Torch's allocator of one device.
pub struct Expandable<D> {
    /// What is below it.
    pub driver: D,
    rules: Rules,
    /// By stream, and whether tensors are small.
    numbers: HashMap<(u64, bool), usize>,
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Used,
    Free,
    Unmapped,
}

/// A range of addresses, by offset: its blocks tile it.
struct Range {
    page: u64,
    max_split: u64,
    all: BTreeMap<u64, (u64, State)>,
    /// Free ones by length and offset.
    free: BTreeSet<(u64, u64)>,
    unmapped: BTreeSet<u64>,
    /// Of each page that is mapped.
    handles: HashMap<u64, u64>,
}

impl<D: Driver> Expandable<D> {
    /// The allocator of a device.
    pub fn new(driver: D, rules: Rules) -> Self {
        Self {
            driver,
            rules,
            numbers: HashMap::new(),
            ranges: Vec::new(),
        }
    }

    /// A tensor of `bytes` for work on `stream`.
    ///
    /// # Errors
    /// The driver's code, after everything was given back.
    pub fn malloc(&mut self, bytes: u64, stream: u64) -> Result<Address, Refusal> {
        if bytes > MOST {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        let bytes = bytes.max(1).next_multiple_of(GRANULE);
        let small = bytes <= SMALL;
        let page = if small {
            SMALL_SEGMENT
        } else {
            self.rules.page
        };
        let next = self.ranges.len();
        let number = *self.numbers.entry((stream, small)).or_insert(next);
        if number == next {
            self.ranges.push(Range::new(page, self.rules.max_split));
        }
        let at = address(number, 0);
        let range = &mut self.ranges[number];
        if let Some(offset) = range.take(bytes) {
            return Ok(at + offset);
        }
        if let Ok(offset) = range.grow(&mut self.driver, at, bytes) {
            return Ok(at + offset);
        }
        for (number, range) in self.ranges.iter_mut().enumerate() {
            range.flush(&mut self.driver, address(number, 0));
        }
        let grown = self.ranges[number].grow(&mut self.driver, at, bytes);
        Ok(at + grown.map_err(Refusal::Driver)?)
    }

    /// The tensor at this address is done with.
    ///
    /// # Panics
    /// If no tensor is there.
    pub fn free(&mut self, at: Address) {
        let number = (at / RANGE) as usize - 1;
        self.ranges[number].give(at % RANGE);
    }
}

fn address(number: usize, offset: u64) -> Address {
    (number as u64 + 1) * RANGE + offset
}

impl Range {
    fn new(page: u64, max_split: u64) -> Self {
        Self {
            page,
            max_split,
            all: BTreeMap::from([(0, (RANGE, State::Unmapped))]),
            free: BTreeSet::new(),
            unmapped: BTreeSet::from([0]),
            handles: HashMap::new(),
        }
    }

    /// A free block that is large enough; what is left of it stays free.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let mut fits = self.free.range((bytes, 0)..).copied();
        let mut best = fits.next()?;
        for next in fits {
            if self.reach(next) >= self.reach(best) {
                break;
            }
            best = next;
        }
        let large = bytes >= self.max_split;
        let most = match large {
            true => bytes.saturating_add(NON_SPLIT_ROUNDING),
            false => self.max_split,
        };
        (best.0 < most).then(|| self.use_block(best, bytes))
    }

    /// How long a free block is with the unmapped addresses behind it.
    fn reach(&self, (length, offset): (u64, u64)) -> u64 {
        match self.all.get(&(offset + length)) {
            Some((more, State::Unmapped)) => length + more,
            _ => length,
        }
    }

    fn use_block(&mut self, (length, offset): (u64, u64), bytes: u64) -> u64 {
        self.free.remove(&(length, offset));
        self.all.insert(offset, (bytes, State::Used));
        if length > bytes {
            self.insert_free(offset + bytes, length - bytes);
        }
        offset
    }

    /// Maps what is missing for a block of `bytes` and takes it; what was mapped
    /// before it failed stays.
    fn grow(&mut self, driver: &mut impl Driver, base: Address, bytes: u64) -> Result<u64, Code> {
        let at = self.candidate(bytes);
        for (offset, length) in self.missing(at, bytes) {
            self.map(driver, base, offset, length)?;
        }
        let (&offset, &(length, _)) = self.all.range(..=at).next_back().expect("a block");
        Ok(self.use_block((length, offset), bytes))
    }

    /// The lowest offset from which `bytes` are free or unmapped, of those that
    /// begin with an unmapped block or a free one before it.
    fn candidate(&self, bytes: u64) -> u64 {
        let enough = |at: &u64| {
            let open = self.all.range(*at..).map(|(_, block)| *block);
            let open = open.take_while(|(_, state)| *state != State::Used);
            let mut sum = 0;
            open.map(|(length, _)| length).any(|length| {
                sum += length;
                sum >= bytes
            })
        };
        let starts =
            self.unmapped
                .iter()
                .map(|&unmapped| match self.all.range(..unmapped).next_back() {
                    Some((&before, (_, State::Free))) => before,
                    _ => unmapped,
                });
        starts.into_iter().find(enough).expect("the end is far")
    }

    /// What must be mapped for `bytes` from an offset: offsets and lengths.
    fn missing(&self, at: u64, bytes: u64) -> Vec<(u64, u64)> {
        let (mut missing, mut have) = (Vec::new(), 0);
        for (&offset, &(length, state)) in self.all.range(at..) {
            if have >= bytes {
                break;
            }
            have += match state {
                State::Unmapped => {
                    let wanted = (bytes - have).min(length).next_multiple_of(self.page);
                    missing.push((offset, wanted));
                    wanted
                }
                _ => length,
            };
        }
        missing
    }

    /// Makes pages for the front of an unmapped block, then maps them.
    fn map(
        &mut self,
        driver: &mut impl Driver,
        base: Address,
        offset: u64,
        length: u64,
    ) -> Result<(), Code> {
        let mut made = Vec::new();
        for at in (offset..offset + length).step_by(self.page as usize) {
            match driver.create(self.page) {
                Ok(handle) => made.push((at, handle)),
                Err(code) => {
                    made.iter().for_each(|(_, h)| driver.release(*h, self.page));
                    return Err(code);
                }
            }
        }
        for (at, handle) in made {
            driver.map(base + at, self.page, handle)?;
            self.handles.insert(at, handle);
        }
        let (whole, _) = self.all[&offset];
        self.unmapped.remove(&offset);
        if whole > length {
            let rest = (whole - length, State::Unmapped);
            self.all.insert(offset + length, rest);
            self.unmapped.insert(offset + length);
        }
        self.all.insert(offset, (length, State::Used));
        self.give(offset);
        Ok(())
    }

    /// Makes a block free and joins it with free neighbours.
    fn give(&mut self, mut offset: u64) {
        let (mut length, state) = self.all[&offset];
        assert!(state == State::Used, "freed twice");
        let behind = offset + length;
        if let Some(&(more, State::Free)) = self.all.get(&behind) {
            self.all.remove(&behind);
            self.free.remove(&(more, behind));
            length += more;
        }
        if let Some((&before, &(more, State::Free))) = self.all.range(..offset).next_back() {
            self.all.remove(&offset);
            self.free.remove(&(more, before));
            (offset, length) = (before, length + more);
        }
        self.insert_free(offset, length);
    }

    fn insert_free(&mut self, offset: u64, length: u64) {
        self.all.insert(offset, (length, State::Free));
        self.free.insert((length, offset));
    }

    /// Unmaps every page that is free as a whole.
    fn flush(&mut self, driver: &mut impl Driver, base: Address) {
        let blocks: Vec<_> = self.free.iter().copied().collect();
        for (length, offset) in blocks {
            let begin = offset.next_multiple_of(self.page);
            let end = (offset + length) / self.page * self.page;
            if begin >= end {
                continue;
            }
            self.free.remove(&(length, offset));
            self.all.remove(&offset);
            if begin > offset {
                self.insert_free(offset, begin - offset);
            }
            if end < offset + length {
                self.insert_free(end, offset + length - end);
            }
            for at in (begin..end).step_by(self.page as usize) {
                let handle = self.handles.remove(&at).expect("a mapped page");
                driver.unmap(base + at, self.page);
                driver.release(handle, self.page);
            }
            self.insert_unmapped(begin, end - begin);
        }
    }

    fn insert_unmapped(&mut self, mut offset: u64, mut length: u64) {
        let behind = offset + length;
        if let Some(&(more, State::Unmapped)) = self.all.get(&behind) {
            self.all.remove(&behind);
            self.unmapped.remove(&behind);
            length += more;
        }
        if let Some((&before, &(more, State::Unmapped))) = self.all.range(..offset).next_back() {
            self.unmapped.remove(&before);
            (offset, length) = (before, length + more);
        }
        self.all.insert(offset, (length, State::Unmapped));
        self.unmapped.insert(offset);
    }
}

#[cfg(test)]
#[path = "torch_expandable_tests.rs"]
mod tests;
