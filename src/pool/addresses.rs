//! Ends stitches where no addresses, or no mappings, are left for a new one. They are kept
//! otherwise, since each is a window that was wanted once; requests of ever new lengths make
//! ever more of them. Ends none of which anything is lent, and unmaps only what nothing runs on.

use super::Pool;
use super::chunk::StitchId;
use super::state::State;
use super::stitch::Stitch;
use super::streams::Use;
use crate::driver::Driver;
use std::time::Instant;

/// Stitches that were taken out: nothing is lent of them any more.
#[derive(Default)]
pub struct Ending {
    stitches: Vec<(StitchId, Stitch)>,
    /// What may have used them.
    uses: Vec<Use>,
}

impl Ending {
    /// Was none taken out?
    pub fn is_empty(&self) -> bool {
        self.stitches.is_empty()
    }
}

impl<D: Driver> Pool<D> {
    /// Makes room for what could not be mapped: ends stitches after a wait, and gives an idle
    /// chunk back, since page tables are memory, too. False where nothing is idle. The caller
    /// holds the growth lock.
    pub(super) fn make_mappings(&self) -> bool {
        if self.idle() == 0 {
            return false;
        }
        let mut state = self.lock();
        state.lacks_mappings = true;
        let ending = state.take_out_stitches();
        drop(state);
        // What cannot be waited for stays.
        self.wait_for_pending();
        self.end_stitches(ending);
        self.let_go(1);
        true
    }

    /// Unmaps stitches that were taken out, if all that may have used them is known
    /// complete by now; else they are as before. The caller holds the growth lock.
    pub(super) fn end_stitches(&self, ending: Ending) {
        if ending.is_empty() {
            return;
        }
        let mut state = self.lock();
        let done = |last: &Use| state.streams.is_done(*last);
        if !ending.uses.iter().all(done) {
            return state.put_back(ending.stitches);
        }
        drop(state);
        let began = Instant::now();
        let free = self.unmap(ending.stitches.into_iter().map(|(_, stitch)| stitch));
        let mut state = self.lock();
        state.stats.driver_ns += began.elapsed().as_nanos() as u64;
        for (at, room) in free {
            state.arena.give(at, room);
        }
    }
}

impl State {
    /// Takes out all stitches of which nothing is lent, where addresses or mappings are short.
    pub fn take_out_stitches(&mut self) -> Ending {
        let addresses = std::mem::take(&mut self.arena.is_short);
        let mappings = std::mem::take(&mut self.lacks_mappings);
        if !addresses && !mappings {
            return Ending::default();
        }
        self.settle_windows();
        self.settle_small();
        self.reap_slabs(0, usize::MAX);
        let mut idle = self.idle_stitches();
        idle.retain(|id| !self.stitch(*id).stuck);
        Ending {
            stitches: idle.into_iter().map(|id| (id, self.take_out(id))).collect(),
            uses: self.streams.last_uses(),
        }
    }

    fn put_back(&mut self, stitches: Vec<(StitchId, Stitch)>) {
        for (id, stitch) in stitches {
            let pieces = stitch.pieces.iter();
            pieces.for_each(|piece| self.chunks.show(piece.chunk, id));
            self.stitches.put_back(id, stitch);
        }
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
