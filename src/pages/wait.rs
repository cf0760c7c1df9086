//! Waits on the host for what may still run on pages that were given up in the order of
//! a stream. Never under the lock: what is waited for may need a thread that asks
//! about pages.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use super::Pages;
use super::books::Books;
use super::order::{Mark, is_over};
use super::page::{Page, PageId};
use crate::driver::{Address, Code, Context, Driver, Event, Result};
use crate::pool::CAPTURES;
use crate::waiting::nap;

/// Between two looks, where the wait may not last.
pub(super) const NAP: Duration = Duration::from_micros(100);

impl<D: Driver> Pages<D> {
    /// Waits for a place after all.
    pub fn wait(&self, mark: Mark) {
        self.quiet(|_| vec![mark]);
    }

    /// Waits until the places that `which` finds are passed; since when, if it had to.
    pub(super) fn quiet(&self, which: impl Fn(&Books) -> Vec<Mark>) -> Option<Instant> {
        let mut since = None;
        while let Some(mark) = self.runs_at(&which) {
            since = since.or_else(|| Some(Instant::now()));
            let Some(event) = self.lock().orders.await_event(mark) else {
                // Its context may be ending: soon it is known whether it has.
                nap(NAP);
                continue;
            };
            let quiet = self.quiet_event(event) || self.quiet_context(mark.context()).is_ok();
            let mut books = self.lock();
            books.orders.waited(mark, event, quiet);
            books.watch.counts.host_waits += 1;
            drop(books);
            if !quiet {
                // Then the event is asked until it is passed.
                nap(NAP);
            }
        }
        since
    }

    /// The lock for a call of the program, with the places that `which` finds passed, and
    /// since when the call stands still, if it does.
    pub(super) fn turn_behind(
        &self,
        which: impl Fn(&Books) -> Vec<Mark>,
    ) -> (MutexGuard<'_, Books>, Option<Instant>) {
        let mut since = None;
        loop {
            let (books, waits) = self.turn();
            since = since.or(waits);
            let runs = |mark: &Mark| !books.orders.is_passed(&self.driver, *mark);
            if !which(&books).iter().any(runs) {
                return (books, since);
            }
            drop(books);
            since = since.or(self.quiet(&which));
        }
    }

    /// The lock to unmap a range: what nothing will stand for then has been waited for,
    /// work on streams that the program did not name or that ended, and on pages that are not
    /// kept. Since when the call stands still, too.
    ///
    /// # Errors
    /// As [`Pages::quiet_context`]: then everything is as it was.
    pub(super) fn settled(
        &self,
        at: Address,
        bytes: u64,
        last: Option<Mark>,
    ) -> Result<(MutexGuard<'_, Books>, Option<Instant>)> {
        let mut quiet = BTreeSet::new();
        let leaves = |books: &Books| {
            let mut marks = books.marks_of_shared(at, bytes, last);
            marks.extend(books.orders.ends());
            marks
        };
        let (mut books, mut since) = self.turn();
        loop {
            let mut any = books.used_on_any_stream(at, bytes).into_iter();
            let next = any.find(|context| !quiet.contains(context));
            let runs = |mark: &Mark| !books.orders.is_passed(&self.driver, *mark);
            if next.is_none() && !leaves(&books).iter().any(runs) {
                return Ok((books, since));
            }
            // Under the lock that tells of it: it may end at any moment, also during the wait
            // for another one, and its handle be another's.
            let begun = next.filter(|context| books.orders.await_context(*context));
            drop(books);
            since = since.or_else(|| Some(Instant::now()));
            match begun {
                Some(context) => {
                    self.wait_begun(context)?;
                    quiet.insert(context);
                }
                // It may be ending: soon it is known whether it has.
                None if next.is_some() => nap(NAP),
                None => {}
            }
            self.quiet(leaves);
            // Others may have opened what is there meanwhile.
            books = self.lock();
        }
    }

    /// Waits for all work of a context, for who has no place in a stream to wait for.
    ///
    /// # Errors
    /// As `quiet_context`.
    pub fn wait_for_context(&self, context: Context) -> Result<()> {
        while !self.await_context(context)? {}
        Ok(())
    }

