//! What a call of the driver needs of the program's thread, its current context and its
//! capture mode, and how the thread gets its own back. Makes no call for the pool.

use super::real::{Calls, Real};
use super::sys;
use super::{Code, Context, Result};

impl Real {
    /// Makes `context` current for as long as the guard lives.
    pub(super) fn enter(&self, context: Context) -> Result<Entered> {
        let calls = self.calls();
        let mut current = Context::default();
        // SAFETY: the pointer is valid for the call.
        unsafe { (calls.ctx_current)(&mut current) }.ok()?;
        let pushed = current != context;
        if pushed {
            // SAFETY: a context that is gone is an error of the call.
            unsafe { (calls.ctx_push)(context) }.ok()?;
        }
        Ok(Entered { calls, pushed })
    }

    /// Does something with `context` current.
    #[cfg(feature = "cli")]
    pub(super) fn within<T>(
        &self,
        context: Context,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _entered = self.enter(context)?;
        work()
    }

    /// Makes a call of the program's that a stream capture forbids, without touching the
    /// capture; fails where it could not be made.
    pub fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _relaxed = self.relax()?;
        Ok(work())
    }

    /// Lets this thread make calls that a stream capture forbids, without
    /// touching the capture, for as long as the guard lives.
    pub(super) fn relax(&self) -> Result<Relaxed> {
        let calls = self.calls();
        let mut mode = sys::CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is valid for the call, which swaps the mode.
        unsafe { (calls.exchange_capture_mode)(&mut mode) }.ok()?;
        Ok(Relaxed {
            calls,
            previous: mode,
        })
    }
}

/// Makes a call that gives the program's thread back what was its own; again
/// if it fails, for the thread would stay changed.
pub fn restore(mut call: impl FnMut() -> Code) {
    const TRIES: usize = 4;
    let _ = (0..TRIES).any(|_| call() == Code::SUCCESS);
}

pub(super) struct Entered {
    calls: &'static Calls,
    pushed: bool,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = Context::default();
            // SAFETY: pops what `enter` pushed on this thread.
            restore(|| unsafe { (self.calls.ctx_pop)(&mut popped) });
        }
    }
}

pub(super) struct Relaxed {
    calls: &'static Calls,
    previous: u32,
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let mut mode = self.previous;
        // SAFETY: gives the thread its own mode back.
        restore(|| unsafe { (self.calls.exchange_capture_mode)(&mut mode) });
    }
}
