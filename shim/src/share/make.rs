//! Memory that is made to be shared: one physical handle with what the pool's
//! own have, and a descriptor for the keeper.

use std::cell::Cell;
use std::os::fd::OwnedFd;

use memcuda_core::driver::{Code, Driver, Handle};
use memcuda_core::units::HANDLE;

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::pool::PATIENCE;
use crate::room::{Place, is_beyond_the_limit, with_room_for};

/// A handle of its own.
pub struct Made {
    /// To be attached ([`memcuda_core::pool::Attachment`]), or released.
    pub handle: Handle,
    /// Its size in bytes, a multiple of the granularity.
    pub mapped: u64,
    /// Stands for the memory in every process.
    pub descriptor: OwnedFd,
}

/// Makes a handle of at least so many bytes, which are not zeroed by it. Fails
/// with `OUT_OF_MEMORY` beyond `MEMCUDA_LIMIT` and where neither this process
/// nor others can make room, and with the driver's code where the device
/// exports no memory.
pub fn make(engine: &Engine, device: &Device, bytes: u64) -> Result<Made, Code> {
    let mapped = bytes.max(1).checked_next_multiple_of(HANDLE);
    let mapped = mapped.ok_or(Code::OUT_OF_MEMORY)?;
    // What is more than the limit alone takes nothing from anybody.
    let limit = engine.config.limit_of(device.ordinal);
    if limit.is_some_and(|limit| mapped > limit)
        || is_beyond_the_limit(engine, device, mapped, (PATIENCE, PATIENCE))
    {
        return Err(Code::OUT_OF_MEMORY);
    }
    let handle = Cell::new(Handle::default());
    let create = || match engine.driver.create(device.ordinal, mapped) {
        Ok(made) => {
            handle.set(made);
            Code::SUCCESS
        }
        Err(code) => code,
    };
    with_room_for(engine, mapped, || Place::Device(device), create).ok()?;
    let handle = handle.get();
    match engine.driver.export(handle) {
        Ok(descriptor) => Ok(Made {
            handle,
            mapped,
            descriptor,
        }),
        Err(code) => {
            let _ = engine.driver.release(handle);
            Err(code)
        }
    }
}
