//! All chunks of a pool, by index. What a search asks of a chunk stands once
//! more side by side ([`Room`]): it looks at thousands of chunks and at little
//! else of them. So does what it asks of a stitch, the longest free range,
//! which is forgotten when a chunk below it changes. Makes no driver call.

use super::chunk::{Chunk, ChunkId, StitchId};
use super::streams::{StreamId, Streams, Use};

/// The free bytes of one chunk in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
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
    const NONE: Room = Room {
        head: 0,
        tail: 0,
        inner: 0,
        stream: Use::NOBODY,
    };

    fn of(chunk: &Chunk) -> Self {
        let mut room = Self::NONE;
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
            let stream = span.last.stream;
            if room.stream == Use::NOBODY {
                room.stream = stream;
            } else if stream != Use::NOBODY && stream != room.stream {
                room.stream = Self::SEVERAL;
            }
        }
        room
    }
}

/// The chunks; a gap is a handle that was given back.
///
/// Invariant: `rooms[id]` is that of chunk `id`, and no room for a gap.
/// Invariant: `free` is the sum of the chunks' free bytes.
/// Invariant: `longest[stitch]` is [`UNKNOWN`](Self::UNKNOWN), or no chunk that
/// the stitch shows has changed since it was told.
#[derive(Default)]
pub struct Chunks {
    all: Vec<Option<Chunk>>,
    rooms: Vec<Room>,
    longest: Vec<u64>,
    free: u64,
}

impl Chunks {
    /// The longest free range of a stitch of which it was not told since.
    pub const UNKNOWN: u64 = u64::MAX;

    /// Adds a chunk and returns its index.
    pub fn add(&mut self, chunk: Chunk) -> ChunkId {
        let room = Room::of(&chunk);
        self.free += chunk.free;
        match self.all.iter().position(Option::is_none) {
            Some(gap) => {
                self.all[gap] = Some(chunk);
                self.rooms[gap] = room;
                gap as ChunkId
            }
            None => {
                self.all.push(Some(chunk));
                self.rooms.push(room);
                (self.all.len() - 1) as ChunkId
            }
        }
    }

    /// Takes a chunk that exists out.
    pub fn remove(&mut self, id: ChunkId) -> Chunk {
        self.rooms[id as usize] = Room::NONE;
        self.forget_longest(id);
        let chunk = self.all[id as usize].take().expect("a chunk that exists");
        self.free -= chunk.free;
        chunk
    }

    /// A chunk that exists.
    pub fn get(&self, id: ChunkId) -> &Chunk {
        self.all[id as usize].as_ref().expect("a chunk that exists")
    }

    /// The free bytes of a chunk in short.
    pub fn room(&self, id: ChunkId) -> Room {
        self.rooms[id as usize]
    }

    /// Free bytes of all chunks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Free bytes of those chunks that are in use. Looks at every chunk.
    pub fn scattered(&self) -> u64 {
        let used = self.iter().filter(|(_, chunk)| !chunk.is_free());
        used.map(|(_, chunk)| chunk.free).sum()
    }

    /// Every chunk with its index.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkId, &Chunk)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(id, chunk)| Some((id as ChunkId, chunk.as_ref()?)))
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
        let stitches = self.longest.len().max(stitch as usize + 1);
        self.longest.resize(stitches, Self::UNKNOWN);
        self.longest[stitch as usize] = Self::UNKNOWN;
    }

    /// The stitch does not show the chunk any more.
    pub fn hide(&mut self, id: ChunkId, stitch: StitchId) {
        self.get_mut(id).shown_in.retain(|shown| *shown != stitch);
        self.longest[stitch as usize] = Self::UNKNOWN;
    }

    /// The longest free range of each stitch in bytes, or [`UNKNOWN`](Self::UNKNOWN).
    pub fn longest(&self) -> &[u64] {
        &self.longest
    }

    /// Tells the longest free range of a stitch in bytes.
    pub fn set_longest(&mut self, stitch: StitchId, bytes: u64) {
        self.longest[stitch as usize] = bytes;
    }

    fn changed(&mut self, id: ChunkId) {
        self.rooms[id as usize] = Room::of(self.get(id));
        self.forget_longest(id);
    }

    fn forget_longest(&mut self, id: ChunkId) {
        let chunk = self.all[id as usize].as_ref().expect("a chunk that exists");
        for &stitch in &chunk.shown_in {
            self.longest[stitch as usize] = Self::UNKNOWN;
        }
    }

    fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        self.all[id as usize].as_mut().expect("a chunk that exists")
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

    #[test]
    fn the_longest_range_of_a_stitch_is_forgotten_when_a_chunk_changes() {
        let (mut chunks, streams) = (Chunks::default(), Streams::default());
        let ids = [1, 2].map(|handle| chunks.add(Chunk::new(Handle(handle), 4096)));
        chunks.show(ids[0], 0);
        chunks.show(ids[1], 0);
        chunks.show(ids[1], 1);
        let tell = |chunks: &mut Chunks| {
            chunks.set_longest(0, 8192);
            chunks.set_longest(1, 4096);
        };
        tell(&mut chunks);
        chunks.take(ids[0], 0, 4096);
        assert_eq!(chunks.longest(), [Chunks::UNKNOWN, 4096]);
        tell(&mut chunks);
        chunks.give(ids[0], 0, 4096, Use::DONE, &streams);
        assert_eq!(chunks.longest(), [Chunks::UNKNOWN, 4096]);
        tell(&mut chunks);
        chunks.remove(ids[1]);
        assert_eq!(chunks.longest(), [Chunks::UNKNOWN; 2]);
        tell(&mut chunks);
        chunks.show(ids[0], 1);
        assert_eq!(chunks.longest(), [8192, Chunks::UNKNOWN]);
    }
}
