//! Copies of memory of a device that is not the current one, and by threads without a
//! current context. A program needs no access for the former and no context for the
//! latter, but the driver refuses both for mapped memory: that is the whole reason for
//! which these calls are hooked.
//!
//! The real function is called first, and its answer is the program's. Only where
//! that is `CUDA_ERROR_INVALID_VALUE`, and the pool is why (`carry`), is the copy
//! made in another way. On every other path a hook costs its call, one load and one
//! comparison, and nothing of this library runs. But where there are several devices a thread
//! is asked for its current context: without one the driver would read through null.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code, Stream};

use crate::carry::{self, When};
use crate::driver::shapes::{Block, DEVICE, HOST, Rows, UNIFIED};
use crate::hook::{ABSENT, Hook};

/// Declares hooks of this family: what is copied, and when.
macro_rules! copies {
    ($($symbol:ident [$name:literal since $since:literal $($thread:ident)?]
        ($($arg:ident: $type:ty),*) $block:expr, $when:expr;)*) => {
        $(
            $crate::slot! { $symbol [$name since $since $($thread)?] Exported }

            #[doc = concat!("`", stringify!($symbol), "`: real; where it needs access, without.")]
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $type),*) -> Code {
                type Real = unsafe extern "C" fn($($type),*) -> Code;
                let real = $symbol::HOOK.real();
                if real.is_null() {
                    return ABSENT;
                }
                let _held = memcuda_core::driver::cancel::hold();
                // SAFETY: the driver's function of this name has this
                // signature; the program's own call, passed on.
                let real = || unsafe {
                    std::mem::transmute::<*mut c_void, Real>(real)($($arg),*)
                };
                if carry::is_nowhere($when) {
                    return $crate::engine::boundary::enter(
                        stringify!($symbol),
                        |engine| match $block {
                            Some(block) => carry::from_nowhere(engine, block, $when, real),
                            None => real(),
                        },
                        real,
                        real,
                    );
                }
                let code = real();
                if code != carry::REFUSED {
                    return code;
                }
                $crate::engine::boundary::enter(
                    stringify!($symbol),
                    |engine| match $block {
                        Some(block) => carry::again(engine, block, $when, real),
                        None => code,
                    },
                    || code,
                    || code,
                )
            }
        )*

        /// The hooks of this family.
        pub static HOOKS: &[&Hook] = &[$(&$symbol::HOOK),*];
    };
}

/// A line of bytes between two kinds of memory.
fn line(to: (u32, Address), from: (u32, Address), bytes: usize) -> Option<Block> {
    Some(Block::line(to, from, bytes))
}

/// The structure that the program passed, if it passed one.
fn told<Shape: Copy + Into<Block>>(shape: *const Shape) -> Option<Block> {
    // SAFETY: null, or a whole structure, which the driver has just read.
    unsafe { shape.as_ref() }.map(|shape| (*shape).into())
}

