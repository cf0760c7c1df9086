//! Small allocations, packed into 2 MiB windows ("slabs") in steps of 512
//! bytes: one two-level segregated fit (Masmano et al., TLSF, 2004) over all
//! slabs, with its boundary tags in host memory. Gets its windows from the
//! pool and gives empty ones back; makes no driver call.

mod cells;

use super::hash::FastMap;
use super::request::{NotOurs, Owner};
use super::streams::{StreamId, Streams, Use};
use crate::driver::Address;
use cells::{BINS, Cell, NONE, bin_of, fold};

/// Step and alignment of small allocations in bytes, as the driver's own.
pub const GRANULE: u64 = 512;
/// Size and alignment of a slab in bytes.
pub const SLAB: u64 = 2 << 20;
/// Largest small allocation in bytes.
pub const SMALL_MAX: u64 = 256 << 10;

const CELLS: usize = (SLAB / GRANULE) as usize;
/// Blocks looked at in one bin before the next is tried.
const TRIES: usize = 16;

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
    /// See [`super::request::Request::owner`].
    pub owner: Owner,
    /// See [`super::request::Request::graph`].
    pub graph: bool,
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
        Some((slab << 12 | start as u32, cell.small()))
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
        let mut cells = vec![Cell::EMPTY; CELLS].into_boxed_slice();
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

    /// Gives a live allocation to the context with this index.
    pub fn adopt(&mut self, at: Address, context: u16) {
        if let Some((index, _)) = self.find(at) {
            self.cell_mut(index).context = context;
        }
    }

    /// The live allocations and their addresses.
    pub fn live(&self) -> impl Iterator<Item = (Address, Small)> {
        let slabs = self.slabs.iter().flatten();
        slabs.flat_map(|slab| {
            let starts = slab.cells.iter().enumerate();
            let live = starts.filter(|(_, cell)| cell.live && cell.len > 0);
            live.map(|(inside, cell)| (slab.base + inside as u64 * GRANULE, cell.small()))
        })
    }

    /// Calls `seen` with the address, the length in bytes and the last use of
    /// each free block.
    pub fn each_free(&self, mut seen: impl FnMut(Address, u64, Use)) {
        for (slab, _) in self.slabs.iter().enumerate().filter(|(_, s)| s.is_some()) {
            let mut inside = 0;
            while inside < CELLS as u32 {
                let index = (slab as u32) << 12 | inside;
                let cell = self.cell(index);
                if !cell.live {
                    seen(
                        self.address(index),
                        u64::from(cell.len) * GRANULE,
                        self.last_use(index),
                    );
                }
                inside += u32::from(cell.len);
            }
        }
    }
}

#[cfg(test)]
mod tests;
