//! All chunks of a pool, by index. Their free bytes stand once more side by
//! side: a search looks at thousands of chunks and at little else of them.
//! Makes no driver call.

use super::chunk::{Chunk, ChunkId, StitchId};
use super::streams::{Streams, Use};

/// The chunks; a gap is a handle that was given back.
///
/// Invariant: `free[id]` is the `free` of chunk `id`, 0 for a gap.
#[derive(Default)]
pub struct Chunks {
    all: Vec<Option<Chunk>>,
    free: Vec<u64>,
}

impl Chunks {
    /// Adds a chunk and returns its index.
    pub fn add(&mut self, chunk: Chunk) -> ChunkId {
        let free = chunk.free;
        match self.all.iter().position(Option::is_none) {
            Some(gap) => {
                self.all[gap] = Some(chunk);
                self.free[gap] = free;
                gap as ChunkId
            }
            None => {
                self.all.push(Some(chunk));
                self.free.push(free);
                (self.all.len() - 1) as ChunkId
            }
        }
    }

    /// Takes a chunk that exists out.
    pub fn remove(&mut self, id: ChunkId) -> Chunk {
        self.free[id as usize] = 0;
        self.all[id as usize].take().expect("a chunk that exists")
    }

    /// A chunk that exists.
    pub fn get(&self, id: ChunkId) -> &Chunk {
        self.all[id as usize].as_ref().expect("a chunk that exists")
    }

    /// Free bytes of a chunk.
    pub fn free(&self, id: ChunkId) -> u64 {
        self.free[id as usize]
    }

    /// Every chunk with its index.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkId, &Chunk)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(id, chunk)| Some((id as ChunkId, chunk.as_ref()?)))
    }

    /// Takes free bytes of a chunk ([`Chunk::take`]).
    pub fn take(&mut self, id: ChunkId, start: u64, bytes: u64) {
        let chunk = self.get_mut(id);
        chunk.take(start, bytes);
        self.free[id as usize] -= bytes;
    }

    /// Gives bytes of a chunk back ([`Chunk::give`]); returns the stitches that
    /// show it.
    pub fn give(
        &mut self,
        id: ChunkId,
        start: u64,
        bytes: u64,
        last: Use,
        streams: &Streams,
    ) -> &[StitchId] {
        self.free[id as usize] += bytes;
        let chunk = self.get_mut(id);
        chunk.give(start, bytes, last, streams);
        &chunk.shown_in
    }

    /// Remembers that a stitch shows a chunk.
    pub fn show(&mut self, id: ChunkId, stitch: StitchId) {
        self.get_mut(id).shown_in.push(stitch);
    }

    fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        self.all[id as usize].as_mut().expect("a chunk that exists")
    }
}
