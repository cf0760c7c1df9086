//! A best-fit allocator of offsets. Knows nothing of what the offsets mean.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Ranges {
    by_offset: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
}

impl Ranges {
    /// The smallest free range that holds `length`, lowest offset first.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        let &(found, offset) = self.by_length.range((length, 0)..).next()?;
        self.remove(offset, found);
        if found > length {
            self.insert(offset + length, found - length);
        }
        Some(offset)
    }

    /// Gives a range back; returns the free range that it became part of.
    pub fn give(&mut self, mut offset: u64, mut length: u64) -> (u64, u64) {
        if let Some((&before, &size)) = self.by_offset.range(..offset).next_back()
            && before + size == offset
        {
            self.remove(before, size);
            offset = before;
            length += size;
        }
        if let Some(&size) = self.by_offset.get(&(offset + length)) {
            self.remove(offset + length, size);
            length += size;
        }
        self.insert(offset, length);
        (offset, length)
    }

    /// Is all of `[offset, offset + length)` free?
    pub fn covers(&self, offset: u64, length: u64) -> bool {
        let before = self.by_offset.range(..=offset).next_back();
        before.is_some_and(|(start, size)| start + size >= offset + length)
    }

    /// Takes `[offset, offset + length)` out of the free range that holds it.
    pub fn carve(&mut self, offset: u64, length: u64) {
        let Some((&start, &size)) = self.by_offset.range(..=offset).next_back() else {
            return;
        };
        self.remove(start, size);
        if start < offset {
            self.insert(start, offset - start);
        }
        if start + size > offset + length {
            self.insert(offset + length, start + size - offset - length);
        }
    }

    fn insert(&mut self, offset: u64, length: u64) {
        self.by_offset.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn remove(&mut self, offset: u64, length: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}
