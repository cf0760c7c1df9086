//! Small allocations, packed into 2 MiB windows ("slabs") in steps of 512
//! bytes: one two-level segregated fit (Masmano et al., TLSF, 2004) over all
//! slabs, with its boundary tags in host memory. Gets its windows from the
//! pool and gives empty ones back; makes no driver call.

mod cells;

use std::collections::BTreeSet;

use super::hash::FastMap;
use super::request::NotOurs;
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
/// Blocks looked at in one bin before the next is tried, while there may be other memory.
pub const TRIES: usize = 16;

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
    /// Slabs without a live block, and where the last look at them ended.
    empty: BTreeSet<u32>,
    looked: u32,
}

impl Default for Slabs {
    fn default() -> Self {
        Self {
            slabs: Vec::new(),
            by_base: FastMap::default(),
            heads: [NONE; BINS],
            filled: 0,
            empty: BTreeSet::new(),
            looked: 0,
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
    /// Lends so many bytes to the front `home`, from a block whose last use is
    /// done or of the same stream, and looks at so many blocks of a bin. Returns the address.
    pub fn lend(
        &mut self,
        bytes: u64,
        stream: Option<StreamId>,
        home: u8,
        tries: usize,
        streams: &Streams,
    ) -> Option<Address> {
        let len = granules(bytes);
        let mut bins = self.filled >> bin_of(len) << bin_of(len);
        while bins != 0 {
            let bin = bins.trailing_zeros() as usize;
            let mut at = self.heads[bin];
            for _ in 0..tries {
                if at == NONE {
                    break;
                }
                let cell = *self.cell(at);
                let last = self.last_use(at);
                if cell.len >= len && streams.is_ready(last, stream) {
                    return Some(self.carve(at, len, home));
                }
                at = cell.next;
            }
            bins &= bins - 1;
        }
        None
    }

    /// Ends an allocation. `last` is its last use, with the slab's alias put in.
    pub fn free(&mut self, at: Address, last: Use, streams: &Streams) -> Result<(), NotOurs> {
        let index = self.index_of(at).ok_or(NotOurs::Unknown)?;
        if self.address(index) != at {
            return Err(NotOurs::Interior);
        }
        let slab = self.slabs[(index >> 12) as usize]
            .as_mut()
            .expect("found above");
        slab.live -= 1;
        if slab.live == 0 {
            self.empty.insert(index >> 12);
        }
        let cell = self.cell_mut(index);
        cell.live = false;
        cell.stream = last.stream;
        cell.seq = last.seq;
        let merged = self.merge_around(index, streams);
        self.insert(merged);
        Ok(())
    }

    /// The live block around an address.
    fn index_of(&self, at: Address) -> Option<u32> {
        let slab = *self.by_base.get(&(at / SLAB))?;
        let cells = &self.slabs[slab as usize].as_ref()?.cells;
        let inside = ((at % SLAB) / GRANULE) as usize;
        let start = (0..=inside).rev().find(|&i| cells[i].len > 0)?;
        cells[start].live.then_some(slab << 12 | start as u32)
    }

    /// The live block around an address: its first byte, and its home.
    pub fn find(&self, at: Address) -> Option<(Address, u8)> {
        let index = self.index_of(at)?;
        Some((self.address(index), self.cell(index).home))
    }

    /// A live block is at home in another front from now on.
    pub fn set_home(&mut self, at: Address, home: u8) {
        if let Some(index) = self.index_of(at) {
            self.cell_mut(index).home = home;
        }
    }

    /// The first address of the block with this index.
    pub fn address(&self, index: u32) -> Address {
        self.slab(index).base + u64::from(index & 0xFFF) * GRANULE
    }

    /// Adds an empty slab, a window that the pool lent.
    pub fn add(&mut self, base: Address, alias: u32, last: Use) {
        let mut cells = vec![Cell::EMPTY; CELLS].into_boxed_slice();
        cells[0].len = CELLS as u16;
        cells[0].stream = last.stream;
        cells[0].seq = last.seq;
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
        self.empty.insert(index as u32);
        self.insert((index as u32) << 12);
    }

    /// Takes out empty slabs whose uses fold into one, beyond the `keep` that stay, and
    /// looks at so many for it: the next look goes on behind them. Returns their windows
    /// and their last uses.
    pub fn take_empty(
        &mut self,
        keep: usize,
        tries: usize,
        streams: &Streams,
    ) -> Vec<(Address, Use)> {
        let mut taken = Vec::new();
        if self.empty.len() <= keep {
            return taken;
        }
        let behind = self.empty.range(self.looked..);
        let before = self.empty.range(..self.looked);
        let candidates: Vec<u32> = behind.chain(before).copied().take(tries).collect();
        for slab in candidates {
            if self.empty.len() <= keep {
                break;
            }
            self.looked = slab + 1;
            taken.extend(self.take(slab, streams));
        }
        taken
    }

    /// Takes this empty slab out, if its uses fold into one.
    fn take(&mut self, slab: u32, streams: &Streams) -> Option<(Address, Use)> {
        let mut blocks = Vec::new();
        let mut inside = 0;
        while inside < CELLS as u32 {
            let index = slab << 12 | inside;
            blocks.push(index);
            inside += u32::from(self.cell(index).len);
        }
        let uses = blocks.iter().map(|&index| self.last_use(index));
        let last = fold(uses, streams)?;
        for index in blocks {
            self.remove(index);
        }
        self.empty.remove(&slab);
        let slab = self.slabs[slab as usize].take().expect("a candidate");
        self.by_base.remove(&(slab.base / SLAB));
        Some((slab.base, last))
    }

    /// The windows of slabs of which nothing is lent but so many blocks, by the slab's base as a
    /// multiple of [`SLAB`].
    pub fn empty_without<'a>(
        &'a self,
        blocks: &'a FastMap<u64, u32>,
    ) -> impl Iterator<Item = Address> + 'a {
        let others = blocks.iter().filter_map(|(base, blocks)| {
            let slab = self.slabs[*self.by_base.get(base)? as usize].as_ref()?;
            (slab.live == *blocks).then_some(slab.base)
        });
        let empty = self.empty.iter();
        let empty = empty.filter_map(|slab| self.slabs[*slab as usize].as_ref());
        empty.map(|slab| slab.base).chain(others)
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
