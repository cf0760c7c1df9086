//! How much of what is idle can be had, as a driver would count it: by whole pages. What lies
//! between what is lent serves the little that fits there, and nobody counts on it. Blocks on
//! shelves count as if they were settled, and stay there: who only asks makes no request slower.
//! Makes no driver call and changes nothing.

use std::ops::Range;

use super::Pool;
use super::block::{Block, Holder};
use super::chunk::{Chunk, ChunkId};
use super::hash::FastMap;
use super::slab::SLAB;
use super::state::State;
use crate::driver::{Address, Driver};
use crate::units::HANDLE;

/// A free range of a chunk in bytes.
type Free = (ChunkId, Range<u64>);

impl<D: Driver> Pool<D> {
    /// Idle bytes in whole pages of 2 MiB: what the driver would count as free.
    pub fn to_have(&self) -> u64 {
        self.idle_as(|_, free| {
            let from = free.start.next_multiple_of(HANDLE);
            (free.end / HANDLE * HANDLE).saturating_sub(from)
        })
    }

    /// Idle bytes in whole handles: what could be given back, now or once its last uses are over.
    pub fn to_give(&self) -> u64 {
        self.idle_as(|chunk, free| match free.end - free.start == chunk.bytes {
            true => chunk.bytes,
            false => 0,
        })
    }

    /// The sum of what free ranges are worth, of which no two touch.
    fn idle_as(&self, worth: impl Fn(&Chunk, Range<u64>) -> u64) -> u64 {
        if self.idle() == 0 {
            return 0;
        }
        let state = self.lock();
        let mut freed = state.as_good_as_free();
        freed.sort_unstable_by_key(|(id, free)| (*id, free.start));
        let mut freed = freed.as_slice();
        let (mut sum, mut ranges) = (0, Vec::new());
        for (id, chunk) in state.chunks.iter() {
            let here = freed.iter().take_while(|(of, _)| *of == id).count();
            let (here, behind) = freed.split_at(here);
            freed = behind;
            let known = here.iter().map(|(_, free)| free.end - free.start);
            if chunk.free + known.sum::<u64>() == chunk.bytes {
                sum += chunk.bytes;
            } else if chunk.free >= HANDLE || !here.is_empty() {
                ranges.extend(chunk.spans.iter().map(|span| span.start..span.end()));
                ranges.extend(here.iter().map(|(_, free)| free.clone()));
                join(&mut ranges);
                sum += ranges.drain(..).map(|free| worth(chunk, free)).sum::<u64>();
            }
        }
        sum
    }
}

impl State {
    /// What is as good as free, though the chunks do not know: windows on shelves or aside, and
    /// slabs of which nothing else is lent.
    fn as_good_as_free(&self) -> Vec<Free> {
        let (mut windows, mut small) = (Vec::new(), FastMap::<u64, u32>::default());
        let mut note = |at: Address| match self.blocks.get(&at) {
            Some(block) if matches!(block.holder, Holder::Front(_)) => windows.push(block),
            _ => *small.entry(at / SLAB).or_default() += 1,
        };
        for front in self.fronts().used() {
            let front = self.fronts().lock(front);
            front.each_shelved().for_each(|(_, at, ..)| note(at));
        }
        self.aside.iter().for_each(|(at, _)| note(*at));
        let slabs = self.slabs.empty_without(&small);
        windows.extend(slabs.filter_map(|base| self.blocks.get(&base)));
        let parts = |block: &Block| {
            let parts = self.stitch(block.window.stitch);
            let parts = parts.parts(block.window.offset, block.window.bytes);
            parts.map(|part| (part.chunk, part.start..part.start + part.bytes))
        };
        windows.into_iter().flat_map(parts).collect()
    }
}

/// Makes those that touch one.
fn join(free: &mut Vec<Range<u64>>) {
    free.sort_unstable_by_key(|free| free.start);
    free.dedup_by(|next, before| {
        let touch = before.end == next.start;
        if touch {
            before.end = next.end;
        }
        touch
    });
}

#[cfg(test)]
#[path = "to_have_tests.rs"]
mod tests;
