//! The stream captures under way in this process: while there are any, nothing
//! synchronises a context, and memory that a graph may replay on is marked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use memcuda_core::driver::{Code, Context, Stream, cancel};
use memcuda_core::lock::lock;
use memcuda_core::pool::{CAPTURES, StreamKey};

use crate::driver::calls::Calls;
use crate::process::threads;

/// The stream on which a capture began; a thread's own default stream has the
/// same handle in every thread and context, so these go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    stream: Stream,
    of: Option<(u64, Context)>,
}

impl Origin {
    /// A stream of the calling thread in this context.
    pub fn new(stream: Stream, context: Context) -> Self {
        let own = stream == Stream::PER_THREAD;
        let of = own.then(|| (threads::number(), context));
        Self { stream, of }
    }
}

/// The streams whose capture was begun and has not ended, and their contexts.
#[derive(Default)]
pub struct Captures {
    origins: Mutex<Vec<(Origin, Context)>>,
    count: AtomicUsize,
}

impl Captures {
    /// Is any capture under way?
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// What an allocation or a free must answer because a capture forbids them
    /// to the calling thread.
    #[inline]
    pub fn refusal(&self, calls: &Calls) -> Option<Code> {
        match self.any() {
            true => self.ask(calls),
            false => None,
        }
    }

    /// The same of the driver. Where the thread has no context, or one that has ended, it is
    /// asked in that of a capture; a broken one has its own answer.
    #[cold]
    fn ask(&self, calls: &Calls) -> Option<Code> {
        let _held = cancel::hold();
        let asked = calls.refusal_of_captures();
        let asked = asked.or_else(|code| {
            if code.is_sticky() && code != Code::CONTEXT_IS_DESTROYED {
                return Err(code);
            }
            let first = lock(&self.origins).first().copied();
            let (_, context) = first.ok_or(code)?;
            calls.within(context, || calls.refusal_of_captures())?
        });
        asked.ok().flatten()
    }

    /// Begins a capture of this stream by `real`, while no pool does anything
    /// that would end it.
    pub fn begin(&self, origin: Origin, context: Context, real: impl FnOnce() -> Code) -> Code {
        let thread = origin.of.map_or(0, |(thread, _)| thread);
        let stream = StreamKey::new(context, origin.stream, thread);
        let beginning = CAPTURES.begin(&stream);
        let code = real();
        if code == Code::SUCCESS && self.began(origin, context) {
            beginning.succeeded();
        }
        code
    }

    /// Notes a capture; true if it was not known. One of the same stream in another context is
    /// not: that one is being ended, and the stream's handle has come back.
    fn began(&self, origin: Origin, context: Context) -> bool {
        let mut origins = lock(&self.origins);
        let fresh = origins.iter().all(|known| *known != (origin, context));
        if fresh {
            origins.push((origin, context));
        }
        self.count.store(origins.len(), Ordering::Release);
        fresh
    }

    /// The capture of this stream, if one is known, is over.
    pub fn ended(&self, origin: Origin) {
        self.forget(|(known, _)| *known == origin);
    }

    /// A context has ended, and with it whatever its streams captured.
    pub fn context_ended(&self, context: Context) {
        self.forget(|(_, owner)| *owner == context);
    }

    fn forget(&self, is_over: impl Fn(&(Origin, Context)) -> bool) {
        let mut origins = lock(&self.origins);
        let over = origins.extract_if(.., |known| is_over(known)).count();
        self.count.store(origins.len(), Ordering::Release);
        // Not under the lock: a capture that begins takes these two the other
        // way round.
        drop(origins);
        (0..over).for_each(|_| CAPTURES.ended());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_begin_is_no_capture() {
        let captures = Captures::default();
        let origin = Origin::new(Stream(0x200), Context(1));
        captures.begin(origin, Context(1), || Code::INVALID_VALUE);
        assert!(!captures.any());
    }

    #[test]
    fn a_threads_own_streams_of_two_contexts_capture_each() {
        let captures = Captures::default();
        let own = |context| Origin::new(Stream::PER_THREAD, context);
        let both = [Context(1), Context(2)];
        for context in both {
            captures.begin(own(context), context, || Code::SUCCESS);
        }
        for context in both {
            assert!(captures.any());
            captures.ended(own(context));
        }
        assert!(!captures.any());
    }

    /// As the driver gives it within the call that ends the first context.
    #[test]
    fn a_stream_whose_handle_comes_back_captures_though_it_did_in_a_context_that_ends() {
        let captures = Captures::default();
        let origin = Origin::new(Stream(0x300), Context(1));
        for context in [Context(1), Context(2)] {
            captures.begin(origin, context, || Code::SUCCESS);
        }
        captures.context_ended(Context(1));
        assert!(captures.any());
        captures.ended(origin);
        assert!(!captures.any());
    }

    #[test]
    fn captures_of_many_threads_begin_and_end_at_once() {
        let captures = Captures::default();
        std::thread::scope(|scope| {
            for stream in 0x100..0x104 {
                let captures = &captures;
                scope.spawn(move || {
                    let origin = Origin::new(Stream(stream), Context(1));
                    for _ in 0..20_000 {
                        captures.begin(origin, Context(1), || Code::SUCCESS);
                        assert!(captures.any());
                        captures.ended(origin);
                    }
                });
            }
        });
        assert!(!captures.any() && CAPTURES.exclude(|| ()).is_some());
    }
}
