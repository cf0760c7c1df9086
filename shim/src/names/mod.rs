//! Memory with a name in this process: how it is made and opened, which
//! allocations of the program get one, and what has happened to it (versions).
//! The keeper says what a name is; here it is mapped. Nothing here runs before a
//! program has rules or calls the library.

pub mod hints;
pub mod legacy;
pub mod lifetime;
pub mod make;
pub mod open;
pub mod place;
mod primary;
pub mod table;
mod timeline;
pub mod versions;

use std::fmt;

use memcuda_core::driver::Code;
use memcuda_core::names::Name;
use memcuda_core::share::protocol::{self, Backend, DeviceId, Mode};

use memcuda_core::names::{Dtype, rules};

use crate::share::Error;
use crate::share::given;

/// A name that somebody wants, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Which.
    pub name: Name,
    /// Made, opened, or whichever it is.
    pub mode: Mode,
    /// Bytes; 0 takes any that are there.
    pub bytes: u64,
    /// Type of an element, if said.
    pub dtype: Option<Dtype>,
    /// Extents, outermost first, if said.
    pub shape: Vec<u64>,
    /// Is it to be written?
    pub write: bool,
    /// A new one is filled with zeros.
    pub zeroed: bool,
    /// A new one is not found before it is sealed.
    pub hidden: bool,
    /// A new one outlives its holders.
    pub persist: bool,
    /// Where it cannot be had so, is the allocation unnamed?
    pub or_unnamed: bool,
    /// What holds the bytes of a new one.
    pub backend: Backend,
    /// Must it be on the device where it is asked for?
    pub here: bool,
    /// How long to wait while another process makes it, in microseconds.
    pub wait_us: u64,
    /// Also before any process has begun to, or a keeper runs?
    pub awaited: bool,
}

impl Wanted {
    /// How long a rule waits for another process that makes it, where it does not say.
    const PATIENCE_S: u64 = 5;

    /// As a rule has it.
    fn by_rule(name: Name, what: &rules::What, bytes: u64) -> Self {
        Self {
            name,
            mode: what.mode,
            bytes,
            dtype: what.dtype,
            shape: what.shape.clone(),
            write: !what.read_only,
            zeroed: what.zeroed,
            hidden: false,
            persist: what.persist,
            or_unnamed: what.or_unnamed,
            backend: what.backend,
            here: true,
            wait_us: what
                .wait_s
                .unwrap_or(Self::PATIENCE_S)
                .saturating_mul(1_000_000),
            // Who may make it needs nobody else, and goes on without a keeper.
            awaited: what.wait_s.is_some() && what.mode == Mode::Attach,
        }
    }
}

/// Why memory of a name cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The keeper refuses.
    Refused(protocol::Code, String),
    /// No keeper answers.
    Unavailable(String),
    /// The driver's answer, and what it was asked.
    Driver(Code, &'static str),
    /// The driver's answer where the memory is on a device that the process does
    /// not see.
    Unseen(Code, DeviceId),
    /// It was waited for as long as was said.
    Timeout(String),
    /// An argument is not accepted.
    Invalid(String),
}

impl Failure {
    /// What the keeper answered that it cannot have answered.
    pub fn odd() -> Self {
        Self::Unavailable("the keeper's answer makes no sense".to_owned())
    }

    /// What is no name any more, as the keeper answers.
    pub fn gone(entry: &protocol::Entry) -> Self {
        let name = entry.name.as_ref().map_or("", |name| name.as_str());
        let why = format!("there is no {name} here");
        Self::Refused(protocol::Code::NotFound, why)
    }

    /// For an answer of the driver to this call.
    pub fn of(call: &'static str) -> impl Fn(Code) -> Self {
        move |code| Self::Driver(code, call)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(code, why) => Self::Refused(code, why),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<given::Failure> for Failure {
    fn from(failure: given::Failure) -> Self {
        match failure {
            given::Failure::Keeper(error) => error.into(),
            given::Failure::Driver(code) => Self::Driver(code, "cuMemImportFromShareableHandle"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_, why)
            | Self::Unavailable(why)
            | Self::Timeout(why)
            | Self::Invalid(why) => f.write_str(why),
            Self::Unseen(code, device) => write!(
                f,
                "it is on {device}, which this process does not see (CUDA_VISIBLE_DEVICES): {code:?}"
            ),
            Self::Driver(code, call) => write!(f, "{call} answers {code:?}"),
        }
    }
}
