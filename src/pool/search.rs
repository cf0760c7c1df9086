//! Finds a window: any range of any stitch whose bytes are all free. Breaks as
//! little as it can of chunks that are wholly free, since a new stitch can be
//! made of those alone, but looks at few stitches: a pool has thousands of mapped
//! chunks, out of the processor's caches each time that it is asked, and several
//! searches a millisecond. Makes no driver call.

use super::block::{Need, Window};
use super::chunk::StitchId;
use super::chunks::Chunks;
use super::state::State;
use super::stitch::{Part, Piece, Stitch, edges};
use super::streams::{StreamId, Use};
use crate::units::align_up;
use std::ops::Range;

/// A range fits closely if it is longer than needed by at most this part.
const CLOSE: u64 = 2;
/// A window may break this part of its length of whole chunks.
const SPARES: u64 = 16;
/// A search ends when it has looked at so many mapped chunks and found a window.
const LOOKS: usize = 1024;

/// Which free bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usable {
    /// Those that this stream (or anybody, for `None`) may use at once.
    Ready(Option<StreamId>),
    /// All, but those whose uses never end: the caller orders the request behind them.
    All,
}

/// The best window so far.
struct Best {
    need: Need,
    /// What it breaks ([`State::broken`]) and how long the free range is that it
    /// is in, both in bytes: the less, the better.
    found: Option<(u64, u64, Window)>,
    /// Mapped chunks that were looked at.
    looks: usize,
}

impl Best {
    fn new(need: Need) -> Self {
        Self {
            need,
            found: None,
            looks: 0,
        }
    }

    /// Is no other looked for?
    fn is_enough(&self) -> bool {
        self.found
            .as_ref()
            .is_some_and(|&(broken, ..)| self.looks >= LOOKS || spares(self.need.bytes, broken))
    }

    fn window(self) -> Option<Window> {
        self.found.map(|(.., window)| window)
    }
}

/// Does a window of so many bytes break so little that no other is looked for?
pub fn spares(bytes: u64, broken: u64) -> bool {
    broken <= bytes / SPARES
}

fn close_to(bytes: u64) -> u64 {
    bytes + bytes / CLOSE
}

impl State {
    /// Is a free interval with this last use usable?
    pub fn is_usable(&self, last: Use, usable: Usable) -> bool {
        match usable {
            Usable::All => !self.streams.is_endless(last),
            Usable::Ready(stream) => self.streams.is_ready(last, stream),
        }
    }

    /// A window that holds what is needed: the first that spares whole chunks, else
    /// of those that were looked at the one that breaks the least, then the one in
    /// the shortest free range. Of the stitches those whose longest range fits
    /// closely are looked into first, the oldest before all, so that the same ones
    /// stay in use and others stay whole: fewer have to be made.
    pub fn search(&mut self, need: Need, usable: Usable) -> Option<Window> {
        let close = need.bytes..=close_to(need.bytes);
        let mut best = Best::new(need);
        // Mostly one of those answers of which it is known that they fit closely.
        let known = self.chunks.longest().iter().zip(0..);
        for (_, id) in known.filter(|(longest, _)| close.contains(longest)) {
            self.look_into(id, usable, &mut best);
            if best.is_enough() {
                return best.window();
            }
        }
        for id in 0..self.stitches.len() as StitchId {
            if self.longest(id, need.bytes) < need.bytes {
                continue;
            }
            self.look_into(id, usable, &mut best);
            if best.is_enough() {
                break;
            }
        }
        best.window()
    }

    /// The longest free range of a stitch in bytes, whatever its uses; 0 for a
    /// stitch that is shorter than so many bytes. It is measured where a chunk
    /// below it has changed.
    fn longest(&mut self, id: StitchId, least: u64) -> u64 {
        let known = self.chunks.longest()[id as usize];
        if known != Chunks::UNKNOWN {
            return known;
        }
        let longest = match &self.stitches[id as usize] {
            Some(stitch) if stitch.bytes < least => return 0,
            Some(stitch) => self.longest_of(stitch),
            None => 0,
        };
        self.chunks.set_longest(id, longest);
        longest
    }

