//! Memory that other processes may open. What was exported is parked when the
//! program frees it: its bytes are neither lent nor given back before
//! [`Pool::export_ends`]. Or its handles go, with [`Pool::leave`], to those who have it
//! open: they keep them. Who has it open, and what the descriptors become, is
//! the caller's to know.

use super::Pool;
use super::block::Holder;
use super::front::is_small;
use super::hash::FastMap;
use super::request::BlockInfo;
use super::state::State;
use super::stitch::Part;
use super::streams::Use;
use super::trim::Leaving;
use crate::driver::{Address, Driver, Handle, cancel};
use crate::units::HANDLE;
use std::time::Instant;

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
    /// How long they were, in steps of a handle's.
    lengths: FastMap<u64, ()>,
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

    /// Was something about as long exported, so that this may be, too?
    pub fn is_like_one(&self, bytes: u64) -> bool {
        !self.lengths.is_empty() && self.lengths.contains_key(&bytes.div_ceil(HANDLE))
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
        let below = state.blocks.get(&base);
        let below = below.filter(|below| below.holder != Holder::Slab && !is_small(block.bytes));
        if let Some(window) = below.map(|below| below.window) {
            let steps = block.bytes.div_ceil(HANDLE);
            state.exports.lengths.insert(steps, ());
            let stitch = state.stitch_mut(window.stitch);
            stitch.known |= stitch.pieces.len() == handles.len();
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
            state.fronts().lock(home).unpark(parked.at);
            state.give_again(parked.at, home, parked.uses);
        }
        self.publish(&mut state);
    }

    /// Leaves allocations that were freed to those who have them open, each that is all that is
    /// in use of its handles: these are unmapped and released, and its addresses go to what
    /// is like it next. Who has it open keeps the memory, and closes it once these addresses
    /// come with another number, as caches of mappings do. Returns those that are not parked any
    /// more. The others may be left later: something may still run on them, or somebody builds
    /// just now.
    pub fn leave(&self, ids: &[u64]) -> Vec<u64> {
        let _held = cancel::hold();
        let Some(_builder) = self.try_builder() else {
            return Vec::new();
        };
        let mut state = self.lock();
        let _ = self.make_ready(&mut state);
        let (mut left, mut leaving) = (Vec::new(), Vec::new());
        for &id in ids {
            if let Some(chunks) = state.leave_parked(id) {
                left.push(id);
                leaving.extend(chunks);
            }
        }
        drop(state);
        if left.is_empty() {
            return left;
        }
        let began = Instant::now();
        let stuck = self.give_away(&leaving);
        let mut state = self.lock();
        state.stats.driver_ns += began.elapsed().as_nanos() as u64;
        state.end_empty_stitches(&leaving, &stuck);
        self.publish(&mut state);
        left
    }

    /// Was this exported allocation freed?
    pub fn is_parked(&self, id: u64) -> bool {
        self.lock().exports.is_parked(id)
    }
}

impl State {
    /// Takes the chunks below a parked allocation out, where they are wholly free but for it
    /// and nothing runs on them.
    fn leave_parked(&mut self, id: u64) -> Option<Vec<Leaving>> {
        let parked = self.exports.all.get(&id)?.as_ref()?;
        let (at, bytes) = (parked.at, parked.bytes);
        let block = *self.blocks.get(&at)?;
        let Holder::Front(home) = block.holder else {
            return None;
        };
        let stitch = self.stitch(block.window.stitch);
        let parts: Vec<Part> = stitch
            .parts(block.window.offset, block.window.bytes)
            .collect();
        let is_all = |part: &Part| {
            let chunk = self.chunk(part.chunk);
            chunk.free + part.bytes == chunk.bytes && self.is_complete(chunk)
        };
        let is_over = parked.uses.iter().all(|last| self.streams.is_done(*last));
        if !is_over || !parts.iter().all(is_all) {
            return None;
        }
        self.exports.all.remove(&id);
        self.stats.parked_bytes -= bytes;
        let mut front = self.fronts().lock(home.into());
        front.unpark(at);
        let lent = front.remove(at).expect("a block that was parked");
        drop(front);
        self.release(at, lent, Use::DONE);
        let leaving = parts.iter().map(|part| self.remove_chunk(part.chunk));
        let leaving = leaving.collect();
        let stitch = self.stitch_mut(block.window.stitch);
        stitch.known |= stitch.pieces.is_empty();
        Some(leaving)
    }

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
