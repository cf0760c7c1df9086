//! What is said between the keeper and its clients, version 1. A client sends
//! [`Hello`], then numbered requests; each gets one reply of the same number. A
//! packet of number 0 is an [`Event`], which nobody asked for. Descriptors
//! travel beside the packets that say so (`wire`).
//!
//! A *lease* is a count that a connection holds on a generation: it ends with
//! the connection, so the kernel tells of a death at once. Who hangs up and lives
//! says [`Request::ComeBack`] before.

use serde::{Deserialize, Serialize};

mod entry;
mod id;
mod reply;
mod request;

pub use crate::names::{Backend, Mode};
pub use entry::{Entry, Holder, Persist, Process, Spec, State};
pub use id::{DeviceId, Generation};
pub use reply::{Code, Event, Reply, Status};
pub use request::{Lease, Place, Request};

/// The newest version that is spoken.
pub const NEWEST: u16 = 1;
/// The oldest that is still served: the one before the newest, where there is one.
pub const OLDEST: u16 = 1;
/// Most descriptors, and so parts, in one packet. (The kernel's limit is 253.)
pub const MOST_PARTS: usize = 128;
/// Most leases in one packet of [`Request::Introduce`] and [`Request::Leases`], and most
/// parts in one of [`Request::GiveUp`].
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
