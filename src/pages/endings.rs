//! Streams and contexts that end, or are no longer alone: what is asked of them before,
//! and what not any more. Ends none itself.

use super::Pages;
use super::wait::NAP;
use crate::driver::{Context, Driver};
use crate::pool::StreamKey;
use crate::waiting::nap;

impl<D: Driver> Pages<D> {
    /// A stream is about to be destroyed. What it has used is given up behind all that it had,
    /// though by its handle the program waits for nobody then, or for another stream. False where
    /// no event tells of that: then [`Pages::all_on_any_stream`] is due before it is destroyed.
    pub fn stream_ends(&self, stream: StreamKey) -> bool {
        let mut books = self.lock();
        let is_any_used = books.is_any_used();
        let mark = || books.orders.mark(&self.driver, stream).ok().flatten();
        let last = is_any_used.then(mark).flatten();
        books.orders.stream_ends(stream, last);
        !is_any_used || last.is_some()
    }

    /// Another context is the program's from now on ([`super::Contexts::begins`]): what all streams
    /// of the first one wait for, the host waits for.
    pub fn others_come(&self) {
        self.quiet(|books| books.orders.awaited_everywhere());
    }

    /// A context may be ending now: until [`Pages::context_stays`] or
    /// [`Pages::context_ends`] nothing is asked of it, and its work counts as running.
    /// Waits that have begun are over first.
    pub fn context_leaves(&self, context: Context) {
        self.lock().orders.context_leaves(context);
        while self.lock().orders.is_awaited(context) {
            nap(NAP);
        }
    }

    /// The same of a view of a context (a green one), once its work was waited for: the
    /// streams of one that is gone answer nothing.
    pub fn view_leaves(&self, view: Context) {
        self.quiet(|books| books.orders.marks_in(view));
        self.context_leaves(view);
    }

    /// It did not end.
    pub fn context_stays(&self, context: Context) {
        self.lock().orders.context_stays(context);
    }

    /// A context was destroyed, with all that ran in it.
    pub fn context_ends(&self, context: Context) {
        let mut books = self.lock();
        books.orders.context_ends(context);
        for mapping in books.mappings.values_mut() {
            mapping.on_any_stream.remove(&context);
        }
    }
}
