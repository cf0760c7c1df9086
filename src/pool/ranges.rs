//! The long free ranges of each stitch, whatever their uses. A search asks for those of
//! a hundred stitches, so they stand side by side from when one asks first until a
//! chunk below them changes. It passes over those that are full: a pool that has grown for
//! long has tens of thousands. Makes no driver call.

use super::chunk::StitchId;
use super::chunks::{Chunks, Room};
use super::groups::Groups;
#[cfg(test)]
use super::slots::Slots;
use super::stitch::Stitch;
use super::streams::{StreamId, Use};
use crate::units::HANDLE;
use std::iter;
use std::ops::Range;

/// Shorter ranges are not kept: there may be hundreds in a chunk.
pub const LEAST: u64 = HANDLE;

/// A free range of a stitch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FreeRange {
    /// Where it lies in the stitch, in bytes.
    pub bytes: Range<u64>,
    /// The pieces that it is in.
    pub pieces: Range<usize>,
}

impl FreeRange {
    /// Goes on with free bytes of a piece, or begins with them: then what was followed
    /// before ends.
    pub fn follow(&mut self, piece: usize, from: u64, to: u64) -> Option<Self> {
        if from == self.bytes.end {
            (self.bytes.end, self.pieces.end) = (to, piece + 1);
            return None;
        }
        let begun = Self {
            bytes: from..to,
            pieces: piece..piece + 1,
        };
        std::mem::replace(self, begun).end()
    }

