//! Waits on the host, for one context or for all that is pending. Holds no
//! state lock while it waits, and ends no capture.

use super::Pool;
use super::captures::CAPTURES;
use super::request::{Lack, Release};
use super::state::State;
use super::streams::{Noted, StreamId};
use crate::driver::{Code, Context, Driver, Event, Result, cancel};

/// What a wait for all that is pending has come to.
pub(super) struct Waited {
    /// Fails where nobody knows of some use whether it is over.
    pub known: Result<()>,
    /// Contexts whose uses were left out, as calls of other threads may be ending them.
    pub leaving: Vec<Context>,
}

impl Default for Waited {
    fn default() -> Self {
        Self {
            known: Ok(()),
            leaving: Vec::new(),
        }
    }
}

impl<D: Driver> Pool<D> {
    /// Waits on the host for a whole context, as cudaFree does. `Ok(false)`
    /// where that is impossible: a capture is under way and the device is full,
    /// or the context is being ended.
    pub fn synchronize(&self, context: Context) -> Result<bool> {
        let places = self.begin_wait(context);
        places.map_or(Ok(false), |places| self.wait_for_places(context, places))
    }

    /// The same also where a call of another thread may be ending the context, once it is known
    /// whether it has: then there is nothing left to wait for. The caller holds no lock.
    fn synchronize_surely(&self, context: Context) -> Result<bool> {
        loop {
            if let Some(places) = self.begin_wait(context) {
                return self.wait_for_places(context, places);
            }
            if !self.stays(context) {
                return Ok(true);
            }
        }
    }

    /// See [`State::begin_wait`].
    fn begin_wait(&self, context: Context) -> Option<Vec<(StreamId, u64)>> {
        self.lock().begin_wait(context)
    }

    /// Waits for a context, and with it for these places.
    fn wait_for_places(&self, context: Context, places: Vec<(StreamId, u64)>) -> Result<bool> {
        let _held = cancel::hold();
        let waited = self.wait_for_context(context);
        let mut state = self.lock();
        state.streams.health.end_wait(context);
        let Some(waited) = waited else {
            return Ok(false);
        };
        state.stats.host_waits += 1;
        state.streams.health.notice(context, waited);
        waited?;
        for (stream, place) in places {
            state.streams.passed(stream, place);
        }
        Ok(true)
    }

    /// Waits on the host for a context as cudaFree does, and for the primary one where it may
    /// be a view of that. For the others nobody waits: what runs there now is noted, and the
    /// answer says what is known of the uses of the context's memory.
    pub fn synchronize_own(&self, context: Context, is_view: bool) -> Result<Release> {
        let primary = || self.lock().streams.health.primary();
        let whole = is_view.then(primary).flatten();
        let whole = whole.filter(|primary| *primary != context);
        let waited = whole.map_or(Ok(true), |primary| self.synchronize_surely(primary));
        // In a broken context nothing runs any more.
        let waited = waited.unwrap_or_else(Code::is_sticky);
        if !self.synchronize_surely(context)? || !waited {
            return Ok(Release::Unknown);
        }
        let mut others = self.lock().streams.health.contexts();
        others.retain(|other| *other != context);
        let mut release = Release::Complete;
        for other in others {
            let mut state = self.lock();
            if !state.streams.health.contexts().contains(&other) {
                // It has ended meanwhile: nothing would ever tell what was noted of it.
                continue;
            }
            let noted = state.streams.note(&self.driver, other);
            drop(state);
            let over = match noted {
                Noted::Over => true,
                Noted::Running => false,
                // A driver without context-wide events has nothing but a wait. What a capture
                // keeps from being noted is noted after it.
                Noted::Nothing if CAPTURES.exclude(|| ()).is_none() => false,
                // In a broken context nothing runs any more.
                Noted::Nothing => self.synchronize(other).unwrap_or_else(Code::is_sticky),
            };
            if !over {
                release = Release::Own;
            }
        }
        Ok(release)
    }

    /// Is all that runs in a context over? Waits for nothing: what ends just now may count
    /// as running.
    pub fn is_over(&self, context: Context) -> bool {
        let noted = self.lock().streams.note(&self.driver, context);
        matches!(noted, Noted::Over)
    }

    /// Waits on the host for all contexts that use the pool, before memory is unmapped that
    /// they may use; the answer is that of `context`.
    pub fn synchronize_device(&self, context: Context) -> Result<bool> {
        let contexts = || self.lock().streams.health.contexts();
        let mut complete = true;
        for other in contexts().into_iter().filter(|other| *other != context) {
            // It may have ended during the wait for another one.
            if !contexts().contains(&other) {
                continue;
            }
            // In a broken context nothing runs any more.
            complete &= self
                .synchronize_surely(other)
                .unwrap_or_else(|code| code.is_sticky());
        }
        Ok(self.synchronize_surely(context)? && complete)
    }

