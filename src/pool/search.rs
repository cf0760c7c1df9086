//! Finds a window: any range of any stitch whose bytes are all free. Breaks as
//! little as it can of chunks that are wholly free, since a new stitch can be
//! made of those alone, but looks at few stitches: a pool has thousands of mapped
//! chunks, out of the processor's caches each time that it is asked, and several
//! searches a millisecond. Makes no driver call.

use super::block::{Need, Window};
use super::chunk::StitchId;
use super::ranges::{FreeRange, LEAST, Ranges};
use super::state::State;
use super::stitch::{Piece, Stitch, within};
use super::streams::{StreamId, Use};

/// A free range fits closely if it is longer than needed by at most this part.
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
        let least = need.bytes;
        let is_close = |longest: u64| longest.wrapping_sub(least) <= least / CLOSE;
        let mut best = Best::new(need);
        // Mostly one of those answers of which it is known that they fit closely.
        let ranges = self.chunks.ranges();
        for group in ranges.groups() {
            for id in group {
                if !is_close(ranges.longest()[id as usize]) {
                    continue;
                }
                self.look_into(id, usable, &mut best);
                if best.is_enough() {
                    return best.window();
                }
            }
        }
        let mut from = 0;
        while let Some(group) = self.chunks.ranges().group(from) {
            from = group.end;
            for id in group {
                let known = self.chunks.ranges().longest()[id as usize];
                if known < least || known >= Ranges::OPEN && self.measure(id, least) < least {
                    continue;
                }
                match is_close(known) {
                    true => best.looks += self.stitch(id).pieces.len(), // as above
                    false => self.look_into(id, usable, &mut best),
                }
                if best.is_enough() {
                    return best.window();
                }
            }
        }
        best.window()
    }

    /// The longest free range of a stitch in bytes, whatever its uses; 0 for a
    /// stitch that is shorter than so many bytes, or that is gone or goes.
    fn measure(&mut self, id: StitchId, least: u64) -> u64 {
        match self.stitches.get(id) {
            Some(stitch) if stitch.bytes >= least && !stitch.leaving => {
                self.chunks.measure(id, stitch)
            }
            stitch => {
                if self.chunks.ranges().longest()[id as usize] == Ranges::UNKNOWN {
                    let pieces = stitch.map_or(&[][..], |stitch| &stitch.pieces);
                    self.chunks.glance(id, pieces);
                }
                0
            }
        }
    }

    /// Offers the ends of every free range of a stitch of which they are known.
    fn look_into(&self, id: StitchId, usable: Usable, best: &mut Best) {
        let stitch = self.stitch(id);
        if best.need.alone && !stitch.known {
            return;
        }
        best.looks += stitch.pieces.len();
        let shown = self.chunks.ranges().of(id);
        if best.need.bytes < LEAST || !self.is_usable_all(shown.stream, usable) {
            return self.offer_some(id, stitch, usable, best);
        }
        for free in &shown.ranges {
            self.offer(id, stitch, free, best);
        }
    }

    /// Can all be used that has uses of this stream ([`Room::stream`]) below it?
    pub fn is_usable_all(&self, stream: StreamId, usable: Usable) -> bool {
        match usable {
            Usable::All => !self.streams.health.is_any_broken(),
            Usable::Ready(user) => stream == Use::NOBODY || Some(stream) == user,
        }
    }

    /// The bytes of wholly free chunks that a window takes beyond its length: what
    /// it would leave of these, less what it uses of chunks that are in use anyway.
    pub fn broken(&self, window: Window) -> u64 {
        let pieces = &self.stitch(window.stitch).pieces;
        self.broken_at(pieces, window.offset, window.bytes)
    }

    /// The same of bytes of a stitch, of which the pieces are those below at least.
    fn broken_at(&self, pieces: &[Piece], offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let (mut left, mut used) = (0, 0);
        let mut edge = |piece: &Piece| {
            let part = piece.part(offset, end);
            if self.chunks.room(part.chunk).is_whole() {
                left += part.of - part.bytes;
            } else {
                used += part.bytes;
            }
        };
        // Between its first and its last piece it takes whole ones.
        match within(pieces, offset, end) {
            [] => {}
            [one] => edge(one),
            [first, .., last] => [first, last].into_iter().for_each(edge),
        }
        u64::saturating_sub(left, used)
    }

    /// Offers the ends of every free range of a stitch, as far as it is usable.
    fn offer_some(&self, id: StitchId, stitch: &Stitch, usable: Usable, best: &mut Best) {
        let (needed, mut free) = (best.need.bytes, FreeRange::default());
        for (index, piece) in stitch.pieces.iter().enumerate() {
            let follow = |from: u64, to: u64| {
                let before = free.follow(index, piece.offset + from, piece.offset + to);
                if let Some(before) = before {
                    self.offer(id, stitch, &before, best);
                }
            };
            let stream = self.chunks.room(piece.chunk).stream;
            if self.is_usable_all(stream, usable) {
                self.chunks.each_free(piece.chunk, needed, follow);
            } else {
                let is_usable = |last| self.is_usable(last, usable);
                self.chunk(piece.chunk).each_free(is_usable, follow);
            }
        }
        if let Some(last) = free.end() {
            self.offer(id, stitch, &last, best);
        }
    }

    /// Offers both ends of a free range.
    fn offer(&self, id: StitchId, stitch: &Stitch, free: &FreeRange, best: &mut Best) {
        let bytes = best.need.bytes;
        let (first, last) = (
            best.need.first_from(free.bytes.start),
            best.need.last_before(free.bytes.end),
        );
        let (Some(first), Some(last)) = (first, last) else {
            return;
        };
        let length = free.length();
        // Where nothing is broken, only a shorter range is better.
        let best_of_all = |&(broken, least, _): &(u64, u64, Window)| broken == 0 && least <= length;
        if first > last || best.found.as_ref().is_some_and(best_of_all) {
            return;
        }
        let pieces = &stitch.pieces[free.pieces.clone()];
        for offset in [first, last] {
            let window = Window {
                stitch: id,
                offset,
                bytes,
            };
            let broken = self.broken_at(pieces, offset, bytes);
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
