//! `libcudart.so.13` of the simulated GPU: the runtime calls that programs
//! use, in terms of the driver, which it reaches exactly as NVIDIA's runtime
//! does. Keeps no memory of its own.

#![allow(non_snake_case, reason = "exported names are the runtime's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the runtime's interface is documented by its vendor"
)]
#![allow(
    missing_docs,
    reason = "the runtime's interface is documented by its vendor"
)]

mod device;
mod driver;
mod memory;
mod order;
mod pool;
mod state;

/// Declares runtime calls over the driver with a context current.
///
/// `fn name(..)` is one spelling; `fn name | name_ptsz (..)` two, the second
/// over the driver's entry points for the per-thread default stream.
macro_rules! runtime {
    (|$driver:ident| $(fn $name:ident $(| $alt:ident)? ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(crate::runtime_fn! { $driver, $name, [$($alt)?], ($($arg: $ty),*), $body })*
    };
}

macro_rules! runtime_fn {
    ($driver:ident, $name:ident, [], ($($arg:ident: $ty:ty),*), $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            // SAFETY: every call passes the program's arguments on unchanged.
            crate::state::with_context(false, |$driver| unsafe { $body })
        }
    };
    ($driver:ident, $name:ident, [$alt:ident], ($($arg:ident: $ty:ty),*), $body:block) => {
        crate::runtime_fn! { $driver, $name, [], ($($arg: $ty),*), $body }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alt($($arg: $ty),*) -> u32 {
            // SAFETY: every call passes the program's arguments on unchanged.
            crate::state::with_context(true, |$driver| unsafe { $body })
        }
    };
}
pub(crate) use {runtime, runtime_fn};
