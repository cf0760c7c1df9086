//! Why a request is not done, as programs and people are told.

use std::fmt;

use crate::share::protocol::{Code, Reply};

/// Why a request is refused, for programs and in one line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
}

impl Refusal {
    /// A refusal with this text.
    pub fn new(code: Code, message: String) -> Self {
        Self { code, message }
    }

    /// A request that is not understood, or does not fit.
    pub fn invalid(message: String) -> Self {
        Self::new(Code::Invalid, message)
    }

    /// The one answer for what is not there and for what the asker has no right
    /// to know of.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what} here"))
    }
}

impl From<Refusal> for Reply {
    fn from(Refusal { code, message }: Refusal) -> Self {
        Self::Failed { code, message }
    }
}
