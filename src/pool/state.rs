//! What the pool knows, behind its state lock: chunks, stitches, blocks,
//! streams. Keeps their sums right; makes no driver call and decides nothing.

use super::arena::Arena;
use super::block::{Block, Holder, Window};
use super::chunk::{Chunk, ChunkId, StitchId};
use super::chunks::Chunks;
use super::export::Exports;
use super::front::{Fronts, Sum};
use super::growing::Growing;
use super::peers::Peers;
use super::request::{BlockInfo, Lack, Order};
use super::retire::Retired;
use super::slab::Slabs;
use super::slots::Slots;
use super::stats::Stats;
use super::stitch::Stitch;
use super::streams::{StreamId, Streams, Use};
use super::timeline::Timeline;
use crate::driver::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything behind the state lock.
#[derive(Default)]
pub struct State {
    /// Physical handles.
    pub chunks: Chunks,
    /// Address ranges; a gap is a range that was given back.
    pub stitches: Slots<Stitch>,
    /// Windows that somebody has, by address.
    pub blocks: BTreeMap<Address, Block>,
    /// Small allocations.
    pub slabs: Slabs,
    /// Windows that were free once, by length: tried, and verified, before a
    /// search.
    pub hints: BTreeMap<u64, Vec<Window>>,
    /// Streams and their progress.
    pub streams: Streams,
    /// Freed blocks that work of several contexts may still use.
    pub aside: Vec<(Address, Vec<Use>)>,
    /// Allocations that other processes may have open.
    pub exports: Exports,
    /// Address space.
    pub arena: Arena,
    /// Stitches that are to go, as much is mapped.
    pub retired: Retired,
    /// The other devices that may reach everything mapped.
    pub peers: Peers,
    /// Counters, but for what the fronts count: idle bytes are those that are
    /// not attached.
    pub stats: Stats,
    /// Physical bytes that other processes made. The device has them once, and they count for
    /// who made them.
    pub opened: u64,
    /// Do blocks go on growing?
    pub growing: Growing,
    /// Had the driver no memory for a new handle once?
    pub was_full: bool,
    /// Had the driver no mapping, or no page tables, for the last that was to be built?
    pub lacks_mappings: bool,
    /// What the last that was to be built lacked, if it was out of memory.
    pub lack: Lack,
    /// See [`Pool::least_idle`](super::Pool::least_idle).
    pub least_idle: u64,
    /// Allocations behind which no guard words are (`MEMCUDA_DEBUG=canary`).
    pub unguarded: BTreeSet<Address>,
    /// What was lent and held when, where that is kept.
    pub timeline: Option<Timeline>,
}

impl State {
    /// An empty pool's, with these fronts.
    pub fn new(fronts: Arc<Fronts>, timeline: Option<Timeline>) -> Self {
        Self {
            timeline,
            streams: Streams::new(fronts),
            ..Self::default()
        }
    }

    /// The fronts.
    pub fn fronts(&self) -> &Arc<Fronts> {
        &self.streams.fronts
    }

    /// The stream of an order.
    pub fn stream(&mut self, order: Order) -> Option<StreamId> {
        order.stream().map(|key| self.streams.id(*key))
    }

    /// The last uses below a window.
    pub fn uses(&self, window: Window) -> Vec<Use> {
        let stitch = self.stitch(window.stitch);
        // Mostly one a piece: it need not grow.
        let mut uses = Vec::with_capacity(stitch.pieces.len());
        for part in stitch.parts(window.offset, window.bytes) {
            uses.extend(self.chunk(part.chunk).uses(part.start, part.bytes));
        }
        uses
    }

    /// Takes the bytes below a window.
    pub fn take(&mut self, window: Window) {
        let (stitches, chunks) = (&self.stitches, &mut self.chunks);
        let stitch = stitches.get(window.stitch).expect("a stitch");
        for part in stitch.parts(window.offset, window.bytes) {
            chunks.take(part.chunk, part.start, part.bytes);
        }
    }

    /// The live allocation around an address.
    pub fn find(&self, at: Address) -> Option<BlockInfo> {
        let (base, home) = self.home(at)?;
        let info = self.fronts().lock(home).info(base)?;
        (at - base < info.bytes.max(1)).then_some(info)
    }

