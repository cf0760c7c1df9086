//! Physical pages below an allocator that maps memory itself: PyTorch's
//! expandable segments. What that allocator makes, maps, unmaps and releases one
//! page at a time is answered from pages that are kept: one that was released
//! stays where it was mapped, and is there again without a driver call if the
//! same address is mapped next, or goes to another address with one.
//!
//! Who unmaps a page has waited for all work on it, so an idle page is complete on
//! the host and needs no order. Pages that others may have open are never kept.
//! Knows no torch, fails nothing on purpose, and does not say whether memory may
//! grow: [`Pages::is_above_peak`] tells, the caller decides (`reclaim`).

mod books;
mod idle;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Access, Address, Code, Driver, Handle, Result};
use books::{Books, PageId};

pub use books::{Kind, Lease, Totals};

/// The pages of one device.
pub struct Pages<D> {
    driver: D,
    device: u32,
    books: Mutex<Books>,
    /// Copies of the totals, for who must not wait.
    idle: AtomicU64,
    physical: AtomicU64,
    publish: Option<Publish>,
}

/// Called after each change of the totals, under the lock of the pages: it must be
/// quick and must not call them.
pub type Publish = Box<dyn Fn(&Totals) + Send + Sync>;

impl<D: Driver> Pages<D> {
    /// No pages yet, on the device of this ordinal.
    pub fn new(driver: D, device: u32, publish: Option<Publish>) -> Self {
        Self {
            driver,
            device,
            books: Mutex::default(),
            idle: AtomicU64::new(0),
            physical: AtomicU64::new(0),
            publish,
        }
    }

    /// Has no call of these panicked in the midst of a change?
    pub fn is_sound(&self) -> bool {
        !self.books.is_poisoned()
    }

    /// What there is.
    pub fn totals(&self) -> Totals {
        self.lock().totals()
    }

    /// Bytes that nobody uses. Takes no lock.
    pub fn idle(&self) -> u64 {
        self.idle.load(Relaxed)
    }

    /// Bytes held from the driver. Takes no lock.
    pub fn physical(&self) -> u64 {
        self.physical.load(Relaxed)
    }

    /// The driver that the pages are made by.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The least that was idle at any moment since this was last asked, in bytes.
    pub fn least_idle(&self) -> u64 {
        self.lock().least_idle()
    }

    /// Is anything mapped, in the program's eyes?
    pub fn is_any_used(&self) -> bool {
        self.lock().is_any_used()
    }

    /// Would so many bytes more in use be more than ever were? False as long as
    /// nothing is mapped: then there is nobody to ask for less.
    pub fn is_above_peak(&self, bytes: u64) -> bool {
        let books = self.lock();
        let totals = books.totals();
        books.is_any_used() && totals.used_bytes + bytes > totals.peak_used_bytes
    }

    /// An idle page (`cuMemCreate` without the driver); `None` where there is none
    /// of this kind.
    pub fn lend(&self, kind: Kind) -> Option<Lease> {
        let mut books = self.lock();
        let lease = books.lend(kind);
        self.changed(&mut books);
        lease
    }

    /// A new page, made by `make` (`cuMemCreate`). Idle pages of other kinds go
    /// where more than ever was in use would be held, and all where the driver has
    /// no memory left.
    ///
    /// # Errors
    /// That of `make`.
    pub fn add(&self, kind: Kind, make: impl Fn() -> Result<Handle>) -> Result<Lease> {
        let mut books = self.lock();
        let totals = books.totals();
        let most = totals
            .peak_used_bytes
            .max(totals.used_bytes + kind.bytes)
            .saturating_sub(kind.bytes);
        if totals.physical_bytes > most {
            self.let_go(&mut books, totals.physical_bytes - most);
        }
        let made = match make() {
            Err(Code::OUT_OF_MEMORY) if self.let_go(&mut books, u64::MAX) > 0 => make(),
            made => made,
        };
        let lease = made.map(|handle| books.add(kind, handle));
        self.changed(&mut books);
        lease
    }

