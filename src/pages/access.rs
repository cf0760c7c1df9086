//! Which devices may reach pages: beside the one that the program opens them to, those
//! that have access to all memory of this one.

use super::Pages;
use super::books::Books;
use crate::driver::{Access, Address, Driver, Result};

impl<D: Driver> Pages<D> {
    /// Opens everything that is in use to a device.
    ///
    /// # Errors
    /// The driver's code, at the first pages that it does not open.
    pub fn open_all(&self, device: u32) -> Result<()> {
        self.open_around(0, Address::MAX, device)
    }

    /// Opens the pages in use on which a range lies, if only in part, to a device beside the
    /// one that the program opens them to.
    ///
    /// # Errors
    /// As [`Pages::open_all`].
    pub fn open_around(&self, at: Address, bytes: u64, device: u32) -> Result<()> {
        self.beside(|books| {
            let used = books.used_in(at, bytes);
            let parts = used.map(|(at, mapping)| (at, mapping.bytes)).collect();
            self.open(books, parts, device, Access::Write)
        })
    }

    /// Opens a range to a device beside the one that the program opens it to; `None`
    /// where it is not of whole mapped pages.
    pub fn open_to(&self, at: Address, bytes: u64, device: u32) -> Option<Result<()>> {
        let (mut books, waits) = self.turn();
        let requested = books.watch.lasts();
        let parts = books.used_tiles(at, bytes)?;
        let opened = self.open(&mut books, parts, device, Access::Write);
        books.watch.may_last(waits);
        // In a request the call follows that ends it.
        if !requested && books.watch.answered() {
            self.changed(&mut books);
        }
        Some(opened)
    }

    /// Says what a device may do with these pages, where it cannot write them already.
    pub(super) fn open(
        &self,
        books: &mut Books,
        parts: Vec<(Address, u64)>,
        device: u32,
        access: Access,
    ) -> Result<()> {
        let new: Vec<_> = parts
            .into_iter()
            .filter(|(at, _)| access != Access::Write || !books.can_write(*at, device))
            .collect();
        joined(&new).into_iter().try_for_each(|(at, bytes)| {
            let open = || self.driver.set_access(at, bytes, device, access);
            books.watch.call(open)
        })?;
        for (at, _) in new {
            books.set_can_write(at, device, access == Access::Write);
        }
        Ok(())
    }
}

impl Books {
    fn can_write(&self, at: Address, device: u32) -> bool {
        let bit = 1_u128.checked_shl(device).unwrap_or(0);
        self.mappings[&at].writers & bit != 0
    }

    fn set_can_write(&mut self, at: Address, device: u32, can: bool) {
        let bit = 1_u128.checked_shl(device).unwrap_or(0);
        let mapping = self.mappings.get_mut(&at).expect("a mapping");
        match can {
            true => mapping.writers |= bit,
            false => mapping.writers &= !bit,
        }
    }
}

/// Ranges in the order of their addresses, those that touch as one.
fn joined(parts: &[(Address, u64)]) -> Vec<(Address, u64)> {
    let mut ranges: Vec<(Address, u64)> = Vec::new();
    for &(at, bytes) in parts {
        match ranges.last_mut() {
            Some((start, length)) if *start + *length == at => *length += bytes,
            _ => ranges.push((at, bytes)),
        }
    }
    ranges
}
