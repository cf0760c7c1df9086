//! Small allocations, packed into 2 MiB windows ("slabs") in steps of 512
//! bytes: one two-level segregated fit (Masmano et al., TLSF, 2004) over all
//! slabs, with its boundary tags in host memory. Gets its windows from the
//! pool and gives empty ones back; makes no driver call.

use super::hash::FastMap;
use super::request::NotOurs;
use super::streams::{StreamId, Streams, Use};
use crate::driver::Address;

/// Step and alignment of small allocations in bytes, as the driver's own.
pub const GRANULE: u64 = 512;
/// Size and alignment of a slab in bytes.
pub const SLAB: u64 = 2 << 20;
/// Largest small allocation in bytes.
pub const SMALL_MAX: u64 = 256 << 10;

const CELLS: usize = (SLAB / GRANULE) as usize;
const BINS: usize = 88;
/// Blocks looked at in one bin before the next is tried.
const TRIES: usize = 16;
const NONE: u32 = u32::MAX;

/// What is remembered of a live small allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Small {
    /// Bytes asked for.
    pub bytes: u32,
    /// Unique number of the allocation.
    pub id: u64,
    /// The stream it was asked for on, or [`Use::NOBODY`].
    pub stream: StreamId,
    /// Index of its context in the pool.
    pub context: u16,
    /// See [`super::request::Request::graph`].
    pub graph: bool,
}

/// The start of a block: `len` granules, `before` granules in the block left
/// of it. Cells inside a block have `len` 0.
#[derive(Clone, Copy, Default)]
struct Cell {
    len: u16,
    before: u16,
    live: bool,
    graph: bool,
    context: u16,
    /// Live: the stream it was asked for on. Free: the stream of its last use.
    stream: StreamId,
    /// Live: bytes asked for. Free: the next block of the bin.
    next_or_bytes: u32,
    /// Free: the previous block of the bin.
    prev: u32,
    /// Live: the unique number. Free: the last use's place in its stream.
    id_or_seq: u64,
}

struct Slab {
    base: Address,
    /// The stitch it lies in: the alias of every use inside it.
    alias: u32,
    cells: Box<[Cell]>,
    live: u32,
}

/// All slabs of a pool.
pub struct Slabs {
    slabs: Vec<Option<Slab>>,
    by_base: FastMap<u64, u32>,
    heads: [u32; BINS],
    filled: u128,
    empty: u32,
}

impl Default for Slabs {
    fn default() -> Self {
        Self {
            slabs: Vec::new(),
            by_base: FastMap::default(),
            heads: [NONE; BINS],
            filled: 0,
            empty: 0,
        }
    }
}

fn granules(bytes: u64) -> u16 {
    bytes.div_ceil(GRANULE) as u16
}

/// Bytes that an allocation takes.
pub fn granted(bytes: u64) -> u64 {
    u64::from(granules(bytes)) * GRANULE
}

/// The bin of blocks of this length: exact below 8 granules, then 8 a power of two.
fn bin_of(len: u16) -> usize {
    if len < 8 {
        return len as usize;
    }
    let power = len.ilog2() as usize;
    8 + (power - 3) * 8 + ((len as usize >> (power - 3)) & 7)
}

impl Slabs {
    /// Lends `small.bytes`, from a block whose last use is done or of the
    /// same stream. Returns the address and that last use.
    pub fn lend(&mut self, small: Small, streams: &Streams) -> Option<(Address, Use)> {
        let len = granules(small.bytes.into());
        let wanted = (small.stream != Use::NOBODY).then_some(small.stream);
        let mut bins = self.filled >> bin_of(len) << bin_of(len);
        while bins != 0 {
            let bin = bins.trailing_zeros() as usize;
            let mut at = self.heads[bin];
            for _ in 0..TRIES {
                if at == NONE {
                    break;
                }
                let cell = *self.cell(at);
                let last = self.last_use(at);
                if cell.len >= len && streams.is_ready(last, wanted) {
                    return Some((self.carve(at, len, small), last));
                }
                at = cell.next_or_bytes;
            }
            bins &= bins - 1;
        }
        None
    }

    /// Ends an allocation. `last` is its last use, with the slab's alias put in.
    pub fn free(&mut self, at: Address, last: Use, streams: &Streams) -> Result<Small, NotOurs> {
        let (index, small) = self.find(at).ok_or(NotOurs::Unknown)?;
        if self.address(index) != at {
            return Err(NotOurs::Interior);
        }
        let slab = self.slabs[(index >> 12) as usize]
            .as_mut()
            .expect("found above");
        slab.live -= 1;
        self.empty += u32::from(slab.live == 0);
        let cell = self.cell_mut(index);
        cell.live = false;
        cell.stream = last.stream;
        cell.id_or_seq = last.seq;
        let merged = self.merge_around(index, streams);
        self.insert(merged);
        Ok(small)
    }

