//! The driver's default memory pool of a device, which ours stands in for: its
//! use and size answered with both sums, trim passed on to both; which pool is the
//! current one, followed; and pools of the program's own, noted (`own_pools`).

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use memcuda_core::driver::{Code, sys::MemLocation};

use crate::driver::calls::MemPool;
use crate::driver::own_pools;
use crate::driver::stand_in::Sum;
use crate::engine::Engine;
use crate::engine::device::Device;

/// `CUmemPool_attribute`: may a stream be ordered behind others for what it is lent; bytes
/// kept over a wait, bytes held, their peak, bytes used, their peak.
const REUSE_DEPENDENCIES: u32 = 3;
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;
/// After so long a device on which nothing runs has reached an event that was recorded,
/// which takes some microseconds.
const REACHED: Duration = Duration::from_micros(200);

crate::hooks! {
    /// `cuMemPoolGetAttribute`: for a default pool, sizes are the sum of the
    /// driver's and ours. Release threshold and reuse flags are the driver's.
    cuMemPoolGetAttribute ["cuMemPoolGetAttribute" since 11020] (
        pool: MemPool, attribute: u32, value: *mut c_void,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(pool, attribute, value) };
        if code != Code::SUCCESS || value.is_null() {
            return code;
        }
        if let (Some(device), Some(sum)) = (standing_in(engine, pool), sum_of(attribute)) {
            // SAFETY: the call succeeded, so it wrote this attribute, 64 bits.
            unsafe { *value.cast::<u64>() += device.mem_pool_sum(sum) };
        }
        code
    }

    /// `cuMemPoolSetAttribute`: setting a peak (to 0) starts it anew; the
    /// release threshold is remembered, and whether streams may be ordered behind others.
    cuMemPoolSetAttribute ["cuMemPoolSetAttribute" since 11020] (
        pool: MemPool, attribute: u32, value: *mut c_void,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(pool, attribute, value) };
        let device = defaulting(engine, pool).filter(|_| code == Code::SUCCESS);
        match (device, sum_of(attribute)) {
            (Some(device), Some(sum)) => device.restart_peak(sum),
            (Some(device), None) if attribute == RELEASE_THRESHOLD => {
                // SAFETY: the call succeeded, so it read this attribute, 64 bits.
                device.set_threshold(unsafe { value.cast::<u64>().read() });
            }
            (Some(device), None) if attribute == REUSE_DEPENDENCIES => {
                // SAFETY: the call succeeded, so it read this attribute, an int.
                let allowed = unsafe { value.cast::<i32>().read() } != 0;
                device.independent.store(!allowed, Relaxed);
            }
            _ => {}
        }
        code
    }

    /// `cuMemPoolTrimTo`: the driver's first, which refuses it where nothing can be unmapped (in
    /// a function of the host); then ours, to what the driver may keep in all. Waits for no
    /// work, as the driver's does not, but until it can be known what is over.
    cuMemPoolTrimTo ["cuMemPoolTrimTo" since 11020] (
        pool: MemPool, keep: usize,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(pool, keep) };
        if code == Code::SUCCESS
            && let Some(device) = standing_in(engine, pool)
            && let Some(ours) = device.pool()
        {
            let (used, _) = ours.pooled();
            let idle = (keep as u64).saturating_sub(used);
            // More may be idle each time, as uses are found to be over.
            let beyond = || ours.idle().saturating_sub(idle);
            while beyond() > 0 && ours.give_back(beyond(), REACHED) > 0 {}
            device.trimmed(keep as u64);
            if let Some(context) = device.pitch.probed()
                && ours.is_over(context)
            {
                device.pitch.free_probe(&engine.calls, context);
            }
        }
        code
    }

    /// `cuDeviceSetMemPool`: stream-ordered memory comes from here only while
    /// the current pool is the default one.
    cuDeviceSetMemPool ["cuDeviceSetMemPool" since 11020] (
        device: i32, pool: MemPool,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(device, pool) };
        if let Some(device) = engine.by_handle(device) {
            device.ask_mem_pool(&engine.calls);
        }
        code
    }

    /// `cuMemSetMemPool` of CUDA 13: the same for any location.
    cuMemSetMemPool ["cuMemSetMemPool" since 13000] (
        location: *const MemLocation, kind: u32, pool: MemPool,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(location, kind, pool) };
        ask_everywhere(engine);
        code
    }

    /// `cuMemPoolCreate`: where it lies is noted, and how much it may hold.
    cuMemPoolCreate ["cuMemPoolCreate" since 11020] (
        out: *mut MemPool, about: *const own_pools::Properties,
    ) |real, _engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(out, about) };
        if code == Code::SUCCESS {
            // SAFETY: the call succeeded, so it wrote the one and read the other.
            unsafe { own_pools::made(*out, &*about) };
        }
        code
    }

    /// `cuMemPoolDestroy`: in the place of a current pool comes the default one.
    cuMemPoolDestroy ["cuMemPoolDestroy" since 11020] (pool: MemPool) |real, engine| {
        let mut code = Code::SUCCESS;
        own_pools::ending(pool, || {
            // SAFETY: the program's own call, passed on.
            code = unsafe { real(pool) };
            code == Code::SUCCESS
        });
        ask_everywhere(engine);
        code
    }
}

/// Which memory pool is the current one may be another on any device.
fn ask_everywhere(engine: &Engine) {
    for device in &engine.devices {
        device.ask_mem_pool(&engine.calls);
    }
}

fn sum_of(attribute: u32) -> Option<Sum> {
    match attribute {
        RESERVED_CURRENT => Some(Sum::Reserved),
        RESERVED_HIGH => Some(Sum::ReservedPeak),
        USED_CURRENT => Some(Sum::Used),
        USED_HIGH => Some(Sum::UsedPeak),
        _ => None,
    }
}

/// The device whose default pool this is.
pub fn defaulting(engine: &Engine, pool: MemPool) -> Option<&Device> {
    let mut devices = engine.devices.iter();
    devices.find(|device| device.default_mem_pool(&engine.calls) == Some(pool))
}

/// As [`defaulting`], if our pool serves in its place.
fn standing_in(engine: &Engine, pool: MemPool) -> Option<&Device> {
    defaulting(engine, pool).filter(|device| device.pool().is_some())
}
