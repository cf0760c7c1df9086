//! What a test tells the model to do, and asks it afterwards: calls that fail, streams that
//! are held back, contexts that end; what is ordered, mapped, left.

use super::Model;
use crate::driver::{Access, Address, Code, Context, Handle, Stream};

impl Model {
    /// Lets the virtual-memory call with this number (from 0) fail.
    pub fn fail_at(&self, call: u64, code: Code) {
        self.books().fail_at = Some((call, code));
    }

    /// Says that handles are multiples of so many bytes.
    pub fn set_granularity(&self, bytes: u64) {
        self.books().granularity = Some(bytes);
    }

    /// Says that so many bytes are free, whatever there is.
    pub fn say_free(&self, bytes: u64) {
        self.books().says_free = Some(bytes);
    }

    /// The most that was held at once, in bytes.
    pub fn peak(&self) -> u64 {
        self.books().peak
    }

    /// Opens nothing where there are more mappings than these.
    pub fn allow_mappings(&self, most: usize) {
        self.books().most_mappings = Some(most);
    }

    /// Reserves no more than so many bytes of addresses, all together.
    pub fn allow_addresses(&self, most: u64) {
        self.books().most_addresses = Some(most);
    }

    /// Bytes of addresses that are reserved.
    pub fn reserved(&self) -> u64 {
        self.books().reservations.values().sum()
    }

    /// Lets the next so many records of an event, waits for it or a context, and of one, fail.
    pub fn fail_waits(&self, calls: u32, code: Code) {
        self.books().fail_waits = Some((calls, code));
    }

    /// Lets no stream wait for an event any more, or again.
    pub fn fail_orders(&self, code: Option<Code>) {
        self.books().no_orders = code;
    }

    /// Holds a stream's work back, or lets it complete.
    pub fn hold(&self, context: Context, stream: Stream, held: bool) {
        let mut books = self.books();
        if held {
            books.blocked.insert((context, stream));
        } else {
            books.blocked.remove(&(context, stream));
        }
    }

    /// Work that is held back goes on as long as it is, though the host waits for it.
    /// Without this the wait lets it complete.
    pub fn hold_truly(&self) {
        self.books().is_endless = true;
    }

    /// Has no events of a whole context from now on.
    pub fn lack_context_events(&self) {
        self.books().lacks_context_events = true;
    }

    /// Ends a context: nothing of it runs, and its events are none.
    pub fn end_context(&self, context: Context) {
        let books = &mut *self.books();
        books.blocked.retain(|held| held.0 != context);
        books.events.retain(|_, of| of.0 != context);
        books.ended.insert(context);
        let its = books.made.extract_if(|_, of| *of == context);
        books.gone.extend(its.map(|(event, _)| event));
    }

    /// Events that were made and not destroyed.
    pub fn events(&self) -> usize {
        self.books().made.len()
    }

    /// The orderings made so far: (waiting stream, stream waited for).
    pub fn waits(&self) -> Vec<(Stream, Stream)> {
        self.books().waits.clone()
    }

    /// What a device may do with the mapping that begins at an address.
    pub fn access(&self, at: Address, device: u32) -> Access {
        let books = self.books();
        let access = books.access.get(&(at, device)).copied();
        access.unwrap_or(Access::None)
    }

    /// The handle of the mapping that begins at an address.
    pub fn mapped(&self, at: Address) -> Option<Handle> {
        self.books().mappings.get(&at).map(|(_, handle)| *handle)
    }

    /// Handles of which the first mapping is gone while others stayed.
    pub fn torn(&self) -> usize {
        let books = self.books();
        let is_torn = |(handle, (first, _)): &(&Handle, &(Address, usize))| {
            let there = books.mappings.get(first);
            there.is_none_or(|(_, mapped)| mapped != *handle)
        };
        books.shown.iter().filter(is_torn).count()
    }

    /// Reservations, handles and mappings that exist.
    pub fn leftovers(&self) -> (usize, usize, usize) {
        let books = self.books();
        (
            books.reservations.len(),
            books.handles.len(),
            books.mappings.len(),
        )
    }
}