    /// The live allocation around an address, and its index.
    pub fn find(&self, at: Address) -> Option<(u32, Small)> {
        let slab = *self.by_base.get(&(at / SLAB))?;
        let cells = &self.slabs[slab as usize].as_ref()?.cells;
        let inside = ((at % SLAB) / GRANULE) as usize;
        let start = (0..=inside).rev().find(|&i| cells[i].len > 0)?;
        let cell = cells[start];
        if !cell.live || at % SLAB >= start as u64 * GRANULE + granted(cell.next_or_bytes.into()) {
            return None;
        }
        let small = Small {
            bytes: cell.next_or_bytes,
            id: cell.id_or_seq,
            stream: cell.stream,
            context: cell.context,
            graph: cell.graph,
        };
        Some((slab << 12 | start as u32, small))
    }

    /// The first address of the block with this index.
    pub fn address(&self, index: u32) -> Address {
        self.slab(index).base + u64::from(index & 0xFFF) * GRANULE
    }

    /// Is this address inside a slab?
    pub fn contains(&self, at: Address) -> bool {
        self.by_base.contains_key(&(at / SLAB))
    }

    /// Adds an empty slab, a window that the pool lent.
    pub fn add(&mut self, base: Address, alias: u32, last: Use) {
        let mut cells = vec![Cell::default(); CELLS].into_boxed_slice();
        cells[0].len = CELLS as u16;
        cells[0].stream = last.stream;
        cells[0].id_or_seq = last.seq;
        let slab = Some(Slab {
            base,
            alias,
            cells,
            live: 0,
        });
        let index = match self.slabs.iter().position(Option::is_none) {
            Some(index) => {
                self.slabs[index] = slab;
                index
            }
            None => {
                self.slabs.push(slab);
                self.slabs.len() - 1
            }
        };
        self.by_base.insert(base / SLAB, index as u32);
        self.empty += 1;
        self.insert((index as u32) << 12);
    }

    /// Takes out an empty slab whose uses fold into one, beyond the `keep`
    /// that stay. Returns its window and its last use.
    pub fn take_empty(&mut self, keep: u32, streams: &Streams) -> Option<(Address, Use)> {
        if self.empty <= keep {
            return None;
        }
        let is_empty = |slab: &Option<Slab>| slab.as_ref().is_some_and(|slab| slab.live == 0);
        let candidates: Vec<usize> = (0..self.slabs.len())
            .filter(|&i| is_empty(&self.slabs[i]))
            .collect();
        for slab in candidates {
            let mut blocks = Vec::new();
            let mut inside = 0;
            while inside < CELLS as u32 {
                let index = (slab as u32) << 12 | inside;
                blocks.push(index);
                inside += u32::from(self.cell(index).len);
            }
            let uses = blocks.iter().map(|&index| self.last_use(index));
            let Some(last) = fold(uses, streams) else {
                continue;
            };
            for index in blocks {
                self.remove(index);
            }
            let slab = self.slabs[slab].take().expect("a candidate");
            self.by_base.remove(&(slab.base / SLAB));
            self.empty -= 1;
            return Some((slab.base, last));
        }
        None
    }

    /// The alias of the slab around an address.
    pub fn alias(&self, at: Address) -> Option<u32> {
        let slab = *self.by_base.get(&(at / SLAB))?;
        Some(self.slabs[slab as usize].as_ref()?.alias)
    }

    /// Calls `seen` with the length in bytes and last use of each free block.
    pub fn each_free(&self, mut seen: impl FnMut(u64, Use)) {
        for (slab, _) in self.slabs.iter().enumerate().filter(|(_, s)| s.is_some()) {
            let mut inside = 0;
            while inside < CELLS as u32 {
                let index = (slab as u32) << 12 | inside;
                let cell = self.cell(index);
                if !cell.live {
                    seen(u64::from(cell.len) * GRANULE, self.last_use(index));
                }
                inside += u32::from(cell.len);
            }
        }
    }

