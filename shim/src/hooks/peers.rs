//! Access from other devices. The driver knows of it for its own allocations
//! only; the pools are told, so that theirs behave the same.

use memcuda_core::driver::sys::{ACCESS_NONE, LOCATION_DEVICE, MemAccessDesc};
use memcuda_core::driver::{Code, Context};
use memcuda_core::pool::Grantee;

use super::foreign;
use super::mappings::{descriptors, let_in};
use super::pools::defaulting;
use crate::driver::calls::MemPool;
use crate::engine::Engine;
use crate::engine::device::Device;
use crate::pool;
use crate::room::with_room;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`: as good as enabling it.
const ALREADY: Code = Code::PEER_ACCESS_ALREADY_ENABLED;

crate::hooks! {
    /// `cuCtxEnablePeerAccess`: the current context may reach the memory of the
    /// other context. Where pooled memory, or a page of torch's, cannot be opened, nothing is.
    cuCtxEnablePeerAccess ["cuCtxEnablePeerAccess" since 4000] (peer: Context, flags: u32) |real, engine| {
        // What is opened takes page tables, which lie on the reader's device.
        with_room(engine, || foreign::current(engine), || {
            // SAFETY: the program's own call, passed on.
            let code = unsafe { real(peer, flags) };
            if code != Code::SUCCESS && code != ALREADY {
                return code;
            }
            let Err(refused) = opened(engine, peer) else {
                return code;
            };
            if code == Code::SUCCESS && let Some(disable) = engine.calls.disable_peer {
                // SAFETY: takes back what was enabled above.
                unsafe { disable(peer) };
            }
            refused
        })
    }

    /// `cuCtxDisablePeerAccess`: pooled memory too is closed, once nobody else
    /// of that device wants it open. Pages of torch stay open: who else wanted
    /// that, torch itself for one, is not known.
    cuCtxDisablePeerAccess ["cuCtxDisablePeerAccess" since 4000] (peer: Context) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(peer) };
        if code == Code::SUCCESS
            && let Ok((reader, device, owner)) = ends(engine, peer)
            && let Some(pool) = owner.pool()
        {
            pool.revoke(device.ordinal, Grantee::Contexts { reader, owner: peer });
        }
        code
    }

    /// `cuMemPoolSetAccess`: for a default memory pool, whose requests are
    /// served here. Room is made for page tables of who is let in.
    cuMemPoolSetAccess ["cuMemPoolSetAccess" since 11020] (
        pool: MemPool, access: *const MemAccessDesc, count: usize,
    ) |real, engine| {
        // SAFETY: by the program's call so many descriptors.
        let wanted = unsafe { descriptors(access.cast(), count) };
        with_room(engine, || let_in(engine, wanted), || {
            // SAFETY: the program's own call, passed on.
            let code = unsafe { real(pool, access, count) };
            match defaulting(engine, pool).filter(|_| code == Code::SUCCESS) {
                Some(owner) => set(engine, owner, wanted).err().unwrap_or(code),
                None => code,
            }
        })
    }
}

/// Opens the pool of a device to others, or closes it. Where one is not let in the driver's own
/// memory pool stays open, which harms nobody.
fn set(engine: &Engine, owner: &Device, wanted: &[MemAccessDesc]) -> Result<(), Code> {
    let devices = wanted
        .iter()
        .filter(|desc| desc.location.kind == LOCATION_DEVICE);
    for desc in devices {
        let device = desc.location.id as u32;
        match desc.flags {
            ACCESS_NONE => close(owner, device),
            _ => pool::grant(engine, owner, device, Grantee::MemoryPool)?,
        }
    }
    Ok(())
}

/// Opens what lies on the device of the other context for the current one: all, or nothing.
fn opened(engine: &Engine, peer: Context) -> Result<(), Code> {
    let (reader, device, owner) = ends(engine, peer)?;
    let to = Grantee::Contexts {
        reader,
        owner: peer,
    };
    pool::grant(engine, owner, device.ordinal, to)?;
    let pages = owner.pages();
    let opened = pages.map_or(Ok(()), |pages| pages.open_all(device.ordinal));
    if let (Err(_), Some(pool)) = (opened, owner.pool()) {
        pool.revoke(device.ordinal, to);
    }
    opened
}

/// Who gets access and to whose memory: the current context, its device, and
/// the device of the other context.
fn ends(engine: &Engine, peer: Context) -> Result<(Context, &Device, &Device), Code> {
    let (reader, device) = engine.current()?;
    Ok((reader, device, engine.device_of(peer)?))
}

fn close(owner: &Device, device: u32) {
    if let Some(pool) = owner.pool() {
        pool.revoke(device, Grantee::MemoryPool);
    }
}
