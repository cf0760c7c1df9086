//! Memory that this process shares with others: what it exports, what it has
//! open of theirs, and the keeper that stands between them. Nothing here runs
//! before a program shares something, but for the connection of programs that
//! will (`early`).

pub mod early;
mod epoch;
pub mod exports;
mod first;
pub mod given;
pub mod held;
pub mod keeper;
mod leases;
mod line;
pub mod make;
mod send;
mod settings;
mod start;
mod who;

use std::fmt;

use memcuda_core::share::protocol::{Code, DeviceId};

use crate::engine::Engine;
use crate::engine::device::Device;

/// The device with this identity, if the process sees it.
pub fn device(engine: &Engine, id: DeviceId) -> Option<&Device> {
    engine
        .devices
        .iter()
        .find(|device| device.uuid == Some(id.0))
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// `MEMCUDA_KEEPER=off`.
    Off,
    /// No keeper answers, for this reason.
    Gone(String),
    /// The keeper refuses, with a line for people.
    Refused(Code, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("MEMCUDA_KEEPER=off"),
            Self::Gone(why) | Self::Refused(_, why) => f.write_str(why),
        }
    }
}
