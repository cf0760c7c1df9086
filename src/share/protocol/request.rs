//! What a client asks. New requests go to the end: their place is their number.

use serde::{Deserialize, Serialize};

use super::*;
use crate::names::Name;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Who speaks; the first request of every connection. Leases are those that
    /// the process believes to hold, after the keeper was gone; `more` where
    /// [`Request::Leases`] follow. -> [`Reply::Welcome`] with the epoch page.
    Introduce {
        /// The process's number, as it sees itself.
        pid: u32,
        /// Its command.
        command: String,
        /// Leases to take up again.
        leases: Vec<Lease>,
        /// Is there more of them?
        more: bool,
    },
    /// More leases. -> [`Reply::Lost`].
    Leases {
        /// Leases to take up again.
        leases: Vec<Lease>,
        /// Is there more of them?
        more: bool,
    },
    /// A name. -> [`Reply::Make`] where the caller is to make it, else
    /// [`Reply::Memory`], and the caller holds a lease in both cases;
    /// [`Code::InProgress`] while another one makes it: ask again.
    Open {
        /// Which.
        name: Name,
        /// How.
        mode: Mode,
        /// What a new one is to hold, and what is expected of one that is there:
        /// a difference in bytes (0: any), or in dtype or shape where said, is
        /// [`Code::Mismatch`].
        spec: Spec,
        /// Is it to be written? Refused on what is sealed.
        write: bool,
        /// A new one stays [`State::Creating`] until it is sealed.
        hidden: bool,
    },
    /// The memory that [`Reply::Make`] asked for, with one descriptor beside the
    /// packet, or none and the legacy handle. Saying it twice is no error.
    /// -> [`Reply::Done`].
    Commit {
        /// As in [`Reply::Make`].
        generation: Generation,
        /// Bytes of the physical handle.
        mapped: u64,
        /// Of [`Backend::CudaIpc`]; else empty.
        legacy: Vec<u8>,
    },
    /// It cannot be made after all. -> [`Reply::Done`].
    Abort {
        /// As in [`Reply::Make`].
        generation: Generation,
    },
    /// Its bytes are final. For who may write. -> [`Reply::Done`].
    Seal {
        /// Which.
        generation: Generation,
    },
    /// One count fewer. -> [`Reply::Done`], also where there is none.
    Release {
        /// Which.
        generation: Generation,
    },
    /// Whether a name outlives its holders. -> [`Reply::Done`].
    Persist {
        /// Which.
        name: Name,
        /// How long.
        persist: Persist,
    },
    /// Hides a name now; its memory goes with the last holder. -> [`Reply::Done`].
    Delete {
        /// Which.
        name: Name,
        /// Only this generation, if said.
        generation: Option<Generation>,
    },
    /// One entry, by name. -> [`Reply::Entries`] of one.
    Show {
        /// Which.
        name: Name,
    },
    /// Entries in the order of their names, then unnamed ones by generation: at
    /// most [`MOST_ENTRIES`] of those behind this place. -> [`Reply::Entries`].
    List {
        /// The last one of the page before.
        after: Option<Place>,
        /// Unnamed exports and deleted names, too.
        all: bool,
    },
    /// The page with the version of a name: a descriptor of 4096 bytes, whose
    /// first 64-bit word is the newest published version; the second one is the
    /// clients', the largest number that was given out. -> [`Reply::Done`] with it.
    Timeline {
        /// Which, of which the caller holds a lease.
        generation: Generation,
    },
    /// Memory to be opened by handle: the first parts, a descriptor each, and
    /// how many there are in all. The caller makes the generation up.
    /// -> [`Reply::Done`]; the caller holds a lease.
    Export {
        /// Which: random.
        generation: Generation,
        /// What it holds.
        spec: Spec,
        /// First byte in the first part.
        offset: u64,
        /// Bytes of each part sent with this packet.
        parts: Vec<u64>,
        /// Parts in all.
        total: u32,
    },
    /// The next parts of an export. -> [`Reply::Done`].
    ExportMore {
        /// Which.
        generation: Generation,
        /// Bytes of each part sent with this packet.
        parts: Vec<u64>,
    },
    /// Memory by its handle. -> [`Reply::Memory`]; the caller holds a lease.
    Import {
        /// Which.
        generation: Generation,
    },
    /// Parts of what was opened, from this one on. -> [`Reply::Parts`].
    Parts {
        /// Which, of which the caller holds a lease.
        generation: Generation,
        /// How many parts came before.
        from: u32,
    },
    /// The exporter's program freed the memory: nobody opens it any more.
    /// -> [`Reply::Done`] where nobody else holds it and it is gone, else
    /// [`Reply::Held`] and one day [`Event::LetGo`]. The exporter's lease ends.
    Withdraw {
        /// Which.
        generation: Generation,
    },
    /// How the keeper is. -> [`Reply::Status`].
    Status,
    /// Frees what nobody holds and nothing keeps, and what has expired; only
    /// says what would go where `dry`. -> [`Reply::Collected`].
    Collect {
        /// Only say.
        dry: bool,
        /// Named memory that nobody holds, too, though it was persisted.
        kept: bool,
    },
    /// The keeper ends; refused while it holds anything, unless forced. For its
    /// own user. -> [`Reply::Done`].
    Stop {
        /// Also with memory in its keeping.
        force: bool,
    },
    /// The program behind the keeper is started anew, with everything that it
    /// holds: after an upgrade. For its own user. -> [`Reply::Done`].
    Restart,
    /// The exporter's program gave up these parts of exports, at most
    /// [`MOST_LEASES`], and has others of them: they are let go, and whoever opens the
    /// export from now on finds another part in their place. -> [`Reply::Done`], also
    /// where there is nothing.
    GiveUp {
        /// Which, and how many parts are before it there.
        parts: Vec<(Generation, u32)>,
    },
    /// The connection is about to end, and its process lives on and comes back: what
    /// it holds waits for it. -> [`Reply::Done`], for which nobody waits.
    ComeBack,
}

/// One lease, as a process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// On what.
    pub generation: Generation,
    /// How often.
    pub count: u32,
}

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// Behind this name; of deleted ones with the same name behind this generation.
    Named(Name, Generation),
    /// Behind this unnamed one.
    Unnamed(Generation),
}
