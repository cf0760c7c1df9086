//! All chunks of a pool, by index. What a search asks of a chunk stands once
//! more side by side ([`Room`]): it looks at thousands of chunks and at little
//! else of them, and at none of which nothing is free. Has the [`Ranges`] forget what a
//! chunk that changes is part of. Makes no driver call.

use super::chunk::{Chunk, ChunkId, StitchId};
use super::groups::Groups;
use super::ranges::Ranges;
use super::slots::Slots;
use super::stitch::{Piece, Stitch};
use super::streams::{StreamId, Streams, Use};
use super::whole::Whole;
use std::iter;
use std::ops::Range;

/// The free bytes of one chunk in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The chunk's size in bytes.
    pub bytes: u64,
    /// Free bytes with which the chunk begins.
    pub head: u64,
    /// Free bytes with which it ends.
    pub tail: u64,
    /// The longest free interval that does neither.
    pub inner: u64,
    /// The stream of every last use below its free bytes; [`Use::NOBODY`]
    /// where all are complete, [`Room::SEVERAL`] where they differ.
    pub stream: StreamId,
}

impl Room {
    /// More than one stream.
    pub const SEVERAL: StreamId = Use::NOBODY - 1;
    pub(super) const NONE: Room = Room {
        bytes: 0,
        head: 0,
        tail: 0,
        inner: 0,
        stream: Use::NOBODY,
    };

    pub(super) fn of(chunk: &Chunk) -> Self {
        let mut room = Self {
            bytes: chunk.bytes,
            ..Self::NONE
        };
        // The free range that is being followed; neighbours may differ in use.
        let (mut from, mut to) = (0, 0);
        for span in &chunk.spans {
            if span.start != to {
                from = span.start;
            }
            to = span.end();
            if from == 0 {
                room.head = to;
            }
            if to == chunk.bytes {
                room.tail = to - from;
            } else if from > 0 {
                room.inner = room.inner.max(to - from);
            }
            room.stream = Self::stream_of_both(room.stream, span.last.stream);
        }
        room
    }

    /// Is any byte free at an end of it?
    pub fn has_end(&self) -> bool {
        self.head > 0 || self.tail > 0
    }

    /// Is any byte free?
    pub fn is_open(&self) -> bool {
        self.has_end() || self.inner > 0
    }

    /// Is every byte free?
    pub fn is_whole(&self) -> bool {
        self.head == self.bytes
    }

    /// Its bytes if every one is free, else none.
    pub fn whole(&self) -> u64 {
        if self.is_whole() { self.bytes } else { 0 }
    }

    /// The [`stream`](Self::stream) of what has uses of these two below it.
    pub fn stream_of_both(a: StreamId, b: StreamId) -> StreamId {
        match (a, b) {
            (Use::NOBODY, one) | (one, Use::NOBODY) => one,
            (a, b) if a == b => a,
            _ => Self::SEVERAL,
        }
    }
}

/// The chunks; a gap is a handle that was given back.
///
/// Invariant: `rooms[id]` is that of chunk `id`, and no room for a gap; `groups` has those
/// with free bytes.
/// Invariant: `free` is the sum of the chunks' free bytes, `whole` of those that are
/// wholly free, of which `by_size` hears when they come or go.
#[derive(Default)]
pub struct Chunks {
    all: Slots<Chunk>,
    rooms: Vec<Room>,
    groups: Groups,
    ranges: Ranges,
    free: u64,
    whole: u64,
    by_size: Whole,
}

impl Chunks {
    /// Adds a chunk and returns its index.
    pub fn add(&mut self, chunk: Chunk) -> ChunkId {
        let room = Room::of(&chunk);
        self.free += chunk.free;
        self.whole += room.whole();
        let id = self.all.add(chunk);
        match self.rooms.get_mut(id as usize) {
            Some(gap) => *gap = room,
            None => self.rooms.push(room),
        }
        self.groups.reach(self.rooms.len());
        self.groups.comes(id as usize);
        self.by_size.changes(id);
        id
    }

