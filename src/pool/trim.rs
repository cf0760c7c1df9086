//! Gives idle chunks back to the driver: unmapped from every stitch that shows
//! them, then released. Only chunks whose uses are known complete on the host:
//! the driver does not wait when it unmaps.

use super::Pool;
use super::chunk::{Chunk, ChunkId, Span};
use super::state::State;
use super::stats::Stats;
use crate::driver::{Address, Driver};
use std::sync::PoisonError;
use std::time::Instant;

/// A chunk that was taken out, and where it is mapped.
struct Leaving {
    chunk: Chunk,
    mapped: Vec<(Address, u64)>,
}

impl<D: Driver> Pool<D> {
    /// Gives idle chunks back until at most `keep` bytes are idle, waiting for
    /// their last uses. Returns the bytes given back.
    pub fn trim(&self, keep: u64) -> u64 {
        let _builder = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        if self.wait_for_pending().is_err() {
            return 0;
        }
        let mut state = self.lock();
        if self.make_ready(&mut state).is_err() {
            return 0;
        }
        state.reap_slabs(0);
        let leaving = state.leaving(keep);
        drop(state);

        let began = Instant::now();
        let mut released = 0;
        let mut stuck: Vec<Address> = Vec::new();
        for leaving in &leaving {
            let before = stuck.len();
            for &(at, bytes) in &leaving.mapped {
                if self.driver.unmap(at, bytes).is_err() {
                    stuck.push(at);
                }
            }
            if stuck.len() == before {
                // A failure cannot be retried: the memory is lost, to nobody's harm.
                let _ = self.driver.release(leaving.chunk.handle);
            }
            released += leaving.chunk.bytes;
        }
        let mut state = self.lock();
        state.stats.driver_ns += began.elapsed().as_nanos() as u64;
        for leaving in leaving {
            state.stats.physical_bytes -= leaving.chunk.bytes;
            state.stats.idle_bytes -= leaving.chunk.bytes;
            state.stats.chunks -= 1;
        }
        state.end_empty_stitches(&stuck);
        self.publish(&mut state);
        released
    }

    /// Gives everything back, lent or not, and the address space: the device
    /// was reset, and the program's pointers with it.
    pub fn reset(&self) {
        let _builder = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        let old = std::mem::take(&mut *state);
        // Numbers of allocations stay unique, and what was counted stays.
        state.last_id = old.last_id;
        state.stats = Stats {
            live_bytes: 0,
            granted_bytes: 0,
            pending_bytes: 0,
            idle_bytes: 0,
            physical_bytes: 0,
            chunks: 0,
            ..old.stats
        };
        for (at, bytes) in self.bounds.all() {
            state.arena.give(at, bytes);
        }
        self.publish(&mut state);
        drop(state);
        for stitch in old.stitches.iter().flatten() {
            for piece in &stitch.pieces {
                let _ = self.driver.unmap(stitch.at + piece.offset, piece.bytes);
            }
        }
        for (_, chunk) in old.chunks.iter() {
            let _ = self.driver.release(chunk.handle);
        }
    }
}

impl State {
    /// Takes idle chunks out, those with the fewest mappings first.
    fn leaving(&mut self, keep: u64) -> Vec<Leaving> {
        let idle = |chunk: &&(ChunkId, u64, usize)| chunk.1;
        let mut free: Vec<(ChunkId, u64, usize)> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| {
                let done = |span: &Span| self.streams.is_done(span.last);
                chunk.is_free() && chunk.spans.iter().all(done)
            })
            .map(|(id, chunk)| (id, chunk.bytes, chunk.shown_in.len()))
            .collect();
        free.sort_unstable_by_key(|(_, _, shown)| *shown);
        let mut left: u64 = free.iter().map(|chunk| idle(&chunk)).sum();
        let mut leaving = Vec::new();
        for (id, bytes, _) in free {
            if left <= keep {
                break;
            }
            left -= bytes;
            leaving.push(self.remove_chunk(id));
        }
        leaving
    }

    fn remove_chunk(&mut self, id: ChunkId) -> Leaving {
        let chunk = self.chunks.remove(id);
        let mut mapped = Vec::new();
        for &shown in &chunk.shown_in {
            let stitch = self.stitches[shown as usize].as_mut().expect("a stitch");
            let at = stitch.at;
            stitch.pieces.retain(|piece| {
                if piece.chunk == id {
                    mapped.push((at + piece.offset, piece.bytes));
                }
                piece.chunk != id
            });
        }
        Leaving { chunk, mapped }
    }

    /// Stitches without a piece go; their addresses may be used again, but for
    /// those where something is still mapped.
    fn end_empty_stitches(&mut self, stuck: &[Address]) {
        for stitch in &mut self.stitches {
            if stitch.as_ref().is_some_and(|s| s.pieces.is_empty())
                && let Some(ended) = stitch.take()
                && !stuck
                    .iter()
                    .any(|at| (ended.at..ended.at + ended.bytes).contains(at))
            {
                self.arena.give(ended.at, ended.bytes);
            }
        }
    }
}
