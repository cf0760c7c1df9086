//! Contexts that begin: room is made for them, and where names are expected the
//! pool of the device. Contexts that get other flags: they keep the one that marked
//! memory needs. Contexts that end: mappings of the pool outlive them (cuMemAlloc's memory
//! does not), so the pools are told, after the driver has done its part, which may wait for
//! work. Until they have heard it nobody else gets the handle (`endings`), and the thread
//! that gives memory back makes no call; other contexts begin and end meanwhile.

use std::ffi::c_void;

use memcuda_core::driver::{Code, Context, Driver};
use memcuda_core::pages::Pages;

use crate::driver::{places, primaries};
use crate::engine::Engine;
use crate::engine::boundary::planted_panic;
use crate::engine::device::Device;
use crate::engine::endings::Ending;
use crate::engine::{endings, worker};
use crate::names::{lifetime, table};
use crate::pages::gone;
use crate::pool::mind_primary;
use crate::room::with_room;
use crate::share::{early, exports, held};

use super::foreign::on;

/// A green context (`CUgreenCtx`).
type GreenContext = u64;

crate::hooks! {
    /// `cuCtxCreate`, before CUDA 3.2: who binds by symbol alone calls it still.
    cuCtxCreate ["cuCtxCreate" since 2000]
        (context: *mut Context, flags: u32, device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begins(engine, context, device, || unsafe { real(context, flags, device) })
    }

    /// `cuCtxCreate_v2`.
    cuCtxCreate_v2 ["cuCtxCreate" since 3020]
        (context: *mut Context, flags: u32, device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begins(engine, context, device, || unsafe { real(context, flags, device) })
    }

    /// `cuCtxCreate_v3`, with affinities.
    cuCtxCreate_v3 ["cuCtxCreate" since 11040]
        (context: *mut Context, affinity: *mut c_void, count: i32, flags: u32, device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begins(engine, context, device, || unsafe { real(context, affinity, count, flags, device) })
    }

    /// `cuCtxCreate_v4`, with parameters.
    cuCtxCreate_v4 ["cuCtxCreate" since 12050]
        (context: *mut Context, parameters: *mut c_void, flags: u32, device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        begins(engine, context, device, || unsafe { real(context, parameters, flags, device) })
    }

    /// `cuDevicePrimaryCtxRetain`: what runtimes call.
    cuDevicePrimaryCtxRetain ["cuDevicePrimaryCtxRetain" since 7000]
        (context: *mut Context, device: i32) |real, engine| {
        let real = || {
            let _still = primaries::hold();
            // SAFETY: the program's own call, passed on.
            let code = unsafe { real(context, device) };
            if code == Code::SUCCESS && let Some(device) = engine.by_handle(device) {
                device.retains.one_more();
            }
            code
        };
        begins(engine, context, device, real)
    }

    /// `cuGreenCtxCreate`: a view of the primary context, which it may be the first to use.
    cuGreenCtxCreate ["cuGreenCtxCreate" since 12040]
        (green: *mut GreenContext, resources: *mut c_void, device: i32, flags: u32) |real, engine| {
        let real = || {
            let _still = primaries::hold();
            // SAFETY: the program's own call, passed on.
            let code = unsafe { real(green, resources, device, flags) };
            if code == Code::SUCCESS && let Some(its) = engine.by_handle(device) {
                its.views.may_begin();
                // SAFETY: the driver has just written there.
                let view = engine.calls.view_of(unsafe { *green });
                if let (Ok(view), Ok(Some(whole))) = (view, engine.calls.primary(device)) {
                    its.views.begins(view, whole);
                }
            }
            code
        };
        let code = with_room(engine, || on(engine, device), real);
        if code == Code::SUCCESS
            && let Some(device) = engine.by_handle(device)
        {
            // SAFETY: the driver has just written there.
            if endings::any() && let Ok(view) = engine.calls.view_of(unsafe { *green }) {
                endings::until_heard(view);
            }
            if let Some(pool) = device.pool() {
                mind_primary(engine, device, pool);
            }
        }
        code
    }

    /// `cuCtxDestroy_v2`.
    cuCtxDestroy_v2 ["cuCtxDestroy" since 4000] (context: Context) |real, engine| {
        // SAFETY: the program's own call, passed on.
        ends(engine, context, || unsafe { real(context) }, || true)
    }

    /// `cuCtxDestroy`, before CUDA 4.
    cuCtxDestroy ["cuCtxDestroy" since 2000] (context: Context) |real, engine| {
        // SAFETY: the program's own call, passed on.
        ends(engine, context, || unsafe { real(context) }, || true)
    }

    /// `cuCtxDetach`: the last use given up ends the context, which then is not
    /// the calling thread's current one any more, or current once more and gone.
    cuCtxDetach ["cuCtxDetach" since 2000] (context: Context) |real, engine| {
        let current = || engine.calls.current();
        let gone = |code| matches!(code, Code::INVALID_CONTEXT | Code::CONTEXT_IS_DESTROYED);
        let is_over = || {
            current().or_else(|_| current()) != Ok(context)
                || engine.driver.check(context).is_err_and(gone)
        };
        // SAFETY: the program's own call, passed on.
        ends(engine, context, || unsafe { real(context) }, is_over)
    }

    /// `cuDevicePrimaryCtxReset_v2`: cudaDeviceReset.
    cuDevicePrimaryCtxReset_v2 ["cuDevicePrimaryCtxReset" since 11000] (device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        reset(engine, device, || unsafe { real(device) })
    }

    /// `cuDevicePrimaryCtxReset`, before CUDA 11.
    cuDevicePrimaryCtxReset ["cuDevicePrimaryCtxReset" since 7000] (device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        reset(engine, device, || unsafe { real(device) })
    }

    /// `cuDevicePrimaryCtxRelease_v2`: the last release ends the context.
    cuDevicePrimaryCtxRelease_v2 ["cuDevicePrimaryCtxRelease" since 11000] (device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        released(engine, device, || unsafe { real(device) })
    }

    /// `cuDevicePrimaryCtxRelease`, before CUDA 11.
    cuDevicePrimaryCtxRelease ["cuDevicePrimaryCtxRelease" since 7000] (device: i32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        released(engine, device, || unsafe { real(device) })
    }

    /// `cuCtxSetFlags`.
    cuCtxSetFlags ["cuCtxSetFlags" since 12010] (flags: u32) |real, engine| {
        let place = engine.current().ok();
        let context = || place.map(|(context, _)| context);
        // SAFETY: the program's own call, passed on.
        flagged(place.map(|(_, device)| device), flags, context, |flags| unsafe { real(flags) })
    }

    /// `cuDevicePrimaryCtxSetFlags_v2`: cudaSetDeviceFlags, of a context that may be there.
    cuDevicePrimaryCtxSetFlags_v2 ["cuDevicePrimaryCtxSetFlags" since 11000]
        (device: i32, flags: u32) |real, engine| {
        let _still = primaries::hold();
        let context = || engine.calls.primary(device).ok().flatten();
        // SAFETY: the program's own call, passed on.
        flagged(engine.by_handle(device), flags, context, |flags| unsafe { real(device, flags) })
    }

    /// `cuGreenCtxDestroy`: a view of the primary context ends, which it may
    /// have been the last to use. Its streams answer nothing after it, so what
    /// runs on them is waited for before.
    cuGreenCtxDestroy ["cuGreenCtxDestroy" since 12040] (green: GreenContext) |real, engine| {
        let _still = primaries::hold();
        // SAFETY: the program's own call, passed on.
        let real = || unsafe { real(green) };
        let view = match engine.calls.view_of(green) {
            Ok(view) => view,
            Err(code) => return code,
        };
        let device = match engine.device_of(view) {
            Ok(device) => device.handle,
            Err(code) => return code,
        };
        let whole = engine.calls.primary(device).ok().flatten();
        let _ending = begin_end(view);
        let views = engine.by_handle(device).map(|device| &device.views);
        let was_of = views.and_then(|views| views.ends(view));
        // By them nobody can wait for what they used, either.
        let pages = engine.pages();
        pages.for_each(|pages| pages.all_on_any_stream(whole.as_slice()));
        let _leaving = Leaving::begin_view(engine, view);
        planted_panic("cuGreenCtxDestroy: leaves");
        let destroy = || {
            let code = real();
            if code == Code::SUCCESS {
                places::forget();
                engine.captures.context_ended(view);
                gone::context_ended(view);
                let whole = whole.unwrap_or_default();
                held::hand_over(view, whole);
                table::hand_over(view, whole);
                engine.pools().for_each(|pool| pool.view_ends(view, whole));
                let memops = engine.devices.iter().map(|device| &device.memops);
                memops.for_each(|memops| memops.hand_over(&engine.calls, view, whole));
            }
            code
        };
        let code = one_use_less(engine, device, false, destroy);
        match code {
            Code::SUCCESS => engine.pages().for_each(|pages| pages.context_ends(view)),
            _ => {
                if let (Some(views), Some(whole)) = (views, was_of) {
                    views.begins(view, whole);
                }
            }
        }
        code
    }
}

