//! What is said between the keeper and its clients, version 1. A client sends
//! [`Hello`], then numbered requests; each gets one reply of the same number. A
//! packet of number 0 is an [`Event`], which nobody asked for. Descriptors
//! travel beside the packets that say so (`wire`).
//!
//! A *lease* is a count that a connection holds on a generation: it ends with
//! the connection, so the kernel tells of a death at once.

use serde::{Deserialize, Serialize};

use crate::names::{Dtype, Name};

/// The newest version that is spoken.
pub const NEWEST: u16 = 1;
/// The oldest that is still served: the one before the newest, where there is one.
pub const OLDEST: u16 = 1;
/// Most descriptors, and so parts, in one packet. (The kernel's limit is 253.)
pub const MOST_PARTS: usize = 128;
/// Most leases in one packet of [`Request::Introduce`] and [`Request::Leases`].
pub const MOST_LEASES: usize = 1024;
/// Most entries in one packet of [`Reply::Entries`].
pub const MOST_ENTRIES: usize = 32;

/// The first packet of a client, the only one of a fixed form: the bytes `mcud`,
/// then the oldest and the newest version it speaks, each 16 bits little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version the client speaks.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Hello {
    /// What this build says.
    pub const OURS: Self = Self {
        oldest: OLDEST,
        newest: NEWEST,
    };
    const MAGIC: [u8; 4] = *b"mcud";

    /// As a packet.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..6].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[6..].copy_from_slice(&self.newest.to_le_bytes());
        bytes
    }

    /// From a packet; `None` where it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 8] = bytes.try_into().ok()?;
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (bytes[..4] == Self::MAGIC).then(|| Self {
            oldest: word(4),
            newest: word(6),
        })
    }

    /// The newest version that both sides speak.
    pub fn agree(self) -> Option<u16> {
        let newest = self.newest.min(NEWEST);
        (newest >= self.oldest.max(OLDEST)).then_some(newest)
    }
}

/// A numbered request or its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Packet<T> {
    /// From 1; 0 is an event's.
    pub number: u32,
    /// What is said.
    pub body: T,
}

/// Which allocation: 128 random bits, never used twice. A name that is deleted
/// and made again is another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub [u8; 16]);

impl Generation {
    /// One that nobody has; `None` where the kernel gives no randomness.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        (got == Ok(bytes.len())).then_some(Self(bytes))
    }
}

/// A device, by the driver's UUID of it: the same in every process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceId(pub [u8; 16]);

/// Writes sixteen bytes in hexadecimal.
fn hex(bytes: &[u8; 16], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        hex(&self.0, f)
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        hex(&self.0, f)
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let group = |from: usize, to: usize| {
            let bytes = self.0[from..to].iter();
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let groups = [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)].map(|(from, to)| group(from, to));
        write!(f, "GPU-{}", groups.join("-"))
    }
}

impl std::fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// How a name is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// A new one: [`Code::Exists`] where there is one.
    Create,
    /// One that is there: [`Code::NotFound`] where there is none.
    Attach,
    /// Whichever it is.
    CreateOrAttach,
}

/// What holds the bytes of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// One physical handle; its descriptor is the keeper's, so the memory
    /// outlives its maker.
    Vmm,
    /// The driver's own allocation and legacy handle: programs without the
    /// library can open it; it ends with its maker.
    CudaIpc,
}

/// What a name holds, or is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Bytes; 0 where an attacher takes any.
    pub bytes: u64,
    /// Type of an element, if anybody said.
    pub dtype: Option<Dtype>,
    /// Extents, outermost first; empty where nobody said.
    pub shape: Vec<u64>,
    /// The device that holds it.
    pub device: DeviceId,
    /// The maker's ordinal of that device.
    pub ordinal: u32,
    /// What holds the bytes.
    pub backend: Backend,
}

/// How long a name lives when nobody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persist {
    /// Not at all.
    No,
    /// Until it is deleted.
    Yes,
    /// Until this second of the Unix epoch.
    Until(u64),
}

/// Where a name is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Its maker is not done: nobody else has it. Ends with its maker.
    Creating,
    /// Open to all with a right to it.
    Ready,
    /// Its bytes are final: opened for reading only from now on.
    Sealed,
    /// Deleted: hidden, and gone with its last holder.
    Dying,
}

/// A process, as the keeper knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number; as the process itself says it where it lives in a namespace
    /// that the keeper does not see.
    pub pid: u32,
    /// When it started, in clock ticks since boot; 0 where that is unknown.
    pub started: u64,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its command, at most 15 bytes.
    pub command: String,
}

/// One process that holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Who.
    pub process: Process,
    /// How often.
    pub count: u32,
}

/// All that is known of a name, or of an unnamed export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name; `None` for memory exported by CUDA IPC.
    pub name: Option<Name>,
    /// Which allocation.
    pub generation: Generation,
    /// What it holds.
    pub spec: Spec,
    /// Bytes of the physical handles.
    pub mapped: u64,
    /// First byte in the first of these.
    pub offset: u64,
    /// Where in its life.
    pub state: State,
    /// The newest version that was published; 0 for none.
    pub version: u64,
    /// What becomes of it when nobody holds it.
    pub persist: Persist,
    /// The driver's legacy handle, of [`Backend::CudaIpc`]; else empty.
    pub legacy: Vec<u8>,
    /// Who made it.
    pub maker: Process,
    /// Who holds it, at most the first 16 of them.
    pub holders: Vec<Holder>,
    /// The sum of all counts.
    pub references: u64,
    /// When it was made, and last changed: microseconds of the Unix epoch.
    pub created_us: u64,
    /// See `created_us`.
    pub changed_us: u64,
}

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

/// What the keeper answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Introduce`], with the epoch page beside it: 4096 bytes whose
    /// first 64-bit word grows whenever a name is deleted or expires.
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
    /// The caller may know of it, but not do this.
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
