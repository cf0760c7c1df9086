//! With which properties a device's handles can be opened to it. Under WSL2 one that network
//! cards may reach is made and mapped, and to open it fails
//! ([pytorch#192330](https://github.com/pytorch/pytorch/issues/192330)). So a small one is made,
//! mapped, opened and taken away before there is any other; what cannot be opened is given up.

use super::real::{Real, refuses};
use super::{Access, Address, Code, Driver, Handle, Result};

impl Real {
    /// Learns with which properties handles of a device can be opened. Fails where none can be;
    /// what fails for another reason, as for want of memory or in a broken context, teaches nothing.
    pub fn learn_to_open(&self, device: u32) -> Result<()> {
        while let Some(code) = self.closed(device) {
            self.give_up_last(device).ok_or(code)?;
        }
        Ok(())
    }

    /// Why a handle as they are made now cannot be used; `None` also where that is not known.
    fn closed(&self, device: u32) -> Option<Code> {
        let bytes = self.granularity(device).ok()?;
        let at = self.reserve(bytes).ok()?;
        let code = match self.create(device, bytes) {
            Ok(handle) => self.tried_at(at, bytes, device, handle)?.err(),
            Err(code) => Some(code).filter(|code| refuses(*code)),
        };
        let _ = self.free_reservation(at, bytes);
        // The second is WSL2's.
        code.filter(|code| refuses(*code) || *code == Code::UNKNOWN)
    }

    /// What comes of mapping and opening it; `None` where it stays mapped, and is lost.
    fn tried_at(&self, at: Address, bytes: u64, device: u32, handle: Handle) -> Option<Result<()>> {
        let opened = match self.map(at, bytes, handle) {
            Ok(()) => {
                let opened = self.set_access(at, bytes, device, Access::Write);
                self.unmap(at, bytes).ok().map(|()| opened)
            }
            failed => Some(failed),
        };
        let _ = self.release(handle);
        opened
    }
}
