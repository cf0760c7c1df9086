//! Windows that were lent before. A *warm* one was freed a moment ago and is
//! still a block; a *remembered* one was free once and is verified before it is
//! lent again. Makes no driver call.

use super::block::{Block, Need, Window};
use super::request::Request;
use super::search::{Usable, spares};
use super::state::State;
use super::streams::Use;
use crate::driver::Address;

/// Windows remembered of one length, and lengths remembered.
const HINTS: usize = 32;
const HINT_SIZES: usize = 4096;
/// Remembered windows that are tried before a search.
const RECALLS: usize = 8;
/// A remembered window may be longer by this part of what is needed.
const NEARLY: u64 = 64;

impl State {
    /// Lends a window of exactly this length that was freed a moment ago.
    pub fn lend_warm(&mut self, request: &Request, need: Need) -> Option<Address> {
        if self.warm_windows == 0 {
            return None;
        }
        let at = need
            .stream
            .into_iter()
            .chain([Use::NOBODY])
            .find_map(|stream| {
                let windows = self.warm.get_mut(&(need.bytes, stream))?;
                let (at, _) = *windows.last()?;
                (at % need.align == 0).then(|| windows.pop())??;
                Some(at)
            })?;
        self.warm_windows -= 1;
        self.streams.last_lent += 1;
        let block = self.blocks.get_mut(&at).expect("a warm window is a block");
        *block = Block::new(block.window, request, self.streams.last_lent);
        self.count_lent(request.bytes, need.bytes);
        Some(at)
    }

    /// Tells the chunks of all warm windows that they are free.
    pub fn settle_warm(&mut self) {
        if self.warm_windows == 0 {
            return;
        }
        self.warm_windows = 0;
        let mut warm = std::mem::take(&mut self.warm);
        for (_, windows) in warm.drain() {
            for (at, last) in windows {
                let block = self.blocks.remove(&at).expect("a warm window is a block");
                self.give(block.window, last);
                let hints = self.hints.entry(block.window.bytes).or_default();
                if hints.len() == HINTS {
                    hints.remove(0);
                }
                hints.push(block.window);
            }
        }
        // Goes back empty, with its room.
        self.warm = warm;
        if self.hints.len() > HINT_SIZES {
            self.hints.clear();
        }
    }

    /// A window of this length, or hardly more, that was free before and is
    /// free again. Jobs repeat sizes, or nearly, so most requests end here; but a
    /// window that would break a whole chunk is left to a search, which may know
    /// a better one.
    pub fn recall(&mut self, need: Need, usable: Usable) -> Option<Window> {
        let most = need.bytes + need.bytes / NEARLY;
        for _ in 0..RECALLS {
            let (&length, windows) = self.hints.range_mut(need.bytes..=most).next()?;
            let window = windows.pop();
            if windows.is_empty() {
                self.hints.remove(&length);
            }
            let window = Window {
                bytes: need.bytes,
                ..window?
            };
            if self.is_free(window, need, usable) && spares(need.bytes, self.broken(window)) {
                return Some(window);
            }
        }
        None
    }

    fn is_free(&self, window: Window, need: Need, usable: Usable) -> bool {
        let Some(Some(stitch)) = self.stitches.get(window.stitch as usize) else {
            return false;
        };
        if !(stitch.at + window.offset).is_multiple_of(need.align) {
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
