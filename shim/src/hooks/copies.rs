//! Copies between devices of which neither reaches the other's memory. The
//! driver carries cudaMalloc's memory over the host then, whatever names the
//! copy; mapped memory, and so ours, only where the copy names the contexts of
//! both ends. That is the whole reason for which these calls are hooked.
//!
//! The real function is called first, and its answer is the program's. Only
//! where that is `CUDA_ERROR_INVALID_VALUE`, and both ends lie inside of live
//! allocations, is the copy made once more as a `cuMemcpyPeer`. On every other
//! path a hook costs its call, one load and one comparison, and nothing of this
//! library runs.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code, Context, Stream};
use memcuda_core::pool::Owner;

use crate::device::Device;
use crate::engine::Engine;
use crate::hook::{ABSENT, Hook};

/// `CUpointer_attribute` and a `CUmemorytype`.
const CONTEXT: u32 = 1;
const MEMORY_TYPE: u32 = 2;
const DEVICE_ORDINAL: u32 = 9;
const OF_A_DEVICE: u32 = 2;

/// Declares hooks of this family: `=>` names the real call that is told the
/// contexts of both ends.
macro_rules! copies {
    ($($symbol:ident [$name:literal since $since:literal $($thread:ident)?]
        ($($stream:ident: $type:ty)?) => $peer:ident)*) => {
        $(
            $crate::slot! { $symbol [$name since $since $($thread)?] Exported }

            #[doc = concat!("`", stringify!($symbol), "`: real; between devices by their contexts.")]
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol(
                to: Address, from: Address, bytes: usize $(, $stream: $type)?
            ) -> Code {
                type Real = unsafe extern "C" fn(Address, Address, usize $(, $type)?) -> Code;
                let real = $symbol::HOOK.real();
                if real.is_null() {
                    return ABSENT;
                }
                // SAFETY: the driver's function of this name has this
                // signature; the program's own call, passed on.
                let code = unsafe {
                    std::mem::transmute::<*mut c_void, Real>(real)(to, from, bytes $(, $stream)?)
                };
                if code != Code::INVALID_VALUE {
                    return code;
                }
                $crate::boundary::enter(
                    stringify!($symbol),
                    |engine| {
                        let Some(peer) = engine.calls.$peer else {
                            return code;
                        };
                        let here = || copies!(@here engine $($stream)?);
                        match contexts(engine, to, from, bytes as u64, here) {
                            Ok((into, out_of)) => {
                                // SAFETY: the program's own copy, of memory that
                                // was found to be there.
                                let again = unsafe {
                                    peer(to, into, from, out_of, bytes $(, $stream)?)
                                };
                                $crate::boundary::answered(again)
                            }
                            Err(refused) => refused,
                        }
                    },
                    || code,
                    || code,
                )
            }
        )*

        /// The hooks of this family.
        pub static HOOKS: &[&Hook] = &[$(&$symbol::HOOK),*];
    };
    (@here $engine:ident) => { $engine.current() };
    (@here $engine:ident $stream:ident) => { $engine.of_stream($stream) };
}

copies! {
    cuMemcpy ["cuMemcpy" since 4000] () => copy_peer
    cuMemcpy_ptds ["cuMemcpy" since 7000 per_thread] () => copy_peer_ptds
    cuMemcpyDtoD_v2 ["cuMemcpyDtoD" since 3020] () => copy_peer
    cuMemcpyDtoD_v2_ptds ["cuMemcpyDtoD" since 7000 per_thread] () => copy_peer_ptds
    cuMemcpyAsync ["cuMemcpyAsync" since 4000] (stream: Stream) => copy_peer_async
    cuMemcpyAsync_ptsz ["cuMemcpyAsync" since 7000 per_thread] (stream: Stream)
        => copy_peer_async_ptsz
    cuMemcpyDtoDAsync_v2 ["cuMemcpyDtoDAsync" since 3020] (stream: Stream) => copy_peer_async
    cuMemcpyDtoDAsync_v2_ptsz ["cuMemcpyDtoDAsync" since 7000 per_thread] (stream: Stream)
        => copy_peer_async_ptsz
}

/// The contexts of the destination and of the source of a copy that the driver
/// refused; an error is the program's answer. `here` is where the copy was to
/// be made.
fn contexts<'a>(
    engine: &Engine,
    to: Address,
    from: Address,
    bytes: u64,
    here: impl Fn() -> Result<(Context, &'a Device), Code>,
) -> Result<(Context, Context), Code> {
    if engine.owner(to).is_none() && engine.owner(from).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let context = |at| {
        let end = match engine.owner(at) {
            Some(device) => pooled(device, at, bytes),
            None => foreign(engine, at),
        }?;
        match end {
            End::Of(context) => Ok(context),
            // Such memory the driver does not carry over the host either: it has
            // to be that of the device which copies.
            End::On(ordinal) => match here()? {
                (context, device) if device.ordinal == ordinal => Ok(context),
                _ => Err(Code::INVALID_VALUE),
            },
        }
    };
    Ok((context(to)?, context(from)?))
}

/// Whose the memory at one end of a copy is.
enum End {
    /// A context's: cudaMalloc's.
    Of(Context),
    /// No context's, on the device of this ordinal.
    On(u32),
}

/// The end of a copy of `bytes` that lies in the pool of this device.
fn pooled(device: &Device, at: Address, bytes: u64) -> Result<End, Code> {
    let block = device.made().and_then(|pool| pool.find(at));
    match block {
        Some(block) if bytes > block.bytes - (at - block.base) => Err(Code::INVALID_VALUE),
        Some(block) if block.owner == Owner::Context => Ok(End::Of(block.context)),
        Some(_) => Ok(End::On(device.ordinal)),
        None => Err(Code::INVALID_VALUE),
    }
}

/// An end that is none of ours, as the driver knows it: it checks the length
/// itself.
fn foreign(engine: &Engine, at: Address) -> Result<End, Code> {
    let (mut kind, mut context, mut ordinal) = (0_u32, Context::default(), 0_u32);
    let ask = engine.calls.pointer_attribute;
    let ask = ask.ok_or(Code::INVALID_VALUE)?;
    // SAFETY: each pointer is valid for its attribute's type.
    unsafe {
        ask((&raw mut kind).cast(), MEMORY_TYPE, at).ok()?;
        ask((&raw mut context).cast(), CONTEXT, at).ok()?;
        ask((&raw mut ordinal).cast(), DEVICE_ORDINAL, at).ok()?;
    }
    match context {
        _ if kind != OF_A_DEVICE => Err(Code::INVALID_VALUE),
        none if none == Context::default() => Ok(End::On(ordinal)),
        context => Ok(End::Of(context)),
    }
}