    /// Waits for all work of a context; false, a little later, where it may be ending: soon
    /// it is known whether there is one to wait for.
    fn await_context(&self, context: Context) -> Result<bool> {
        if !self.lock().orders.await_context(context) {
            nap(NAP);
            return Ok(false);
        }
        self.wait_begun(context).map(|()| true)
    }

    /// The rest of a wait for a context that has begun.
    fn wait_begun(&self, context: Context) -> Result<()> {
        let waited = self.quiet_context(context);
        self.lock().orders.waited_for(context);
        waited
    }

    /// The last of these places that was not passed.
    fn runs_at(&self, which: impl Fn(&Books) -> Vec<Mark>) -> Option<Mark> {
        let books = self.lock();
        let mut marks = which(&books);
        marks.sort_unstable_by_key(|mark| Reverse(mark.number));
        marks.dedup();
        let runs = |mark: &Mark| !books.orders.is_passed(&self.driver, *mark);
        marks.into_iter().find(runs)
    }

    /// Waits for an event; false where the driver does not.
    fn quiet_event(&self, event: Event) -> bool {
        is_over(|| self.driver.synchronize_event(event).map(|()| true))
    }

    /// Waits for all work of a context.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where a capture is under way, beside which a wait takes memory, and
    /// there is none.
    pub(super) fn quiet_context(&self, context: Context) -> Result<()> {
        let event = self.driver.create_event(context).ok();
        let record = |event: &Event| self.driver.record_context(*event, context).is_ok();
        let recorded = CAPTURES.exclude(|| event.filter(record)).flatten();
        let is_quiet = recorded.is_some_and(|event| self.quiet_event(event));
        let plainly = || is_over(|| self.driver.synchronize_context(context).map(|()| true));
        let mut waited = Ok(());
        // Drivers before 12.5 have no such event. A capture may have begun by now.
        if !is_quiet && CAPTURES.exclude(plainly).is_none() {
            is_over(|| {
                waited = self.driver.synchronize_by_free(context);
                waited.map(|()| true)
            });
        }
        if let Some(event) = event {
            let _ = self.driver.destroy_event(event);
        }
        match waited {
            Err(Code::OUT_OF_MEMORY) => waited,
            _ => Ok(()),
        }
    }
}

impl Books {
    /// The contexts of what is used in this range, where that may be on any stream.
    fn used_on_any_stream(&self, at: Address, bytes: u64) -> BTreeSet<Context> {
        let used = self.used_in(at, bytes);
        used.flat_map(|(_, mapping)| mapping.on_any_stream.iter().copied())
            .collect()
    }

    /// What may run on the pages in use in this range that are not kept, by any of their
    /// addresses, once they are given up behind `last`.
    fn marks_of_shared(&self, at: Address, bytes: u64, last: Option<Mark>) -> Vec<Mark> {
        let mut pages = self.used_pages_in(at, bytes);
        pages.retain(|page| self.pages[page].shared);
        let marks = |page: PageId| self.marks_of(page).into_iter().chain(last);
        pages.into_iter().flat_map(marks).collect()
    }

    /// What may run on a page, by any of its addresses, and not in the order of who uses it:
    /// anything where nobody does, else what all streams of the only context wait for.
    pub fn marks_beside_use(&self, page: PageId) -> Vec<Mark> {
        let Some(Page { used, .. }) = self.pages.get(&page) else {
            return Vec::new();
        };
        let mut marks = self.marks_of(page);
        if *used > 0 {
            let everywhere = self.orders.awaited_everywhere();
            marks.retain(|mark| everywhere.contains(mark));
        }
        marks
    }

    /// What may run on the page that is given back first.
    pub fn first_marks(&self) -> Vec<Mark> {
        let page = self.least_wanted();
        page.map_or_else(Vec::new, |page| self.marks_of(page))
    }

    /// What may run where this range is mapped and not in use.
    pub fn unused_marks(&self, at: Address, bytes: u64) -> Vec<Mark> {
        let unused = self.unused_in(at, bytes).into_iter();
        unused
            .filter_map(|(at, _)| self.mappings[&at].last)
            .collect()
    }
}
