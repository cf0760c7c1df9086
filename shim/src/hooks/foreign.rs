//! Memory that the driver hands out beside the pool: where it is out of
//! memory, idle memory of the pool is given back and the call made once more.

use std::ffi::{c_char, c_void};

use memcuda_core::driver::sys::MemAllocationProp;
use memcuda_core::driver::{Address, Code, Handle};

use crate::engine::Engine;

/// Runs a real allocation, a second time if it was out of memory and the pool
/// could give some back.
pub fn with_room(engine: &Engine, real: impl Fn() -> Code) -> Code {
    match real() {
        // During a capture the failed call may have ended it already; giving
        // memory back does it no further harm, but the second try would fail.
        Code::OUT_OF_MEMORY if !engine.captures.any() && engine.trim() > 0 => real(),
        code => code,
    }
}

macro_rules! with_room {
    ($($symbol:ident [$name:literal since $since:literal] ($($arg:ident: $type:ty),*))*) => {
        crate::hooks! {$(
            #[doc = concat!("`", stringify!($symbol), "`: real, with room made if need be.")]
            $symbol [$name since $since] ($($arg: $type),*) |real, engine| {
                with_room(engine, || {
                    // SAFETY: the program's own call, passed on.
                    unsafe { real($($arg),*) }
                })
            }
        )*}
    };
}

with_room! {
    cuMemCreate ["cuMemCreate" since 10020]
        (handle: *mut Handle, bytes: usize, properties: *const MemAllocationProp, flags: u64)
    cuMemAllocManaged ["cuMemAllocManaged" since 6000]
        (out: *mut Address, bytes: usize, flags: u32)
    cuArrayCreate_v2 ["cuArrayCreate" since 3020]
        (array: *mut u64, shape: *const c_void)
    cuArray3DCreate_v2 ["cuArray3DCreate" since 3020]
        (array: *mut u64, shape: *const c_void)
    cuMipmappedArrayCreate ["cuMipmappedArrayCreate" since 5000]
        (array: *mut u64, shape: *const c_void, levels: u32)
    cuModuleLoad ["cuModuleLoad" since 2000]
        (module: *mut u64, file: *const c_char)
    cuModuleLoadData ["cuModuleLoadData" since 2000]
        (module: *mut u64, image: *const c_void)
    cuModuleLoadDataEx ["cuModuleLoadDataEx" since 2010]
        (module: *mut u64, image: *const c_void, count: u32, options: *mut u32, values: *mut *mut c_void)
    cuModuleLoadFatBinary ["cuModuleLoadFatBinary" since 2000]
        (module: *mut u64, image: *const c_void)
}
