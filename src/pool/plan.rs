//! Chooses what a new stitch is made of: free chunks, free ends of chunks in
//! use, and only the shortfall in new handles; where memory is scarce, a free chunk
//! that is too large gives way to handles that fit. Decides; changes nothing.

use super::block::{Need, Window};
use super::chunk::ChunkId;
use super::search::{Usable, spares};
use super::state::State;
use crate::units::{MIB, align_up};

/// Size step of handles in bytes.
pub const STEP: u64 = 2 * MIB;
/// Largest handle that the pool asks for by itself, in bytes.
const LARGEST: u64 = 128 * MIB;
/// The same of what is like memory that was exported, in bytes.
const LARGEST_SHARED: u64 = 1 << 30;
/// The least handle of a growth is about this part of what is held.
const HANDLES: u64 = 1024;
/// A new handle is at most this part of what is still missing.
const PARTS: u64 = 3;
/// Mappings of a stitch that is made although there is a window, at most, and of a
/// chunk that is released because it is too large.
const PIECES: usize = 8;
/// What each of them has to spare of whole chunks, in bytes: growing by as much
/// takes about as long as a mapping.
const WORTH: u64 = 512 << 10;
/// It may break more by this part of the free end that it goes on from: one long
/// free end is worth more than two short ones.
const JOINED: u64 = 2;
/// While more than this part of all bytes is free, nothing is spared.
const MUCH_FREE: u64 = 2;
/// Memory is scarce while less than this part of all bytes is free.
const SCARCE: u64 = 6;
/// A chunk is released for what is not used of it from so many bytes on, and where at
/// least so many are: small handles in its place are slow to stitch into large ones.
const UNUSED: u64 = 2 * STEP;
const USED: u64 = 8 * MIB;
/// A free end shorter than this is not worth a mapping.
const SHORTEST_END: u64 = 64 << 10;

/// A stitch to be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// A chunk whose free end becomes the window's beginning, and where that
    /// end starts in it.
    pub head: Option<(ChunkId, u64)>,
    /// Wholly free chunks.
    pub whole: Vec<ChunkId>,
    /// A wholly free chunk that is released first: new handles that fit take its
    /// place, and what they leave of it can be made anew in any size.
    pub exchanged: Option<ChunkId>,
    /// Sizes of new handles.
    pub fresh: Vec<u64>,
    /// A chunk whose free beginning becomes the window's end.
    pub tail: Option<ChunkId>,
}

impl Plan {
    /// Bytes of new handles.
    pub fn fresh_bytes(&self) -> u64 {
        self.fresh.iter().sum()
    }

    /// Bytes of new physical memory; an exchange needs none.
    pub fn growth(&self) -> u64 {
        match self.exchanged {
            Some(_) => 0,
            None => self.fresh_bytes(),
        }
    }

    /// Mappings to be made.
    fn pieces(&self) -> usize {
        let ends = usize::from(self.head.is_some()) + usize::from(self.tail.is_some());
        self.whole.len() + self.fresh.len() + ends
    }
}

impl State {
    /// A plan for a window. `chunk` is a fixed handle size, if one was set.
    pub fn plan(&self, need: Need, usable: Usable, chunk: Option<u64>) -> Plan {
        let mut plan = Plan::default();
        let mut free: Vec<(u64, ChunkId)> = Vec::new();
        for (id, chunk) in self.chunks.iter() {
            if chunk.is_free()
                && chunk
                    .spans
                    .iter()
                    .all(|span| self.is_usable(span.last, usable))
            {
                free.push((chunk.bytes, id));
            }
        }
        let mut missing = need.bytes;
        if let Some((id, start, bytes)) = self.best_head(need.align, missing, usable) {
            plan.head = Some((id, start));
            missing -= bytes;
        }
        // Largest first: the price of a stitch is its number of handles. What is
        // left at the end may lie in a chunk that is in use anyway.
        free.sort_unstable_by(|a, b| b.cmp(a));
        let starts = self.starts(usable, plan.head);
        let longest_start = starts.map(|(_, bytes)| bytes).max().unwrap_or(0);
        let mut passed_over = None;
        for &(bytes, id) in &free {
            if missing <= longest_start {
                break;
            }
            if bytes <= missing {
                plan.whole.push(id);
                missing -= bytes;
            } else {
                // The sizes fall, so the last one passed over is the smallest.
                passed_over = Some(id);
            }
            if missing == 0 {
                return plan;
            }
        }
        let tail = self.best_tail(missing, usable, plan.head);
        match (tail, passed_over) {
            (Some((id, bytes)), _) if bytes >= missing => {
                plan.tail = Some(id);
                return plan;
            }
            (_, Some(id)) if chunk.is_none() && self.is_exchanged(id, missing) => {
                plan.exchanged = Some(id);
            }
            (_, Some(id)) => {
                plan.whole.push(id);
                return plan;
            }
            (Some((id, bytes)), None) if saves(missing, bytes, chunk.unwrap_or(STEP)) => {
                plan.tail = Some(id);
                missing -= bytes;
            }
            _ => {}
        }
        let shared = missing == need.bytes && self.exports.want_one_handle(missing);
        plan.fresh = match align_up(missing, STEP) {
            Some(whole) if shared && chunk.is_none() && whole <= LARGEST_SHARED => vec![whole],
            _ => self.sizes(missing, need.align, chunk),
        };
        plan
    }

