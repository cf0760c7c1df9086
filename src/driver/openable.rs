//! With which properties a device's handles can be opened to it. Under WSL2 one that network
//! cards may reach is made and mapped, and to open it fails
//! ([pytorch#192330](https://github.com/pytorch/pytorch/issues/192330)). So a small one is made,
//! mapped, opened and taken away before there is any other; what cannot be opened is given up.
//! On a full device that is not known yet: then it is tried again before each handle.

use std::sync::{Mutex, PoisonError};

use super::real::{Real, refuses};
use super::{Access, Address, Code, Driver, Handle, Result};

/// Devices of which it is still to be learned. Locked across the driver calls of a try.
pub(super) type Unknown = Mutex<Vec<u32>>;

impl Real {
    /// Learns with which properties handles of a device can be opened. Fails where none can be.
    /// What fails for another reason, as for want of memory or in a broken context, teaches
    /// nothing; it is learned before there is a handle.
    pub fn learn_to_open(&self, device: u32) -> Result<()> {
        let mut unknown = self
            .unknown()
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match self.learn(device) {
            Ok(learned) => learned,
            Err(_) => {
                unknown.push(device);
                Ok(())
            }
        }
    }

    /// Learns it now where it could not be learned in time. What is in the way of that is in the
    /// way of any handle.
    pub(super) fn learn_late(&self, device: u32) -> Result<()> {
        let mut unknown = self
            .unknown()
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if unknown.contains(&device) {
            self.learn(device)??;
            unknown.retain(|it| *it != device);
        }
        Ok(())
    }

    /// Gives up what cannot be opened: an error where nothing is left. Fails where nothing is learned.
    fn learn(&self, device: u32) -> Result<Result<()>> {
        while let Err(code) = self.opened(device)? {
            if self.give_up_last(device).is_none() {
                return Ok(Err(code));
            }
        }
        Ok(Ok(()))
    }

    /// Can a handle as they are made now be used? Fails where that does not tell.
    fn opened(&self, device: u32) -> Result<Result<()>> {
        let bytes = self.granularity(device)?;
        let at = match self.reserve(bytes) {
            Err(code) if refuses(code) => return Ok(Err(code)),
            at => at?,
        };
        let made = self.make(device, bytes);
        let opened = match made {
            Ok(handle) => self.opened_at(at, bytes, device, handle)?,
            Err(code) => Err(code),
        };
        let _ = self.free_reservation(at, bytes);
        // The second is WSL2's.
        let tells = |code| refuses(code) || made.is_ok() && code == Code::UNKNOWN;
        match opened {
            Err(code) if !tells(code) => Err(code),
            opened => Ok(opened),
        }
    }

    /// What comes of mapping and opening it. Fails where it stays mapped, and is lost.
    fn opened_at(
        &self,
        at: Address,
        bytes: u64,
        device: u32,
        handle: Handle,
    ) -> Result<Result<()>> {
        let opened = match self.map(at, bytes, handle) {
            Ok(()) => {
                let opened = self.set_access(at, bytes, device, Access::Write);
                self.unmap(at, bytes)?;
                opened
            }
            failed => failed,
        };
        let _ = self.release(handle);
        Ok(opened)
    }
}
