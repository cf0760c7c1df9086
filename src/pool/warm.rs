//! Windows that were lent before. A *shelved* one was freed a moment ago and is
//! still a block ([`front`](super::front)); a *remembered* one was free once and
//! is verified before it is lent again. Makes no driver call.

use super::block::{Need, Window};
use super::front::Lent;
use super::search::{Usable, spares};
use super::state::State;
use super::streams::Use;
use crate::driver::Address;
use std::sync::Arc;

/// Windows remembered of one length, and lengths remembered.
const HINTS: usize = 32;
const HINT_SIZES: usize = 4096;
/// Remembered windows that are tried before a search.
const RECALLS: usize = 8;
/// Empty slabs that a free looks at whose lane is full.
const REAPED: usize = 4;

impl State {
    /// Tells the chunks that the windows on all shelves are free.
    pub fn settle_windows(&mut self) {
        self.give_aside();
        for front in self.fronts().used() {
            self.settle_windows_of(front);
        }
    }

    /// Tells them of those on the shelves of one front.
    pub fn settle_windows_of(&mut self, front: usize) {
        self.settle(front, false);
        if self.hints.len() > HINT_SIZES {
            self.hints.clear();
        }
    }

    /// Tells the slabs of the small blocks on all shelves.
    pub fn settle_small(&mut self) {
        for front in self.fronts().used() {
            self.settle_small_of(front);
        }
    }

    /// Tells them of those on the shelves of one front.
    pub fn settle_small_of(&mut self, front: usize) {
        self.settle(front, true);
    }

    /// The same where there are more than should be; some of their slabs may be empty now.
    pub fn unload(&mut self, front: usize) {
        self.settle_small_of(front);
        self.reap_slabs(1, REAPED);
    }

    fn settle(&mut self, front: usize, small: bool) {
        if !self.fronts().has_shelved(front, small) {
            return;
        }
        let fronts = Arc::clone(self.fronts());
        let mut front = fronts.lock(front);
        front.clear(small, |at, lent, stream, seq| {
            let last = match stream {
                Use::NOBODY => Use::DONE,
                stream => Use {
                    stream,
                    alias: Use::MIXED,
                    seq,
                },
            };
            self.release(at, lent, last);
        });
    }

    /// Tells the slab or the chunks of a block that is at home in no front that
    /// it is free; through which address it was used they know.
    pub fn release(&mut self, at: Address, lent: Lent, last: Use) {
        if lent.small {
            let freed = self.slabs.free(at, last, &self.streams);
            debug_assert!(freed.is_ok());
            return;
        }
        let block = self.blocks.remove(&at).expect("a window is a block");
        let alias = block.window.stitch;
        self.give(block.window, Use { alias, ..last });
        let hints = self.hints.entry(block.window.bytes).or_default();
        if hints.len() == HINTS {
            hints.remove(0);
        }
        hints.push(block.window);
    }

    /// A window of this very length that was free before and is free again. Jobs repeat
    /// sizes, so most requests end here; but a longer one would leave a rest that few can
    /// use, and one that would break a whole chunk is left to a search, which may know a
    /// better one.
    pub fn recall(&mut self, need: Need, usable: Usable) -> Option<Window> {
        for _ in 0..RECALLS {
            let windows = self.hints.get_mut(&need.bytes)?;
            let window = windows.pop();
            if windows.is_empty() {
                self.hints.remove(&need.bytes);
            }
            let window = window?;
            if self.is_free(window, need, usable) && spares(need.bytes, self.broken(window)) {
                return Some(window);
            }
        }
        None
    }

    fn is_free(&self, window: Window, need: Need, usable: Usable) -> bool {
        let Some(stitch) = self.stitches.get(window.stitch) else {
            return false;
        };
        let fits = stitch.known || !need.alone;
        let fits = fits && !need.crosses(window.offset);
        if stitch.leaving || !fits || !(stitch.at + window.offset).is_multiple_of(need.align) {
            return false;
        }
        let mut found = 0;
        for part in stitch.parts(window.offset, window.bytes) {
            let end = part.start + part.bytes;
            let mut reached = part.start;
            let spans = &self.chunk(part.chunk).spans;
            let first = spans.partition_point(|span| span.end() <= part.start);
            for span in &spans[first..] {
                if span.start > reached || !self.is_usable(span.last, usable) {
                    break;
                }
                reached = span.end();
                if reached >= end {
                    break;
                }
            }
            if reached < end {
                return false;
            }
            found += part.bytes;
        }
        // Less where the stitch lost a piece or became another.
        found == window.bytes
    }
}

#[cfg(test)]
#[path = "warm_tests.rs"]
mod tests;
