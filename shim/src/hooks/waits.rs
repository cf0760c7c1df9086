//! Waits on the host for a stream or a context. All are the driver's but those of torch before it
//! unmaps pages. What it was asked for stays mapped, so the next user comes after it instead
//! (`pages`). A stream for which the driver has no wait, or one that would end a capture, is waited
//! for as by cudaFree, by which torch would give memory of cudaMalloc's up; so is, beside a
//! capture, the context before what is another process's is unmapped. The pools are told of
//! those that succeed.

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Code, Context, Driver, Stream};
use memcuda_core::pool::{Place, Pool};

use crate::engine::Engine;
use crate::engine::boundary;
use crate::engine::device::Device;
use crate::pages::{gone, put_off};
use crate::process::tags::{self, Tag};
use crate::share::exports;
use crate::torch;

crate::hooks! {
    /// `cuStreamSynchronize`.
    cuStreamSynchronize ["cuStreamSynchronize" since 2000] (stream: Stream) |real, engine| {
        put_off::note(engine, stream.or_legacy());
        let site = torch::waits_from(&tags::take(), stream);
        if site.is_some_and(torch::may_unmap_behind)
            && let Some(code) = as_by_free(engine, stream.or_legacy())
        {
            put_off::end();
            return code;
        }
        let site = site.filter(|_| torch::is_on_ladder() && !torch::forgets_users());
        // Of what is exported none is kept: it would be waited for behind a lock.
        let unmaps = site.is_some_and(torch::unmaps_behind) && !exports::has_runs();
        if unmaps && put_off::begin(engine, stream.or_legacy()) {
            return Code::SUCCESS;
        }
        put_off::end();
        // SAFETY: the program's own call, passed on.
        let code = told(of_stream(engine, stream.or_legacy()), || unsafe { real(stream) });
        tags::set(Tag {
            waited: site.filter(|_| code == Code::SUCCESS),
            ..Tag::NONE
        });
        code
    }

    /// `cuStreamSynchronize`, thread's own default stream.
    cuStreamSynchronize_ptsz ["cuStreamSynchronize" since 2000 per_thread] (stream: Stream) |real, engine| {
        // SAFETY: the program's own call, passed on.
        told(of_stream(engine, stream.or_per_thread()), || unsafe { real(stream) })
    }

    /// `cuCtxSynchronize`.
    cuCtxSynchronize ["cuCtxSynchronize" since 2000] () |real, engine| {
        let current = engine.calls.current().unwrap_or_default();
        told(of_context(engine, current), || {
            // SAFETY: the program's own call, passed on.
            beside_capture(engine, current).unwrap_or_else(|| unsafe { real() })
        })
    }

    /// `cuCtxSynchronize_v2`: any context; where none is named, the current one.
    cuCtxSynchronize_v2 ["cuCtxSynchronize" since 13000] (context: Context) |real, engine| {
        let waited_for = match context == Context::default() {
            true => engine.calls.current().unwrap_or_default(),
            false => context,
        };
        told(of_context(engine, waited_for), || {
            // SAFETY: the program's own call, passed on.
            beside_capture(engine, waited_for).unwrap_or_else(|| unsafe { real(context) })
        })
    }
}

/// Waits for the context of a stream that is gone or captures, where the driver would wait for
/// nobody; `None` where it can. What a stream of a context that is gone had is waited for before
/// pages are unmapped.
fn as_by_free(engine: &Engine, stream: Stream) -> Option<Code> {
    let context = match gone::context_of(stream) {
        Some(context) => context,
        None => match engine.of_stream(stream) {
            Err(Code::STREAM_DETACHED) => None,
            Ok((context, _)) if captures(engine, stream) => Some(context),
            _ => return None,
        },
    };
    let pages = engine.pages().next()?;
    let refused = engine.captures.refusal(&engine.calls);
    let waited = match (refused, context) {
        (Some(code), _) => Err(code),
        (None, Some(context)) => {
            let waited = pages.wait_for_context(context);
            // Whoever frees is told of a crash.
            let broken = engine.driver.check(context).err();
            let broken = broken.filter(|code| code.is_sticky());
            waited.and(broken.map_or(Ok(()), Err))
        }
        (None, None) => Ok(()),
    };
    Some(waited.err().unwrap_or(Code::SUCCESS))
}

/// Does a stream capture?
fn captures(engine: &Engine, stream: Stream) -> bool {
    engine.captures.any() && engine.calls.captures(stream) == Ok(true)
}

/// Waits for a context beside a capture, which the driver's own wait would end, where torch waits
/// before it unmaps what it has of another process: memory of CUDA IPC would be closed there.
/// `None` where the driver is to wait.
fn beside_capture(engine: &Engine, context: Context) -> Option<Code> {
    let none = context == Context::default();
    if none || !engine.captures.any() || !torch::is_unmapping() {
        return None;
    }
    let waited = engine.driver.synchronize_by_free(context);
    Some(boundary::answered(waited.err().unwrap_or(Code::SUCCESS)))
}

/// What a wait is for, pool by pool.
type Places<'a> = Vec<(&'a Pool<Real>, Place)>;

/// Of a stream: what was freed in its order, whichever device's it is.
fn of_stream(engine: &Engine, stream: Stream) -> Places<'_> {
    if stream == Stream::LEGACY || engine.pools().next().is_none() {
        return Vec::new();
    }
    // What is no stream the driver refuses to wait for.
    let Ok((context, _)) = engine.of_stream(stream) else {
        return Vec::new();
    };
    let key = engine.key(context, stream);
    let pools = engine.pools();
    pools
        .filter_map(|pool| Some((pool, pool.place_of(&key)?)))
        .collect()
}

/// Of a context. Where green contexts were, it is not known for which streams a wait is.
fn of_context(engine: &Engine, context: Context) -> Places<'_> {
    let plain = |device: &&Device| !device.views.were_there();
    let pools = engine.devices.iter().filter(plain).filter_map(Device::pool);
    pools
        .flat_map(|pool| {
            let places = pool.places_in(context).into_iter();
            places.map(move |place| (pool, place))
        })
        .collect()
}

/// Waits, and tells the pools where that succeeds.
fn told(places: Places, wait: impl FnOnce() -> Code) -> Code {
    let code = wait();
    if code == Code::SUCCESS {
        places
            .into_iter()
            .for_each(|(pool, place)| pool.has_waited(place));
    }
    code
}
