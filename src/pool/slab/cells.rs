//! The blocks inside slabs: cut, joined with free neighbours, and kept in bins
//! by length while they are free. Blocks are named by index: the slab's number,
//! then twelve bits of the cell. Knows no addresses but of what it carves.

use super::{Slab, Slabs};
use crate::driver::Address;
use crate::pool::streams::{StreamId, Streams, Use};

/// Number of bins.
pub(super) const BINS: usize = 88;
/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// The start of a block: `len` granules, `before` granules in the block left
/// of it. Cells inside a block have `len` 0.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) len: u16,
    pub(super) before: u16,
    pub(super) live: bool,
    /// Live: the front that it is at home in.
    pub(super) home: u8,
    /// Free: the stream of its last use.
    pub(super) stream: StreamId,
    /// Free: the next block of the bin.
    pub(super) next: u32,
    /// Free: the previous block of the bin.
    pub(super) prev: u32,
    /// Free: the last use's place in its stream.
    pub(super) seq: u64,
}

impl Cell {
    /// Inside a block.
    pub(super) const EMPTY: Cell = Cell {
        len: 0,
        before: 0,
        live: false,
        home: 0,
        stream: 0,
        next: NONE,
        prev: NONE,
        seq: 0,
    };
}

impl Slabs {
    /// Lends the beginning of a free block; the rest is a free block.
    pub(super) fn carve(&mut self, index: u32, len: u16, home: u8) -> Address {
        self.remove(index);
        let whole = *self.cell(index);
        if whole.len > len {
            let rest = index + u32::from(len);
            *self.cell_mut(rest) = Cell {
                len: whole.len - len,
                before: len,
                live: false,
                ..whole
            };
            self.tell_right(rest);
            self.insert(rest);
        }
        *self.cell_mut(index) = Cell {
            len,
            live: true,
            home,
            ..whole
        };
        let slab = self.slabs[(index >> 12) as usize]
            .as_mut()
            .expect("its cell was read");
        slab.live += 1;
        if slab.live == 1 {
            self.empty.remove(&(index >> 12));
        }
        self.address(index)
    }

    /// Joins a free block that is in no bin with its free neighbours.
    pub(super) fn merge_around(&mut self, mut index: u32, streams: &Streams) -> u32 {
        let right = index + u32::from(self.cell(index).len);
        if right & !0xFFF == index & !0xFFF {
            self.join(index, right, streams, right);
        }
        let before = u32::from(self.cell(index).before);
        if before > 0 && self.join(index - before, index, streams, index - before) {
            index -= before;
        }
        index
    }

    /// Joins two adjacent blocks where both are free and their uses fold;
    /// `binned` is the one that is in a bin.
    fn join(&mut self, left: u32, right: u32, streams: &Streams, binned: u32) -> bool {
        if self.cell(left).live || self.cell(right).live {
            return false;
        }
        let uses = [self.last_use(left), self.last_use(right)];
        let Some(last) = fold(uses.into_iter(), streams) else {
            return false;
        };
        self.remove(binned);
        let extra = std::mem::replace(self.cell_mut(right), Cell::EMPTY).len;
        let cell = self.cell_mut(left);
        cell.len += extra;
        cell.stream = last.stream;
        cell.seq = last.seq;
        self.tell_right(left);
        true
    }

    /// Writes a block's length into its right neighbour.
    fn tell_right(&mut self, index: u32) {
        let len = self.cell(index).len;
        let right = index + u32::from(len);
        if right & !0xFFF == index & !0xFFF {
            self.cell_mut(right).before = len;
        }
    }

    /// Puts a free block into its bin.
    pub(super) fn insert(&mut self, index: u32) {
        let bin = bin_of(self.cell(index).len);
        let next = std::mem::replace(&mut self.heads[bin], index);
        if next != NONE {
            self.cell_mut(next).prev = index;
        }
        let cell = self.cell_mut(index);
        cell.next = next;
        cell.prev = NONE;
        self.filled |= 1 << bin;
    }

    /// Takes a free block out of its bin.
    pub(super) fn remove(&mut self, index: u32) {
        let Cell {
            len, next, prev, ..
        } = *self.cell(index);
        if next != NONE {
            self.cell_mut(next).prev = prev;
        }
        if prev != NONE {
            self.cell_mut(prev).next = next;
            return;
        }
        let bin = bin_of(len);
        self.heads[bin] = next;
        if next == NONE {
            self.filled &= !(1 << bin);
        }
    }

    pub(super) fn last_use(&self, index: u32) -> Use {
        let cell = self.cell(index);
        Use {
            stream: cell.stream,
            alias: self.slab(index).alias,
            seq: cell.seq,
        }
    }

    pub(super) fn slab(&self, index: u32) -> &Slab {
        self.slabs[(index >> 12) as usize]
            .as_ref()
            .expect("an index of a slab that is gone")
    }

    pub(super) fn cell(&self, index: u32) -> &Cell {
        &self.slab(index).cells[(index & 0xFFF) as usize]
    }

    pub(super) fn cell_mut(&mut self, index: u32) -> &mut Cell {
        let slab = self.slabs[(index >> 12) as usize]
            .as_mut()
            .expect("an index of a slab that is gone");
        &mut slab.cells[(index & 0xFFF) as usize]
    }
}

/// The bin of blocks of this length: exact below 8 granules, then 8 a power of two.
pub(super) fn bin_of(len: u16) -> usize {
    if len < 8 {
        return len as usize;
    }
    let power = len.ilog2() as usize;
    8 + (power - 3) * 8 + ((len as usize >> (power - 3)) & 7)
}

/// One use that stands for all of one alias: the latest, where at most one
/// stream's uses are outstanding.
pub(super) fn fold(uses: impl Iterator<Item = Use>, streams: &Streams) -> Option<Use> {
    let mut all = Use::DONE;
    for last in uses.filter(|last| !streams.is_done(*last)) {
        if all.stream != Use::NOBODY && all.stream != last.stream {
            return None;
        }
        all = Use {
            seq: all.seq.max(last.seq),
            ..last
        };
    }
    Some(all)
}
