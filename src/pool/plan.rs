//! Chooses what a new stitch is made of: free chunks, free ends of chunks in
//! use, and only the shortfall in new handles. Decides; changes nothing.

use super::block::Need;
use super::chunk::ChunkId;
use super::search::Usable;
use super::state::State;
use crate::units::{MIB, align_up};

/// Size step of handles in bytes.
pub const STEP: u64 = 2 * MIB;
/// Largest handle that the pool asks for by itself, in bytes.
const LARGEST: u64 = 64 * MIB;
/// The same of what is like memory that was exported, in bytes.
const LARGEST_SHARED: u64 = 1 << 30;
/// Handles that a process holds, about.
const HANDLES_HELD: u64 = 1024;
/// The same where it holds more than [`MUCH`] bytes: a mapping costs as much
/// for any size, and what a handle strands is a smaller part of so many bytes.
const HANDLES_HELD_OF_MUCH: u64 = 512;
/// See [`HANDLES_HELD_OF_MUCH`].
const MUCH: u64 = 16 << 30;
/// Handles of one request, at most, about.
const HANDLES: u64 = 32;
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
    /// Sizes of new handles.
    pub fresh: Vec<u64>,
    /// A chunk whose free beginning becomes the window's end.
    pub tail: Option<ChunkId>,
}

impl Plan {
    /// Bytes of new physical memory.
    pub fn growth(&self) -> u64 {
        self.fresh.iter().sum()
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
        // Largest first: the price of a stitch is its number of handles.
        free.sort_unstable_by(|a, b| b.cmp(a));
        let mut passed_over = None;
        for &(bytes, id) in &free {
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
        let starts = self.in_use().filter_map(|(id, chunk)| {
            let bytes = chunk.free_head(|last| self.is_usable(last, usable));
            (head.is_none_or(|(taken, _)| taken != id)).then_some((id, bytes))
        });
        starts
            .filter(|(_, bytes)| *bytes >= SHORTEST_END)
            .min_by_key(|&(_, bytes)| {
                if bytes >= missing {
                    (0, bytes)
                } else {
                    (1, u64::MAX - bytes)
                }
            })
    }

    fn in_use(&self) -> impl Iterator<Item = (ChunkId, &super::chunk::Chunk)> {
        let chunks = self.chunks.iter();
        chunks.filter(|(_, chunk)| chunk.free > 0 && !chunk.is_free())
    }

    /// Handles for a shortfall. Large ones cost fewer mappings and copy at
    /// full bandwidth, small ones leave less stranded, so they grow with what
    /// the process holds and with what it asks for. The divisors come from
    /// replays of recorded jobs (docs/measurements/replay.md).
    fn sizes(&self, missing: u64, align: u64, chunk: Option<u64>) -> Vec<u64> {
        let missing = align_up(missing, STEP).unwrap_or(missing);
        if let Some(size) = chunk {
            return vec![size; missing.div_ceil(size) as usize];
        }
        let held = self.stats.physical_bytes + missing;
        let handles = if held > MUCH {
            HANDLES_HELD_OF_MUCH
        } else {
            HANDLES_HELD
        };
        // Windows that begin at any 512 bytes use up each other's ends; those
        // that begin at a handle's granularity need change to fit exactly.
        let exact = align >= STEP;
        let size = (held / handles)
            .max(missing / HANDLES)
            .next_power_of_two()
            .clamp(STEP, LARGEST);
        let mut sizes = vec![size; (missing / size) as usize];
        let mut rest = missing % size;
        let mut next = size / 2;
        while rest > 0 {
            if !exact {
                next = rest;
            }
            if rest >= next {
                sizes.push(next);
                rest -= next;
            } else {
                next /= 2;
            }
        }
        sizes
    }
}

/// Does a free end of this length spare at least one step of growth?
fn saves(missing: u64, end: u64, step: u64) -> bool {
    let steps = |bytes: u64| bytes.div_ceil(step);
    end < missing && steps(missing - end) < steps(missing)
}
