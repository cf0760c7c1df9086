//! The calls that the pool makes, as one trait, and its backends: the real
//! driver ([`real`]) and a cost model without memory ([`model`]).
//!
//! A backend executes; it decides nothing, retries nothing and never logs.

#[cfg(feature = "cli")]
pub mod allocate;
pub mod cancel;
#[cfg(feature = "cli")]
pub mod children;
mod code;
mod cost;
#[cfg(feature = "cli")]
pub mod ignored;
#[cfg(feature = "cli")]
pub mod inspect;
#[cfg(feature = "cli")]
mod library;
pub mod model;
#[cfg(feature = "cli")]
pub mod nvml;
mod openable;
mod properties;
pub mod real;
pub mod sys;
#[macro_use]
mod table;
pub mod thread;

pub use code::{Code, Result};

use std::os::fd::{BorrowedFd, OwnedFd};

/// A virtual address of the device, in bytes (`CUdeviceptr`).
pub type Address = u64;

/// A physical allocation handle (`CUmemGenericAllocationHandle`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Handle(pub u64);

/// A context (`CUcontext`), as the driver's opaque value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Context(pub u64);

/// A stream (`CUstream`): 0 and [`Stream::LEGACY`] are the legacy default
/// stream, [`Stream::PER_THREAD`] is the calling thread's default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Stream(pub u64);

impl Stream {
    /// `CU_STREAM_LEGACY`.
    pub const LEGACY: Stream = Stream(1);
    /// `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Stream = Stream(2);

    /// Is it one of these two, or 0, which stands for one of them? The program did not make it.
    pub fn is_default(self) -> bool {
        self.0 <= Self::PER_THREAD.0
    }

    /// The stream that an argument of a call means, where 0 is the legacy default stream.
    pub fn or_legacy(self) -> Self {
        if self.0 == 0 { Self::LEGACY } else { self }
    }

    /// The same of a call's spelling for threads (`_ptsz`), where 0 is the thread's own.
    pub fn or_per_thread(self) -> Self {
        if self.0 == 0 { Self::PER_THREAD } else { self }
    }
}

/// An event (`CUevent`), created without timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Event(pub u64);

/// What `cuStreamIsCapturing` says of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// Not capturing: event operations take effect at once.
    None,
    /// Capturing, or its capture was invalidated: an event operation would
    /// become part of the user's graph or fail.
    Active,
}

/// What a device may do with a mapping (`CUmemAccess_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Nothing.
    None,
    /// Read. A write ends the context with an error that stays.
    Read,
    /// Read and write.
    #[default]
    Write,
}

impl Access {
    /// As the driver has it (`CUmemAccess_flags`).
    pub fn flags(self) -> u32 {
        match self {
            Access::None => sys::ACCESS_NONE,
            Access::Read => sys::ACCESS_READ,
            Access::Write => sys::ACCESS_READ_WRITE,
        }
    }
}

/// The calls of the pool.
///
/// # Contract
///
/// 1. A call either takes effect wholly and returns `Ok`, or changes nothing
///    and returns the driver's code.
/// 2. Sizes and offsets are bytes and multiples of the granularity, except
///    those of [`Driver::fill`].
/// 3. `map` maps a handle whole; `unmap` covers whole mappings. Neither waits
///    for the device: the caller proves that no work uses the range.
/// 4. Calls that name a stream or a context work whatever context is current;
///    a stream value is meaningful together with its context only, and
///    [`Stream::PER_THREAD`] only on the thread that owns it.
/// 5. No call ends, joins or extends a stream capture: the backend runs what
///    is unsafe in a capture under a relaxed capture mode of the thread. The
///    exceptions, which the pool makes only while no capture is under way,
///    are [`Driver::record_context`], [`Driver::wait_context`] and
///    [`Driver::synchronize_context`].
/// 6. `reserve`, `free_reservation`, `create`, `export`, `import`, `map`,
///    `set_access`, `unmap`, `release` and the waits for a context may call
///    back into the hooks (other interposers do): the pool holds no state lock
///    across them.
///    Event calls, `capture`, `memory_info`, `check` and `fill` do not call back.
pub trait Driver: Send + Sync {
    /// Smallest size and alignment of a handle of this device, in bytes
    /// (`cuMemGetAllocationGranularity`).
    fn granularity(&self, device: u32) -> Result<u64>;
    /// Free and total physical bytes of a device (`cuMemGetInfo`), 3 us; fails where no context
    /// of the device is current on the calling thread.
    fn memory_info(&self, device: u32) -> Result<(u64, u64)>;

