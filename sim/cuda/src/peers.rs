//! Who reaches what across devices: what a context enabled towards another one, what a
//! mapping or a memory pool grants, and who fills, copies and works by that.

use crate::abi::Code;
use crate::check::{Touch, misuse, span};
use crate::context::Context;
use crate::entry::api;
use crate::mapping::Mapping;
use crate::memory::{Allocation, Piece, Source, holding};
use crate::nodes::BY_NODE;
use crate::state::{Sim, current_context};

impl Sim {
    /// Does a context reach this memory? On its own device all; elsewhere what is managed, plain
    /// memory of a context towards which it enabled access, and what a memory pool
    /// grants its device (docs/measurements/h100.md).
    pub fn is_reached(&self, context: &Context, a: &Allocation) -> bool {
        match a.source {
            _ if a.device == context.device => true,
            Source::Managed => true,
            Source::Pool(_) => self.pool_grants(a, context.device),
            _ => context.peers.contains(&a.context),
        }
    }

    /// The same of whatever lies at an address; what is no device's is reached.
    pub fn is_address_reached(&self, context: &Context, address: u64) -> bool {
        match (self.mapping_at(address), self.allocation_at(address)) {
            (Some(mapping), _) => mapping.access[context.device] != 0,
            (None, Some((_, a))) => self.is_reached(context, a),
            (None, None) => true,
        }
    }

    /// Can a device copy to or from these bytes of a device? The driver carries
    /// cudaMalloc's memory over the host where the device cannot reach it,
    /// and no other. What is no memory at all is left to the checker.
    pub fn copies_reach(&self, device: usize, base: u64, bytes: u64, write: bool) -> bool {
        let pieces = self.resolve(base, bytes).unwrap_or_default();
        pieces.iter().all(
            |piece| match (self.mapping_at(piece.va), self.allocation_at(piece.va)) {
                (Some(mapping), _) => mapping.grants(device, write),
                (_, Some((_, a))) if matches!(a.source, Source::Pool(_)) => {
                    a.device == device || self.pool_grants(a, device)
                }
                _ => true,
            },
        )
    }

    /// Can a context's device fill these bytes? Nobody carries a fill. What is
    /// no memory at all is left to the checker. A context that has ended fills nothing.
    pub fn fills_reach(&self, context: u64, touch: &Touch) -> bool {
        let Some(context) = self.contexts.get(&context) else {
            return false;
        };
        let pieces = self.resolve(touch.base, touch.bytes).unwrap_or_default();
        pieces.iter().all(|piece| match self.mapping_at(piece.va) {
            Some(mapping) => mapping.grants(context.device, true),
            None => (self.allocation_at(piece.va)).is_none_or(|(_, a)| self.is_reached(context, a)),
        })
    }

    fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        holding(&self.mappings, address, |m| m.bytes).map(|(_, mapping)| mapping)
    }

    /// May the device of this stream do that to this memory?
    pub fn check_device_access(&self, id: u32, touch: &Touch, piece: &Piece) {
        if touch.call == BY_NODE {
            return;
        }
        let context = &self.contexts[&self.streams[&id].context];
        let allowed = match self.mapping_at(piece.va) {
            Some(mapping) => {
                let own = self.handles[&mapping.handle].device;
                // Between contexts each end is its own device's. Which device a
                // copy needs was asked when it was called; it is the same for a
                // graph's.
                let carried = touch.call.starts_with("cuMemcpy") && touch.call.contains("Peer");
                let copied = touch.call.starts_with("cuMemcpy") && !carried;
                // One that has ended elsewhere makes none: the copy was refused.
                let current = current_context().and_then(|current| self.contexts.get(&current));
                let current = current.map(|current| current.device);
                mapping.grants(context.device, touch.write)
                    || (carried && mapping.grants(own, touch.write))
                    || (copied && current.is_some_and(|d| mapping.grants(d, touch.write)))
            }
            None => self.allocation_at(piece.va).is_none_or(|(_, a)| {
                touch.call.starts_with("cuMemcpy") || self.is_reached(context, a)
            }),
        };
        if !allowed {
            misuse(&format!(
                "{} on {} of device {} {} {}, to which that device has no such access",
                touch.call,
                self.stream_name(id),
                context.device,
                if touch.write { "writes" } else { "reads" },
                span(piece.va, piece.bytes),
            ));
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) {
        let own = sim.current()?;
        let device = sim.contexts.get(&peer).ok_or(Code::INVALID_CONTEXT)?.device;
        let context = sim.contexts.get_mut(&own).ok_or(Code::INVALID_CONTEXT)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if context.device == device {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        if context.peers.contains(&peer) {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        context.peers.push(peer);
        Ok(())
    }
    fn cuCtxDisablePeerAccess(peer: u64) {
        let own = sim.current()?;
        if !sim.contexts.contains_key(&peer) {
            return Err(Code::INVALID_CONTEXT);
        }
        let context = sim.contexts.get_mut(&own).ok_or(Code::INVALID_CONTEXT)?;
        let found = context.peers.iter().position(|p| *p == peer);
        context.peers.remove(found.ok_or(Code::PEER_ACCESS_NOT_ENABLED)?);
        Ok(())
    }
}
