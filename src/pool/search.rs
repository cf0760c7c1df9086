//! Finds a window: any range of any stitch whose bytes are all free. Best fit,
//! so that large free ranges stay whole. Makes no driver call.

use super::block::{Need, Window};
use super::state::State;
use super::stitch::Stitch;
use super::streams::{StreamId, Use};
use crate::units::align_up;

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
