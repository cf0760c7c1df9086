//! Why a request has no answer, and what that says of the keeper. Tries nothing again.

use std::fmt;

use rustix::io::Errno;

use crate::share::protocol::Code;
use crate::share::socket;

/// Why a request has no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// No keeper listens.
    Absent(Errno),
    /// The connection is of no use any more; nothing is known of the request.
    Lost,
    /// The answer came with more descriptors than this process may open. What it
    /// gave is not known here: the connection must end.
    NoRoom,
    /// The keeper refuses.
    Refused(Code, String),
}

impl Error {
    /// Is there no keeper at all?
    pub fn is_nobody(&self) -> bool {
        use Errno as E;
        matches!(self, Self::Absent(E::NOENT | E::NOTDIR | E::CONNREFUSED))
    }

    /// Was nobody even asked, for want of what this process or its host has no more of?
    pub fn is_own_want(&self) -> bool {
        matches!(self, Self::Absent(why) if socket::is_own_want(*why))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(error) => write!(f, "no keeper answers ({error})"),
            Self::Lost => f.write_str("the keeper went away, or does not answer"),
            Self::NoRoom => f.write_str("this process has no descriptors to spare (RLIMIT_NOFILE)"),
            Self::Refused(_, message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