    /// Takes a chunk that exists out.
    pub fn remove(&mut self, id: ChunkId) -> Chunk {
        self.set_room(id, Room::NONE);
        let chunk = self.all.take(id).expect("a chunk that exists");
        self.free -= chunk.free;
        chunk
    }

    /// A chunk that exists.
    pub fn get(&self, id: ChunkId) -> &Chunk {
        self.all.get(id).expect("a chunk that exists")
    }

    /// The free bytes of a chunk in short.
    pub fn room(&self, id: ChunkId) -> Room {
        self.rooms[id as usize]
    }

    /// Those of every chunk with free ends, with its index.
    pub fn ends(&self) -> impl Iterator<Item = (ChunkId, Room)> {
        self.end_groups().flatten()
    }

    /// The same group by group.
    pub fn end_groups(&self) -> impl Iterator<Item = impl Iterator<Item = (ChunkId, Room)>> {
        let is_any_open = |group: Range<usize>| self.rooms[group].iter().any(Room::is_open);
        let next = move |from| self.groups.next(from, is_any_open);
        let groups = iter::successors(next(0), move |group| next(group.end));
        groups.map(|group| {
            let rooms = (group.start as ChunkId..).zip(self.rooms[group].iter().copied());
            rooms.filter(|(_, room)| room.has_end())
        })
    }

    /// Tells from where to where a chunk is free, in order. What touches none of its ends is
    /// left out where all of that is shorter than so many bytes.
    pub fn each_free(&self, id: ChunkId, inner: u64, mut tell: impl FnMut(u64, u64)) {
        let room = &self.rooms[id as usize];
        if room.is_whole() {
            return tell(0, room.bytes);
        }
        if room.inner >= inner {
            return self.get(id).each_free(|_| true, tell);
        }
        if room.head > 0 {
            tell(0, room.head);
        }
        if room.tail > 0 {
            tell(room.bytes - room.tail, room.bytes);
        }
    }

    /// Those that are wholly free, the largest first: their bytes and indexes, as of
    /// [`put_in_order`](Self::put_in_order).
    pub fn by_size(&self) -> &[(u64, ChunkId)] {
        self.by_size.in_order()
    }

    /// Puts those that are wholly free in order.
    pub fn put_in_order(&mut self) {
        self.by_size.put_in_order(&self.rooms);
    }

    /// Free bytes of all chunks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Bytes of those that are wholly free.
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Free bytes of those chunks that are in use.
    pub fn scattered(&self) -> u64 {
        self.free - self.whole
    }

