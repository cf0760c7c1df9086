//! Finds a window: any range of any stitch whose bytes are all free. Best fit,
//! so that large free ranges stay whole. Makes no driver call.

use super::state::{Need, State, Window};
use super::stitch::Stitch;
use super::streams::{StreamId, Use};
use crate::units::align_up;

/// Remembered windows that are tried before a search.
const RECALLS: usize = 8;
/// A remembered window may be longer by this part of what is needed.
const NEARLY: u64 = 64;

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

    /// A window of this length, or hardly more, that was free before and is
    /// free again. Jobs repeat sizes, or nearly, so most requests end here.
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
    pub fn search(&self, need: Need, usable: Usable) -> Option<Window> {
        let mut best = Best { need, found: None };
        for (id, stitch) in self.stitches.iter().enumerate() {
            if let Some(stitch) = stitch
                && stitch.bytes >= need.bytes
                && self.search_stitch(id as u32, stitch, usable, &mut best)
            {
                break;
            }
        }
        best.found.map(|(_, window)| window)
    }

    /// Offers every free range of a stitch; true where one fits exactly.
    fn search_stitch(&self, id: u32, stitch: &Stitch, usable: Usable, best: &mut Best) -> bool {
        // The free range that is being followed.
        let (mut from, mut to) = (0, 0);
        for piece in &stitch.pieces {
            let room = self.chunks.room(piece.chunk);
            if room.head == 0 && room.tail == 0 && room.inner == 0 {
                continue;
            }
            let simple = match usable {
                Usable::All => true,
                Usable::Ready(stream) => room.stream == Use::NOBODY || Some(room.stream) == stream,
            };
            if !simple || room.inner >= best.need.bytes {
                for span in &self.chunk(piece.chunk).spans {
                    if !self.is_usable(span.last, usable) {
                        continue;
                    }
                    let start = piece.offset + span.start;
                    if start != to {
                        if best.offer(id, from, to) {
                            return true;
                        }
                        from = start;
                    }
                    to = start + span.bytes;
                }
                continue;
            }
            if room.head > 0 {
                if piece.offset != to {
                    if best.offer(id, from, to) {
                        return true;
                    }
                    from = piece.offset;
                }
                to = piece.offset + room.head;
            }
            if room.tail > 0 && room.head < piece.bytes {
                if best.offer(id, from, to) {
                    return true;
                }
                to = piece.offset + piece.bytes;
                from = to - room.tail;
            }
        }
        best.offer(id, from, to)
    }
}
