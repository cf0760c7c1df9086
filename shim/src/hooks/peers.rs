//! Access from other devices. The driver knows of it for its own allocations
//! only; the pools are told, so that theirs behave the same.

use memcuda_core::driver::sys::{ACCESS_READ_WRITE, LOCATION_DEVICE, MemAccessDesc};
use memcuda_core::driver::{Code, Context};

use crate::calls::MemPool;
use crate::device::Device;
use crate::engine::Engine;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`: as good as enabling it.
const ALREADY: Code = Code::PEER_ACCESS_ALREADY_ENABLED;

crate::hooks! {
    /// `cuCtxEnablePeerAccess`: the current context's device may reach the
    /// memory of the other context's device.
    cuCtxEnablePeerAccess ["cuCtxEnablePeerAccess" since 4000] (peer: Context, flags: u32) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(peer, flags) };
        if (code == Code::SUCCESS || code == ALREADY)
            && let Some((_, device)) = engine.current()
            && let Some(owner) = engine.device_of(peer)
        {
            grant(engine, owner, device.ordinal);
        }
        code
    }

    /// `cuMemPoolSetAccess`: for a default memory pool, whose requests are
    /// served here.
    cuMemPoolSetAccess ["cuMemPoolSetAccess" since 11020] (
        pool: MemPool, access: *const MemAccessDesc, count: usize,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(pool, access, count) };
        let mut devices = engine.devices.iter();
        let owner = devices.find(|device| device.default_mem_pool(&engine.calls) == Some(pool));
        if let (Code::SUCCESS, Some(owner)) = (code, owner) && !access.is_null() {
            // SAFETY: the driver has just read this many from there.
            let access = unsafe { std::slice::from_raw_parts(access, count) };
            let granted = access.iter().filter(|desc| {
                desc.location.kind == LOCATION_DEVICE && desc.flags == ACCESS_READ_WRITE
            });
            granted.for_each(|desc| grant(engine, owner, desc.location.id as u32));
        }
        code
    }
}

fn grant(engine: &Engine, owner: &Device, device: u32) {
    let Some(pool) = owner.pool(engine) else {
        return;
    };
    if let Err(code) = pool.grant(device) {
        crate::log!(
            Warn,
            "device {device} gets no access to the pooled memory of device {}: {code:?}",
            owner.ordinal
        );
    }
}