    /// A stitch to be made although there is a window: where that one would break
    /// much, and few mappings break clearly less. What is broken now is what
    /// lacks when nearly all is in use, so while much is free it does not matter.
    pub fn instead(
        &self,
        window: Window,
        need: Need,
        usable: Usable,
        chunk: Option<u64>,
    ) -> Option<Plan> {
        let broken = self.broken(window);
        let much_free = self.chunks.free() > self.stats.physical_bytes / MUCH_FREE;
        if much_free || broken < STEP || spares(need.bytes, broken) {
            return None;
        }
        let plan = self.plan(need, usable, chunk);
        let whole = plan.whole.iter().map(|id| self.chunk(*id).bytes);
        let whole = whole.sum::<u64>() + plan.fresh_bytes();
        let head = plan
            .head
            .map_or(0, |(id, start)| self.chunk(id).bytes - start);
        let unmapped = plan.exchanged.map_or(0, |id| self.chunk(id).shown_in.len());
        let price = whole + WORTH * (plan.pieces() + unmapped) as u64;
        let pays = plan.growth() == 0 && price <= need.bytes + broken + head / JOINED;
        (pays && plan.pieces() <= PIECES).then_some(plan)
    }

    /// Is this chunk better released than broken for so few bytes? Nothing is ever
    /// moved, so the rest of it would serve only what fits there until both are free.
    /// Not while much is free, when that is not missed, nor where it takes long, nor
    /// once others were short of memory, who might be quicker to take it; and what is
    /// not complete on the host must not be unmapped.
    fn is_exchanged(&self, id: ChunkId, missing: u64) -> bool {
        let chunk = self.chunk(id);
        missing >= USED
            && chunk.bytes - missing >= UNUSED
            && !self.was_full
            && chunk.shown_in.len() <= PIECES
            && self.chunks.free() < self.stats.physical_bytes / SCARCE
            && self.is_complete(chunk)
    }

    /// The longest free end of a chunk that is shorter than what is missing:
    /// a new stitch goes on where an old one ended, so that ends add up
    /// instead of being stranded one by one.
    fn best_head(&self, align: u64, missing: u64, usable: Usable) -> Option<(ChunkId, u64, u64)> {
        let ends = self.in_use().filter_map(|(id, chunk)| {
            let free = chunk.free_tail(|last| self.is_usable(last, usable));
            let start = align_up(chunk.bytes - free, align)?;
            let bytes = chunk.bytes.checked_sub(start)?;
            Some((id, start, bytes))
        });
        ends.filter(|(_, _, bytes)| (SHORTEST_END..missing).contains(bytes))
            .max_by_key(|(_, _, bytes)| *bytes)
    }

    /// The shortest free beginning of a chunk that holds all that is missing,
    /// else the longest.
    fn best_tail(
        &self,
        missing: u64,
        usable: Usable,
        head: Option<(ChunkId, u64)>,
    ) -> Option<(ChunkId, u64)> {
        self.starts(usable, head).min_by_key(|&(_, bytes)| {
            if bytes >= missing {
                (0, bytes)
            } else {
                (1, u64::MAX - bytes)
            }
        })
    }

    /// Free beginnings of chunks in use that are worth a mapping, but for the chunk
    /// that the stitch begins with.
    fn starts(
        &self,
        usable: Usable,
        head: Option<(ChunkId, u64)>,
    ) -> impl Iterator<Item = (ChunkId, u64)> {
        let starts = self.in_use().map(move |(id, chunk)| {
            let bytes = chunk.free_head(|last| self.is_usable(last, usable));
            (id, bytes)
        });
        starts.filter(move |&(id, bytes)| {
            bytes >= SHORTEST_END && head.is_none_or(|(taken, _)| taken != id)
        })
    }

    fn in_use(&self) -> impl Iterator<Item = (ChunkId, &super::chunk::Chunk)> {
        let chunks = self.chunks.iter();
        chunks.filter(|(_, chunk)| chunk.free > 0 && !chunk.is_free())
    }

    /// Handles for a shortfall: of falling sizes. The large ones cost few mappings
    /// and copy at full bandwidth, the small ones are the change with which later
    /// stitches end, so that they break no large one. What the change is grows with
    /// what the process holds. The numbers come from replays of recorded jobs
    /// (docs/research.md).
    fn sizes(&self, missing: u64, align: u64, chunk: Option<u64>) -> Vec<u64> {
        let missing = align_up(missing, STEP).unwrap_or(missing);
        if let Some(size) = chunk {
            return vec![size; missing.div_ceil(size) as usize];
        }
        let held = self.stats.physical_bytes + missing;
        let change = (held / HANDLES).next_power_of_two().clamp(STEP, LARGEST);
        // Windows that begin at any 512 bytes use up each other's ends; those
        // that begin at a handle's granularity need change to fit exactly.
        let exact = align >= STEP;
        let mut sizes = Vec::new();
        let mut rest = missing;
        while rest > 0 {
            let part = power_below(rest / PARTS).clamp(change, LARGEST);
            let last = if exact { power_below(rest) } else { rest };
            let size = if part <= rest { part } else { last };
            sizes.push(size);
            rest -= size;
        }
        sizes
    }
}

/// The largest power of two that is not above a number; 1 for 0.
fn power_below(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}

/// Does a free end of this length spare at least one step of growth?
fn saves(missing: u64, end: u64, step: u64) -> bool {
    let steps = |bytes: u64| bytes.div_ceil(step);
    end < missing && steps(missing - end) < steps(missing)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
