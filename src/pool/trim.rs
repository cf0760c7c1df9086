//! Gives idle chunks back to the driver: unmapped from every stitch that shows
//! them, then released. Only chunks whose uses are known complete on the host:
//! the driver does not wait when it unmaps. Ends no capture, and may run on any
//! thread: nothing here names a thread's own default stream.

use super::Pool;
use super::chunk::{Chunk, ChunkId, Span};
use super::front::Sum;
use super::state::State;
use crate::driver::{Address, Driver, cancel};
use crate::waiting::Waiting;
use std::time::{Duration, Instant};

/// Pause between two looks at uses that still run.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// A chunk that was taken out, and where it is mapped.
pub struct Leaving {
    chunk: Chunk,
    mapped: Vec<(Address, u64)>,
}

impl<D: Driver> Pool<D> {
    /// Gives all idle chunks back, waiting for their last uses. Returns the bytes given
    /// back.
    pub fn trim(&self) -> u64 {
        let _held = cancel::hold();
        let _builder = self.builder();
        // What cannot be waited for is not complete, and stays.
        self.wait_for_pending();
        self.let_go(u64::MAX)
    }

    /// Gives whole idle chunks back until about `most` bytes went, one chunk
    /// more at most, and returns how many did. Waits no longer than `patience`
    /// for uses that still run and for whoever builds just now: a kernel may
    /// be waiting for the very thread that asks.
    pub fn give_back(&self, most: u64, patience: Duration) -> u64 {
        let _held = cancel::hold();
        let mut waiting = Waiting::begin();
        loop {
            let mut may_come = true;
            let builder = self.try_builder();
            if builder.is_some() {
                let released = self.let_go(most);
                if released > 0 {
                    return released;
                }
                let state = self.lock();
                may_come = state.pending() > 0;
            }
            drop(builder);
            if !may_come || waiting.lasted() >= patience {
                return 0;
            }
            waiting.pause(LOOK_AGAIN);
        }
    }

    /// Bytes that are idle in whole chunks: what could be given back, now or
    /// once its last uses are over.
    pub fn whole_idle(&self) -> u64 {
        let mut state = self.lock();
        state.settle_windows();
        state.settle_small();
        state.reap_slabs(0, usize::MAX);
        state.chunks.whole()
    }

    /// The least that was idle at any moment since this was last asked, in
    /// bytes: what nobody has used meanwhile. The pool's timeline gets a moment.
    pub fn least_idle(&self) -> u64 {
        let mut state = self.lock();
        state.note_idle();
        state.look_at_timeline();
        self.fronts.restart(Sum::Granted);
        let idle = self.idle_of(&state);
        std::mem::replace(&mut state.least_idle, idle).min(idle)
    }

    /// Lets idle chunks go until about `most` bytes went. The caller holds the growth
    /// lock.
    pub(super) fn let_go(&self, most: u64) -> u64 {
        let mut state = self.lock();
        let _ = self.make_ready(&mut state);
        state.settle_small();
        state.reap_slabs(0, usize::MAX);
        let leaving = state.leaving(most);
        drop(state);
        if leaving.is_empty() {
            return 0;
        }

        let began = Instant::now();
        let stuck = self.give_away(&leaving);
        let released = leaving.iter().map(|leaving| leaving.chunk.bytes).sum();
        let mut state = self.lock();
        state.stats.driver_ns += began.elapsed().as_nanos() as u64;
        state.end_empty_stitches(&leaving, &stuck);
        state.shorten_worn();
        state.retire_worn();
        self.publish(&mut state);
        released
    }

    /// Unmaps and releases what was taken out. Returns where something is still
    /// mapped.
    pub(super) fn give_away(&self, leaving: &[Leaving]) -> Vec<Address> {
        let mut stuck: Vec<Address> = Vec::new();
        for leaving in leaving {
            let before = stuck.len();
            for &(at, bytes) in &leaving.mapped {
                if self.driver.unmap(at, bytes).is_err() {
                    stuck.push(at);
                }
            }
            if stuck.len() == before {
                self.release(&[(leaving.chunk.handle, leaving.chunk.bytes)]);
            }
        }
        stuck
    }
}

impl State {
    /// Takes idle chunks out, those with the fewest mappings first, until at least `most`
    /// bytes were taken.
    fn leaving(&mut self, most: u64) -> Vec<Leaving> {
        let mut free: Vec<(ChunkId, u64, usize)> = self
            .chunks
            .ends()
            .map(|(id, _)| (id, self.chunk(id)))
            .filter(|(_, chunk)| chunk.is_free() && self.is_complete(chunk))
            .map(|(id, chunk)| (id, chunk.bytes, chunk.shown_in.len()))
            .collect();
        free.sort_unstable_by_key(|(_, _, shown)| *shown);
        let mut taken = 0;
        let mut leaving = Vec::new();
        for (id, bytes, _) in free {
            if taken >= most {
                break;
            }
            taken += bytes;
            leaving.push(self.remove_chunk(id));
        }
        leaving
    }

    /// Are the last uses of all free bytes of a chunk known complete on the host?
    pub fn is_complete(&self, chunk: &Chunk) -> bool {
        let done = |span: &Span| self.streams.is_done(span.last);
        chunk.spans.iter().all(done)
    }

    /// Takes a wholly free chunk out, which counts no more.
    pub fn remove_chunk(&mut self, id: ChunkId) -> Leaving {
        let chunk = self.chunks.remove(id);
        self.stats.physical_bytes -= chunk.bytes;
        self.stats.idle_bytes -= chunk.bytes;
        self.stats.chunks -= 1;
        let shown = chunk.shown_in.iter();
        let mapped = shown.filter_map(|shown| self.stitch_mut(*shown).lose(id));
        let mapped = mapped.collect();
        Leaving { chunk, mapped }
    }

    /// Of the stitches that showed what left, those without a piece go; their addresses may be
    /// used again, but for those where something is still mapped.
    pub fn end_empty_stitches(&mut self, left: &[Leaving], stuck: &[Address]) {
        for &id in left.iter().flat_map(|left| &left.chunk.shown_in) {
            // One that showed several of them may have gone.
            let Some(stitch) = self.stitches.get_mut(id) else {
                continue;
            };
            let range = stitch.at..stitch.at + stitch.room;
            stitch.stuck |= stuck.iter().any(|at| range.contains(at));
            if stitch.pieces.is_empty()
                && let Some(ended) = self.stitches.take(id)
                && !ended.stuck
            {
                match ended.known {
                    true => self.arena.give_known(ended.at, ended.room),
                    false => self.arena.give(ended.at, ended.room),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "trim_tests.rs"]
mod tests;
