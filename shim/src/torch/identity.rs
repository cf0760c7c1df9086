//! Is a driver call the work of torch's own caching allocator? Only where
//! everything agrees: the entry point was fetched by a shared cudart, the
//! runtime call before it on this thread came from `libc10_cuda.so` with the
//! same size or address, and torch had just asked for the capture status of
//! the stream it allocates for. In doubt the answer is no.

use memcuda_core::driver::{Address, Stream};

use super::{environment, scopes};
use crate::libraries::modules::{self, Module};
use crate::libraries::resolve;
use crate::process::tags::Tag;

/// An allocation of torch's native allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TorchCall {
    /// The stream that the memory is for, as the runtime spelled it.
    pub stream: Stream,
    /// The device ordinal.
    pub device: u32,
    /// May a private-pool scope be open on the device? A graph may then replay
    /// on this memory.
    pub scope_open: bool,
}

/// `cudaStreamCaptureStatusNone`.
const NOT_CAPTURING: u32 = 0;

const ALLOCATOR_LIBRARY: &[u8] = b"libc10_cuda.so";

/// Does this code lie in the library of torch's CUDA allocator?
pub fn is_allocator(caller: usize) -> bool {
    modules::at(caller).is_some_and(|about| about.file() == ALLOCATOR_LIBRARY)
}

/// Is the call torch's allocation of these bytes on this device?
pub fn identify(tag: &Tag, thunk: Module, device: u32, bytes: u64) -> Option<TorchCall> {
    let (malloc_from, asked) = tag.cuda_malloc?;
    let (status_from, stream, status) = tag.is_capturing?;
    let proven = asked == bytes
        && status == NOT_CAPTURING
        && is_shared_runtime(thunk)
        && is_allocator(malloc_from)
        && is_allocator(status_from)
        && scopes::watching()
        && !scopes::stream_unknown()
        // Without caching torch asks for no stream: what was noted is of before.
        && !scopes::given_up()
        && !environment::caching_is_off();
    proven.then(|| TorchCall {
        stream,
        device,
        scope_open: scopes::may_be_open(device),
    })
}

/// Is the call torch's free of this address? Torch may then still have work in
/// flight on it, ordered by the stream it was allocated for: an allocation that
/// was not identified must be waited for all the same.
pub fn identify_free(tag: &Tag, thunk: Module, address: Address) -> bool {
    tag.cuda_free.is_some_and(|(from, freed)| {
        freed == address
            && is_shared_runtime(thunk)
            && is_allocator(from)
            && scopes::watching()
            && !scopes::given_up()
    })
}

/// A cudart that is linked statically into something else makes no tagged
/// calls, so what was noted cannot be its own. Some wheels carry the shared one under
/// a name of their own (`libcudart-9335f6a2.so.12`).
fn is_shared_runtime(thunk: Module) -> bool {
    thunk
        .about()
        .is_some_and(|about| resolve::is_runtime(about.file()))
}
