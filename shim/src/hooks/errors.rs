//! The calls in which the error of a crashed kernel shows: the result is only
//! looked at. After an error that stays with its context, pool hits must not go
//! on returning success.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code, Context, Event, Stream};

use crate::engine;

/// Looks at the result of a call.
#[inline]
fn watched(code: Code) -> Code {
    if code.is_sticky() {
        poison(code);
    }
    code
}

#[cold]
fn poison(code: Code) {
    let tell = |engine: &engine::Engine| {
        let pool = engine.current().and_then(|(_, device)| device.made());
        if let Some(pool) = pool {
            pool.freeze(code);
        }
    };
    crate::boundary::or_else(|| engine::running().map_or((), tell), || ());
}

/// As [`hooks!`](crate::hooks!), for calls whose result alone matters.
macro_rules! watched {
    ($($symbol:ident [$name:literal since $since:literal $($thread:ident)?]
        ($($arg:ident: $type:ty),* $(,)?))*) => {
        $(
            crate::slot! { $symbol [$name since $since $($thread)?] Exported }

            #[doc = concat!("`", stringify!($symbol), "`: real, its result watched.")]
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $type),*) -> Code {
                type Real = unsafe extern "C" fn($($type),*) -> Code;
                let real = $symbol::HOOK.real();
                if real.is_null() {
                    return crate::hook::ABSENT;
                }
                // SAFETY: the driver's function of this name has this
                // signature; the call is the program's own.
                watched(unsafe { std::mem::transmute::<*mut c_void, Real>(real)($($arg),*) })
            }
        )*

        /// The hooks of this family.
        pub static HOOKS: &[&crate::hook::Hook] = &[$(&$symbol::HOOK),*];
    };
}

type Arguments = *mut *mut c_void;

watched! {
    cuCtxSynchronize ["cuCtxSynchronize" since 2000] ()
    cuCtxSynchronize_v2 ["cuCtxSynchronize" since 13000] (context: Context)
    cuStreamSynchronize ["cuStreamSynchronize" since 2000] (stream: Stream)
    cuStreamSynchronize_ptsz ["cuStreamSynchronize" since 7000 per_thread] (stream: Stream)
    cuStreamQuery ["cuStreamQuery" since 2000] (stream: Stream)
    cuStreamQuery_ptsz ["cuStreamQuery" since 7000 per_thread] (stream: Stream)
    cuEventSynchronize ["cuEventSynchronize" since 2000] (event: Event)
    cuEventQuery ["cuEventQuery" since 2000] (event: Event)
    cuMemcpyDtoH_v2 ["cuMemcpyDtoH" since 3020] (to: *mut c_void, from: Address, bytes: usize)
    cuMemcpyDtoH_v2_ptds ["cuMemcpyDtoH" since 7000 per_thread]
        (to: *mut c_void, from: Address, bytes: usize)
    cuMemcpyDtoHAsync_v2 ["cuMemcpyDtoHAsync" since 3020]
        (to: *mut c_void, from: Address, bytes: usize, stream: Stream)
    cuMemcpyDtoHAsync_v2_ptsz ["cuMemcpyDtoHAsync" since 7000 per_thread]
        (to: *mut c_void, from: Address, bytes: usize, stream: Stream)
    cuLaunchKernel ["cuLaunchKernel" since 4000] (
        function: u64,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Stream, arguments: Arguments, extra: Arguments,
    )
    cuLaunchKernel_ptsz ["cuLaunchKernel" since 7000 per_thread] (
        function: u64,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Stream, arguments: Arguments, extra: Arguments,
    )
    cuLaunchKernelEx ["cuLaunchKernelEx" since 11060]
        (launch: *const c_void, function: u64, arguments: Arguments, extra: Arguments)
    cuLaunchKernelEx_ptsz ["cuLaunchKernelEx" since 11060 per_thread]
        (launch: *const c_void, function: u64, arguments: Arguments, extra: Arguments)
}