    /// What was followed, if it was anything.
    pub fn end(self) -> Option<Self> {
        (!self.bytes.is_empty()).then_some(self)
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// What a stitch has free.
#[derive(Debug)]
pub struct Shown {
    /// Its free ranges of [`LEAST`] and more, in order; no two of them touch.
    pub ranges: Vec<FreeRange>,
    /// Whose uses are below all that is free, as [`Room::stream`].
    pub stream: StreamId,
    /// The longest free range in bytes, however short.
    longest: u64,
}

impl Shown {
    const NOTHING: Self = Self {
        ranges: Vec::new(),
        stream: Use::NOBODY,
        longest: 0,
    };

    fn measure(&mut self, stitch: &Stitch, chunks: &Chunks) {
        self.ranges.clear();
        (self.stream, self.longest) = (Use::NOBODY, 0);
        let mut free = FreeRange::default();
        for (index, piece) in stitch.pieces.iter().enumerate() {
            let room = chunks.room(piece.chunk);
            // Many are full: nothing begins, goes on or is used there.
            if !room.is_open() {
                continue;
            }
            self.stream = Room::stream_of_both(self.stream, room.stream);
            self.longest = self.longest.max(room.inner);
            chunks.each_free(piece.chunk, LEAST, |from, to| {
                let before = free.follow(index, piece.offset + from, piece.offset + to);
                self.keep(before);
            });
        }
        self.keep(free.end());
    }

    fn keep(&mut self, free: Option<FreeRange>) {
        if let Some(free) = free {
            self.longest = self.longest.max(free.length());
            self.ranges.extend((free.length() >= LEAST).then_some(free));
        }
    }
}

/// Those of all stitches.
///
/// Invariant: what is known of a stitch is as when it was measured, and no chunk that
/// it shows has changed since.
#[derive(Default)]
pub struct Ranges {
    longest: Vec<u64>,
    /// Those of which it is not known that nothing is free.
    groups: Groups,
    shown: Vec<Shown>,
}

impl Ranges {
    /// The longest free range of a stitch that was not measured since.
    pub const UNKNOWN: u64 = u64::MAX;

    /// The same of one of which something is free.
    pub const OPEN: u64 = Self::UNKNOWN - 1;

    /// The longest of each stitch in bytes, or [`UNKNOWN`](Self::UNKNOWN) or [`OPEN`](Self::OPEN).
    pub fn longest(&self) -> &[u64] {
        &self.longest
    }

    /// The next stitches side by side, from where the last ones ended, of which it is not known
    /// that all are full.
    pub fn group(&self, from: StitchId) -> Option<Range<StitchId>> {
        let group = self
            .groups
            .next(from as usize, |group| self.may_be_open(group))?;
        Some(group.start as StitchId..group.end as StitchId)
    }

    /// All of these.
    pub fn groups(&self) -> impl Iterator<Item = Range<StitchId>> {
        iter::successors(self.group(0), |group| self.group(group.end))
    }

    fn may_be_open(&self, group: Range<usize>) -> bool {
        self.longest[group].iter().any(|longest| *longest > 0)
    }

    /// Those of a stitch whose longest is known.
    pub fn of(&self, id: StitchId) -> &Shown {
        debug_assert!(self.longest[id as usize] < Self::OPEN);
        &self.shown[id as usize]
    }

    /// Looks at a stitch of these chunks; returns the longest in bytes.
    pub fn measure(&mut self, id: StitchId, stitch: &Stitch, chunks: &Chunks) -> u64 {
        let shown = &mut self.shown[id as usize];
        shown.measure(stitch, chunks);
        self.longest[id as usize] = shown.longest;
        shown.longest
    }

    /// It was looked whether anything of a stitch is free that was not to be measured.
    pub fn glanced(&mut self, id: StitchId, is_open: bool) {
        self.longest[id as usize] = if is_open { Self::OPEN } else { 0 };
    }

    /// There is such a stitch, or it has changed.
    pub fn add(&mut self, id: StitchId) {
        let stitches = self.longest.len().max(id as usize + 1);
        self.longest.resize(stitches, 0);
        self.shown.resize_with(stitches, || Shown::NOTHING);
        self.groups.reach(stitches);
        self.forget(id);
    }

    /// A stitch has changed, or a chunk that it shows.
    pub fn forget(&mut self, id: StitchId) {
        let longest = std::mem::replace(&mut self.longest[id as usize], Self::UNKNOWN);
        if longest == 0 {
            self.groups.comes(id as usize);
        }
    }

    /// Ends the test where anything is not what a look at all these stitches says.
    #[cfg(test)]
    pub fn check(&self, stitches: &Slots<Stitch>, chunks: &Chunks) {
        let told: Vec<_> = self.groups().flatten().collect();
        for id in 0..self.longest.len() as StitchId {
            let (mut shown, known) = (Shown::NOTHING, self.longest[id as usize]);
            assert!(known == 0 || told.contains(&id));
            if let Some(stitch) = stitches.get(id) {
                shown.measure(stitch, chunks);
            }
            match known {
                Self::UNKNOWN => {}
                Self::OPEN => assert!(shown.longest > 0),
                known => assert_eq!(known, shown.longest),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Handle;
    use crate::pool::chunk::{Chunk, ChunkId};
    use crate::pool::streams::Streams;

    const PIECE: u64 = 8 * LEAST;

    fn chunks<const N: usize>() -> (Chunks, [ChunkId; N]) {
        let mut chunks = Chunks::default();
        let ids = std::array::from_fn(|i| chunks.add(Chunk::new(Handle(i as u64 + 1), PIECE)));
        (chunks, ids)
    }

    fn stitch(chunks: &mut Chunks, id: StitchId, of: &[ChunkId]) -> Stitch {
        of.iter().for_each(|chunk| chunks.show(*chunk, id));
        Stitch::new(0x10000, of.iter().map(|chunk| (*chunk, PIECE)))
    }

    fn shown(chunks: &Chunks, id: StitchId) -> Vec<(Range<u64>, Range<usize>)> {
        let ranges = chunks.ranges().of(id).ranges.iter();
        ranges
            .map(|free| (free.bytes.clone(), free.pieces.clone()))
            .collect()
    }

    #[test]
    fn free_bytes_that_touch_are_one_range_and_a_gap_ends_it() {
        let (mut chunks, [a, b, c, d]) = chunks();
        let mut stitch = stitch(&mut chunks, 0, &[a, b, c, d]);
        assert_eq!(chunks.measure(0, &stitch), 4 * PIECE);
        assert_eq!(shown(&chunks, 0), [(0..4 * PIECE, 0..4)]);
        chunks.take(b, LEAST, LEAST);
        chunks.take(b, 4 * LEAST, LEAST);
        chunks.take(d, 0, PIECE);
        assert_eq!(chunks.measure(0, &stitch), PIECE + 3 * LEAST);
        let ranges = [
            (0..PIECE + LEAST, 0..2),
            (PIECE + 2 * LEAST..PIECE + 4 * LEAST, 1..2),
            (PIECE + 5 * LEAST..3 * PIECE, 1..3),
        ];
        assert_eq!(shown(&chunks, 0), ranges);
        chunks.hide(stitch.pieces.remove(2).chunk, 0);
        assert_eq!(chunks.measure(0, &stitch), PIECE + LEAST);
        assert_eq!(shown(&chunks, 0)[2], (PIECE + 5 * LEAST..2 * PIECE, 1..2));
    }

    #[test]
    fn short_ranges_are_measured_and_not_kept() {
        let (mut chunks, [a, b]) = chunks();
        let stitch = stitch(&mut chunks, 0, &[a, b]);
        let short = LEAST - 512;
        // From `a` on: short, taken, short; long in the middle of `b`, as short at its end.
        chunks.take(a, short, PIECE - 2 * short);
        chunks.take(b, 0, 512);
        assert_eq!(chunks.measure(0, &stitch), PIECE - 512);
        chunks.take(b, 512 + short, 512);
        chunks.take(b, PIECE - short - 512, 512);
        let long = 1024 + short..PIECE - short - 512;
        assert_eq!(chunks.measure(0, &stitch), long.end - long.start);
        assert_eq!(
            shown(&chunks, 0),
            [(PIECE + long.start..PIECE + long.end, 1..2)]
        );
        chunks.take(b, long.start + short, long.end - long.start - 2 * short);
        assert_eq!(chunks.measure(0, &stitch), short, "in the middle");
        assert_eq!(shown(&chunks, 0), []);
        for (chunk, at) in [
            (b, 512),
            (b, long.start),
            (b, long.end - short),
            (b, PIECE - short),
        ] {
            chunks.take(chunk, at, short);
        }
        assert_eq!(chunks.measure(0, &stitch), short, "at an end");
        chunks.take(a, 0, short);
        chunks.take(a, PIECE - short, short);
        assert_eq!(chunks.measure(0, &stitch), 0);
    }

    #[test]
    fn whose_uses_are_below_is_told() {
        let (mut chunks, [a, b]) = chunks();
        let stitch = stitch(&mut chunks, 0, &[a, b]);
        let streams = Streams::default();
        let mut stream = |chunk, stream| {
            let used = Use {
                stream,
                seq: 1,
                alias: 0,
            };
            chunks.take(chunk, 0, PIECE);
            chunks.give(chunk, 0, PIECE, used, &streams);
            chunks.measure(0, &stitch);
            chunks.ranges().of(0).stream
        };
        assert_eq!(stream(a, Use::NOBODY), Use::NOBODY);
        assert_eq!(stream(a, 3), 3);
        assert_eq!(stream(b, 3), 3);
        assert_eq!(stream(b, 4), Room::SEVERAL);
        assert_eq!(stream(a, Use::NOBODY), 4);
    }

    #[test]
    fn what_changes_is_forgotten() {
        let (mut chunks, [a, b]) = chunks();
        let stitches = [
            stitch(&mut chunks, 0, &[a, b]),
            stitch(&mut chunks, 1, &[b]),
        ];
        let known = |chunks: &mut Chunks| {
            let longest = chunks.ranges().longest();
            let known = [0, 1].map(|id: usize| longest[id] != Ranges::UNKNOWN);
            (0..).zip(&stitches).for_each(|(id, stitch)| {
                chunks.measure(id, stitch);
            });
            known
        };
        assert_eq!(known(&mut chunks), [false, false]);
        assert_eq!(known(&mut chunks), [true, true]);
        chunks.take(a, 0, PIECE);
        assert_eq!(known(&mut chunks), [false, true]);
        chunks.give(a, 0, PIECE, Use::DONE, &Streams::default());
        assert_eq!(known(&mut chunks), [false, true]);
        chunks.take(b, 0, LEAST);
        assert_eq!(known(&mut chunks), [false, false]);
        chunks.show(a, 1);
        assert_eq!(known(&mut chunks), [true, false]);
        chunks.remove(b);
        assert_eq!(known(&mut chunks), [false, false]);
    }

    #[test]
    fn what_is_known_to_be_full_is_passed_over_until_it_changes() {
        let mut chunks = Chunks::default();
        let (mut ids, mut stitches) = (Vec::new(), Vec::new());
        for id in 0..1000 {
            let chunk = chunks.add(Chunk::new(Handle(u64::from(id) + 1), PIECE));
            ids.push(chunk);
            stitches.push(stitch(&mut chunks, id, &[chunk]));
        }
        stitches.push(stitch(&mut chunks, 1000, &[ids[7], ids[500]]));
        let look = |chunks: &mut Chunks| {
            for (id, stitch) in (0..).zip(&stitches) {
                match id % 2 {
                    0 => drop(chunks.measure(id, stitch)),
                    _ => chunks.glance(id, &stitch.pieces),
                }
            }
            chunks.ranges().groups().collect::<Vec<_>>()
        };
        assert_eq!(look(&mut chunks).into_iter().flatten().count(), 1001);
        ids.iter().for_each(|id| chunks.take(*id, 0, PIECE));
        assert_eq!(look(&mut chunks), []);
        assert_eq!(chunks.ends().count(), 0);
        chunks.give(ids[500], 512, 512, Use::DONE, &Streams::default());
        assert_eq!(look(&mut chunks), [448..512, 960..1001]);
        assert_eq!(chunks.ends().count(), 0);
        chunks.give(ids[501], 512, PIECE - 512, Use::DONE, &Streams::default());
        assert_eq!(chunks.ranges().longest()[501], Ranges::UNKNOWN);
        look(&mut chunks);
        assert_eq!(chunks.ranges().longest()[501], Ranges::OPEN);
        assert_eq!(chunks.ends().count(), 1);
    }
}