    /// The block around an address that is in the program's hands or was, its
    /// first byte and the front that it is at home in.
    pub fn home(&self, at: Address) -> Option<(Address, usize)> {
        if let Some((base, home)) = self.slabs.find(at) {
            return Some((base, home.into()));
        }
        let (&base, block) = self.blocks.range(..=at).next_back()?;
        match block.holder {
            Holder::Front(home) => Some((base, home.into())),
            Holder::Slab => None,
        }
    }

    /// A chunk that exists.
    pub fn chunk(&self, id: ChunkId) -> &Chunk {
        self.chunks.get(id)
    }

    /// A stitch that exists.
    pub fn stitch(&self, id: StitchId) -> &Stitch {
        self.stitches.get(id).expect("a stitch")
    }

    /// The same, to be changed.
    pub fn stitch_mut(&mut self, id: StitchId) -> &mut Stitch {
        self.stitches.get_mut(id).expect("a stitch")
    }

    /// Adds a stitch whose chunks are mapped.
    pub fn add_stitch(&mut self, stitch: Stitch) -> StitchId {
        let id = self.stitches.next();
        for piece in &stitch.pieces {
            self.chunks.show(piece.chunk, id);
        }
        self.stitches.add(stitch)
    }

    /// Makes a stitch longer by chunks that are mapped behind it.
    pub fn lengthen(&mut self, id: StitchId, chunks: &[(ChunkId, u64)]) {
        for &(chunk, _) in chunks {
            self.chunks.show(chunk, id);
        }
        self.stitch_mut(id).lengthen(chunks.iter().copied());
    }

    /// Physical bytes that a limit counts.
    pub fn counted(&self) -> u64 {
        self.stats.physical_bytes - self.opened
    }

    /// Adds a chunk and returns its index.
    pub fn add_chunk(&mut self, chunk: Chunk) -> ChunkId {
        self.note_idle();
        self.stats.physical_bytes += chunk.bytes;
        self.stats.idle_bytes += chunk.bytes;
        self.stats.peak_physical_bytes = self
            .stats
            .peak_physical_bytes
            .max(self.stats.physical_bytes);
        self.stats.chunks += 1;
        self.chunks.add(chunk)
    }

    /// Idle bytes may become more: the least that were is noted before.
    pub fn note_idle(&mut self) {
        let most = self.fronts().peak(Sum::Granted);
        let idle = self.stats.idle_bytes.saturating_sub(most);
        self.least_idle = self.least_idle.min(idle);
    }

    /// Makes the bytes below a window free.
    pub fn give(&mut self, window: Window, last: Use) {
        let stitch = self.stitches.get_mut(window.stitch).expect("a stitch");
        stitch.wanted = self.stats.stitches;
        for part in stitch.parts(window.offset, window.bytes) {
            self.chunks
                .give(part.chunk, part.start, part.bytes, last, &self.streams);
        }
    }

    /// Bytes that are free while uses of them may still run, shelves and slabs
    /// included.
    pub fn pending(&self) -> u64 {
        let granted = |at| {
            let home = self.home(at).map(|(_, home)| home);
            home.map_or(0, |home| self.fronts().lock(home).granted(at))
        };
        let aside: u64 = self.aside.iter().map(|(at, _)| granted(*at)).sum();
        // Nothing runs: what is free, which may be a million blocks, is not looked through.
        match self.streams.last_uses().is_empty() {
            true => aside,
            false => aside + self.running(),
        }
    }

    /// Bytes of these that chunks, shelves and slabs have.
    fn running(&self) -> u64 {
        let running = |last: &Use| !self.streams.is_done(*last);
        let spans = self.chunks.iter().flat_map(|(_, chunk)| &chunk.spans);
        let spans = spans.filter(|span| running(&span.last));
        let mut bytes: u64 = spans.map(|span| span.bytes).sum();
        for front in self.fronts().used() {
            for (stream, _, length, seq) in self.fronts().lock(front).each_shelved() {
                let alias = Use::MIXED;
                if running(&Use { stream, alias, seq }) {
                    bytes += length;
                }
            }
        }
        self.slabs.each_free(|_, length, last| {
            if running(&last) {
                bytes += length;
            }
        });
        bytes
    }
}
