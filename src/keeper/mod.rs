//! The keeper: one process of a user or a host that keeps shared memory by its
//! descriptors, and is the authority for names, generations and leases. One
//! thread and one epoll loop own all of its state (`serve`); a second, tiny
//! process stands by with duplicates of every descriptor (`standby`). Loads
//! nothing of CUDA and maps no memory that it keeps.

mod access;
mod answer;
mod client;
mod clock;
mod descriptors;
mod entries;
mod hear;
mod journal;
mod launch;
mod listen;
mod memory;
mod pages;
mod process;
pub mod redis;
pub mod registry;
mod rules;
mod serve;
mod standby;
mod start;
mod systemd;
mod token;
mod turn;
mod versions;

pub use launch::Launch;
pub use process::node;
pub use start::{Options, Part, run, stand_by};

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
