//! What the settings can be, one type a variable.

use super::parse::choose;
use std::ffi::OsStr;
use std::path::PathBuf;

/// What serves an allocation (`MEMCUDA_POLICY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The stitching pool.
    #[default]
    Stitch,
    /// One physical handle per allocation: a baseline.
    Direct,
    /// The plain driver, with full bookkeeping: a baseline.
    Track,
}

/// How PyTorch's allocator is set up (`MEMCUDA_TORCH`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Torch {
    /// `Native` where it can be proven safe for the torch at hand, else `Keep`.
    #[default]
    Auto,
    /// Torch's own allocator, asked to give back what it has idle: as `Expandable`
    /// where torch and machine are fit for it, else as `Segments`.
    Native,
    /// Torch's expandable segments, asked to give back at the peak, over pages that
    /// are kept.
    Expandable,
    /// Torch's segments by cudaMalloc, given back one by one before the pool grows.
    Segments,
    /// `backend:cudaMallocAsync`, served by the pool.
    Async,
    /// Torch's settings untouched.
    Keep,
}

/// May cudaFree return before the device is idle (`MEMCUDA_FREE`)?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Free {
    /// Only for an identified torch allocator.
    #[default]
    Auto,
    /// Never: wait as the driver does.
    Sync,
    /// Always: the memory is lent again only after a completion.
    Ordered,
}

/// Idle memory kept while another process is on the device (`MEMCUDA_IDLE`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Idle {
    /// So many bytes.
    Bytes(u64),
    /// This part of the device's memory, in percent.
    Percent(f64),
}

impl Idle {
    /// Bytes kept on a device of `total` bytes.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Idle::Bytes(bytes) => bytes,
            Idle::Percent(percent) => (total as f64 * percent / 100.0) as u64,
        }
    }
}

/// What becomes of `RTLD_DEEPBIND` when a library is loaded (`MEMCUDA_DEEPBIND`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deepbind {
    /// It is taken out of the flags.
    #[default]
    Strip,
    /// It stays: the library bypasses the shim.
    Keep,
}

impl Deepbind {
    /// From the variable's value.
    pub fn of(value: &OsStr) -> Option<Self> {
        choose(value, &[("strip", Self::Strip), ("keep", Self::Keep)])
    }
}

/// Extra checks (`MEMCUDA_DEBUG`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Debug {
    /// None.
    #[default]
    None,
    /// Memory is filled with NaN patterns when it is lent.
    Poison,
    /// Guard words behind every allocation, checked when it is freed.
    Canary,
}

/// Least severity that is written (`MEMCUDA_LOG`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// What a user should know, at most once a process each.
    #[default]
    Warn,
    /// Decisions.
    Info,
    /// Every slow-path step.
    Debug,
}

/// What is recorded of the stack (`MEMCUDA_TRACE_STACKS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stacks {
    /// Nothing.
    #[default]
    None,
    /// The functions and libraries on it.
    C,
    /// The functions of Python that the thread is in; where it is in none, as
    /// [`Stacks::C`].
    Python,
}

/// Who keeps named and exported memory (`MEMCUDA_KEEPER`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keeper {
    /// The user's own, started when it is first needed.
    #[default]
    Auto,
    /// Nobody: no memory has a name, and none is exported.
    Off,
    /// The one behind this socket; never started from here.
    Socket(PathBuf),
}
