//! Allocation traces: what a program asked of its allocator, one event a line.
//! Reads them ([`Reader`]) and plays them against the pool ([`mod@replay`]).
//!
//! A trace is text, with or without zstd around it: optionally the line
//! `# memcuda-trace 1`, then the names of the columns, then the events.
//! Columns are taken by name, so their order is free and unknown ones are
//! passed over.

mod device;
mod reader;
pub mod replay;
mod torch_expandable;
mod torch_native;

pub use reader::Reader;

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
}

impl Op {
    const NAMES: [(&str, Op); 5] = [
        ("alloc", Op::Alloc),
        ("free", Op::Free),
        ("free_done", Op::FreeDone),
        ("segment_alloc", Op::SegmentAlloc),
        ("segment_free", Op::SegmentFree),
    ];

    /// As a trace spells it.
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, op)| *op == self);
        known.map_or("", |(name, _)| name)
    }
}

/// One line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The line it stands on, from 1.
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
}
