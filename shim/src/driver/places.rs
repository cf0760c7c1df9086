//! Where a stream and a context belong, remembered per thread: programs name
//! the same few again and again, and asking the driver costs more than serving
//! them. Everything is forgotten when a stream or a context ends.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use memcuda_core::driver::{Context, Stream};

/// Counts the ends of streams and contexts: what was learnt before is stale.
static ENDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STREAM: Cell<(u64, Stream, Context)> = const { Cell::new((0, Stream(0), Context(0))) };
    static CONTEXT: Cell<(u64, Context, usize)> = const { Cell::new((0, Context(0), 0)) };
}

/// A stream or a context ended: its handle may come back as another one's.
pub fn forget() {
    ENDS.fetch_add(1, Ordering::Release);
}

/// The context of a stream other than the default ones, from `ask` where it is
/// not this thread's last.
pub fn context_of<E>(
    stream: Stream,
    ask: impl FnOnce() -> Result<Context, E>,
) -> Result<Context, E> {
    let ends = ENDS.load(Ordering::Acquire);
    match STREAM.get() {
        (then, known, context) if then == ends && known == stream => Ok(context),
        _ => {
            let context = ask()?;
            STREAM.set((ends, stream, context));
            Ok(context)
        }
    }
}

/// The place of a context's device in the list of all, from `ask` where it is
/// not this thread's last.
pub fn device_of<E>(context: Context, ask: impl FnOnce() -> Result<usize, E>) -> Result<usize, E> {
    let ends = ENDS.load(Ordering::Acquire);
    match CONTEXT.get() {
        (then, known, device) if then == ends && known == context => Ok(device),
        _ => {
            let device = ask()?;
            CONTEXT.set((ends, context, device));
            Ok(device)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_asked_again_until_something_ends() {
        let (stream, context) = (Stream(0x100), Context(0x200));
        assert_eq!(context_of(stream, || Ok::<_, ()>(context)), Ok(context));
        assert_eq!(device_of(context, || Ok::<_, ()>(3)), Ok(3));
        assert_eq!(context_of(stream, || Err(())), Ok(context));
        assert_eq!(device_of(context, || Err(())), Ok(3));
        assert_eq!(context_of(Stream(0x101), || Err(7)), Err(7));
        forget();
        assert_eq!(
            context_of(stream, || Ok::<_, ()>(Context(7))),
            Ok(Context(7))
        );
        assert_eq!(device_of(context, || Err(5)), Err(5));
    }
}
