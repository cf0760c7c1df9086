//! Streams and contexts that end. The pool's mappings outlive them, so what the driver ends
//! with a context is ended here; memory of the device's memory pool stays, as
//! with the driver, and so does other contexts' memory.

use super::Pool;
use super::request::{Owner, Release, StreamKey};
use super::state::State;
use crate::driver::{Address, Context, Driver, Stream};
use crate::waiting::nap;
use std::time::Duration;

/// Between two looks whether a wait is over.
const NAP: Duration = Duration::from_micros(100);

impl<D: Driver> Pool<D> {
    /// Before a stream is destroyed: records what is outstanding on it. Of one that this pool
    /// does not know nothing is, and whoever holds the pool up keeps nobody from ending it.
    pub fn stream_ends(&self, context: Context, stream: Stream) {
        if !self.fronts.know(&StreamKey::new(context, stream, 0)) {
            return;
        }
        let mut state = self.lock();
        let settled = state.streams.settle(&self.driver, context, stream);
        state.streams.health.notice(context, settled);
        state.streams.forget(context, stream);
        state.streams.poll_ended(&self.driver, context, stream);
    }

    /// Threads have ended, and with them their default streams.
    pub fn threads_end(&self, threads: &[u64]) {
        self.lock().streams.forget_threads(threads);
    }

    /// Before a stream begins a capture: records what is outstanding on it.
    pub fn capture_begins(&self, context: Context, stream: Stream) {
        if !self.fronts.know(&StreamKey::new(context, stream, 0)) {
            return;
        }
        let mut state = self.lock();
        let settled = state.streams.settle(&self.driver, context, stream);
        state.streams.health.notice(context, settled);
    }

    /// Work of the primary context may use memory that was asked for in another one, a view of
    /// it: who waits for the device ([`Pool::synchronize_device`]) waits for it, too.
    pub fn primary_joins(&self, primary: Context) {
        self.lock().streams.health.joins(primary);
    }

    /// A context is about to be destroyed, by a call that may take its time:
    /// nothing of it is asked or waited for any more, once the waits that have
    /// begun are over. [`Pool::context_ends`] or [`Pool::context_stays`] follows.
    pub fn context_leaves(&self, context: Context) {
        self.lock().streams.health.leaves(context);
        while self.lock().streams.health.is_awaited(context) {
            nap(NAP);
        }
    }

    /// Does a context stay that a call of another thread may be ending? Waits until that is
    /// known. The caller holds no lock of the pool.
    pub(super) fn stays(&self, context: Context) -> bool {
        let mut end = None;
        while let Some(leaves) = self.lock().streams.health.leaving(context) {
            end = Some(leaves);
            nap(NAP);
        }
        !end.is_some_and(|end| end.came())
    }

    /// The context was not destroyed after all.
    pub fn context_stays(&self, context: Context) {
        self.lock().streams.health.stays(context);
    }

    /// A context was destroyed: nothing of it runs any more, its memory is free, and so much
    /// that is idle goes back; with the last context all of it, as far as no work uses it.
    pub fn context_ends(&self, context: Context) {
        let mut state = self.lock();
        state.streams.forget_context(context);
        let mut idle = 0;
        for at in state.belongings(context) {
            let freed = state.free(&self.driver, at, Release::Complete);
            debug_assert!(freed.is_ok());
            idle += freed.map_or(0, |freed| freed.bytes);
        }
        if state.streams.health.contexts().is_empty() {
            idle = u64::MAX;
        }
        // The handle may come back as another one's.
        state.hand_over(context, Context::default());
        self.publish(&mut state);
        drop(state);
        self.revoke_all_of(context);
        if idle > 0 {
            self.give_back(idle, Duration::ZERO);
        }
    }

    /// An allocation whose context is gone is another one's from now on, whose
    /// work its free waits for.
    pub fn adopt(&self, at: Address, context: Context) {
        let state = self.lock();
        if let Some((base, home)) = state.home(at) {
            state.fronts().lock(home).adopt(base, context);
        }
    }

    /// A view of a context (a green one) is about to be destroyed. Its streams answer
    /// nothing afterwards, so what runs on them is waited for; then it is as with a context
    /// ([`Pool::context_leaves`]). [`Pool::view_ends`] or [`Pool::context_stays`] follows.
    pub fn view_leaves(&self, view: Context) {
        let _ = self.synchronize(view);
        self.context_leaves(view);
    }

    /// A view of a context was destroyed. Its memory stays: it is the context's behind it,
    /// and ends with that.
    pub fn view_ends(&self, view: Context, whole: Context) {
        let mut state = self.lock();
        state.streams.forget_context(view);
        state.hand_over(view, whole);
    }
}

impl State {
    /// The live allocations that end with a context.
    fn belongings(&self, context: Context) -> Vec<Address> {
        let mut all = Vec::new();
        for front in self.fronts().used() {
            let front = self.fronts().lock(front);
            let live = front.live().filter(|block| !block.attached);
            let of_it =
                live.filter(|block| block.context == context && block.owner == Owner::Context);
            all.extend(of_it.map(|block| block.base));
        }
        all
    }

    /// What is left of a context is another one's from now on.
    fn hand_over(&mut self, context: Context, to: Context) {
        for front in self.fronts().used() {
            self.fronts().lock(front).hand_over(context, to);
        }
    }
}

#[cfg(test)]
#[path = "leaving_tests.rs"]
mod leaving_tests;
#[cfg(test)]
#[path = "contexts_tests.rs"]
mod tests;