    /// Would so many bytes not fit, were all over that is pending? Then nobody waits for that:
    /// a driver says at once that it is out of memory. Not where nobody knows.
    pub(super) fn is_hopeless(&self, state: &State, bytes: u64) -> bool {
        let could_grow = match state.lack {
            Lack::Memory => self.driver.memory_info(self.device).map(|(free, _)| free),
            Lack::Limit => (self.settings.limit)
                .map(|limit| limit.saturating_sub(state.counted() + self.beside().0))
                .ok_or(Code::NOT_FOUND),
            Lack::Tables(_) => return false,
        };
        could_grow.is_ok_and(|free| self.idle_of(state).saturating_add(free) < bytes)
    }

    /// Waits on the host for every outstanding use, but for those in broken
    /// contexts, which never end.
    pub(super) fn wait_for_pending(&self) -> Waited {
        let mut waited = Waited::default();
        let mut state = self.lock();
        state.stats.host_waits += 1;
        let (wait, events) = state.streams.outstanding(&self.driver);
        let of = |(stream, seq, event)| (state.streams.context(stream), stream, seq, event);
        let events: Vec<_> = events.into_iter().map(of).collect();
        waited.leaving = state.streams.used_and_leaving();
        drop(state);
        let mut unknown = self.wait_for_each(wait, &events, &mut waited.leaving);
        let mut state = self.lock();
        state.streams.end_wait(wait);
        // What no event could tell, a wait for its context does.
        unknown.extend(state.streams.uncovered_contexts());
        waited.leaving.extend(state.streams.used_and_leaving());
        drop(state);
        unknown.sort_unstable();
        unknown.dedup();
        for context in unknown {
            let mut state = self.lock();
            // It may have ended during the wait for another one.
            if !state.streams.has_uses_in(context) {
                continue;
            }
            let Some(places) = state.begin_wait(context) else {
                waited.leaving.push(context);
                continue;
            };
            drop(state);
            match self.wait_for_places(context, places) {
                // What has ended meanwhile cannot be waited for, and need not be.
                Err(code) if !code.is_sticky() && self.lock().streams.has_uses_in(context) => {
                    waited.known = waited.known.and(Err(code));
                }
                _ => {}
            }
        }
        waited
    }

    /// Returns the contexts of events for which one cannot wait; those that may be ending
    /// by now are `leaving`.
    fn wait_for_each(
        &self,
        wait: u64,
        events: &[(Context, StreamId, u64, Event)],
        leaving: &mut Vec<Context>,
    ) -> Vec<Context> {
        let mut unknown = Vec::new();
        for &(context, stream, seq, event) in events {
            let mut state = self.lock();
            if !state.streams.begin_wait(wait, context, event) {
                let leaves = state.streams.health.is_leaving(context);
                leaving.extend(leaves.then_some(context));
                continue;
            }
            drop(state);
            let waited = self.driver.synchronize_event(event);
            let mut state = self.lock();
            state.streams.health.end_wait(context);
            match waited {
                Ok(()) => state.streams.passed(stream, seq),
                Err(code) if code.is_sticky() => {
                    state.streams.health.notice(context, waited);
                }
                Err(_) => unknown.push(context),
            }
        }
        unknown
    }

    /// Records a context-wide event under the captures' lock, then waits for
    /// it without. During a capture it waits by a free; `None` where there is no
    /// memory for that.
    fn wait_for_context(&self, context: Context) -> Option<Result<()>> {
        let recorded = CAPTURES.exclude(|| {
            let event = self.driver.create_event(context)?;
            let recorded = self.driver.record_context(event, context);
            if recorded.is_err() {
                let _ = self.driver.destroy_event(event);
            }
            recorded.map(|()| event)
        });
        let Some(recorded) = recorded else {
            return self.wait_by_free(context);
        };
        let waited = recorded.and_then(|event| {
            let waited = self.driver.synchronize_event(event);
            let _ = self.driver.destroy_event(event);
            waited
        });
        match waited {
            Err(code) if !code.is_sticky() => {
                // No such event (a driver older than 12.5), or none to be had
                // now: wait the plain way, which a capture may not see either.
                let plainly = CAPTURES.exclude(|| self.driver.synchronize_context(context));
                plainly.or_else(|| self.wait_by_free(context))
            }
            // What stays with the context would come again.
            waited => Some(waited),
        }
    }

    fn wait_by_free(&self, context: Context) -> Option<Result<()>> {
        let waited = self.driver.synchronize_by_free(context);
        let told = waited.map_or_else(Code::is_sticky, |()| true);
        told.then_some(waited)
    }
}

impl State {
    /// The places that a wait for a context is for; `None` where it is being ended.
    fn begin_wait(&mut self, context: Context) -> Option<Vec<(StreamId, u64)>> {
        let begins = self.streams.health.begin_wait(context);
        begins.then(|| self.streams.places(context))
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