    /// Maps a page at an address (`cuMemMap`).
    ///
    /// # Errors
    /// `INVALID_VALUE` for what the driver would not map either, else the
    /// driver's code; the page is then mapped nowhere new.
    pub fn map(&self, at: Address, bytes: u64, lease: Lease) -> Result<()> {
        let mut books = self.lock();
        let kind = books.kind_of(lease).ok_or(Code::INVALID_VALUE)?;
        if kind.bytes != bytes || books.is_used_in(at, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        if books.take_what_is_mapped(at, lease) {
            self.changed(&mut books);
            return Ok(());
        }
        self.clear(&mut books, at, bytes)?;
        let page = books.bind(lease, Some(at));
        let mapped = self.driver.map(at, bytes, books.handle_of(page));
        if mapped.is_ok() {
            books.mapped(at, page);
        }
        self.changed(&mut books);
        mapped
    }

    /// Says what a device may do with mapped pages (`cuMemSetAccess`); `None` where
    /// the range is not of whole mapped pages. Asks the driver only for those that
    /// the device cannot write already.
    pub fn set_access(
        &self,
        at: Address,
        bytes: u64,
        device: u32,
        access: Access,
    ) -> Option<Result<()>> {
        let mut books = self.lock();
        let parts = books.used_tiles(at, bytes)?;
        let new: Vec<_> = parts
            .into_iter()
            .filter(|(at, _)| access != Access::Write || !books.can_write(*at, device))
            .collect();
        for (start, length) in joined(&new) {
            if let Err(code) = self.driver.set_access(start, length, device, access) {
                return Some(Err(code));
            }
        }
        for (at, _) in new {
            books.set_can_write(at, device, access == Access::Write);
        }
        Some(Ok(()))
    }

    /// Takes pages away from their addresses (`cuMemUnmap`): the caller has waited
    /// for all work on them. `None` where nothing here is mapped in the range.
    pub fn unmap(&self, at: Address, bytes: u64) -> Option<Result<()>> {
        let mut books = self.lock();
        if !books.is_used_in(at, bytes) {
            return None;
        }
        let Some(parts) = books.used_tiles(at, bytes) else {
            // The driver unmaps whole mappings only, too.
            return Some(Err(Code::INVALID_VALUE));
        };
        for (at, _) in parts {
            let page = books.unused(at);
            self.settle(&mut books, page);
        }
        self.changed(&mut books);
        Some(Ok(()))
    }

    /// Gives a page up (`cuMemRelease`); false where the lease is not known.
    pub fn release(&self, lease: Lease) -> bool {
        let mut books = self.lock();
        let Some(page) = books.release(lease) else {
            return false;
        };
        if let Some(page) = page {
            self.settle(&mut books, page);
        }
        self.changed(&mut books);
        true
    }

    /// The driver's handle of a page that others are about to open, and that is
    /// not kept from now on; `None` where the lease is not known.
    pub fn share(&self, lease: Lease) -> Option<Handle> {
        let mut books = self.lock();
        books.kind_of(lease)?;
        let page = books.bind(lease, None);
        books.share(page);
        self.changed(&mut books);
        Some(books.handle_of(page))
    }

    /// The pages that are mapped in this range may be opened by others from now
    /// on, and are not kept.
    pub fn share_range(&self, at: Address, bytes: u64) {
        let mut books = self.lock();
        for page in books.used_pages_in(at, bytes) {
            books.share(page);
        }
    }

    /// Nothing of the pages is mapped in this range any more, but for what is in
    /// use: the addresses are given up, or get something else.
    ///
    /// # Errors
    /// The driver's code.
    pub fn leave(&self, at: Address, bytes: u64) -> Result<()> {
        let mut books = self.lock();
        let left = self.clear(&mut books, at, bytes);
        self.changed(&mut books);
        left
    }

    /// Gives about so many idle bytes back to the driver, one page more at most,
    /// and returns how many. Waits for nothing on the device.
    pub fn give_back(&self, bytes: u64) -> u64 {
        let mut books = self.lock();
        let given = self.let_go(&mut books, bytes);
        self.changed(&mut books);
        given
    }

    fn let_go(&self, books: &mut Books, bytes: u64) -> u64 {
        let mut given = 0;
        while given < bytes
            && let Some(page) = books.least_wanted()
        {
            given += self.destroy(books, page);
        }
        given
    }

    /// A page that is not kept leaves once nobody uses it.
    fn settle(&self, books: &mut Books, page: PageId) {
        if books.must_go(page) {
            self.destroy(books, page);
        }
    }

    /// Unmaps a page everywhere and releases it. Where the driver does not unmap
    /// it, it is lost: it counts no more, and nobody gets it.
    fn destroy(&self, books: &mut Books, page: PageId) -> u64 {
        let (bytes, handle, mapped) = books.remove(page);
        let mut stuck = false;
        for at in mapped {
            stuck |= self.driver.unmap(at, bytes).is_err();
        }
        if !stuck {
            // A failure cannot be retried: the memory is lost, to nobody's harm.
            let _ = self.driver.release(handle);
        }
        bytes
    }

    /// Unmaps what is mapped in the range and not in use there.
    fn clear(&self, books: &mut Books, at: Address, bytes: u64) -> Result<()> {
        for (at, bytes) in books.unused_in(at, bytes) {
            self.driver.unmap(at, bytes)?;
            books.unmapped(at);
        }
        Ok(())
    }

    fn changed(&self, books: &mut Books) {
        let totals = books.note();
        self.idle.store(totals.idle_bytes, Relaxed);
        self.physical.store(totals.physical_bytes, Relaxed);
        if let Some(publish) = &self.publish {
            publish(&totals);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ordinal of the device.
    pub fn device(&self) -> u32 {
        self.device
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
