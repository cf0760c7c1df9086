//! What the keeper answers, and what it says unasked. New ones go to the end.

use serde::{Deserialize, Serialize};

use super::*;

/// What the keeper answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Introduce`], with the epoch page beside it: 4096 bytes whose
    /// first 64-bit word grows whenever a name is deleted, expires or is sealed.
    Welcome {
        /// The host and its boot, as in handles.
        node: u64,
        /// As in [`Reply::Lost`].
        lost: Vec<Generation>,
    },
    /// To [`Request::Leases`]: those that are not there any more.
    Lost(Vec<Generation>),
    /// It is done.
    Done,
    /// The caller makes it: memory of this size, then [`Request::Commit`].
    Make {
        /// Which.
        generation: Generation,
    },
    /// Memory with its first parts, a descriptor each beside the packet.
    Memory {
        /// What it is; without holders.
        entry: Entry,
        /// Bytes of each part sent with this packet.
        parts: Vec<u64>,
        /// Parts in all.
        total: u32,
    },
    /// More parts, a descriptor each beside the packet.
    Parts(Vec<u64>),
    /// Others hold it.
    Held {
        /// How many counts.
        references: u64,
    },
    /// A page of a list.
    Entries {
        /// In order.
        entries: Vec<Entry>,
        /// Where the next page begins; `None` at the end.
        next: Option<Place>,
    },
    /// See [`Status`].
    Status(Status),
    /// What [`Request::Collect`] freed, or would.
    Collected {
        /// How many generations.
        count: u64,
        /// Their physical bytes.
        bytes: u64,
    },
    /// It is refused.
    Failed {
        /// Why, for programs.
        code: Code,
        /// Why, for people; one line.
        message: String,
    },
}

/// How the keeper is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// The process that stands by to start it again; 0 where systemd does.
    pub standby: u32,
    /// The version of its program.
    pub version: String,
    /// Its socket.
    pub socket: String,
    /// Seconds since it started.
    pub up_s: u64,
    /// How often it was started anew.
    pub restarts: u32,
    /// Names that can be opened.
    pub names: u64,
    /// Deleted names that somebody holds.
    pub dying: u64,
    /// Unnamed exports.
    pub exports: u64,
    /// Connections.
    pub clients: u64,
    /// Leases, as a sum of counts.
    pub references: u64,
    /// Physical bytes in its keeping.
    pub bytes: u64,
    /// Of them, bytes of names that nobody holds.
    pub unheld_bytes: u64,
    /// The registry: empty where there is none, else its state in a line.
    pub redis: String,
}

/// What nobody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Nobody else holds this withdrawn export any more.
    LetGo(Generation),
}

/// Why a request was refused. The numbers are stable: programs see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Code {
    /// The request is not understood, or does not fit where things are.
    Invalid,
    /// There is no such thing, or the caller has no right to know of it.
    NotFound,
    /// There is one already.
    Exists,
    /// It is of another size, dtype, shape or device than asked for.
    Mismatch,
    /// Another one is making it.
    InProgress,
    /// The caller may not do this.
    Denied,
    /// More than the caller may have.
    Quota,
    /// It is sealed: for reading only.
    Sealed,
    /// No version is spoken by both.
    Version,
    /// The keeper cannot, for a reason of its own.
    Unavailable,
}
