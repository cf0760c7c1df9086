//! Ends the stitches that were wanted longest ago, once much is mapped. Requests of ever
//! new lengths make ever more of them: searches and frees take longer, and the driver has
//! 524,000 mappings for all processes (docs/measurements/driver-h200.md). A part of them
//! goes at a time, twice as much with each one that is made as it maps, so that no request
//! waits for many. So it is where the process has few addresses, before more are reserved. And
//! those that memory which was given back has left go, whatever is mapped.
//! Unmaps only what nothing runs on, and waits for nothing.

use super::Pool;
use super::chunk::StitchId;
use super::state::State;
use super::stitch::{Piece, Stitch};
use super::streams::Use;
use crate::driver::{Address, Driver};

/// Mappings that stay: eight processes may have so many.
const MOST: usize = 1 << 16;
/// The part of these that goes at a time.
const PART: usize = 8;
/// How many go for each that comes.
const FOR_EACH: usize = 2;

/// Stitches that are to go.
pub struct Retired {
    /// See [`MOST`].
    pub most: usize,
    /// Does the first mapping of a handle stay while it has others? To these the driver would let
    /// no other device in (docs/measurements/h100.md).
    pub keeps_first: bool,
    /// Nothing is lent of them any more; the one that goes first is the last.
    leaving: Vec<StitchId>,
    /// What may still run on them.
    uses: Vec<Use>,
    /// How many mappings have been made when it is time to look for others.
    next: u64,
}

impl Default for Retired {
    fn default() -> Self {
        Self {
            most: MOST,
            keeps_first: false,
            leaving: Vec::new(),
            uses: Vec::new(),
            next: 0,
        }
    }
}

impl<D: Driver> Pool<D> {
    /// Unmaps what was taken out; returns the addresses of which nothing is left.
    /// The caller holds the growth lock.
    pub(super) fn unmap(&self, ended: impl IntoIterator<Item = Stitch>) -> Vec<(Address, u64)> {
        let mut free = Vec::new();
        for stitch in ended {
            let mut unmapped = !stitch.stuck;
            for piece in &stitch.pieces {
                let at = stitch.at + piece.offset;
                unmapped &= self.driver.unmap(at, piece.bytes).is_ok();
            }
            free.extend(unmapped.then_some((stitch.at, stitch.room)));
        }
        free
    }
}

impl State {
    /// Takes a stitch of which nothing is lent out.
    pub fn take_out(&mut self, id: StitchId) -> Stitch {
        let stitch = self.stitches.take(id).expect("a stitch");
        for piece in &stitch.pieces {
            self.chunks.hide(piece.chunk, id);
        }
        stitch
    }

    /// Those of which nothing is lent.
    pub fn idle_stitches(&self) -> Vec<StitchId> {
        let mut lent = vec![false; self.stitches.end() as usize];
        for block in self.blocks.values() {
            lent[block.window.stitch as usize] = true;
        }
        let there = self.stitches.iter().map(|(id, _)| id);
        there.filter(|id| !lent[*id as usize]).collect()
    }

    /// Takes out what goes as a stitch of so many mappings is made. Are addresses `short`?
    pub fn retire(&mut self, made: usize, short: bool) -> Vec<Stitch> {
        let is_time = short || self.stats.handles_mapped >= self.retired.next;
        if self.retired.leaving.is_empty() && is_time {
            self.choose_retired(short);
        }
        let (streams, retired) = (&self.streams, &mut self.retired);
        retired.uses.retain(|last| !streams.is_done(*last));
        let (mut ended, mut unmapped) = (Vec::new(), 0);
        while unmapped < FOR_EACH * made
            && self.retired.uses.is_empty()
            && let Some(id) = self.retired.leaving.pop()
        {
            // It may have lost all its pieces meanwhile, and gone by itself; or others may show
            // them since.
            let there = self.stitches.get(id);
            if there.is_some_and(|stitch| stitch.leaving) {
                if !self.may_go(id) {
                    self.stitch_mut(id).leaving = false;
                    continue;
                }
                let stitch = self.take_out(id);
                unmapped += stitch.pieces.len();
                ended.push(stitch);
            }
        }
        ended
    }

    /// Those that were wanted longest ago and of which nothing is lent lend nothing from now on.
    fn choose_retired(&mut self, short: bool) {
        let mapped = |stitch: &Stitch| stitch.pieces.len();
        let there = self.stitches.iter();
        let mapped = there.map(|(_, stitch)| mapped(stitch)).sum::<usize>();
        let most = match short {
            true => mapped,
            false => self.retired.most,
        };
        let part = most.div_ceil(PART);
        self.retired.next = self.stats.handles_mapped + part as u64;
        if mapped <= most && !short {
            return;
        }
        let mut idle = self.idle_stitches();
        idle.retain(|id| self.may_go(*id));
        idle.sort_by_key(|id| self.stitch(*id).wanted);
        let mut more = part;
        for id in idle {
            if more == 0 {
                break;
            }
            more = more.saturating_sub(self.stitch(id).pieces.len());
            self.is_to_go(id);
        }
        self.retired.leaving.reverse();
        self.retired.uses = self.streams.last_uses();
    }

    /// Those that lost what they ended with can be made longer again: else memory that is given
    /// back and made again, time after time, would leave one each time.
    pub fn shorten_worn(&mut self) {
        let there = self.stitches.values_mut();
        let worn = there.filter(|stitch| stitch.worn);
        worn.for_each(Stitch::shorten);
    }

    /// Those that lost a piece, of which nothing is lent and nothing is shown that others do not
    /// show, lend nothing from now on, however few there are. Not while others are still to go.
    pub fn retire_worn(&mut self) {
        let is_any_spare = || self.stitches.iter().any(|(id, _)| self.is_spare(id));
        if !self.retired.leaving.is_empty() || !is_any_spare() {
            return;
        }
        for id in self.idle_stitches() {
            if self.is_spare(id) {
                self.is_to_go(id);
            }
        }
        self.retired.uses = self.streams.last_uses();
    }

    /// Did it lose a piece, and do others show all that is left of it?
    fn is_spare(&self, id: StitchId) -> bool {
        let stays = |id: StitchId| !self.stitch(id).leaving;
        let is_elsewhere = |piece: &Piece| {
            let mut shown = self.chunk(piece.chunk).shown_in.iter();
            shown.any(|other| *other != id && stays(*other))
        };
        let stitch = self.stitch(id);
        let is_worn = stitch.worn && !stitch.leaving;
        is_worn && stitch.pieces.iter().all(is_elsewhere) && self.may_go(id)
    }

    /// Is it the first mapping of none of its handles that have others, where these stay?
    fn may_go(&self, id: StitchId) -> bool {
        let is_first = |piece: &Piece| match self.chunk(piece.chunk).shown_in[..] {
            [first, _, ..] => first == id,
            _ => false,
        };
        !self.retired.keeps_first || !self.stitch(id).pieces.iter().any(is_first)
    }

    fn is_to_go(&mut self, id: StitchId) {
        self.stitch_mut(id).leaving = true;
        self.chunks.forget(id);
        self.retired.leaving.push(id);
    }
}

#[cfg(test)]
#[path = "retire_tests.rs"]
mod tests;
