//! The wait for a stream that torch makes before it unmaps pages, put off: they stay mapped,
//! and who uses them next comes after a mark. Knows per thread which wait that was, and
//! makes it after all where no mark can stand for it.

use std::cell::Cell;

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Context, Result, Stream};
use memcuda_core::pages::{Found, Mark, Pages};
use memcuda_core::pool::StreamKey;

use crate::engine::Engine;
use crate::engine::device::Device;

thread_local! {
    /// The wait that torch would have made on this thread before it unmaps: on which
    /// device, and what stands for it.
    static PUT_OFF: Cell<Option<(u32, Mark)>> = const { Cell::new(None) };
    /// The last wait on this thread, if it was for a default stream: in which context.
    static DEFAULT: Cell<Option<(Context, Stream)>> = const { Cell::new(None) };
}

/// A wait for a stream is asked for on this thread.
pub fn note(engine: &Engine, stream: Stream) {
    let is_default = stream.is_default();
    let context = is_default.then(|| engine.calls.current().ok()).flatten();
    DEFAULT.set(context.map(|context| (context, stream)));
}

/// Torch that empties the caches of all devices waits for the default stream of the
/// current one, whosever pages it unmaps next (pytorch/pytorch#196258): those of another
/// device are waited for in its own default stream or, where that has no mark (while
/// anything captures), with all their context. With that, too, are those of a device that had
/// views (green contexts), whatever is current: each has a default stream of its own, and torch
/// takes them for one. The driver's code where there is no such wait.
pub fn wait_at_home(
    engine: &Engine,
    device: &Device,
    kept: &Pages<Real>,
    at: Address,
) -> Result<()> {
    let had_views = device.views.were_there();
    let is_its = |context| engine.device_of(context).map(|its| its.ordinal) == Ok(device.ordinal);
    if let Some((context, stream)) = DEFAULT.get()
        && (had_views || !is_its(context))
        && let Found::Run(run) = kept.find(at)
    {
        let mark = || kept.instead_of_waiting(StreamKey::new(run.context, stream, 0));
        match (!had_views).then(mark).flatten() {
            Some(mark) => kept.wait(mark),
            None => return kept.wait_for_context(run.context),
        }
    }
    Ok(())
}

/// Puts the wait off that torch makes for a stream before it unmaps pages; false where
/// it must be made.
pub fn begin(engine: &Engine, stream: Stream) -> bool {
    if stream == Stream::PER_THREAD {
        return false;
    }
    let Ok((context, device)) = engine.of_stream(stream) else {
        return false;
    };
    let mark = device
        .pages()
        .filter(|pages| pages.is_sound())
        .and_then(|pages| pages.instead_of_waiting(StreamKey::new(context, stream, 0)));
    PUT_OFF.set(mark.map(|mark| (device.ordinal, mark)));
    mark.is_some()
}

/// What stands for the work on pages of a device that are unmapped now on this thread;
/// `None` where it was waited for, as it is here if their stream is another device's.
pub fn last_use(engine: &Engine, device: &Device) -> Option<Mark> {
    let (ordinal, mark) = PUT_OFF.get()?;
    if ordinal != device.ordinal {
        make_up(engine);
        return None;
    }
    Some(mark)
}

/// Makes the wait that was put off on this thread: what it was for stays mapped nowhere.
pub fn make_up(engine: &Engine) {
    let Some((ordinal, mark)) = PUT_OFF.take() else {
        return;
    };
    let device = engine.by_ordinal(ordinal);
    if let Some(pages) = device.and_then(Device::pages) {
        pages.wait(mark);
    }
}

/// Torch has given up what it was asked for, or waits itself.
pub fn end() {
    PUT_OFF.set(None);
}
