//! Finds a window: any range of any stitch whose bytes are all free. Fits
//! closely, so that large free ranges stay whole, but looks at few stitches: a
//! pool has thousands of mapped chunks, out of the processor's caches each time
//! that it is asked, and several searches a millisecond. Makes no driver call.

use super::block::{Need, Window};
use super::chunk::StitchId;
use super::chunks::Chunks;
use super::state::State;
use super::stitch::Stitch;
use super::streams::{StreamId, Use};
use crate::units::align_up;

/// A range fits closely if it is longer than needed by at most this part.
const CLOSE: u64 = 2;

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

    /// A free range that holds what is needed: the smallest of the oldest
    /// stitch whose longest one fits closely, else of the stitch whose longest
    /// one is the smallest that fits. Old stitches first, so that the same ones
    /// stay in use and others stay whole: fewer have to be made.
    pub fn search(&mut self, need: Need, usable: Usable) -> Option<Window> {
        let close = need.bytes + need.bytes / CLOSE;
        let mut longest = self.chunks.longest().iter();
        if let Some(id) = longest.position(|longest| (need.bytes..=close).contains(longest))
            && let Some(window) = self.best_of(id as StitchId, need, usable)
        {
            return Some(window);
        }
        self.learn_longest(need.bytes);
        let longest = self.chunks.longest().iter().zip(0..);
        let fits = longest.filter(|(longest, _)| (need.bytes..Chunks::UNKNOWN).contains(longest));
        let rank = |longest| if longest <= close { 0 } else { longest };
        let mut fits: Vec<(u64, StitchId)> = fits.map(|(bytes, id)| (rank(*bytes), id)).collect();
        fits.sort_unstable();
        let mut fits = fits.into_iter();
        fits.find_map(|(_, id)| self.best_of(id, need, usable))
    }

    /// Measures the longest free range of each stitch of at least so many
    /// bytes where it is not known.
    fn learn_longest(&mut self, least: u64) {
        for (id, stitch) in self.stitches.iter().enumerate() {
            if self.chunks.longest()[id] != Chunks::UNKNOWN {
                continue;
            }
            let longest = match stitch {
                Some(stitch) if stitch.bytes < least => continue,
                Some(stitch) => self.longest_of(stitch),
                None => 0,
            };
            self.chunks.set_longest(id as StitchId, longest);
        }
    }

    /// The longest free range of a stitch in bytes, whatever its uses.
    fn longest_of(&self, stitch: &Stitch) -> u64 {
        // The free range that is being followed, and where it would go on.
        let (mut longest, mut run, mut end) = (0, 0, 0);
        for piece in &stitch.pieces {
            let room = self.chunks.room(piece.chunk);
            if piece.offset != end {
                run = 0;
            }
            end = piece.offset + piece.bytes;
            if room.head == piece.bytes {
                run += piece.bytes;
            } else {
                longest = longest.max(run + room.head).max(room.inner);
                run = room.tail;
            }
            longest = longest.max(run);
        }
        longest
    }

    /// The smallest free range of a stitch that holds what is needed.
    fn best_of(&self, id: StitchId, need: Need, usable: Usable) -> Option<Window> {
        let mut best = Best { need, found: None };
        let stitch = self.stitches[id as usize].as_ref()?;
        self.offer_ranges(id, stitch, usable, &mut best);
        best.found.map(|(_, window)| window)
    }

    /// Offers every free range of a stitch; true where one fits exactly.
    fn offer_ranges(&self, id: StitchId, stitch: &Stitch, usable: Usable, best: &mut Best) -> bool {
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