    /// Every chunk with its index.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkId, &Chunk)> {
        self.all.iter()
    }

    /// Takes free bytes of a chunk ([`Chunk::take`]).
    pub fn take(&mut self, id: ChunkId, start: u64, bytes: u64) {
        self.get_mut(id).take(start, bytes);
        self.free -= bytes;
        self.changed(id);
    }

    /// Gives bytes of a chunk back ([`Chunk::give`]).
    pub fn give(&mut self, id: ChunkId, start: u64, bytes: u64, last: Use, streams: &Streams) {
        self.get_mut(id).give(start, bytes, last, streams);
        self.free += bytes;
        self.changed(id);
    }

    /// Remembers that a stitch shows a chunk.
    pub fn show(&mut self, id: ChunkId, stitch: StitchId) {
        self.get_mut(id).shown_in.push(stitch);
        self.ranges.add(stitch);
    }

    /// The stitch does not show the chunk any more.
    pub fn hide(&mut self, id: ChunkId, stitch: StitchId) {
        self.get_mut(id).shown_in.retain(|shown| *shown != stitch);
        self.ranges.forget(stitch);
    }

    /// What is known of the free ranges of a stitch holds no more.
    pub fn forget(&mut self, stitch: StitchId) {
        self.ranges.forget(stitch);
    }

    /// What is known of the free ranges of stitches.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Looks at those of a stitch; returns the longest in bytes.
    pub fn measure(&mut self, id: StitchId, stitch: &Stitch) -> u64 {
        let mut ranges = std::mem::take(&mut self.ranges);
        let longest = ranges.measure(id, stitch, self);
        self.ranges = ranges;
        longest
    }

    /// Looks whether anything of a stitch is free, but not at what.
    pub fn glance(&mut self, id: StitchId, pieces: &[Piece]) {
        let mut pieces = pieces.iter();
        let is_open = pieces.any(|piece| self.room(piece.chunk).is_open());
        self.ranges.glanced(id, is_open);
    }

    /// Ends the test where anything is not what a look at all these stitches and chunks says.
    #[cfg(test)]
    pub fn check(&self, stitches: &Slots<Stitch>) {
        let rooms: Vec<_> = self.iter().map(|(id, it)| (id, Room::of(it))).collect();
        let (mut ends, mut whole) = (rooms.clone(), 0);
        for &(id, room) in &rooms {
            assert_eq!(self.room(id), room);
            assert!(room.is_open() || room.stream == Use::NOBODY);
            whole += room.whole();
        }
        ends.retain(|(_, room)| room.head > 0 || room.tail > 0);
        assert_eq!(self.ends().collect::<Vec<_>>(), ends);
        let free: u64 = self.iter().map(|(_, chunk)| chunk.free).sum();
        assert_eq!((self.free, self.whole), (free, whole));
        let mut by_size = self.by_size.clone();
        by_size.put_in_order(&self.rooms);
        let mut expected: Vec<_> = rooms.iter().map(|(id, room)| (room.whole(), *id)).collect();
        expected.retain(|(bytes, _)| *bytes > 0);
        expected.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(by_size.in_order(), expected);
        self.ranges.check(stitches, self);
    }

    fn changed(&mut self, id: ChunkId) {
        self.set_room(id, Room::of(self.get(id)));
    }

    fn set_room(&mut self, id: ChunkId, room: Room) {
        let before = std::mem::replace(&mut self.rooms[id as usize], room);
        self.whole = self.whole - before.whole() + room.whole();
        if before.whole() != room.whole() {
            self.by_size.changes(id);
        }
        // One that was full had none either; once too often does no harm.
        if before.head == 0 {
            self.groups.comes(id as usize);
        }
        let chunk = self.all.get(id).expect("a chunk that exists");
        for &stitch in &chunk.shown_in {
            self.ranges.forget(stitch);
        }
    }

    fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        self.all.get_mut(id).expect("a chunk that exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Handle;

    #[test]
    fn the_room_of_a_chunk_follows_it() {
        let (mut chunks, streams) = (Chunks::default(), Streams::default());
        let id = chunks.add(Chunk::new(Handle(1), 4096));
        let room = |chunks: &Chunks| {
            let room = chunks.room(id);
            (room.head, room.inner, room.tail)
        };
        assert_eq!(room(&chunks), (4096, 0, 4096));
        chunks.take(id, 512, 512);
        chunks.take(id, 3072, 512);
        assert_eq!(room(&chunks), (512, 2048, 512));
        assert_eq!(chunks.free(), 3072);
        assert_eq!(chunks.scattered(), 3072);
        chunks.give(id, 512, 512, Use::DONE, &streams);
        assert_eq!(room(&chunks), (3072, 0, 512));
        assert_eq!(chunks.free(), 3584);
        chunks.give(id, 3072, 512, Use::DONE, &streams);
        assert_eq!((chunks.free(), chunks.scattered()), (4096, 0));
        chunks.take(id, 0, 512);
        assert_eq!(chunks.scattered(), 3584);
        chunks.remove(id);
        assert_eq!(chunks.scattered(), 0);
        assert_eq!(room(&chunks), (0, 0, 0));
        assert_eq!(chunks.free(), 0);
    }
}
