//! A stitch: a range of addresses onto which whole chunks are mapped in order.
//! Only knows which chunk lies where. Makes no driver call.

use super::chunk::ChunkId;
use crate::driver::{Access, Address};

/// One chunk of a stitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The chunk.
    pub chunk: ChunkId,
    /// Offset of its first byte in the stitch, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A part of a stitch inside one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The chunk.
    pub chunk: ChunkId,
    /// Offset in the chunk, in bytes.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The chunk's size in bytes.
    pub of: u64,
}

/// A range of addresses backed by chunks.
///
/// Invariant: the pieces tile `0..bytes` in order, but for pieces that were given
/// back, and no chunk is in it twice.
#[derive(Debug)]
pub struct Stitch {
    /// The first address.
    pub at: Address,
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes of addresses that it has; it can be made longer within them.
    pub room: u64,
    /// What is mapped.
    pub pieces: Vec<Piece>,
    /// Is something else still mapped here, which the driver did not unmap?
    pub stuck: bool,
    /// Was one of its pieces given back?
    pub worn: bool,
    /// How many stitches had been made when something of it was given back last.
    pub wanted: u64,
    /// Do others know something in it by its addresses, or may they?
    pub known: bool,
    /// Does it lend nothing any more?
    pub leaving: bool,
    /// What devices may do with it.
    pub access: Access,
    /// A device that has access on its own account, whatever the peers have.
    pub also: Option<u32>,
    /// Did another process make what is mapped here?
    pub opened: bool,
}

impl Stitch {
    /// A stitch of these chunks and sizes at an address, and of no more addresses.
    pub fn new(at: Address, chunks: impl IntoIterator<Item = (ChunkId, u64)>) -> Self {
        let mut stitch = Self {
            at,
            bytes: 0,
            room: 0,
            pieces: Vec::new(),
            stuck: false,
            worn: false,
            wanted: 0,
            known: false,
            leaving: false,
            access: Access::Write,
            also: None,
            opened: false,
        };
        stitch.lengthen(chunks);
        stitch.room = stitch.bytes;
        stitch
    }

    /// Adds these chunks and sizes behind what it has.
    pub fn lengthen(&mut self, chunks: impl IntoIterator<Item = (ChunkId, u64)>) {
        for (chunk, bytes) in chunks {
            self.pieces.push(Piece {
                chunk,
                offset: self.bytes,
                bytes,
            });
            self.bytes += bytes;
        }
    }

    /// Takes a chunk out that it shows; returns where that was.
    pub fn lose(&mut self, chunk: ChunkId) -> Option<(Address, u64)> {
        let index = self.pieces.iter().position(|piece| piece.chunk == chunk)?;
        let piece = self.pieces.remove(index);
        self.worn = true;
        Some((self.at + piece.offset, piece.bytes))
    }

    /// Ends it with the last piece that is left: it can be made longer from there.
    pub fn shorten(&mut self) {
        self.bytes = self.pieces.last().map_or(0, Piece::end);
    }

    /// The address behind its last byte.
    pub fn end(&self) -> Address {
        self.at + self.bytes
    }

    /// May something be mapped there?
    pub fn can_grow(&self) -> bool {
        self.bytes < self.room && !self.stuck && !self.leaving
    }

    /// The parts of chunks below `offset..offset + bytes`.
    pub fn parts(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Part> + '_ {
        let end = offset + bytes;
        let pieces = within(&self.pieces, offset, end).iter();
        pieces.map(move |piece| piece.part(offset, end))
    }
}

/// Of pieces that follow one another those that lie in `from..end`, wholly or in part.
pub fn within(pieces: &[Piece], from: u64, end: u64) -> &[Piece] {
    let pieces = &pieces[reaching(pieces, from)..];
    match pieces.last() {
        Some(piece) if piece.offset < end => pieces,
        _ => &pieces[..pieces.partition_point(|piece| piece.offset < end)],
    }
}

/// The index of the first piece that ends behind an offset, mostly the first of all.
fn reaching(pieces: &[Piece], offset: u64) -> usize {
    match pieces.first() {
        Some(piece) if piece.end() > offset => 0,
        _ => pieces.partition_point(|piece| piece.end() <= offset),
    }
}

impl Piece {
    /// The offset behind its last byte.
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// What of it lies in `from..end` of the stitch.
    pub fn part(&self, from: u64, end: u64) -> Part {
        let from = from.max(self.offset);
        let to = end.min(self.end());
        Part {
            chunk: self.chunk,
            start: from - self.offset,
            bytes: to - from,
            of: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_chunks() {
        let stitch = Stitch::new(0x1000, [(7, 100), (8, 50), (9, 100)]);
        let part = |chunk, start, bytes| Part {
            chunk,
            start,
            bytes,
            of: if chunk == 8 { 50 } else { 100 },
        };
        let parts: Vec<_> = stitch.parts(90, 70).collect();
        assert_eq!(parts, [part(7, 90, 10), part(8, 0, 50), part(9, 0, 10)]);
        assert_eq!(stitch.parts(100, 50).collect::<Vec<_>>(), [part(8, 0, 50)]);
        assert_eq!(within(&stitch.pieces, 90, 160), stitch.pieces);
        assert_eq!(within(&stitch.pieces, 100, 150), &stitch.pieces[1..2]);
        assert_eq!(within(&stitch.pieces, 99, 150), &stitch.pieces[..2]);
        assert_eq!(within(&stitch.pieces, 100, 151), &stitch.pieces[1..]);
    }
}
