//! What is mapped in a range of addresses, and what of it is in use. Changes nothing.

use super::books::Books;
use super::page::{Mapping, PageId};
use super::runs::Run;
use crate::driver::Address;

impl Books {
    /// Is anything in use in this range?
    pub fn is_used_in(&self, at: Address, bytes: u64) -> bool {
        self.used_in(at, bytes).next().is_some()
    }

    /// What is in use in this range, if only in part.
    pub fn used_in(&self, at: Address, bytes: u64) -> impl Iterator<Item = (Address, &Mapping)> {
        let within = self.within(at, bytes);
        within.filter(|(_, mapping)| mapping.used)
    }

    /// The mappings in use that tile this range.
    pub fn used_tiles(&self, at: Address, bytes: u64) -> Option<Vec<(Address, u64)>> {
        let (mut tiles, mut reached) = (Vec::new(), at);
        for (start, mapping) in self.within(at, bytes) {
            if !mapping.used || start != reached {
                return None;
            }
            reached += mapping.bytes;
            tiles.push((start, mapping.bytes));
        }
        (bytes > 0 && Some(reached) == at.checked_add(bytes)).then_some(tiles)
    }

    pub fn used_pages_in(&self, at: Address, bytes: u64) -> Vec<PageId> {
        let used = self.used_in(at, bytes);
        used.map(|(_, mapping)| mapping.page).collect()
    }

    /// Is all of this range on pages in use?
    pub fn covers(&self, at: Address, bytes: u64) -> bool {
        let mut reached = at;
        for (start, mapping) in self.within(at, bytes) {
            if !mapping.used || start > reached {
                return false;
            }
            reached = start + mapping.bytes;
        }
        at.checked_add(bytes).is_some_and(|end| end <= reached)
    }

    /// Are all pages of a run, as it once was, still where they were?
    pub fn has_all_of(&self, run: &Run) -> bool {
        self.covers(run.base, run.bytes)
            && self
                .within(run.base, run.bytes)
                .all(|(_, mapping)| mapping.run <= run.id)
    }

    /// Is anything mapped at this address, used or not?
    pub fn is_mapped(&self, at: Address) -> bool {
        self.within(at, 1).next().is_some()
    }

    /// What is mapped in this range and not in use there.
    pub fn unused_in(&self, at: Address, bytes: u64) -> Vec<(Address, u64)> {
        let unused = self.within(at, bytes).filter(|(_, mapping)| !mapping.used);
        unused.map(|(at, mapping)| (at, mapping.bytes)).collect()
    }

    /// The mappings that lie in a range, if only in part.
    fn within(&self, at: Address, bytes: u64) -> impl Iterator<Item = (Address, &Mapping)> {
        let before = self.mappings.range(..at).next_back();
        let before = before.filter(|(start, mapping)| *start + mapping.bytes > at);
        let end = at.saturating_add(bytes);
        let inside = self.mappings.range(at..end);
        before.into_iter().chain(inside).map(|(at, m)| (*at, m))
    }
}
