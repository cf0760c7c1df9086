//! Physical pages below an allocator that maps memory itself: PyTorch's
//! expandable segments. What that allocator makes, maps, unmaps and releases one
//! page at a time is answered from pages that are kept: one that was released
//! stays where it was mapped, and is there again without a driver call if the
//! same address is mapped next, or goes to another address with one.
//!
//! Who unmaps a page has waited for all work on it, or gives it up in the order of a
//! stream (`order`). Pages that others may have open are never kept.
//! Knows no torch, fails nothing on purpose, and does not say whether memory may
//! grow: [`Pages::is_above_peak`] tells, the caller decides (`reclaim`).

use crate::lock;
mod access;
mod books;
mod contexts;
mod counts;
#[cfg(test)]
mod counts_tests;
mod endings;
#[cfg(test)]
mod endings_tests;
mod idle;
mod leave;
#[cfg(test)]
mod leave_tests;
mod order;
#[cfg(test)]
mod order_tests;
mod page;
mod picture;
mod ranges;
mod runs;
mod shown;
#[cfg(test)]
mod tests;
mod wait;
#[cfg(test)]
mod wait_tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Instant;

use crate::driver::{Access, Address, Code, Context, Driver, Handle, Result};
use crate::pool::StreamKey;
use books::Books;
use shown::Extent;

pub use books::{Lease, Totals};
pub use contexts::Contexts;
pub use counts::Counts;
use order::Follows;
pub use order::Mark;
pub use page::Kind;
use runs::Runs;
pub use runs::{Home, Run};
pub use shown::{Found, Parts};

/// The pages of one device.
pub struct Pages<D> {
    driver: D,
    device: u32,
    contexts: Arc<Contexts>,
    books: Mutex<Books>,
    /// Those of the books, for who must not wait.
    runs: Runs,
    /// Copies of the totals, for who must not wait.
    idle: AtomicU64,
    physical: AtomicU64,
    extent: Extent,
    publish: Option<Publish>,
}

/// What part of the most that ever was in use may be held beyond it, as long as work runs
/// on what is to be given back: to wait for it would cost the time in which the device runs dry.
const DEBT: u64 = 128;

/// Called after each change of the totals, under the lock of the pages: it must be
/// quick and must not call them.
pub type Publish = Box<dyn Fn(&Totals) + Send + Sync>;

impl<D: Driver> Pages<D> {
    /// No pages yet, on the device of this ordinal, in a process of these contexts.
    pub fn new(driver: D, device: u32, contexts: Arc<Contexts>, publish: Option<Publish>) -> Self {
        let books = Books::default();
        Self {
            driver,
            device,
            contexts,
            runs: books.runs.clone(),
            books: Mutex::new(books),
            idle: AtomicU64::new(0),
            physical: AtomicU64::new(0),
            extent: Extent::default(),
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
        let (mut books, waits) = self.turn();
        let too_many = books.too_many();
        self.let_go(&mut books, too_many);
        let lease = books.lend(kind);
        let now = || lease.is_none().then(Instant::now);
        books.watch.may_last(waits.or_else(now));
        self.changed(&mut books);
        lease
    }

    /// The page that is asked for is refused on purpose: the program is to give others
    /// up and to ask again, and waits until it is served.
    pub fn ask(&self) {
        self.lock().watch.ask();
    }

    /// The page that is asked for is refused for good.
    pub fn refuse(&self, code: Code) {
        let mut books = self.lock();
        books.watch.answered();
        if code == Code::OUT_OF_MEMORY {
            books.watch.counts.requests += 1;
            books.watch.counts.out_of_memory += 1;
        }
        self.changed(&mut books);
    }

    /// A new page where [`Pages::lend`] had none, made by `make` (`cuMemCreate`). Idle
    /// pages of other kinds go where more than ever was in use would be held (those on
    /// which work runs a little later), and all where the driver has no memory left.
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
        let over = totals.physical_bytes.saturating_sub(most);
        let given = self.let_go(&mut books, over);
        let waits_for = (over - over.min(given)).saturating_sub(totals.peak_used_bytes / DEBT);
        (books, _) = self.let_go_for_sure(books, waits_for);
        let mut made = books.watch.call(&make);
        if made == Err(Code::OUT_OF_MEMORY) && self.let_go(&mut books, u64::MAX) > 0 {
            made = books.watch.call(&make);
        }
        if made == Err(Code::OUT_OF_MEMORY) {
            let given;
            (books, given) = self.let_go_for_sure(books, u64::MAX);
            if given > 0 {
                made = books.watch.call(&make);
            }
        }
        let lease = made.map(|handle| books.add(kind, handle));
        self.changed(&mut books);
        lease
    }

    /// Maps a page at an address (`cuMemMap`).
    ///
    /// # Errors
    /// `INVALID_VALUE` for what the driver would not map either, else the
    /// driver's code; the page is then mapped nowhere new.
    pub fn map(&self, at: Address, bytes: u64, lease: Lease, home: Home) -> Result<()> {
        let moves = self.contexts.are_on_several();
        let in_the_way = |books: &Books| {
            if books.fits(at, lease).is_some() || books.kind_of(lease).is_none() {
                return Vec::new();
            }
            let mut marks = books.unused_marks(at, bytes);
            if moves {
                marks.extend(books.marks_of(books.choice(lease, Some(at))));
            }
            marks
        };
        let (mut books, waited) = self.turn_behind(in_the_way);
        let kind = books.kind_of(lease).ok_or(Code::INVALID_VALUE)?;
        if kind.bytes != bytes {
            return Err(Code::INVALID_VALUE);
        }
        books.watch.may_last(waited);
        // The driver refuses what is in use.
        if !books.take_what_is_mapped(at, lease, home) {
            self.clear(&mut books, at, bytes)?;
            let page = books.bind(lease, Some(at));
            if moves {
                self.take_away(&mut books, page)?;
            }
            let handle = books.handle_of(page);
            books.watch.call(|| self.driver.map(at, bytes, handle))?;
            books.mapped(at, page, home);
            self.extent.include(at, bytes);
        }
        self.changed(&mut books);
        self.come_after(books, at, home);
        Ok(())
    }

