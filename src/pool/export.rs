//! Memory that other processes may open. What was exported is parked when the
//! program frees it: its bytes are neither lent nor given back before
//! [`Pool::export_ends`]. Who has it open, and what the descriptors become, is
//! the caller's to know.

use super::Pool;
use super::hash::FastMap;
use super::request::BlockInfo;
use super::state::State;
use super::streams::Use;
use crate::driver::{Address, Driver, Handle};

/// What lies below an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The allocation.
    pub block: BlockInfo,
    /// The handles below it in order, and their sizes in bytes.
    pub handles: Vec<(Handle, u64)>,
    /// Its first byte in the first of these.
    pub offset: u64,
}

/// An exported allocation that was freed since.
struct Parked {
    at: Address,
    uses: Vec<Use>,
    bytes: u64,
}

/// Exported allocations.
#[derive(Default)]
pub struct Exports {
    /// By their number.
    all: FastMap<u64, Option<Parked>>,
    /// Bytes of those that were made of several handles.
    sizes: FastMap<u64, ()>,
}

impl Exports {
    /// Was this allocation freed while it was exported?
    pub fn is_parked(&self, id: u64) -> bool {
        !self.all.is_empty() && matches!(self.all.get(&id), Some(Some(_)))
    }

    /// May others have this allocation open?
    pub fn has(&self, id: u64) -> bool {
        !self.all.is_empty() && self.all.contains_key(&id)
    }

    /// Parks an exported allocation.
    pub fn park(&mut self, id: u64, at: Address, uses: Vec<Use>, bytes: u64) {
        self.all.insert(id, Some(Parked { at, uses, bytes }));
    }

    /// Were so many bytes exported in several handles? What is like that is best
    /// made of one: each costs whoever opens it a mapping, some 50 us.
    pub fn want_one_handle(&self, bytes: u64) -> bool {
        !self.sizes.is_empty() && self.sizes.contains_key(&bytes)
    }
}

impl<D: Driver> Pool<D> {
    /// Marks the allocation around an address as exported, and tells what lies
    /// below it; `None` where there is none, or none of the pool's own. The
    /// handles stay until [`Pool::export_ends`], whatever is freed meanwhile.
    pub fn export(&self, at: Address) -> Option<Export> {
        let mut state = self.lock();
        let mut block = state.find(at).filter(|block| !block.attached)?;
        let (base, home) = state.home(at)?;
        // In one step with the question whether the program still has it.
        let mut front = state.fronts().lock(home);
        front.info(base).filter(|info| info.id == block.id)?;
        front.mark_exported(base);
        drop(front);
        let (handles, offset) = state.below(&block);
        state.exports.all.entry(block.id).or_insert(None);
        if handles.len() > 1 {
            state.exports.sizes.insert(block.bytes, ());
        }
        block.bytes -= self.padding();
        Some(Export {
            block,
            handles,
            offset,
        })
    }

    /// Nobody else has this allocation open, and nobody will: what was freed of
    /// it meanwhile is free.
    pub fn export_ends(&self, id: u64) {
        let mut state = self.lock();
        if let Some(Some(parked)) = state.exports.all.remove(&id) {
            state.stats.parked_bytes -= parked.bytes;
            let home = state.home(parked.at);
            let (_, home) = home.expect("a parked block is somewhere at home");
            state.give_again(parked.at, home, parked.uses);
        }
        self.publish(&mut state);
    }

    /// Was this exported allocation freed?
    pub fn is_parked(&self, id: u64) -> bool {
        self.lock().exports.is_parked(id)
    }
}

impl State {
    /// The handles below an allocation, and its first byte in the first one.
    fn below(&self, block: &BlockInfo) -> (Vec<(Handle, u64)>, u64) {
        let (&base, outer) = self
            .blocks
            .range(..=block.base)
            .next_back()
            .expect("a block");
        let stitch = self.stitch(outer.window.stitch);
        let from = outer.window.offset + (block.base - base);
        let parts: Vec<_> = stitch.parts(from, block.bytes).collect();
        let handles = parts.iter().map(|part| {
            let chunk = self.chunk(part.chunk);
            (chunk.handle, chunk.bytes)
        });
        (handles.collect(), parts[0].start)
    }
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