    fn carve(&mut self, index: u32, len: u16, small: Small) -> Address {
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
            before: whole.before,
            live: true,
            graph: small.graph,
            context: small.context,
            stream: small.stream,
            next_or_bytes: small.bytes,
            prev: NONE,
            id_or_seq: small.id,
        };
        let slab = self.slabs[(index >> 12) as usize]
            .as_mut()
            .expect("its cell was read");
        self.empty -= u32::from(slab.live == 0);
        slab.live += 1;
        self.address(index)
    }

    /// Joins a free block that is in no bin with its free neighbours.
    fn merge_around(&mut self, mut index: u32, streams: &Streams) -> u32 {
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
        let extra = std::mem::take(self.cell_mut(right)).len;
        let cell = self.cell_mut(left);
        cell.len += extra;
        cell.stream = last.stream;
        cell.id_or_seq = last.seq;
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

    fn insert(&mut self, index: u32) {
        let bin = bin_of(self.cell(index).len);
        let next = std::mem::replace(&mut self.heads[bin], index);
        if next != NONE {
            self.cell_mut(next).prev = index;
        }
        let cell = self.cell_mut(index);
        cell.next_or_bytes = next;
        cell.prev = NONE;
        self.filled |= 1 << bin;
    }

    fn remove(&mut self, index: u32) {
        let Cell {
            len,
            next_or_bytes: next,
            prev,
            ..
        } = *self.cell(index);
        if next != NONE {
            self.cell_mut(next).prev = prev;
        }
        if prev != NONE {
            self.cell_mut(prev).next_or_bytes = next;
            return;
        }
        let bin = bin_of(len);
        self.heads[bin] = next;
        if next == NONE {
            self.filled &= !(1 << bin);
        }
    }

    fn last_use(&self, index: u32) -> Use {
        let cell = self.cell(index);
        Use {
            stream: cell.stream,
            alias: self.slab(index).alias,
            seq: cell.id_or_seq,
        }
    }

    fn slab(&self, index: u32) -> &Slab {
        self.slabs[(index >> 12) as usize]
            .as_ref()
            .expect("an index of a slab that is gone")
    }

    fn cell(&self, index: u32) -> &Cell {
        &self.slab(index).cells[(index & 0xFFF) as usize]
    }

    fn cell_mut(&mut self, index: u32) -> &mut Cell {
        let slab = self.slabs[(index >> 12) as usize]
            .as_mut()
            .expect("an index of a slab that is gone");
        &mut slab.cells[(index & 0xFFF) as usize]
    }
}

/// One use that stands for all of one alias: the latest, where at most one
/// stream's uses are outstanding.
fn fold(uses: impl Iterator<Item = Use>, streams: &Streams) -> Option<Use> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn small(bytes: u32, id: u64) -> Small {
        Small {
            bytes,
            id,
            stream: Use::NOBODY,
            context: 0,
            graph: false,
        }
    }

    #[test]
    fn bins_are_monotonous_and_in_range() {
        let bins: Vec<_> = (1..=CELLS as u16).map(bin_of).collect();
        assert!(bins.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!((bins[0], bins[CELLS - 1]), (1, 80));
    }

    #[test]
    fn blocks_lie_512_bytes_apart_and_an_empty_slab_goes_back_whole() {
        let (streams, mut slabs) = (Streams::default(), Slabs::default());
        slabs.add(SLAB, 3, Use::DONE);
        let at = |slabs: &mut Slabs, id| slabs.lend(small(1, id), &streams).unwrap().0;
        let (a, b) = (at(&mut slabs, 1), at(&mut slabs, 2));
        assert_eq!(b - a, GRANULE);
        assert_eq!(slabs.find(a + 5).unwrap().1.id, 1);
        assert_eq!(
            slabs.free(a + 5, Use::DONE, &streams),
            Err(NotOurs::Interior)
        );
        slabs.free(a, Use::DONE, &streams).unwrap();
        assert_eq!(slabs.free(a, Use::DONE, &streams), Err(NotOurs::Unknown));
        assert!(slabs.take_empty(0, &streams).is_none());
        slabs.free(b, Use::DONE, &streams).unwrap();
        assert_eq!(slabs.take_empty(0, &streams), Some((SLAB, Use::DONE)));
        assert!(!slabs.contains(a) && slabs.lend(small(1, 3), &streams).is_none());
    }

    #[test]
    fn random_use_keeps_blocks_apart_and_loses_nothing() {
        let (streams, mut slabs) = (Streams::default(), Slabs::default());
        let mut live: Vec<(Address, u64)> = Vec::new();
        let (mut seed, mut bases) = (12345_u64, 1);
        for id in 0..20_000 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            if seed >> 40 & 1 == 0 && !live.is_empty() {
                let (at, _) = live.swap_remove((seed >> 41) as usize % live.len());
                slabs.free(at, Use::DONE, &streams).unwrap();
                continue;
            }
            let bytes = 1 + (seed >> 33) % SMALL_MAX;
            let at = loop {
                match slabs.lend(small(bytes as u32, id), &streams) {
                    Some((at, _)) => break at,
                    None => {
                        slabs.add(bases * SLAB, 0, Use::DONE);
                        bases += 1;
                    }
                }
            };
            let end = at + granted(bytes);
            assert!(live.iter().all(|&(a, b)| end <= a || at >= a + granted(b)));
            live.push((at, bytes));
        }
        for (at, _) in live.drain(..) {
            slabs.free(at, Use::DONE, &streams).unwrap();
        }
        for _ in 1..bases {
            assert!(slabs.take_empty(0, &streams).is_some());
        }
    }
}