    /// Whoever uses the page at this address from now on comes after who used it last.
    fn come_after(&self, mut books: MutexGuard<'_, Books>, at: Address, home: Home) {
        let Some(last) = books.last_use_at(at) else {
            return;
        };
        let contexts = &self.contexts;
        match books.orders.follow(&self.driver, contexts, last, at, home) {
            Follows::Anyway => {}
            Follows::ByEdge => books.watch.counts.edges += 1,
            Follows::Not => {
                drop(books);
                let waited = self.quiet(|_| vec![last.mark]);
                self.lock().watch.may_last(waited);
            }
        }
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
        let (mut books, waits) = self.turn();
        let parts = books.used_tiles(at, bytes)?;
        books.watch.may_last(waits);
        let opened = self.open(&mut books, parts, device, access);
        // Without memory for it, it is tried again.
        if opened != Err(Code::OUT_OF_MEMORY) && books.watch.answered() {
            self.changed(&mut books);
        }
        Some(opened)
    }

    /// The pages in use that tile this range: first addresses and bytes; `None` where
    /// it has none, or parts of some.
    pub fn used_in(&self, at: Address, bytes: u64) -> Option<Vec<(Address, u64)>> {
        self.lock().used_tiles(at, bytes)
    }

    /// What stands for a wait for this stream, which the program would make before it
    /// gives up pages that are used in its order; `None` where it has to wait.
    pub fn instead_of_waiting(&self, stream: StreamKey) -> Option<Mark> {
        let mut books = self.lock();
        let mark = books.orders.mark(&self.driver, stream);
        mark.ok().flatten()
    }

    /// The page in use at this address may be used on any stream: graphs replay on it, so
    /// that who waited for one has not waited for all. The context in which it was mapped
    /// may be a view of another one (a green one), whose streams are all those of `whole`.
    pub fn on_any_stream(&self, at: Address, whole: Context) {
        let books = &mut *self.lock();
        let used = books.mappings.get_mut(&at).filter(|mapping| mapping.used);
        if let Some(mapping) = used {
            mapping.on_any_stream = [whole, books.runs.home_of(at).context].into();
        }
    }

    /// All pages in use may be, on streams of these contexts that nobody can wait for any more.
    pub fn all_on_any_stream(&self, contexts: &[Context]) {
        let books = &mut *self.lock();
        let used = books.mappings.values_mut().filter(|mapping| mapping.used);
        used.for_each(|mapping| mapping.on_any_stream.extend(contexts));
    }

    /// The reservation in this range is no more: another one there is another's.
    pub fn unreserved(&self, at: Address, bytes: u64) {
        self.lock().orders.unlearn(at, bytes);
    }

    /// Takes pages away from their addresses (`cuMemUnmap`): the caller has waited
    /// for all work on them, or it lies before `last`. `None` where nothing here is
    /// mapped in the range. Out of memory where it takes some to wait for what graphs replay
    /// on them, and there is none: they stay the program's.
    pub fn unmap(&self, at: Address, bytes: u64, last: Option<Mark>) -> Option<Result<()>> {
        let (mut books, waited) = match self.settled(at, bytes, last) {
            Ok(settled) => settled,
            Err(code) => return Some(Err(code)),
        };
        let Some(parts) = books.used_tiles(at, bytes) else {
            // The driver unmaps whole mappings only, too.
            let any = books.is_used_in(at, bytes);
            return any.then_some(Err(Code::INVALID_VALUE));
        };
        books.watch.may_last(waited);
        for (at, _) in parts {
            let page = books.unused(at, last);
            self.settle(&mut books, page);
        }
        books.watch.given_up();
        self.changed(&mut books);
        Some(Ok(()))
    }

    /// Gives a page up (`cuMemRelease`); false where the lease is not known.
    pub fn release(&self, lease: Lease) -> bool {
        let (mut books, waits) = self.turn();
        let Some(page) = books.release(lease) else {
            return false;
        };
        books.watch.may_last(waits);
        match page {
            Some(page) => self.settle(&mut books, page),
            // Its request was too large: what was made for it is not kept.
            None => {
                let bytes = books.too_many();
                self.let_go(&mut books, bytes);
            }
        }
        books.watch.given_up();
        self.changed(&mut books);
        true
    }

    fn changed(&self, books: &mut Books) {
        let totals = books.note();
        self.idle.store(totals.idle_bytes, Relaxed);
        self.physical.store(totals.physical_bytes, Relaxed);
        if let Some(publish) = &self.publish {
            publish(&totals);
        }
    }

    /// The lock for a call of the program, and since when it stands still because
    /// another thread makes calls of the driver.
    fn turn(&self) -> (MutexGuard<'_, Books>, Option<Instant>) {
        match self.books.try_lock() {
            Ok(books) => (books, None),
            Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), None),
            Err(TryLockError::WouldBlock) => {
                let since = Instant::now();
                (self.lock(), Some(since))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        lock::lock(&self.books)
    }

    /// The ordinal of the device.
    pub fn device(&self) -> u32 {
        self.device
    }
}
