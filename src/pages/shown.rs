//! What others see of pages: which run an address is in, and what it is
//! made of. Gives nothing out and takes nothing back.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::books::Books;
use super::page::PageId;
use super::{Lease, Pages, Run};
use crate::driver::{Address, Driver, Handle};

/// The addresses between which pages were ever mapped.
pub struct Extent {
    from: AtomicU64,
    to: AtomicU64,
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(u64::MAX),
            to: AtomicU64::new(0),
        }
    }
}

impl Extent {
    /// A page was mapped.
    pub fn include(&self, at: Address, bytes: u64) {
        self.from.fetch_min(at, Relaxed);
        self.to.fetch_max(at + bytes, Relaxed);
    }

    fn contains(&self, at: Address) -> bool {
        at < self.to.load(Relaxed) && at >= self.from.load(Relaxed)
    }
}

/// What pages have at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing is mapped.
    Nothing,
    /// A page that the program has unmapped.
    Unused,
    /// Pages in use.
    Run(Run),
}

/// What a run is made of, for who is about to open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Which one.
    pub run: Run,
    /// Where the first of its pages begins, at its first byte or before it.
    pub at: Address,
    /// Their handles in order, and their sizes in bytes.
    pub handles: Vec<(Handle, u64)>,
}

impl<D: Driver> Pages<D> {
    /// The driver's handle of a page that others are about to open, and that is
    /// not kept from now on; `None` where the lease is not known. Waits for what may
    /// still run on it but in the order of who uses it: the others know of no order.
    pub fn share(&self, lease: Lease) -> Option<Handle> {
        let mut books = self.lock();
        books.kind_of(lease)?;
        let page = books.bind(lease, None);
        books.share(page);
        let handle = books.handle_of(page);
        drop(books);
        self.quiet_for_others(&[page]);
        Some(handle)
    }

    /// The pages that are mapped in this range may be opened by others from now
    /// on, and are not kept. Waits as [`Pages::share`] does.
    pub fn share_range(&self, at: Address, bytes: u64) {
        let mut books = self.lock();
        let shared = books.used_pages_in(at, bytes);
        shared.iter().for_each(|page| books.share(*page));
        drop(books);
        self.quiet_for_others(&shared);
    }

    /// What is at an address. Takes no lock where no page was ever near.
    pub fn find(&self, at: Address) -> Found {
        if !self.extent.contains(at) {
            return Found::Nothing;
        }
        let run = || self.runs.around(at).map(Found::Run);
        run().unwrap_or_else(|| {
            let books = self.lock();
            match books.is_mapped(at) {
                // It may be in use by now.
                true => run().unwrap_or(Found::Unused),
                false => Found::Nothing,
            }
        })
    }

    /// A tensor lies here, if anything does, for which `new` pages were mapped or none. Waits
    /// for no call of the driver.
    pub fn lent(&self, at: Address, bytes: u64, new: bool) {
        if self.extent.contains(at) {
            self.runs.lent(at, bytes, new);
        }
    }

    /// Is all of this range on pages in use?
    pub fn covers(&self, at: Address, bytes: u64) -> bool {
        self.lock().covers(at, bytes)
    }

    /// Shares the pages of the run around an address. Their handles are the driver's as long as
    /// [`Pages::has_all_of`] it. Waits as [`Pages::share`] does.
    pub fn export(&self, at: Address) -> Option<Parts> {
        let mut books = self.lock();
        let run = books.runs.around(at)?;
        let used = books.used_in(run.base, run.bytes);
        let (places, pages): (Vec<Address>, Vec<PageId>) =
            used.map(|(at, mapping)| (at, mapping.page)).unzip();
        let at = *places.first()?;
        let part = |page| {
            books.share(page);
            (books.handle_of(page), books.bytes_of(page))
        };
        let handles = pages.iter().copied().map(part).collect();
        drop(books);
        self.quiet_for_others(&pages);
        Some(Parts { run, at, handles })
    }

    /// The handles of pages that were shared, by where they are in use, and their sizes in
    /// bytes; `None` where one is there no more.
    pub fn handles_at(&self, places: impl Iterator<Item = Address>) -> Option<Vec<(Handle, u64)>> {
        let books = self.lock();
        let part = |at| {
            let (start, mapping) = books.used_in(at, 1).next()?;
            let page = mapping.page;
            (start == at).then(|| (books.handle_of(page), books.bytes_of(page)))
        };
        places.map(part).collect()
    }

    fn quiet_for_others(&self, pages: &[PageId]) {
        let beside_use = |books: &Books, page: &PageId| books.marks_beside_use(*page);
        self.quiet(|books| {
            pages
                .iter()
                .flat_map(|page| beside_use(books, page))
                .collect()
        });
    }

    /// Are all pages of a run, as it once was, still in use where they were?
    pub fn has_all_of(&self, run: &Run) -> bool {
        self.lock().has_all_of(run)
    }

    /// Is any page in use in this range?
    pub fn is_used_in(&self, at: Address, bytes: u64) -> bool {
        self.lock().is_used_in(at, bytes)
    }
}

#[cfg(test)]
#[path = "shown_tests.rs"]
mod tests;
