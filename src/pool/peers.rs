//! Other devices that may reach the pool's memory. The driver applies
//! `cuCtxEnablePeerAccess` to cudaMalloc's memory by itself but not to mappings,
//! so each existing and future one is given the access here, and loses it when
//! the last who wanted it does not any more.

use super::Pool;
use super::arena;
use super::state::State;
use crate::driver::{Access, Address, Context, Driver, Result};

/// On whose account another device has access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grantee {
    /// A context of that device was given access to one of this device's.
    Contexts {
        /// Who may reach the memory.
        reader: Context,
        /// Whose memory it is.
        owner: Context,
    },
    /// The device's memory pool was opened to that device.
    MemoryPool,
    /// Graphs of a context of that device copy this one's memory, until the
    /// context ends.
    Graphs {
        /// Whose graphs.
        reader: Context,
    },
}

/// Who has access, by ordinal of the device.
#[derive(Default)]
pub struct Peers {
    granted: Vec<(u32, Grantee)>,
    /// Devices that are to be closed once somebody has waited for their work, once for each wait.
    leaving: Vec<u32>,
}

impl Peers {
    /// The ordinals of the devices.
    pub fn devices(&self) -> Vec<u32> {
        let mut devices: Vec<_> = self.granted.iter().map(|(device, _)| *device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    fn has(&self, device: u32) -> bool {
        self.granted.iter().any(|(known, _)| *known == device)
    }

    /// May nobody's work of this device reach the memory any more?
    fn is_done(&self, device: u32) -> bool {
        !self.has(device) && !self.leaving.contains(&device)
    }

    /// Removes entries; the devices that are left without one.
    fn remove(&mut self, which: impl Fn(&(u32, Grantee)) -> bool) -> Vec<u32> {
        let before = self.devices();
        self.granted.retain(|entry| !which(entry));
        before.into_iter().filter(|&d| !self.has(d)).collect()
    }
}

impl<D: Driver> Pool<D> {
    /// Lets another device read and write everything that the pool has and
    /// will have. Fails with the driver's code, and then nothing has changed.
    pub fn grant(&self, device: u32, to: Grantee) -> Result<()> {
        let _builder = self.builder();
        let state = self.lock();
        if device == self.device || state.peers.granted.contains(&(device, to)) {
            return Ok(());
        }
        let first = !state.peers.has(device);
        let mapped = if first { mapped(&state) } else { Vec::new() };
        drop(state);
        if first && mapped.is_empty() {
            self.try_opening(device)?;
        }
        for (index, mapping) in mapped.iter().enumerate() {
            let &Mapped {
                at, bytes, access, ..
            } = mapping;
            if let Err(code) = self.driver.set_access(at, bytes, device, access) {
                self.close(&mapped[..index], device);
                return Err(code);
            }
        }
        self.lock().peers.granted.push((device, to));
        Ok(())
    }

    /// Can another device be let in? A small handle is made, mapped, opened and taken away: where
    /// nothing is mapped yet, nothing that comes could be mapped otherwise. What fails before it
    /// is opened tells nothing.
    fn try_opening(&self, device: u32) -> Result<()> {
        let bytes = arena::RANGE_ALIGN;
        let Ok(handle) = self.driver.create(self.device, bytes) else {
            return Ok(());
        };
        let Ok(at) = self.driver.reserve(bytes) else {
            self.release(&[(handle, bytes)]);
            return Ok(());
        };
        let mut opened = Ok(());
        if self.driver.map(at, bytes, handle).is_ok() {
            opened = self.driver.set_access(at, bytes, device, Access::Write);
            if self.driver.unmap(at, bytes).is_err() {
                // What the driver did not unmap stays as it is.
                return opened;
            }
        }
        self.release(&[(handle, bytes)]);
        let _ = self.driver.free_reservation(at, bytes);
        opened
    }

    /// The devices with contexts that may reach this one's memory.
    pub fn readers(&self) -> Vec<u32> {
        let state = self.lock();
        let of_contexts = |(_, to): &&(u32, Grantee)| matches!(to, Grantee::Contexts { .. });
        let readers = state.peers.granted.iter().filter(of_contexts);
        readers.map(|(device, _)| *device).collect()
    }

    /// May this device reach the pool's memory?
    pub fn is_open_to(&self, device: u32) -> bool {
        self.lock().peers.has(device)
    }

    /// Was another device let in on this account?
    pub fn is_granted(&self, device: u32, to: Grantee) -> bool {
        self.lock().peers.granted.contains(&(device, to))
    }

    /// Ends a grant. The device loses its access with the last one, once what
    /// the reader's context runs is over; where that cannot be waited for, it keeps
    /// what it can reach already. Others build during that wait.
    pub fn revoke(&self, device: u32, from: Grantee) {
        let builder = self.builder();
        let mut state = self.lock();
        let left = state.peers.remove(|entry| *entry == (device, from));
        // A memory pool names no context that could be waited for.
        let (Grantee::Contexts { reader, .. }, false) = (from, left.is_empty()) else {
            return;
        };
        state.peers.leaving.push(device);
        drop((state, builder));
        let waited = self.synchronize(reader);
        let _builder = self.builder();
        let mut state = self.lock();
        let leaving = &mut state.peers.leaving;
        let place = leaving.iter().position(|leaves| *leaves == device);
        place.map(|at| leaving.swap_remove(at));
        // Somebody may have been let in meanwhile, or still wait for what uses the memory.
        let mapped = state.peers.is_done(device).then(|| mapped(&state));
        drop(state);
        if let (Some(mapped), Ok(true)) = (mapped, waited) {
            self.close(&mapped, device);
        }
    }

    /// A context is gone, and with it every grant from it and to it.
    pub(super) fn revoke_all_of(&self, context: Context) {
        let _builder = self.builder();
        let mut state = self.lock();
        let left = state.peers.remove(|(_, grantee)| match grantee {
            Grantee::Contexts { reader, owner } => *reader == context || *owner == context,
            Grantee::Graphs { reader } => *reader == context,
            Grantee::MemoryPool => false,
        });
        let left: Vec<_> = left
            .into_iter()
            .filter(|&d| state.peers.is_done(d))
            .collect();
        let mapped = mapped(&state);
        drop(state);
        for device in left {
            self.close(&mapped, device);
        }
    }

    /// A failure leaves the device more access than it needs, which harms nobody.
    fn close(&self, mapped: &[Mapped], device: u32) {
        for mapping in mapped.iter().filter(|mapped| mapped.also != Some(device)) {
            let (at, bytes) = (mapping.at, mapping.bytes);
            let _ = self.driver.set_access(at, bytes, device, Access::None);
        }
    }
}

/// One chunk at one address.
struct Mapped {
    at: Address,
    bytes: u64,
    access: Access,
    also: Option<u32>,
}

/// Every mapping.
fn mapped(state: &State) -> Vec<Mapped> {
    let stitches = state.stitches.iter();
    stitches
        .flat_map(|(_, stitch)| {
            stitch.pieces.iter().map(|piece| Mapped {
                at: stitch.at + piece.offset,
                bytes: piece.bytes,
                access: stitch.access,
                also: stitch.also,
            })
        })
        .collect()
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
