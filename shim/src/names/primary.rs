//! The primary context of a device, for named memory that no context is current for. It is
//! retained once, and stays for the life of the process: nobody says when he is done with it.

use std::cell::Cell;
use std::sync::Mutex;

use memcuda_core::driver::{Code, Context};

use super::Failure;
use crate::driver::primaries;
use crate::engine::Engine;
use crate::engine::device::Device;
use crate::room::{self, with_room};

/// The primary context of a device, retained once for the life of the process. Room for it
/// is made as for the program's own call, with nothing held.
pub fn of(engine: &Engine, device: &Device) -> Result<Context, Failure> {
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
