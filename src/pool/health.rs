//! Which contexts are broken. A crashed kernel leaves an error that every later
//! call on its context answers, and memory must not be lent there any more.
//! Only the driver knows of a crash as early as the program may have been told,
//! by whatever call, so it is asked before anything is lent.

use super::front::Epoch;
use super::streams::{StreamId, Streams};
use crate::driver::{Code, Context, Driver, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Known {
    context: Context,
    error: Option<Code>,
}

/// What becomes of a context that a call may be ending.
#[derive(Clone, Default)]
pub struct End(Arc<AtomicBool>);

impl End {
    /// Has it ended?
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The contexts that were asked about.
#[derive(Default)]
pub struct Health {
    known: Vec<Known>,
    /// Contexts that are being ended: the driver may have taken their events.
    leaving: Vec<(Context, End)>,
    /// Contexts that the host waits for, once for each wait.
    awaited: Vec<Context>,
    /// The context whose views others are.
    primary: Option<Context>,
    /// Counts what changes an answer of [`Health::check`] without the driver.
    epoch: Arc<Epoch>,
}

impl Health {
    /// Nothing is known yet.
    pub fn new(epoch: Arc<Epoch>) -> Self {
        Self {
            epoch,
            ..Self::default()
        }
    }

    /// Asks the driver; fails with the error that stays with the context. Of one that is
    /// gone nothing is noted: its handle may come back as another's.
    pub fn check<D: Driver>(&mut self, driver: &D, context: Context) -> Result<()> {
        if let Some(code) = self.error(context) {
            return Err(code);
        }
        let checked = driver.check(context);
        if checked == Err(Code::CONTEXT_IS_DESTROYED) {
            return checked;
        }
        self.known(context);
        self.notice(context, checked);
        // What keeps the question from being asked is not the program's.
        checked.or_else(|code| if code.is_sticky() { checked } else { Ok(()) })
    }

    /// The error of a context, as far as it is known.
    pub fn error(&self, context: Context) -> Option<Code> {
        let known = self.known.iter().find(|known| known.context == context);
        known?.error
    }

    /// Is any context known to be broken?
    pub fn is_any_broken(&self) -> bool {
        self.known.iter().any(|known| known.error.is_some())
    }

    /// Notes a result; an error that stays with its context breaks it. Of a
    /// context that nobody asks for memory in nothing is noted: it may have
    /// ended during a wait for it, and its handle come back as another's.
    pub fn notice(&mut self, context: Context, result: Result<()>) {
        let mut known = self.known.iter_mut();
        if let Err(code) = result
            && code.is_sticky()
            && let Some(known) = known.find(|known| known.context == context)
        {
            known.error.get_or_insert(code);
            self.begin_epoch();
        }
    }

    /// What the fronts know of contexts is out of date.
    fn begin_epoch(&self) {
        self.epoch.end();
    }

    /// Was this context asked about, and is it not known to be broken?
    pub fn is_whole(&self, context: Context) -> bool {
        let known = self.known.iter().find(|known| known.context == context);
        known.is_some_and(|known| known.error.is_none())
    }

    /// A context that is not known to be broken.
    pub fn whole(&self) -> Option<Context> {
        let whole = |known: &&Known| known.error.is_none() && !self.is_leaving(known.context);
        self.known.iter().find(whole).map(|known| known.context)
    }

    /// The contexts that memory was asked for in, and that have not ended.
    pub fn contexts(&self) -> Vec<Context> {
        self.known.iter().map(|known| known.context).collect()
    }

    /// Work of the primary context may use the pool's memory, though none was asked for in it.
    pub fn joins(&mut self, primary: Context) {
        self.known(primary);
        self.primary = Some(primary);
    }

    /// The primary context, if it is known.
    pub fn primary(&self) -> Option<Context> {
        self.primary
    }

    /// The context is about to end: nothing of it is touched from now on.
    pub fn leaves(&mut self, context: Context) {
        self.leaving.push((context, End::default()));
    }

    /// It did not end.
    pub fn stays(&mut self, context: Context) {
        self.leaving.retain(|(leaving, _)| *leaving != context);
    }

    /// Is the context being ended?
    pub fn is_leaving(&self, context: Context) -> bool {
        self.leaving.iter().any(|(leaving, _)| *leaving == context)
    }

    /// What will tell of a context that is being ended whether it has.
    pub fn leaving(&self, context: Context) -> Option<End> {
        let mut leaving = self.leaving.iter();
        let of_it = leaving.find(|(leaving, _)| *leaving == context);
        of_it.map(|(_, end)| end.clone())
    }

    /// Does anybody wait for what becomes of a context that is being ended?
    #[cfg(test)]
    pub fn is_watched(&self, context: Context) -> bool {
        let is_its = |leaving: &&(Context, End)| leaving.0 == context;
        let mut of_it = self.leaving.iter().filter(is_its);
        of_it.any(|(_, end)| Arc::strong_count(&end.0) > 1)
    }

    /// All contexts that are being ended.
    pub fn all_leaving(&self) -> Vec<Context> {
        self.leaving.iter().map(|(context, _)| *context).collect()
    }

    /// A wait of the host for a context begins; false where the context is being ended.
    pub fn begin_wait(&mut self, context: Context) -> bool {
        let begins = !self.is_leaving(context);
        self.awaited.extend(begins.then_some(context));
        begins
    }

    /// That wait is over.
    pub fn end_wait(&mut self, context: Context) {
        let place = self.awaited.iter().position(|awaited| *awaited == context);
        place.map(|at| self.awaited.swap_remove(at));
    }

    /// Does the host wait for a context?
    pub fn is_awaited(&self, context: Context) -> bool {
        self.awaited.contains(&context)
    }

    /// The context is gone.
    pub fn forget(&mut self, context: Context) {
        self.known.retain(|known| known.context != context);
        self.primary = self.primary.filter(|primary| *primary != context);
        let ends = |(leaving, _): &mut (Context, End)| *leaving == context;
        for (_, end) in self.leaving.extract_if(.., ends) {
            end.0.store(true, Ordering::Release);
        }
        self.begin_epoch();
    }

    fn known(&mut self, context: Context) -> &mut Known {
        let at = self.known.iter().position(|known| known.context == context);
        let at = at.unwrap_or_else(|| {
            self.known.push(Known {
                context,
                error: None,
            });
            self.known.len() - 1
        });
        &mut self.known[at]
    }
}

impl Streams {
    /// Runs `work` on a stream whose context is neither broken nor about to end, and notes it where
    /// `work` shows that it is; other errors are returned.
    pub(super) fn unless_broken(
        &mut self,
        id: StreamId,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let context = self.context(id);
        if self.health.error(context).is_some() || self.health.is_leaving(context) {
            return Ok(());
        }
        let done = work(self);
        self.health.notice(context, done);
        done.or_else(|code| if code.is_sticky() { Ok(()) } else { Err(code) })
    }
}