    /// Offers what a stitch has.
    fn look_into(&self, id: StitchId, usable: Usable, best: &mut Best) {
        let stitch = self.stitch(id);
        best.looks += stitch.pieces.len();
        self.offer_ranges(id, stitch, usable, best);
    }

    /// The bytes of wholly free chunks that a window takes beyond its length: what
    /// it would leave of these, less what it uses of chunks that are in use anyway.
    pub fn broken(&self, window: Window) -> u64 {
        let stitch = self.stitch(window.stitch);
        self.broken_at(stitch.edges(window.offset, window.bytes))
    }

    /// The same of a window with these first and last parts.
    fn broken_at(&self, edges: [Option<Part>; 2]) -> u64 {
        let (mut left, mut used) = (0, 0);
        for part in edges.iter().flatten() {
            // Wholly free: the free bytes with which it begins are all of it.
            if self.chunks.room(part.chunk).head == part.of {
                left += part.of - part.bytes;
            } else {
                used += part.bytes;
            }
        }
        u64::saturating_sub(left, used)
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

    /// Offers the ends of every free range of a stitch.
    fn offer_ranges(&self, id: StitchId, stitch: &Stitch, usable: Usable, best: &mut Best) {
        let needed = best.need.bytes;
        // Asked once: there may be thousands of pieces.
        let none_broken = !self.streams.health.is_any_broken();
        // The free range that is being followed, and the pieces that it is in.
        let (mut from, mut to, mut below) = (0, 0, 0..0);
        let mut follow = |piece: usize, start: u64, end: u64| {
            if start != to {
                self.offer(id, from..to, &stitch.pieces[below.clone()], best);
                (from, below.start) = (start, piece);
            }
            (to, below.end) = (end, piece + 1);
        };
        for (index, piece) in stitch.pieces.iter().enumerate() {
            let room = self.chunks.room(piece.chunk);
            if room.head == 0 && room.tail == 0 && room.inner == 0 {
                continue;
            }
            let simple = match usable {
                Usable::All => none_broken,
                Usable::Ready(stream) => room.stream == Use::NOBODY || Some(room.stream) == stream,
            };
            if !simple || room.inner >= needed {
                for span in &self.chunk(piece.chunk).spans {
                    if self.is_usable(span.last, usable) {
                        follow(index, piece.offset + span.start, piece.offset + span.end());
                    }
                }
                continue;
            }
            if room.head > 0 {
                follow(index, piece.offset, piece.offset + room.head);
            }
            if room.tail > 0 && room.head < piece.bytes {
                let end = piece.offset + piece.bytes;
                follow(index, end - room.tail, end);
            }
        }
        self.offer(id, from..to, &stitch.pieces[below], best);
    }

    /// Offers both ends of a free range, which is in these pieces.
    fn offer(&self, stitch: StitchId, free: Range<u64>, pieces: &[Piece], best: &mut Best) {
        let (bytes, align) = (best.need.bytes, best.need.align);
        let last = free.end.checked_sub(bytes);
        let (Some(first), Some(last)) = (align_up(free.start, align), last) else {
            return;
        };
        let last = last - last % align;
        let length = free.end - free.start;
        // Where nothing is broken, only a shorter range is better.
        let best_of_all = |&(broken, least, _): &(u64, u64, Window)| broken == 0 && least <= length;
        if first > last || best.found.as_ref().is_some_and(best_of_all) {
            return;
        }
        for offset in [first, last] {
            let window = Window {
                stitch,
                offset,
                bytes,
            };
            let broken = self.broken_at(edges(pieces, offset, bytes));
            let worse = |best: &(u64, u64, Window)| (broken, length) < (best.0, best.1);
            if best.found.as_ref().is_none_or(worse) {
                best.found = Some((broken, length, window));
            }
            if first == last {
                break;
            }
        }
    }
}
