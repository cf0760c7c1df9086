//! A command of a queue: what is to be done, where the answer goes, and why it
//! may be refused. `parse` makes it of bytes.

use std::collections::HashMap;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::names::{Dtype, Name};

/// Most bytes of a command.
pub const MOST_BYTES: usize = 64 << 10;
/// Most bytes of a `reply`, an `id`, a `vtid` or a `pc`.
pub(super) const MOST_TEXT: usize = 256;

/// A command, and where its answer goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What is to be done.
    pub operation: Operation,
    /// Where the answer goes.
    pub address: Address,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Make memory that stays until it is deleted.
    Create(Create),
    /// Say what is there.
    Get(Name),
    /// Hide it now; its memory goes with the last holder.
    Delete(Name),
    /// Let it outlive its holders.
    Persist {
        /// Which.
        name: Name,
        /// For so long; until it is deleted where nobody said.
        seconds: Option<u64>,
    },
    /// Make a copy under another name.
    Clone {
        /// Of this one.
        source: Name,
        /// The new name.
        name: Name,
        /// On this device; on the source's where nobody said.
        device: Option<Device>,
    },
}

impl Operation {
    /// Which name it is about; of a copy the new one.
    pub fn name(&self) -> &Name {
        match self {
            Self::Create(Create { name, .. })
            | Self::Clone { name, .. }
            | Self::Persist { name, .. } => name,
            Self::Get(name) | Self::Delete(name) => name,
        }
    }
}

/// Memory to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    /// Its name.
    pub name: Name,
    /// Type of an element, if anybody said.
    pub dtype: Option<Dtype>,
    /// Extents, outermost first; empty where nobody said.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Where, if anybody said.
    pub device: Option<Device>,
    /// Is it to be filled with zeros?
    pub zero: bool,
}

/// A device, as commands name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// By its ordinal.
    Ordinal(u32),
    /// By its UUID, `GPU-...`.
    Uuid(String),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

/// Where an answer goes, and what it repeats.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Address {
    /// A list that the client named.
    pub reply: Option<String>,
    /// The second protocol's number of a task: its list is `done:<vtid>`.
    pub vtid: Option<String>,
    /// The second protocol's place in a program, as it was written.
    pub pc: Option<String>,
    /// The client's own number of the command, as it was written.
    pub id: Option<String>,
    /// The operation as it was called; for refusals.
    pub op: Option<String>,
    /// The name as it was written; for refusals.
    pub name: Option<String>,
}

/// Why a command is refused, for programs. The texts are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is no object of JSON.
    Malformed,
    /// It has more bytes than a command may have.
    TooLong,
    /// There is no such operation.
    UnknownOperation,
    /// A value is missing, of the wrong type or out of bounds.
    Invalid,
    /// There is no such name.
    NotFound,
    /// There is one already.
    Exists,
    /// Another one is making it.
    InProgress,
    /// The keeper's rules forbid it.
    Denied,
    /// More than allowed.
    Quota,
    /// The device has no more memory.
    GpuOom,
    /// The memory cannot be made.
    AllocationFailed,
    /// It took too long.
    Timeout,
    /// It was taken up again and again, and never finished.
    Poisoned,
    /// The keeper cannot, for a reason of its own.
    Unavailable,
}

impl Fault {
    /// As answers say it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "MALFORMED",
            Self::TooLong => "TOO_LONG",
            Self::UnknownOperation => "UNKNOWN_OP",
            Self::Invalid => "INVALID",
            Self::NotFound => "NOT_FOUND",
            Self::Exists => "EXISTS",
            Self::InProgress => "IN_PROGRESS",
            Self::Denied => "DENIED",
            Self::Quota => "QUOTA",
            Self::GpuOom => "GPU_OOM",
            Self::AllocationFailed => "ALLOC_FAILED",
            Self::Timeout => "TIMEOUT",
            Self::Poisoned => "POISONED",
            Self::Unavailable => "UNAVAILABLE",
        }
    }

    /// From what answers say.
    pub fn of(text: &str) -> Option<Self> {
        const ALL: [Fault; 14] = [
            Fault::Malformed,
            Fault::TooLong,
            Fault::UnknownOperation,
            Fault::Invalid,
            Fault::NotFound,
            Fault::Exists,
            Fault::InProgress,
            Fault::Denied,
            Fault::Quota,
            Fault::GpuOom,
            Fault::AllocationFailed,
            Fault::Timeout,
            Fault::Poisoned,
            Fault::Unavailable,
        ];
        ALL.into_iter().find(|fault| fault.text() == text)
    }
}

/// How a command ended: with an entry where there is one to show.
pub type Outcome = Result<Option<Map<String, Value>>, (Fault, String)>;

/// A command that is not carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Why, for programs.
    pub fault: Fault,
    /// Why, for people; one line.
    pub message: String,
    /// As far as it could be read.
    pub address: Address,
}

impl Refused {
    /// As the end of a command.
    pub fn outcome(&self) -> Outcome {
        Err((self.fault, self.message.clone()))
    }
}

impl Address {
    /// As far as the fields are what they should be: an answer to the rest of
    /// them goes there. Numbers are repeated as they were `written`: there are longer ones
    /// than any of ours.
    pub(super) fn of(fields: &Map<String, Value>, written: &HashMap<String, &RawValue>) -> Self {
        let small = |field: &str| {
            let text = written.get(field).filter(|_| fields.contains_key(field))?;
            (text.get().len() <= MOST_TEXT).then(|| text.get().to_owned())
        };
        let short = |field: &str| match fields.get(field) {
            Some(Value::String(text)) if text.len() <= MOST_TEXT => Some(text.clone()),
            Some(Value::Number(_)) => small(field),
            _ => None,
        };
        Self {
            reply: short("reply"),
            vtid: short("vtid"),
            pc: small("pc"),
            id: small("id"),
            op: short("op"),
            name: ["name", "key", "dst"].into_iter().find_map(short),
        }
    }
}