/// Runs a call that makes a context or another use of one.
fn begins(engine: &Engine, context: *mut Context, device: i32, real: impl Fn() -> Code) -> Code {
    let code = with_room(engine, || on(engine, device), real);
    if code == Code::SUCCESS {
        // SAFETY: the driver has just written there.
        let context = unsafe { *context };
        endings::until_heard(context);
        if engine.contexts.begins(context) {
            engine.pages().for_each(Pages::others_come);
        }
        if let Some(device) = engine.by_handle(device) {
            engine.contexts.begins_on(device.ordinal);
            early::context_made(engine, context, device);
        }
    }
    code
}

/// Runs a call that sets the flags of a context: memory that is marked needs one of them.
fn flagged(
    device: Option<&Device>,
    flags: u32,
    context: impl FnOnce() -> Option<Context>,
    real: impl FnOnce(u32) -> Code,
) -> Code {
    match device {
        Some(device) => device.memops.set_flags(flags, context, real),
        None => real(flags),
    }
}

/// A context that a call may be ending: nothing of it is asked or waited for. Once it has
/// ended, which pools and pages are told, it does not stay when this is dropped; else
/// it does, also where something of this library's has panicked meanwhile.
struct Leaving<'a> {
    engine: &'a Engine,
    context: Context,
}