copies! {
    cuMemcpy ["cuMemcpy" since 4000] (to: Address, from: Address, bytes: usize)
        line((UNIFIED, to), (UNIFIED, from), bytes), When::Call;
    cuMemcpy_ptds ["cuMemcpy" since 7000 per_thread] (to: Address, from: Address, bytes: usize)
        line((UNIFIED, to), (UNIFIED, from), bytes), When::CallOfThread;
    cuMemcpyAsync ["cuMemcpyAsync" since 4000]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((UNIFIED, to), (UNIFIED, from), bytes), When::Queued(stream.or_legacy());
    cuMemcpyAsync_ptsz ["cuMemcpyAsync" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((UNIFIED, to), (UNIFIED, from), bytes), When::Queued(stream.or_per_thread());

    cuMemcpyDtoD_v2 ["cuMemcpyDtoD" since 3020] (to: Address, from: Address, bytes: usize)
        line((DEVICE, to), (DEVICE, from), bytes), When::Call;
    cuMemcpyDtoD_v2_ptds ["cuMemcpyDtoD" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize)
        line((DEVICE, to), (DEVICE, from), bytes), When::CallOfThread;
    cuMemcpyDtoDAsync_v2 ["cuMemcpyDtoDAsync" since 3020]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((DEVICE, to), (DEVICE, from), bytes), When::Queued(stream.or_legacy());
    cuMemcpyDtoDAsync_v2_ptsz ["cuMemcpyDtoDAsync" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((DEVICE, to), (DEVICE, from), bytes), When::Queued(stream.or_per_thread());

    cuMemcpyHtoD_v2 ["cuMemcpyHtoD" since 3020] (to: Address, from: Address, bytes: usize)
        line((DEVICE, to), (HOST, from), bytes), When::Call;
    cuMemcpyHtoD_v2_ptds ["cuMemcpyHtoD" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize)
        line((DEVICE, to), (HOST, from), bytes), When::CallOfThread;
    cuMemcpyHtoDAsync_v2 ["cuMemcpyHtoDAsync" since 3020]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((DEVICE, to), (HOST, from), bytes), When::Queued(stream.or_legacy());
    cuMemcpyHtoDAsync_v2_ptsz ["cuMemcpyHtoDAsync" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((DEVICE, to), (HOST, from), bytes), When::Queued(stream.or_per_thread());

    cuMemcpyDtoH_v2 ["cuMemcpyDtoH" since 3020] (to: Address, from: Address, bytes: usize)
        line((HOST, to), (DEVICE, from), bytes), When::Call;
    cuMemcpyDtoH_v2_ptds ["cuMemcpyDtoH" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize)
        line((HOST, to), (DEVICE, from), bytes), When::CallOfThread;
    cuMemcpyDtoHAsync_v2 ["cuMemcpyDtoHAsync" since 3020]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((HOST, to), (DEVICE, from), bytes), When::Queued(stream.or_legacy());
    cuMemcpyDtoHAsync_v2_ptsz ["cuMemcpyDtoHAsync" since 7000 per_thread]
        (to: Address, from: Address, bytes: usize, stream: Stream)
        line((HOST, to), (DEVICE, from), bytes), When::Queued(stream.or_per_thread());

    cuMemcpy2D_v2 ["cuMemcpy2D" since 3020] (rows: *const Rows) told(rows), When::Call;
    cuMemcpy2D_v2_ptds ["cuMemcpy2D" since 7000 per_thread] (rows: *const Rows)
        told(rows), When::CallOfThread;
    cuMemcpy2DUnaligned_v2 ["cuMemcpy2DUnaligned" since 3020] (rows: *const Rows)
        told(rows), When::Call;
    cuMemcpy2DUnaligned_v2_ptds ["cuMemcpy2DUnaligned" since 7000 per_thread] (rows: *const Rows)
        told(rows), When::CallOfThread;
    cuMemcpy2DAsync_v2 ["cuMemcpy2DAsync" since 3020] (rows: *const Rows, stream: Stream)
        told(rows), When::Queued(stream.or_legacy());
    cuMemcpy2DAsync_v2_ptsz ["cuMemcpy2DAsync" since 7000 per_thread]
        (rows: *const Rows, stream: Stream)
        told(rows), When::Queued(stream.or_per_thread());

    cuMemcpy3D_v2 ["cuMemcpy3D" since 3020] (block: *const Block) told(block), When::Call;
    cuMemcpy3D_v2_ptds ["cuMemcpy3D" since 7000 per_thread] (block: *const Block)
        told(block), When::CallOfThread;
    cuMemcpy3DAsync_v2 ["cuMemcpy3DAsync" since 3020] (block: *const Block, stream: Stream)
        told(block), When::Queued(stream.or_legacy());
    cuMemcpy3DAsync_v2_ptsz ["cuMemcpy3DAsync" since 7000 per_thread]
        (block: *const Block, stream: Stream)
        told(block), When::Queued(stream.or_per_thread());
}
