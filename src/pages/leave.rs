//! How pages leave: idle ones that somebody else needs, those that are not kept, and
//! addresses that get something else.

use std::sync::MutexGuard;
use std::time::Duration;

use super::Pages;
use super::books::Books;
use super::page::PageId;
use super::wait::NAP;
use crate::driver::{Address, Driver, Result};
use crate::waiting::Waiting;

impl<D: Driver> Pages<D> {
    /// Nothing of the pages is mapped in this range any more, but for what is in
    /// use: the addresses are given up, or get something else.
    ///
    /// # Errors
    /// The driver's code.
    pub fn leave(&self, at: Address, bytes: u64) -> Result<()> {
        self.quiet(|books| books.unused_marks(at, bytes));
        self.beside(|books| self.clear(books, at, bytes))
    }

    /// Gives about so many idle bytes back to the driver, one page more at most,
    /// and returns how many. Waits at most `patience` for what may still run on them.
    pub fn give_back(&self, bytes: u64, patience: Duration) -> u64 {
        let mut waiting = Waiting::begin();
        let mut given = 0;
        loop {
            given += self.beside(|books| self.let_go(books, bytes - given));
            if given >= bytes || self.lock().least_wanted().is_none() {
                return given;
            }
            if patience == Duration::MAX {
                self.quiet(Books::first_marks);
            } else if waiting.lasted() >= patience {
                return given;
            } else {
                waiting.pause(NAP);
            }
        }
    }

    /// Does what the program has not asked for here, unless a request of its own
    /// needs it.
    pub(super) fn beside<T>(&self, work: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.lock();
        let requested = books.watch.lasts();
        let done = work(&mut books);
        if !requested {
            books.watch.not_asked_for();
        }
        self.changed(&mut books);
        done
    }

    /// Gives back pages on which nothing runs any more.
    pub(super) fn let_go(&self, books: &mut Books, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        // What the driver does not unmap now is as before.
        let _ = self.unstick(books, 0, Address::MAX);
        let running = books.orders.running(&self.driver);
        let mut given = 0;
        while given < bytes
            && let Some(page) = books.least_wanted_beside(&running)
        {
            given += self.destroy(books, page);
        }
        given
    }

    /// Gives so many bytes back, whatever runs on them: waits for it, without the lock.
    pub(super) fn let_go_for_sure<'a>(
        &'a self,
        mut books: MutexGuard<'a, Books>,
        bytes: u64,
    ) -> (MutexGuard<'a, Books>, u64) {
        let mut given = self.let_go(&mut books, bytes);
        while given < bytes && !books.first_marks().is_empty() {
            drop(books);
            self.quiet(Books::first_marks);
            books = self.lock();
            given += self.let_go(&mut books, bytes - given);
        }
        (books, given)
    }

    /// A page that is not kept leaves once nobody uses it.
    pub(super) fn settle(&self, books: &mut Books, page: PageId) {
        if books.must_go(page) {
            self.destroy(books, page);
        }
    }

    /// Unmaps a page everywhere and releases it. Where the driver does not unmap
    /// it, it counts no more and is nobody's, and the driver is asked again
    /// ([`Pages::unstick`]). Returns the bytes that are free.
    fn destroy(&self, books: &mut Books, page: PageId) -> u64 {
        let (bytes, handle, mapped) = books.remove(page);
        let mut stuck = Vec::new();
        for at in mapped {
            let unmap = || self.driver.unmap(at, bytes);
            if books.watch.call(unmap).is_err() {
                stuck.push((at, (bytes, handle)));
            }
        }
        if stuck.is_empty() {
            // A failure cannot be retried: the memory is lost, to nobody's harm.
            let _ = books.watch.call(|| self.driver.release(handle));
            return bytes;
        }
        books.stuck.extend(stuck);
        0
    }

    /// Unmaps what the driver did not unmap in this range when its page was given back, and
    /// releases what is mapped nowhere else. Nothing runs on it since then.
    fn unstick(&self, books: &mut Books, at: Address, end: Address) -> Result<()> {
        let stuck = books.stuck.range(..end);
        let in_range = stuck.filter(|&(&from, &(bytes, _))| from + bytes > at);
        let found: Vec<_> = in_range.map(|(&from, &it)| (from, it)).collect();
        for (from, (bytes, handle)) in found {
            books.watch.call(|| self.driver.unmap(from, bytes))?;
            books.stuck.remove(&from);
            if books.stuck.values().all(|(_, other)| *other != handle) {
                let _ = books.watch.call(|| self.driver.release(handle));
            }
        }
        Ok(())
    }

    /// Unmaps a page where it is not in use, before it is mapped elsewhere: into what is left of
    /// several places, once the first went, the driver may let no other device
    /// (docs/measurements/h100.md).
    pub(super) fn take_away(&self, books: &mut Books, page: PageId) -> Result<()> {
        let bytes = books.bytes_of(page);
        for at in books.unused_places(page) {
            books.watch.call(|| self.driver.unmap(at, bytes))?;
            books.unmapped(at);
        }
        Ok(())
    }

    /// Unmaps what is mapped in the range and not in use there.
    pub(super) fn clear(&self, books: &mut Books, at: Address, bytes: u64) -> Result<()> {
        self.unstick(books, at, at + bytes)?;
        for (at, bytes) in books.unused_in(at, bytes) {
            books.watch.call(|| self.driver.unmap(at, bytes))?;
            books.unmapped(at);
        }
        Ok(())
    }
}
