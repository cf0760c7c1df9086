//! Chooses what a new stitch is made of, or an old one made longer by: free chunks,
//! free ends of chunks in use, and only the shortfall in new handles; a free chunk
//! that is too large gives way to handles that fit. Decides; changes nothing.

use super::block::{Need, Window};
use super::chunk::ChunkId;
use super::ends::{End, MAPPED, Offer};
use super::search::{Usable, spares};
use super::state::State;
use crate::units::{HANDLE, MIB, align_up};

/// Largest handle that the pool asks for by itself, in bytes.
const LARGEST: u64 = 128 * MIB;
/// The same of what may be exported, in bytes: each handle costs whoever opens it a
/// mapping, some 50 us.
const LARGEST_SHARED: u64 = 1 << 30;
/// The least handle of a growth is about this part of what is held.
const LEAST_PART: u64 = 1024;
/// A new handle is at most this part of what is still missing.
const PARTS: u64 = 3;
/// Mappings of a stitch that is made although there is a window, at most.
const PIECES: usize = 8;
/// What each of them has to spare of whole chunks, in bytes: growing by as much
/// takes about as long as a mapping.
const WORTH: u64 = 512 << 10;
/// It may break more by this part of the free end that it goes on from: one long
/// free end is worth more than two short ones.
const JOINED: u64 = 2;
/// What a window breaks is spared while more than this part of all bytes is in use...
const LITTLE_USED: u64 = 3;
/// ...and more than this part of them lies free in chunks in use.
const SCATTERED: u64 = 160;
/// A chunk is released for what is not used of it from so many bytes on, and where at
/// least so many are: small handles in its place are slow to stitch into large ones.
const UNUSED: u64 = 2 * HANDLE;
const USED: u64 = 8 * MIB;
/// Mappings of a chunk that is released, at most: each has to be unmapped.
const UNMAPPED: usize = 16;

