//! What a thread called last in the runtime, noted by the functions that are
//! only tagged (`tagged`) and read by the hooks. A note is used once.

use std::cell::Cell;

use memcuda_core::driver::{Address, Stream};

/// What this thread called last in the runtime. Return addresses are those of
/// the calls themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tag {
    /// `cudaMalloc`: return address, bytes.
    pub cuda_malloc: Option<(usize, u64)>,
    /// `cudaFree`: return address, address.
    pub cuda_free: Option<(usize, Address)>,
    /// `cudaStreamIsCapturing` that succeeded, with no other tagged call
    /// between it and the `cudaMalloc` here: return address, stream, status
    /// (`cudaStreamCaptureStatus`, 0 is none).
    pub is_capturing: Option<(usize, Stream, u32)>,
    /// `cudaStreamSynchronize`: return address, stream.
    pub synchronize: Option<(usize, Stream)>,
    /// Such a wait that was made, and no other tagged call since: return address.
    pub waited: Option<usize>,
}

impl Tag {
    /// Nothing was called.
    pub const NONE: Tag = Tag {
        cuda_malloc: None,
        cuda_free: None,
        is_capturing: None,
        synchronize: None,
        waited: None,
    };
}

thread_local! {
    static TAG: Cell<Tag> = const { Cell::new(Tag::NONE) };
}

/// Leaves a note.
pub fn set(tag: Tag) {
    TAG.set(tag);
}

/// Takes this thread's note away.
pub fn take() -> Tag {
    TAG.replace(Tag::NONE)
}
