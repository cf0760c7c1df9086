//! Streams that begin and end, and captures that do: the pool keeps per stream
//! what may still use freed memory, and must not synchronise while anything
//! captures. A stream brings queues, for which room is made.

use std::ffi::c_void;

use memcuda_core::driver::{Code, Context, Stream};
use memcuda_core::pool::StreamKey;

use crate::driver::captures::Origin;
use crate::driver::places;
use crate::engine::Engine;
use crate::pages::{self, gone};
use crate::room::{Place, with_room};

use super::foreign;

crate::hooks! {
    /// `cuStreamCreate`.
    cuStreamCreate ["cuStreamCreate" since 2000] (stream: *mut Stream, flags: u32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        create(engine, stream, foreign::current, || unsafe { real(stream, flags) })
    }

    /// `cuStreamCreateWithPriority`.
    cuStreamCreateWithPriority ["cuStreamCreateWithPriority" since 5050] (
        stream: *mut Stream, flags: u32, priority: i32,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        create(engine, stream, foreign::current, || unsafe { real(stream, flags, priority) })
    }

    /// `cuGreenCtxStreamCreate`.
    cuGreenCtxStreamCreate ["cuGreenCtxStreamCreate" since 12040] (
        stream: *mut Stream, green: u64, flags: u32, priority: i32,
    ) |real, engine| {
        create(engine, stream, |engine| foreign::of_green(engine, green), || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(stream, green, flags, priority) }
        })
    }

    /// `cuStreamDestroy_v2`: the pool records what it must while the stream
    /// still exists.
    cuStreamDestroy_v2 ["cuStreamDestroy" since 4000] (stream: Stream) |real, engine| {
        // SAFETY: the program's own call, passed on.
        destroy(engine, stream, || unsafe { real(stream) })
    }

    /// `cuStreamDestroy`, before CUDA 4.
    cuStreamDestroy ["cuStreamDestroy" since 2000] (stream: Stream) |real, engine| {
        // SAFETY: the program's own call, passed on.
        destroy(engine, stream, || unsafe { real(stream) })
    }

    /// `cuStreamBeginCapture` of CUDA 10.0.
    cuStreamBeginCapture ["cuStreamBeginCapture" since 10000] (stream: Stream) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begin(engine, stream.or_legacy(), || unsafe { real(stream) })
    }

    /// `cuStreamBeginCapture` of CUDA 10.0, thread's own default stream.
    cuStreamBeginCapture_ptsz ["cuStreamBeginCapture" since 10000 per_thread] (stream: Stream) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begin(engine, stream.or_per_thread(), || unsafe { real(stream) })
    }

    /// `cuStreamBeginCapture_v2`.
    cuStreamBeginCapture_v2 ["cuStreamBeginCapture" since 10010] (stream: Stream, mode: u32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begin(engine, stream.or_legacy(), || unsafe { real(stream, mode) })
    }

    /// `cuStreamBeginCapture_v2`, thread's own default stream.
    cuStreamBeginCapture_v2_ptsz ["cuStreamBeginCapture" since 10010 per_thread] (stream: Stream, mode: u32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begin(engine, stream.or_per_thread(), || unsafe { real(stream, mode) })
    }

    /// `cuStreamBeginCaptureToGraph`.
    cuStreamBeginCaptureToGraph ["cuStreamBeginCaptureToGraph" since 12030] (
        stream: Stream, graph: u64, nodes: *const u64, data: *const c_void, count: usize, mode: u32,
    ) |real, engine| {
        begin(engine, stream.or_legacy(), || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(stream, graph, nodes, data, count, mode) }
        })
    }

    /// `cuStreamBeginCaptureToGraph`, thread's own default stream.
    cuStreamBeginCaptureToGraph_ptsz ["cuStreamBeginCaptureToGraph" since 12030 per_thread] (
        stream: Stream, graph: u64, nodes: *const u64, data: *const c_void, count: usize, mode: u32,
    ) |real, engine| {
        begin(engine, stream.or_per_thread(), || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(stream, graph, nodes, data, count, mode) }
        })
    }

    /// `cuStreamBeginRecaptureToGraph`.
    cuStreamBeginRecaptureToGraph ["cuStreamBeginRecaptureToGraph" since 13030] (
        stream: Stream, mode: u32, graph: u64, mismatch: *const c_void, data: *mut c_void,
    ) |real, engine| {
        begin(engine, stream.or_legacy(), || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(stream, mode, graph, mismatch, data) }
        })
    }

    /// `cuStreamBeginRecaptureToGraph`, thread's own default stream.
    cuStreamBeginRecaptureToGraph_ptsz ["cuStreamBeginRecaptureToGraph" since 13030 per_thread] (
        stream: Stream, mode: u32, graph: u64, mismatch: *const c_void, data: *mut c_void,
    ) |real, engine| {
        begin(engine, stream.or_per_thread(), || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(stream, mode, graph, mismatch, data) }
        })
    }

    /// `cuStreamEndCapture`.
    cuStreamEndCapture ["cuStreamEndCapture" since 10000] (stream: Stream, graph: *mut u64) |real, engine| {
        // SAFETY: the program's own call, passed on.
        end(engine, stream.or_legacy(), unsafe { real(stream, graph) })
    }

    /// `cuStreamEndCapture`, thread's own default stream.
    cuStreamEndCapture_ptsz ["cuStreamEndCapture" since 10000 per_thread] (stream: Stream, graph: *mut u64) |real, engine| {
        // SAFETY: the program's own call, passed on.
        end(engine, stream.or_per_thread(), unsafe { real(stream, graph) })
    }
}

