//! Allocation traces: what a program asked of its allocator, one event after
//! the other. Reads them ([`Reader`]), plays them against the pool
//! ([`mod@replay`]), and says where the memory went ([`account`]).
//!
//! A trace is text, with or without zstd around it: optionally the line
//! `# memcuda-trace 1`, then the names of the columns, then the events.
//! Columns are taken by name, so their order is free and unknown ones are
//! passed over. Or it is what a process recorded of itself ([`crate::frames`]), which
//! becomes text by [`mod@write`].

pub mod account;
mod device;
pub mod fit;
mod mapped;
mod pages;
mod reader;
mod recording;
pub mod replay;
mod text;
mod torch_expandable;
mod torch_native;
pub mod write;

pub use crate::frames::Use;
use crate::pool;
pub use reader::{Reader, Shortfall};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The program asked for memory.
    Alloc,
    /// The program gave it back; work in flight may still use it.
    Free,
    /// That work is done.
    FreeDone,
    /// The program's own allocator asked the driver for a segment.
    SegmentAlloc,
    /// The program's own allocator gave a segment back.
    SegmentFree,
    /// The program asked for memory and was told that there is none.
    Refused,
    /// As many events as `bytes` says are missing from the recording.
    Lost,
}

impl Op {
    const NAMES: [(&str, Op); 7] = [
        ("alloc", Op::Alloc),
        ("free", Op::Free),
        ("free_done", Op::FreeDone),
        ("segment_alloc", Op::SegmentAlloc),
        ("segment_free", Op::SegmentFree),
        ("refused", Op::Refused),
        ("lost", Op::Lost),
    ];

    /// As a trace spells it.
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, op)| *op == self);
        known.map_or("", |(name, _)| name)
    }
}

/// Whose memory it is, and with what it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The context's: `cudaMalloc` and its like.
    Context,
    /// The device's memory pool: `cudaMallocAsync`.
    MemoryPool,
    /// A page of torch's expandable segments, from when torch maps it at this address
    /// until torch unmaps it.
    Page,
}

impl Owner {
    /// As the pool says it; `None` where the pool does not lend it.
    pub fn of_pool(self) -> Option<pool::Owner> {
        match self {
            Self::Context => Some(pool::Owner::Context),
            Self::MemoryPool => Some(pool::Owner::MemoryPool),
            Self::Page => None,
        }
    }
}

/// One event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The line it stands on, or its frame, from 1.
    pub line: u64,
    /// Microseconds since the trace began.
    pub t_us: u64,
    /// What happened.
    pub op: Op,
    /// Which allocation: unique among those that are live. An address for
    /// segments. Written in hexadecimal or decimal; both are read as
    /// hexadecimal, which keeps different ids different.
    pub id: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// The stream, in the program's own numbering; 0 is the default stream.
    pub stream: u64,
    /// Device ordinal; 0 in a trace without the column.
    pub device: u32,
    /// What is known of the order of uses, where the trace says it.
    pub uses: Option<Use>,
    /// Whose memory it is, where the trace says it.
    pub owner: Option<Owner>,
    /// The thread that asked: a word of [`Reader::word`]; 0 where it is unknown.
    pub thread: u32,
    /// The library that asked: a word.
    pub caller: u32,
    /// The name of the memory: a word.
    pub name: u32,
    /// What was called, innermost first, apart by `;`: a word.
    pub stack: u32,
}