/// A stitch to be made, or to be made longer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// A chunk whose free end becomes the window's beginning, and where that
    /// end starts in it.
    pub head: Option<(ChunkId, u64)>,
    /// Or the free end of a stitch that is made longer, which becomes that.
    pub behind: Option<End>,
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
    pub fn plan(&mut self, need: Need, usable: Usable, chunk: Option<u64>) -> Plan {
        self.chunks.put_in_order();
        let offer = self.offered(need, usable);
        let mut best = Plan {
            head: offer
                .head
                .map(|(id, bytes)| (id, self.chunk(id).bytes - bytes)),
            ..Plan::default()
        };
        let missing = need.bytes - offer.head.map_or(0, |(_, bytes)| bytes);
        self.complete(&mut best, missing, &offer, need, chunk);
        if best.pieces() < 2 || need.alone {
            return best;
        }
        for end in self.best_ends(need, usable) {
            let mut longer = Plan {
                behind: Some(end),
                ..Plan::default()
            };
            let missing = need.bytes - end.bytes;
            self.complete(&mut longer, missing, &offer, need, chunk);
            if longer.growth() <= best.growth()
                && self.has_room(&longer)
                && self.price(&longer, MAPPED) < self.price(&best, MAPPED)
            {
                best = longer;
            }
        }
        best
    }

    /// Adds what is missing behind the beginning of a plan. What is left at the end
    /// may lie in a chunk that is in use anyway.
    fn complete(
        &self,
        plan: &mut Plan,
        mut missing: u64,
        offer: &Offer,
        need: Need,
        chunk: Option<u64>,
    ) {
        let starts = offer.starts.iter().copied();
        let starts: Vec<_> = starts.filter(|(id, _)| !self.has(plan, *id)).collect();
        let longest_start = starts.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let (mut whole, mut passed_over) = (offer.whole.as_slice(), None);
        while missing > longest_start {
            // The sizes fall, so the last one that is too large is the smallest of those.
            let larger = match whole.first() {
                Some(largest) if largest.0 > missing => whole.partition_point(|it| it.0 > missing),
                _ => 0,
            };
            let (larger, others) = whole.split_at(larger);
            let smallest = larger.iter().rfind(|(_, id)| !self.has(plan, *id));
            passed_over = smallest.map(|(_, id)| *id).or(passed_over);
            let Some((&(bytes, id), smaller)) = others.split_first() else {
                break;
            };
            whole = smaller;
            if self.has(plan, id) {
                continue;
            }
            plan.whole.push(id);
            missing -= bytes;
            if missing == 0 {
                return;
            }
        }
        let tail = best_tail(&starts, missing);
        match (tail, passed_over) {
            (Some((id, bytes)), _) if bytes >= missing => {
                plan.tail = Some(id);
                return;
            }
            (_, Some(id)) if chunk.is_none() && self.is_exchanged(id, missing) => {
                plan.exchanged = Some(id);
            }
            (_, Some(id)) => {
                plan.whole.push(id);
                return;
            }
            (Some((id, bytes)), None) if saves(missing, bytes, chunk.unwrap_or(HANDLE)) => {
                plan.tail = Some(id);
                missing -= bytes;
            }
            _ => {}
        }
        let shared = missing == need.bytes && need.alone;
        plan.fresh = match align_up(missing, HANDLE) {
            Some(whole) if shared && chunk.is_none() && whole <= LARGEST_SHARED => vec![whole],
            _ => self.sizes(missing, need.align, chunk),
        };
    }

    /// Is a chunk in the stitch of a plan already, which shows none twice?
    fn has(&self, plan: &Plan, id: ChunkId) -> bool {
        plan.head.is_some_and(|(head, _)| head == id)
            || plan
                .behind
                .is_some_and(|end| self.chunk(id).shown_in.contains(&end.stitch))
    }

    /// Are there addresses behind a stitch for what a plan maps there?
    fn has_room(&self, plan: &Plan) -> bool {
        let mapped = plan.whole.iter().chain(&plan.tail);
        let mapped = mapped.map(|id| self.chunk(*id).bytes).sum::<u64>() + plan.fresh_bytes();
        plan.behind.is_none_or(|end| {
            let stitch = self.stitch(end.stitch);
            mapped <= stitch.room - stitch.bytes
        })
    }

    /// What a plan costs, in bytes: those of whole chunks that it takes, and so many for
    /// each mapping, less a part of the free end that it goes on from.
    fn price(&self, plan: &Plan, mapping: u64) -> i64 {
        let whole = plan.whole.iter().map(|id| self.chunk(*id).bytes);
        let taken =
            whole.sum::<u64>() + plan.fresh_bytes() + plan.behind.map_or(0, |end| end.whole);
        let unmapped = plan.exchanged.map_or(0, |id| self.chunk(id).shown_in.len());
        let head = match (plan.head, plan.behind) {
            (_, Some(end)) => end.bytes.saturating_sub(end.whole),
            (Some((id, start)), None) => self.chunk(id).bytes - start,
            (None, None) => 0,
        };
        let calls = mapping * (plan.pieces() + unmapped) as u64;
        (taken + calls) as i64 - (head / JOINED) as i64
    }

    /// A stitch to be made although there is a window: where that one would break
    /// much, and few mappings break clearly less. What lies free in chunks in use is what
    /// lacks when nearly all is in use, so nothing is spared while that is little.
    pub fn instead(
        &mut self,
        window: Window,
        need: Need,
        usable: Usable,
        chunk: Option<u64>,
    ) -> Option<Plan> {
        let broken = self.broken(window);
        if broken < HANDLE || spares(need.bytes, broken) {
            return None;
        }
        let held = self.stats.physical_bytes;
        let used = held - self.chunks.free();
        if used < held / LITTLE_USED || self.chunks.scattered() + broken <= held / SCATTERED {
            return None;
        }
        let plan = self.plan(need, usable, chunk);
        let pays = plan.growth() == 0 && self.price(&plan, WORTH) <= (need.bytes + broken) as i64;
        (pays && plan.pieces() <= PIECES).then_some(plan)
    }

    /// Is this chunk better released than broken for so few bytes? Nothing is ever
    /// moved, so the rest of it would serve only what fits there until both are free.
    /// Not where it takes long, nor once others were short of memory, who might be
    /// quicker to take it; and what is not complete on the host must not be unmapped.
    fn is_exchanged(&self, id: ChunkId, missing: u64) -> bool {
        let chunk = self.chunk(id);
        missing >= USED
            && chunk.bytes - missing >= UNUSED
            && !self.was_full
            && chunk.shown_in.len() <= UNMAPPED
            && self.is_complete(chunk)
    }

    /// Handles for a shortfall: of falling sizes. The large ones cost few mappings
    /// and copy at full bandwidth, the small ones are the change with which later
    /// stitches end, so that they break no large one. What the change is grows with
    /// what the process holds. The numbers come from replays of recorded jobs
    /// (docs/research.md).
    fn sizes(&self, missing: u64, align: u64, chunk: Option<u64>) -> Vec<u64> {
        let missing = align_up(missing, HANDLE).unwrap_or(missing);
        if let Some(size) = chunk {
            return vec![size; missing.div_ceil(size) as usize];
        }
        let held = self.stats.physical_bytes + missing;
        let change = (held / LEAST_PART)
            .next_power_of_two()
            .clamp(HANDLE, LARGEST);
        // Windows that begin at any 512 bytes use up each other's ends; those
        // that begin at a handle's granularity need change to fit exactly.
        let exact = align >= HANDLE;
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

/// The shortest free beginning of a chunk that holds all that is missing, else the
/// longest.
fn best_tail(starts: &[(ChunkId, u64)], missing: u64) -> Option<(ChunkId, u64)> {
    let starts = starts.iter().copied();
    starts.min_by_key(|&(_, bytes)| {
        if bytes >= missing {
            (0, bytes)
        } else {
            (1, u64::MAX - bytes)
        }
    })
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