/// Creates a stream in a place.
fn create<'a>(
    engine: &'a Engine,
    stream: *mut Stream,
    place: impl FnOnce(&'a Engine) -> Place<'a>,
    real: impl Fn() -> Code,
) -> Code {
    let code = with_room(engine, || place(engine), real);
    if code == Code::SUCCESS {
        // SAFETY: the driver has just written there.
        gone::is_there(unsafe { *stream });
    }
    code
}

/// Destroys a stream, after every pool has recorded what it must on it.
fn destroy(engine: &Engine, stream: Stream, real: impl FnOnce() -> Code) -> Code {
    if stream.is_default() {
        // The driver refuses, and whatever the stream captures goes on.
        return real();
    }
    let place = engine.of_stream(stream);
    let context = place.map(|(context, _)| context);
    match place {
        Ok((context, device)) => {
            // Memory of any device may have been freed in this stream's order.
            engine
                .pools()
                .for_each(|pool| pool.stream_ends(context, stream));
            let key = StreamKey::new(context, stream, 0);
            for pages in engine.pages() {
                if !pages.stream_ends(key) {
                    let whole = pages::whole(engine, device, context);
                    pages.all_on_any_stream(&[context, whole]);
                }
            }
            ends(engine, stream, Some(context));
        }
        // Nothing ends in a broken context, so there is nothing to record; nor is there where
        // the stream's green context is gone, or was never told.
        Err(code) if code.is_sticky() => {}
        Err(Code::STREAM_DETACHED) => ends(engine, stream, None),
        Err(Code::NOT_SUPPORTED) => {}
        Err(code) => return code,
    }
    // Before the handle can come back as another thread's stream.
    places::forget();
    let origin = Origin::new(stream, context.unwrap_or_default());
    engine.captures.ended(origin);
    let code = real();
    if code != Code::SUCCESS {
        gone::is_there(stream);
    }
    pay(engine);
    code
}

/// Torch may have pages that it used, and know it by its handle.
fn ends(engine: &Engine, stream: Stream, context: Option<Context>) {
    if engine.pages().next().is_some() {
        gone::ends(stream, context);
    }
}

/// Begins a capture, after every pool has recorded what it must on the stream.
fn begin(engine: &Engine, stream: Stream, real: impl FnOnce() -> Code) -> Code {
    let context = match engine.of_stream(stream) {
        Ok((context, _)) => context,
        // No pool knows a stream of which the driver does not tell the context.
        Err(Code::NOT_SUPPORTED) => Context::default(),
        // It captures already, and takes no other one.
        Err(Code::STREAM_CAPTURE_INVALIDATED) => return real(),
        Err(code) => return code,
    };
    engine
        .pools()
        .for_each(|pool| pool.capture_begins(context, stream));
    engine
        .captures
        .begin(Origin::new(stream, context), context, real)
}

/// After an end, successful or not: a capture that was invalidated is over as
/// well, one that was not this thread's to end goes on.
fn end(engine: &Engine, stream: Stream, code: Code) -> Code {
    let captures = || engine.calls.captures(stream);
    if code == Code::SUCCESS || captures().or_else(|_| captures()) == Ok(false) {
        let context = engine.calls.current().unwrap_or_default();
        engine.captures.ended(Origin::new(stream, context));
        pay(engine);
    }
    code
}

/// What could not be done while a stream captured is made up for.
fn pay(engine: &Engine) {
    let memops = engine.devices.iter().map(|device| &device.memops);
    memops.for_each(|memops| memops.pay(&engine.calls));
}
