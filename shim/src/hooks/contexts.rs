//! Contexts that end: mappings of the pool outlive them (cuMemAlloc's memory
//! does not), so the pool is told, after the driver has done its part. The
//! thread that gives memory back makes no call meanwhile.

use memcuda_core::driver::{Code, Context};

use crate::device::Device;
use crate::engine::Engine;
use crate::{places, watch};

crate::hooks! {
    /// `cuCtxDestroy_v2`.
    cuCtxDestroy_v2 ["cuCtxDestroy" since 4000] (context: Context) |real, engine| {
        let _still = watch::hold();
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(context) };
        if code == Code::SUCCESS {
            places::forget();
            let pools = engine.devices.iter().filter_map(Device::made);
            pools.for_each(|pool| pool.context_ends(context));
        }
        code
    }

    /// `cuDevicePrimaryCtxReset_v2`: cudaDeviceReset.
    cuDevicePrimaryCtxReset_v2 ["cuDevicePrimaryCtxReset" since 11000] (device: i32) |real, engine| {
        let _still = watch::hold();
        // SAFETY: the program's own call, passed on.
        reset(engine, device, unsafe { real(device) })
    }

    /// `cuDevicePrimaryCtxReset`, before CUDA 11.
    cuDevicePrimaryCtxReset ["cuDevicePrimaryCtxReset" since 7000] (device: i32) |real, engine| {
        let _still = watch::hold();
        // SAFETY: the program's own call, passed on.
        reset(engine, device, unsafe { real(device) })
    }

    /// `cuDevicePrimaryCtxRelease_v2`: the last release ends the context.
    cuDevicePrimaryCtxRelease_v2 ["cuDevicePrimaryCtxRelease" since 11000] (device: i32) |real, engine| {
        let _still = watch::hold();
        // SAFETY: the program's own call, passed on.
        released(engine, device, unsafe { real(device) })
    }

    /// `cuDevicePrimaryCtxRelease`, before CUDA 11.
    cuDevicePrimaryCtxRelease ["cuDevicePrimaryCtxRelease" since 7000] (device: i32) |real, engine| {
        let _still = watch::hold();
        // SAFETY: the program's own call, passed on.
        released(engine, device, unsafe { real(device) })
    }
}

fn reset(engine: &Engine, handle: i32, code: Code) -> Code {
    places::forget();
    let pool = engine.by_handle(handle).and_then(Device::made);
    if let (Code::SUCCESS, Some(pool)) = (code, pool) {
        pool.reset();
    }
    code
}

fn released(engine: &Engine, handle: i32, code: Code) -> Code {
    let (mut flags, mut active) = (0, 1);
    let asked = engine.calls.primary_state.map(|state| {
        // SAFETY: the pointers are valid for the call.
        unsafe { state(handle, &mut flags, &mut active) }
    });
    match asked {
        Some(Code::SUCCESS) if active == 0 => reset(engine, handle, code),
        _ => code,
    }
}
