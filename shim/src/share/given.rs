//! Memory that the keeper gave: what it is, and a descriptor for each physical handle
//! below it, so many at a time. It becomes what a pool can map. The lease on it is the
//! caller's, who gives it back where this fails.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use memcuda_core::driver::{Access, Code, Context, Driver, Handle};
use memcuda_core::pool::Attachment;
use memcuda_core::share::protocol::{Entry, Reply, Request};

use super::keeper::{self, Answer};
use super::{Error, device};
use crate::engine::Engine;
use crate::engine::device::Device;

/// Some of it, before it is mapped.
pub struct Given {
    /// What it is.
    pub entry: Entry,
    parts: Vec<u64>,
    descriptors: Vec<OwnedFd>,
    total: u32,
}

/// Why it cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The keeper's part failed.
    Keeper(Error),
    /// The driver's part failed.
    Driver(Code),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keeper(error) => error.fmt(f),
            Self::Driver(code) => write!(f, "the driver answers {code:?}"),
        }
    }
}

impl Given {
    /// What an answer gives; `None` where it is another one.
    pub fn of((reply, descriptors): Answer) -> Option<Self> {
        match reply {
            Reply::Memory {
                entry,
                parts,
                total,
            } => Some(Self {
                entry,
                parts,
                descriptors,
                total,
            }),
            _ => None,
        }
    }

    /// The device whose pool is to map it: of one that this process does not see, the
    /// pool of the current one has the addresses.
    pub fn home<'a>(&self, engine: &'a Engine, current: &'a Device) -> &'a Device {
        device(engine, self.entry.spec.device).unwrap_or(current)
    }

    /// Its handles, for a context of the `current` device. Where they do not all come
    /// none is kept.
    pub fn import(
        self,
        engine: &Engine,
        (context, current): (Context, &Device),
        access: Access,
    ) -> Result<Attachment, Failure> {
        let home = self.home(engine, current).ordinal;
        let (offset, bytes) = (self.entry.offset, self.entry.spec.bytes);
        let mut handles = Vec::new();
        if let Err(failure) = self.fetch(engine, &mut handles) {
            for (handle, _) in handles {
                let _ = engine.driver.release(handle);
            }
            return Err(failure);
        }
        Ok(Attachment {
            handles,
            offset,
            bytes,
            context,
            access,
            also: (home != current.ordinal).then_some(current.ordinal),
            beside: None,
            opened: true,
        })
    }

    fn fetch(self, engine: &Engine, handles: &mut Vec<(Handle, u64)>) -> Result<(), Failure> {
        let odd = || Failure::Keeper(Error::Gone("the keeper's answer makes no sense".to_owned()));
        let generation = self.entry.generation;
        let (mut parts, mut descriptors) = (self.parts, self.descriptors);
        loop {
            if parts.is_empty() || parts.len() != descriptors.len() {
                return Err(odd());
            }
            for (bytes, descriptor) in parts.iter().zip(descriptors) {
                let handle = engine.driver.import(descriptor.as_fd());
                handles.push((handle.map_err(Failure::Driver)?, *bytes));
            }
            let from = handles.len() as u32;
            if from >= self.total {
                return Ok(());
            }
            let more = keeper::request(engine, Request::Parts { generation, from }, &[]);
            (parts, descriptors) = match more.map_err(Failure::Keeper)? {
                (Reply::Parts(parts), descriptors) => (parts, descriptors),
                _ => return Err(odd()),
            };
        }
    }
}