impl<'a> Leaving<'a> {
    fn begin(engine: &'a Engine, context: Context) -> Self {
        let leaving = Self { engine, context };
        engine.pools().for_each(|pool| pool.context_leaves(context));
        engine
            .pages()
            .for_each(|pages| pages.context_leaves(context));
        leaving
    }

    /// The same of a view of a context, for whose work is waited first.
    fn begin_view(engine: &'a Engine, view: Context) -> Self {
        let leaving = Self {
            engine,
            context: view,
        };
        engine.pools().for_each(|pool| pool.view_leaves(view));
        engine.pages().for_each(|pages| pages.view_leaves(view));
        leaving
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let Self { engine, context } = *self;
        engine.pools().for_each(|pool| pool.context_stays(context));
        engine
            .pages()
            .for_each(|pages| pages.context_stays(context));
    }
}

/// From here on the end of a context is under way, and the library's own thread away.
fn begin_end(context: Context) -> Ending {
    let ending = endings::begin(context);
    // Within the driver's call handles of its streams may come back as other contexts'.
    places::forget();
    worker::until_away();
    ending
}

/// Runs a call that ends a context, if `is_over` says so after it succeeded. Of a primary
/// one the caller holds `primaries`.
fn ends(
    engine: &Engine,
    context: Context,
    real: impl FnOnce() -> Code,
    is_over: impl FnOnce() -> bool,
) -> Code {
    let _ending = begin_end(context);
    let leaving = Leaving::begin(engine, context);
    let leave = |d: &Device| d.pitch.leave_probe(context, d.views.were_there());
    let probes: Vec<_> = engine.devices.iter().map(leave).collect();
    let code = real();
    if code == Code::SUCCESS && is_over() {
        ended(engine, context);
    } else {
        drop(leaving);
        let devices = engine.devices.iter().zip(probes);
        devices.for_each(|(device, probe)| device.pitch.keep_probe(context, probe));
    }
    code
}

fn ended(engine: &Engine, context: Context) {
    places::forget();
    engine.captures.context_ended(context);
    gone::context_ended(context);
    held::context_ended(engine, context);
    lifetime::context_ended(engine, context);
    // Each: another device may have reached its memory, or it another's.
    engine.pools().for_each(|pool| pool.context_ends(context));
    engine.pages().for_each(|pages| pages.context_ends(context));
    exports::withdraw_freed(engine);
    engine
        .devices
        .iter()
        .for_each(|device| device.memops.forget(context));
    engine.plain_context_ended(context);
}

/// Runs a reset: the primary context ends, whoever uses it.
fn reset(engine: &Engine, device: i32, real: impl FnOnce() -> Code) -> Code {
    let _still = primaries::hold();
    if let Some(device) = engine.by_handle(device) {
        device.retains.none();
    }
    match engine.calls.primary(device) {
        Ok(Some(primary)) => ends(engine, primary, real, || true),
        // There is none: nothing ends.
        Ok(None) => real(),
        Err(code) => code,
    }
}

/// Runs a release of the program's.
fn released(engine: &Engine, device: i32, real: impl FnOnce() -> Code) -> Code {
    let _still = primaries::hold();
    let on = engine.by_handle(device);
    let stays = on.is_some_and(|device| device.retains.one_less());
    one_use_less(engine, device, stays, real)
}

/// Runs a call that gives up a use of the primary context, which ends with its last one, and
/// so may end now. Where it certainly `stays`, nobody waits for anybody.
fn one_use_less(engine: &Engine, device: i32, stays: bool, real: impl FnOnce() -> Code) -> Code {
    match engine.calls.primary(device) {
        Ok(Some(primary)) => {
            let active = || engine.calls.primary_is_active(device);
            let is_over = || active().or_else(|_| active()) == Ok(false);
            if !stays {
                return ends(engine, primary, real, is_over);
            }
            let code = real();
            // Others have released it by ways that no hook is on.
            if code == Code::SUCCESS && is_over() {
                ended(engine, primary);
                if let Some(device) = engine.by_handle(device) {
                    device.retains.none();
                }
            }
            code
        }
        Ok(None) => real(),
        Err(code) => code,
    }
}
