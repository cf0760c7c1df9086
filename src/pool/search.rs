//! Finds a window: any range of any stitch whose bytes are all free. Best fit,
//! so that large free ranges stay whole. Makes no driver call.

use super::state::{Need, State, Window};
use super::streams::{StreamId, Use};
use crate::units::align_up;

/// Remembered windows that are tried before a search.
const RECALLS: usize = 4;

/// Which free bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usable {
    /// Those that this stream (or anybody, for `None`) may use at once.
    Ready(Option<StreamId>),
    /// All: the caller orders the request behind their uses.
    All,
}

/// The best window so far.
struct Best {
    need: Need,
    found: Option<(u64, Window)>,
}

impl Best {
    /// Offers the free range `from..to` of a stitch; true where it fits exactly.
    fn offer(&mut self, stitch: u32, from: u64, to: u64) -> bool {
        if to - from < self.need.bytes {
            return false;
        }
        let Some(offset) = align_up(from, self.need.align) else {
            return false;
        };
        let Some(left) = to.checked_sub(offset + self.need.bytes) else {
            return false;
        };
        let window = Window {
            stitch,
            offset,
            bytes: self.need.bytes,
        };
        if self.found.as_ref().is_none_or(|(least, _)| left < *least) {
            self.found = Some((left, window));
        }
        left == 0
    }
}

impl State {
    /// Is a free interval with this last use usable?
    pub fn is_usable(&self, last: Use, usable: Usable) -> bool {
        match usable {
            Usable::All => true,
            Usable::Ready(stream) => self.streams.is_ready(last, stream),
        }
    }

    /// A window of this very length that was free before and is free again.
    /// Jobs repeat few sizes, so nearly every request ends here.
    pub fn recall(&mut self, need: Need, usable: Usable) -> Option<Window> {
        for _ in 0..RECALLS {
            let window = self.hints.get_mut(&need.bytes)?.pop()?;
            if self.is_free(window, need, usable) {
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

    /// The smallest free range that holds what is needed.
    pub fn search(&mut self, need: Need, usable: Usable) -> Option<Window> {
        let mut best = Best { need, found: None };
        for id in 0..self.stitches.len() {
            if self.longest[id] < need.bytes {
                continue;
            }
            let Some(stitch) = &self.stitches[id] else {
                continue;
            };
            let id = id as u32;
            // The free range that is being followed, and the longest one,
            // usable or not.
            let (mut from, mut to) = (0, 0);
            let (mut begun, mut end, mut longest) = (0, 0, 0);
            for piece in &stitch.pieces {
                if self.chunks.free(piece.chunk) == 0 {
                    continue;
                }
                for span in &self.chunk(piece.chunk).spans {
                    let start = piece.offset + span.start;
                    if start != end {
                        begun = start;
                    }
                    end = start + span.bytes;
                    longest = longest.max(end - begun);
                    if !self.is_usable(span.last, usable) {
                        continue;
                    }
                    if start != to {
                        if best.offer(id, from, to) {
                            return best.found.map(|(_, window)| window);
                        }
                        from = start;
                    }
                    to = start + span.bytes;
                }
            }
            self.longest[id as usize] = longest;
            if best.offer(id, from, to) {
                break;
            }
        }
        best.found.map(|(_, window)| window)
    }
}
