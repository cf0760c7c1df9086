//! What callers say to the pool and what it answers. Plain values, no policy.

use super::slab::GRANULE;
use crate::driver::{Address, Code, Context, Stream};
use crate::units::MIB;

/// A stream as the pool tells streams apart: values are meaningful inside
/// their context only, and the per-thread default stream inside its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The stream's context.
    pub context: Context,
    /// The stream; never 0.
    pub stream: Stream,
    /// A number unique to the calling thread where `stream` is
    /// [`Stream::PER_THREAD`], else 0.
    pub thread: u64,
}

impl StreamKey {
    /// The key of `stream`, where 0 stands for the legacy default stream.
    pub fn new(context: Context, stream: Stream, thread: u64) -> Self {
        let stream = stream.or_legacy();
        let thread = if stream == Stream::PER_THREAD {
            thread
        } else {
            0
        };
        Self {
            context,
            stream,
            thread,
        }
    }
}

/// Where the first use of an allocation will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Behind the work of this stream (cudaMallocAsync).
    Stream(StreamKey),
    /// On this stream, and on all that were ordered behind its work before (a segment
    /// of torch's): only bytes whose users on other streams are known complete on the
    /// host are lent.
    Segment(StreamKey),
    /// Anywhere, at once (cudaMalloc): only bytes whose users are known
    /// complete on the host are lent.
    Unknown,
}

impl Order {
    /// The stream that it names.
    pub fn stream(&self) -> Option<&StreamKey> {
        match self {
            Order::Stream(key) | Order::Segment(key) => Some(key),
            Order::Unknown => None,
        }
    }
}

/// How far the pool may go for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Only a window that is there: no driver call but event operations.
    Window,
    /// Stitch what is idle and take new memory from the driver.
    Growth,
}

/// Whose an allocation is, and so how long it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The context that it was made in, and it ends with it (cudaMalloc).
    Context,
    /// The device's memory pool: only a free ends it (cudaMallocAsync).
    MemoryPool,
}

impl Owner {
    /// How the driver aligns the base of an allocation, in bytes: programs
    /// register and export large ones and count on it. Of `cuMemAlloc` it gives a
    /// whole number of 2 MiB pages to whatever would leave less than 1 KiB of the
    /// last one, or is larger (docs/measurements/driver-h200.md).
    pub fn alignment(self, bytes: u64) -> u64 {
        match self {
            Owner::Context if bytes >= 2 * MIB - GRANULE => 2 * MIB,
            _ => GRANULE,
        }
    }
}

/// One allocation asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Bytes; not 0.
    pub bytes: u64,
    /// Alignment of the base in bytes: a power of two, 512 to 2 MiB.
    pub align: u64,
    /// Where it will be used first.
    pub order: Order,
    /// The context current on the calling thread.
    pub context: Context,
    /// Whose it will be.
    pub owner: Owner,
    /// What may be done to serve it.
    pub effort: Effort,
    /// May a graph replay on it? Then it is lent again only after a
    /// completion of its whole context.
    pub graph: bool,
}

/// Why an allocation was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No window that exists serves it, and the request forbids more.
    NoWindow,
    /// The driver's code.
    Driver(Code),
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Refusal::Driver(code)
    }
}

/// What there was not enough of for a request that is out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lack {
    /// Memory of the device.
    #[default]
    Memory,
    /// What the limit allows: others have nothing to give.
    Limit,
    /// Page tables of this other device, which may reach the pool's memory: they lie there.
    Tables(u32),
}

/// What is known of the uses of memory that is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// They are ordered before this point of this stream (cudaFreeAsync).
    Stream(StreamKey),
    /// They are complete: the caller has waited for the context.
    Complete,
    /// They are complete in the allocation's own context; in the others they end before
    /// what [`Pool::synchronize_own`](super::Pool::synchronize_own) noted there.
    Own,
    /// Nothing: they end before a later completion of the whole context.
    Unknown,
}

/// A live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Its first byte.
    pub base: Address,
    /// Bytes asked for.
    pub bytes: u64,
    /// Unique to this allocation of the device in this process; below 2^48.
    pub id: u64,
    /// The context it was made in; 0 where that ended and this did not.
    pub context: Context,
    /// See [`Request::owner`].
    pub owner: Owner,
    /// See [`Request::graph`].
    pub graph: bool,
    /// The stream that [`Request::order`] named, if that is still there.
    pub order: Order,
    /// Not the pool's own memory: it is detached, not freed.
    pub attached: bool,
    /// On a free: others may have it open, so its bytes are lent again only
    /// after [`Pool::export_ends`](super::Pool::export_ends).
    pub parked: bool,
    /// On a free under `MEMCUDA_DEBUG=canary`: the guard words were
    /// overwritten.
    pub overrun: bool,
    /// On a free in the order of a stream: the error that stays with its
    /// context, as far as it is known.
    pub error: Option<Code>,
}

/// Why an address could not be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOurs {
    /// Outside every live allocation (never lent, or freed already).
    Unknown,
    /// Inside an allocation, but not its first byte.
    Interior,
    /// Attached memory, which is not freed.
    Attached,
}
