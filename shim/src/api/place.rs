//! Where a call of the interface acts: the engine, started if need be, and a
//! context of the device that is meant.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::Mutex;

use memcuda_core::driver::{Code, Context};

use crate::device::Device;
use crate::engine::{self, Engine};
use crate::hooks::start;
use crate::names::Failure;
use crate::names::place::Place;
use crate::room::{self, with_room};
use crate::{primaries, resolve};

/// `MEMCUDA_CURRENT`.
pub const CURRENT: i32 = -1;

/// The engine. A program that has not used CUDA yet begins to here.
pub fn engine() -> Result<&'static Engine, Failure> {
    const DRIVER: &CStr = c"libcuda.so.1";
    if let Some(engine) = engine::running() {
        return Ok(engine);
    }
    let absent = |why: &str| Failure::Unavailable(why.to_owned());
    let aside = "the library stands aside in this process (disabled, wrong settings, or forked)";
    // In a forked child the driver answers nothing but errors.
    if engine::is_aside() {
        return Err(absent(aside));
    }
    if resolve::open(DRIVER).is_null() {
        return Err(absent("there is no libcuda.so.1"));
    }
    start::initialize_here()
        .ok()
        .map_err(Failure::of("cuInit"))?;
    engine::running().ok_or_else(|| absent(aside))
}

/// A context of the device with this ordinal, and the device; of [`CURRENT`] the
/// current ones, or device 0 where none is. What no context is current for gets
/// the primary one, which then stays.
pub fn of(engine: &'static Engine, device: i32) -> Result<Place<'static>, Failure> {
    if !engine.lends() {
        return Err(Failure::Unavailable(
            "MEMCUDA_POLICY=track, or an internal error: no memory is shared".to_owned(),
        ));
    }
    let current = engine.current();
    match current {
        Ok((context, on)) if device == CURRENT || device == on.ordinal as i32 => {
            return Ok(Place {
                context,
                device: on,
            });
        }
        Err(code) if code != Code::INVALID_CONTEXT => {
            return Err(Failure::Driver(code, "cuCtxGetCurrent"));
        }
        _ => {}
    }
    let ordinal = if device == CURRENT { 0 } else { device };
    let found = usize::try_from(ordinal)
        .ok()
        .and_then(|index| engine.devices.get(index));
    let device = found.ok_or_else(|| {
        Failure::Invalid(format!(
            "device {device} is none; accepted: {CURRENT} and 0 to {}",
            engine.devices.len() as i64 - 1
        ))
    })?;
    let context = primary(engine, device)?;
    Ok(Place { context, device })
}

/// The primary context of a device, retained once for the life of the process. Room for it
/// is made as for the program's own call, with nothing held.
fn primary(engine: &Engine, device: &Device) -> Result<Context, Failure> {
    let context = Cell::new(Context::default());
    let retain = || match retained(engine, device) {
        Ok(found) => {
            context.set(found);
            Code::SUCCESS
        }
        Err(code) => code,
    };
    let code = with_room(engine, || room::Place::Device(device), retain);
    code.ok().map_err(Failure::of("cuDevicePrimaryCtxRetain"))?;
    Ok(context.get())
}

fn retained(engine: &Engine, device: &Device) -> Result<Context, Code> {
    static RETAINED: Mutex<Vec<(i32, Context)>> = Mutex::new(Vec::new());
    // It does not end between question and retain. Before the list: who holds this may
    // be called back by the driver, and come here.
    let _still = primaries::hold();
    let mut retained = RETAINED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let active = engine.calls.primary_is_active(device.handle);
    let known = retained
        .iter()
        .position(|(handle, _)| *handle == device.handle);
    if let Some(known) = known {
        if active == Ok(true) {
            return Ok(retained[known].1);
        }
        // A reset has ended it.
        retained.swap_remove(known);
    }
    let retain = engine.calls.primary_retain.ok_or(Code::NOT_SUPPORTED)?;
    let mut context = Context::default();
    // SAFETY: the pointer is valid for the call.
    unsafe { retain(&mut context, device.handle) }.ok()?;
    retained.push((device.handle, context));
    Ok(context)
}

/// A stream that a program passed (`CUstream`, `cudaStream_t`).
pub fn stream(stream: *mut c_void) -> memcuda_core::driver::Stream {
    memcuda_core::driver::Stream(stream as u64)
}
