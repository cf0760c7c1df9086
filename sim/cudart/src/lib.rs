//! `libcudart.so.13` of the simulated GPU: the runtime calls that programs
//! use, in terms of the driver, which it reaches exactly as NVIDIA's runtime
//! does. Keeps no memory of its own.

#![allow(non_snake_case, reason = "exported names are the runtime's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the runtime's interface is documented by its vendor"
)]

mod device;
mod driver;
mod memory;
mod order;
mod pool;
mod state;

/// Declares runtime calls over the driver: `with_context` where the thread's
/// context must be current, `with_driver` where the driver is enough.
///
/// `fn name(..)` is one spelling; `fn name | name_ptsz (..)` two, the second
/// over the driver's entry points for the per-thread default stream.
macro_rules! runtime {
    ($over:ident |$driver:ident| $(fn $name:ident $(| $alt:ident)? ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(crate::runtime_fn! { $over, $driver, $name, [$($alt)?], ($($arg: $ty),*), $body })*
    };
}

macro_rules! runtime_fn {
    ($over:ident, $driver:ident, $name:ident, [], ($($arg:ident: $ty:ty),*), $body:block) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some bodies call no entry point themselves")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            // SAFETY: every call passes the program's arguments on unchanged.
            crate::state::$over(false, |$driver| unsafe { $body })
        }
    };
    ($over:ident, $driver:ident, $name:ident, [$alt:ident], ($($arg:ident: $ty:ty),*), $body:block) => {
        crate::runtime_fn! { $over, $driver, $name, [], ($($arg: $ty),*), $body }
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some bodies call no entry point themselves")]
        pub unsafe extern "C" fn $alt($($arg: $ty),*) -> u32 {
            // SAFETY: every call passes the program's arguments on unchanged.
            crate::state::$over(true, |$driver| unsafe { $body })
        }
    };
}
pub(crate) use {runtime, runtime_fn};