    /// Reserves address space (`cuMemAddressReserve`).
    fn reserve(&self, bytes: u64) -> Result<Address>;
    /// Returns a whole reservation (`cuMemAddressFree`).
    fn free_reservation(&self, at: Address, bytes: u64) -> Result<()>;
    /// Makes a physical handle on a device (`cuMemCreate`).
    fn create(&self, device: u32, bytes: u64) -> Result<Handle>;
    /// Gives a handle up (`cuMemRelease`); memory goes when the last mapping
    /// went as well.
    fn release(&self, handle: Handle) -> Result<()>;
    /// A descriptor that stands for the memory of a handle in any process, and
    /// keeps it (`cuMemExportToShareableHandle`). Of imported handles there is
    /// none: `INVALID_VALUE`. Harmless to captures; 1.6 ms the first time.
    fn export(&self, handle: Handle) -> Result<OwnedFd>;
    /// A handle for the memory behind a descriptor, which may be closed after
    /// it (`cuMemImportFromShareableHandle`). Harmless to captures; 47 us.
    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Handle>;
    /// Maps a whole handle at an address of a reservation (`cuMemMap`).
    fn map(&self, at: Address, bytes: u64, handle: Handle) -> Result<()>;
    /// Says what a device may do with a mapped range (`cuMemSetAccess`). Does
    /// not wait: who takes access away proves that the device does not use the
    /// range.
    fn set_access(&self, at: Address, bytes: u64, device: u32, access: Access) -> Result<()>;
    /// Unmaps whole mappings (`cuMemUnmap`).
    fn unmap(&self, at: Address, bytes: u64) -> Result<()>;

    /// Makes an event without timing in a context (`cuEventCreate`).
    fn create_event(&self, context: Context) -> Result<Event>;
    /// Destroys an event (`cuEventDestroy_v2`).
    fn destroy_event(&self, event: Event) -> Result<()>;
    /// Records an event behind all work so far on a stream (`cuEventRecord`).
    fn record(&self, event: Event, context: Context, stream: Stream) -> Result<()>;
    /// Records an event behind all work so far of a whole context
    /// (`cuCtxRecordEvent`, CUDA 12.5); `NOT_FOUND` where the driver lacks it.
    fn record_context(&self, event: Event, context: Context) -> Result<()>;
    /// Is the recorded work complete (`cuEventQuery`)? An error is the
    /// context's sticky error, never "busy".
    fn is_complete(&self, event: Event) -> Result<bool>;
    /// Waits on the host for an event (`cuEventSynchronize`).
    fn synchronize_event(&self, event: Event) -> Result<()>;
    /// Orders later work of a stream behind an event (`cuStreamWaitEvent`).
    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()>;
    /// Orders later work of a whole context behind an event, on streams that are made
    /// afterwards, too, and of a primary context's green ones (`cuCtxWaitEvent`, CUDA
    /// 12.5); `NOT_FOUND` where the driver lacks it.
    fn wait_context(&self, context: Context, event: Event) -> Result<()>;
    /// Is this stream capturing (`cuStreamIsCapturing`)?
    fn capture(&self, context: Context, stream: Stream) -> Result<Capture>;
    /// Has this context an error that stays with it? The cheapest call that
    /// tells: `cuCtxGetStreamPriorityRange`, 10 ns, harmless to captures
    /// (docs/measurements/driver-h200.md).
    fn check(&self, context: Context) -> Result<()>;
    /// Waits on the host for a whole context (`cuCtxSynchronize`).
    fn synchronize_context(&self, context: Context) -> Result<()>;
    /// The same by a free of memory that is allocated for it (`cuMemAlloc`, `cuMemFree`; where
    /// the device is full `cuMemHostAlloc`, `cuMemFreeHost`): of all such waits the one that a
    /// capture survives. `OUT_OF_MEMORY` where there is neither.
    fn synchronize_by_free(&self, context: Context) -> Result<()>;

    /// Fills 32-bit words in stream order (`cuMemsetD32Async`); `bytes` is a
    /// multiple of 4.
    fn fill(
        &self,
        context: Context,
        stream: Stream,
        at: Address,
        word: u32,
        bytes: u64,
    ) -> Result<()>;
    /// Reads device memory into the host's, waiting for it (`cuMemcpyDtoH`).
    fn read(&self, context: Context, at: Address, into: &mut [u8]) -> Result<()>;
}
