//! `cuMemAlloc`, where every cudaMalloc arrives. It names no stream: memory is lent for
//! use on any, but to torch's own allocator, whose stream is known (`torch::identify`).

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code, Context, cancel};
use memcuda_core::pool::{Effort, Order, Owner, Refusal, Request, StreamKey};

use super::foreign;
use crate::engine::Engine;
use crate::engine::boundary;
use crate::engine::device::Device;
use crate::entry::thunks;
use crate::hook::{ABSENT, Hook};
use crate::libraries::modules::Module;
use crate::names::hints;
use crate::names::place::Place;
use crate::oom;
use crate::process::tags;
use crate::record::Caller;
use crate::room::with_room_for;
use crate::{pool, torch};

crate::slot! { cuMemAlloc_v2 ["cuMemAlloc" since 3020] Allocate }

/// The hook of this family.
pub static HOOKS: &[&Hook] = &[&cuMemAlloc_v2::HOOK];

type RealAllocate = unsafe extern "C" fn(*mut Address, usize) -> Code;

/// `cuMemAlloc_v2`, for programs that link to it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(out: *mut Address, bytes: usize) -> Code {
    // SAFETY: the program's own call.
    unsafe { thunks::allocate_heard(Module::DIRECT, out, bytes) }
}

/// `cuMemAlloc_v2`, called through the table of a module.
///
/// # Safety
/// As for the driver's function.
pub unsafe fn allocate(module: Module, out: *mut Address, bytes: usize) -> Code {
    let real = cuMemAlloc_v2::HOOK.real();
    if real.is_null() {
        return ABSENT;
    }
    // SAFETY: the driver's function of this name has this signature.
    let real = unsafe { std::mem::transmute::<*mut c_void, RealAllocate>(real) };
    let real = || {
        let _held = cancel::hold();
        // SAFETY: the program's own call, passed on.
        boundary::answered(unsafe { real(out, bytes) })
    };
    // Taken here: what goes on after a panic must know who asks, too.
    let tag = tags::take();
    boundary::enter(
        "cuMemAlloc_v2",
        |engine| {
            if out.is_null() || bytes == 0 {
                return real();
            }
            let place = || foreign::current(engine);
            let roomy = || with_room_for(engine, bytes as u64, place, real);
            let plain = || torch::plain_alloc(&tag, module, bytes as u64, roomy);
            if !engine.lends() {
                let code = plain();
                if code == Code::SUCCESS
                    && let Ok((context, device)) = engine.current()
                {
                    // SAFETY: the real call has just written it.
                    let address = unsafe { *out };
                    let request = request(engine, context, bytes as u64);
                    engine.plain_allocated(device, &request, address, Caller::of(&tag, module));
                }
                return code;
            }
            // SAFETY: not null, and the program's to write: as the driver does,
            // before anything can fail.
            unsafe { *out = 0 };
            let bytes = bytes as u64;
            let named = lend_named(engine, bytes, &tag);
            let of_driver = || match real() {
                // SAFETY: the real call has just written it.
                Code::SUCCESS => Some(Ok(unsafe { *out })),
                Code::OUT_OF_MEMORY => None,
                code => Some(Err(code)),
            };
            match named.or_else(|| lend(engine, bytes, &tag, module, of_driver)) {
                Some(Ok(address)) => {
                    // SAFETY: not null, and the program's to write, by its call.
                    unsafe { *out = address };
                    Code::SUCCESS
                }
                Some(Err(code)) => code,
                None => plain(),
            }
        },
        || torch::plain_alloc(&tag, module, bytes as u64, real),
        // Where the engine never started, torch may still have been told to
        // count on an answer from here.
        || torch::plain_alloc(&tag, module, bytes as u64, real),
    )
}

/// Memory with a name; `None` where it is to have none.
fn lend_named(engine: &Engine, bytes: u64, tag: &tags::Tag) -> Option<Result<Address, Code>> {
    if !hints::active() {
        return None;
    }
    // Where there is none, the driver says so.
    let (context, device) = engine.current().ok()?;
    torch::asks_for(tag, device.ordinal);
    if let Some(code) = engine.captures.refusal(&engine.calls) {
        return Some(Err(code));
    }
    let place = Place::current(context, device);
    hints::allocate(engine, place, bytes, || torch::is_segment(tag))
}

/// Memory from the current device's pool; `None` where there is none. More than the device has
/// the driver may serve out of the host's memory, as under WSL2: it is asked for that first.
fn lend(
    engine: &Engine,
    bytes: u64,
    tag: &tags::Tag,
    module: Module,
    of_driver: impl Fn() -> Option<Result<Address, Code>>,
) -> Option<Result<Address, Code>> {
    // Where there is none, the driver says so.
    let (context, device) = engine.current().ok()?;
    torch::asks_for(tag, device.ordinal);
    if let Some(code) = engine.captures.refusal(&engine.calls) {
        return Some(Err(code));
    }
    if !device.could_hold(bytes)
        && engine.config.limit_of(device.ordinal).is_none()
        && let Some(answer) = of_driver()
    {
        return Some(answer);
    }
    let pool = pool::of(engine, device)?;
    let request = request(engine, context, bytes);
    let call = torch::identify(tag, module, device.ordinal, bytes);
    // Its stream may be of another context than the current one (a green one).
    let call = call.and_then(|call| {
        let (own, _) = engine.of_stream(call.stream).ok()?;
        Some((engine.key(own, call.stream), call))
    });
    let request = match &call {
        Some((key, call)) => call.ordered(*key, request),
        None => request,
    };
    let result = match &call {
        Some((_, call)) => torch::alloc(pool, &request, call),
        None => {
            crate::log!(Debug, "cuMemAlloc of {bytes} bytes, not torch's own");
            pool.alloc(&request)
        }
    };
    if let Some(recorder) = &engine.recorder {
        recorder.answered(device.ordinal, &request, result, Caller::of(tag, module));
    }
    Some(result.map_err(|refusal| {
        let key = call.map(|(key, _)| key);
        refused(engine, device, bytes, key, refusal)
    }))
}

/// A `cuMemAlloc` of this moment.
pub fn request(engine: &Engine, context: Context, bytes: u64) -> Request {
    Request {
        bytes,
        align: Owner::Context.alignment(bytes),
        order: Order::Unknown,
        context,
        owner: Owner::Context,
        effort: Effort::Growth,
        graph: engine.captures.any(),
    }
}

/// As a `cuMemAlloc` that nobody is known to have made, and without a name.
pub fn lend_unidentified(engine: &Engine, bytes: u64) -> Option<Result<Address, Code>> {
    lend(engine, bytes, &tags::take(), Module::OTHER, || None)
}

/// The code that a refused request gets, once it was reported where there is no
/// memory. (`NoWindow` is torch's to hear first: it frees and tries again.)
pub fn refused(
    engine: &Engine,
    device: &Device,
    bytes: u64,
    key: Option<StreamKey>,
    refusal: Refusal,
) -> Code {
    match refusal {
        Refusal::NoWindow => Code::OUT_OF_MEMORY,
        Refusal::Driver(code) => {
            if code == Code::OUT_OF_MEMORY {
                let _held = cancel::hold();
                oom::report(engine, device, bytes, key);
            }
            code
        }
    }
}
