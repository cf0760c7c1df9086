//! Where a call of the interface acts: the engine, started if need be, and the
//! device that is meant.

use std::ffi::c_void;

use memcuda_core::driver::Code;

use crate::engine::{self, Engine};
use crate::hooks::start;
use crate::libraries::resolve;
use crate::names::Failure;
use crate::names::place::Place;

/// `MEMCUDA_CURRENT`.
pub const CURRENT: i32 = -1;

/// The engine. A program that has not used CUDA yet begins to here.
pub fn engine() -> Result<&'static Engine, Failure> {
    if let Some(engine) = engine::running() {
        return Ok(engine);
    }
    let absent = |why: &str| Failure::Unavailable(why.to_owned());
    let aside = "the library stands aside in this process (disabled, wrong settings, or forked)";
    // In a forked child the driver answers nothing but errors.
    if engine::is_aside() {
        return Err(absent(aside));
    }
    if resolve::driver_for_another().is_null() {
        return Err(absent("there is no libcuda.so.1"));
    }
    start::initialize_here()
        .ok()
        .map_err(Failure::of("cuInit"))?;
    engine::running().ok_or_else(|| absent(aside))
}

/// Where memory is wanted on the device with this ordinal; for [`CURRENT`] on the current
/// one, or device 0 where none is. No context is made for it yet.
pub fn of(engine: &'static Engine, device: i32) -> Result<Place<'static>, Failure> {
    if !engine.lends() {
        return Err(Failure::Unavailable(
            "MEMCUDA_POLICY=track, or an internal error: no memory is shared".to_owned(),
        ));
    }
    match engine.current() {
        Ok((context, on)) if device == CURRENT || device == on.ordinal as i32 => {
            return Ok(Place::current(context, on));
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
    Ok(Place::without_context(device))
}

/// A stream that a program passed (`CUstream`, `cudaStream_t`).
pub fn stream(stream: *mut c_void) -> memcuda_core::driver::Stream {
    memcuda_core::driver::Stream(stream as u64)
}
