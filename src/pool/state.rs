//! What the pool knows, behind its state lock: chunks, stitches, blocks,
//! streams. Keeps their sums right; makes no driver call and decides nothing.

use super::arena::Arena;
use super::block::{Block, Holder, Window};
use super::chunk::{Chunk, ChunkId, StitchId};
use super::chunks::Chunks;
use super::export::Exports;
use super::hash::FastMap;
use super::peers::Peers;
use super::request::{BlockInfo, Order};
use super::slab::Slabs;
use super::stats::Stats;
use super::stitch::Stitch;
use super::streams::{StreamId, Streams, Use};
use crate::driver::{Address, Context};
use std::collections::BTreeMap;

/// No context: its number is free.
const VACANT: Context = Context(u64::MAX);

/// Everything behind the state lock.
#[derive(Default)]
pub struct State {
    /// Physical handles.
    pub chunks: Chunks,
    /// Address ranges; a gap is a range that was given back.
    pub stitches: Vec<Option<Stitch>>,
    /// Windows that somebody has, by address.
    pub blocks: BTreeMap<Address, Block>,
    /// Small allocations.
    pub slabs: Slabs,
    /// Freed windows whose chunks do not know it yet, by length and stream.
    pub warm: FastMap<(u64, StreamId), Vec<(Address, Use)>>,
    /// Number of windows in `warm`.
    pub warm_windows: usize,
    /// Windows that were free once, by length: tried, and verified, before a
    /// search.
    pub hints: BTreeMap<u64, Vec<Window>>,
    /// Streams and their progress.
    pub streams: Streams,
    /// Allocations that other processes may have open.
    pub exports: Exports,
    /// Address space.
    pub arena: Arena,
    /// The other devices that may reach everything mapped.
    pub peers: Peers,
    /// Counters.
    pub stats: Stats,
    /// See [`Pool::least_idle`](super::Pool::least_idle).
    pub least_idle: u64,
    contexts: Vec<Context>,
}

impl State {
    /// The stream of an order.
    pub fn stream(&mut self, order: Order) -> Option<StreamId> {
        match order {
            Order::Stream(key) => Some(self.streams.id(key)),
            Order::Unknown => None,
        }
    }

    /// The last uses below a window.
    pub fn uses(&self, window: Window) -> Vec<Use> {
        let stitch = self.stitch(window.stitch);
        let mut uses = Vec::new();
        for part in stitch.parts(window.offset, window.bytes) {
            uses.extend(self.chunk(part.chunk).uses(part.start, part.bytes));
        }
        uses
    }

    /// Takes the bytes below a window.
    pub fn take(&mut self, window: Window) {
        let (stitches, chunks) = (&self.stitches, &mut self.chunks);
        let stitch = stitches[window.stitch as usize].as_ref().expect("a stitch");
        for part in stitch.parts(window.offset, window.bytes) {
            chunks.take(part.chunk, part.start, part.bytes);
        }
    }

    /// The live allocation around an address.
    pub fn find(&self, at: Address) -> Option<BlockInfo> {
        let info = self.look(at)?;
        (!self.exports.is_parked(info.id)).then_some(info)
    }

    /// The same, or one that was freed while others had it open.
    fn look(&self, at: Address) -> Option<BlockInfo> {
        if let Some((index, small)) = self.slabs.find(at) {
            return Some(BlockInfo {
                base: self.slabs.address(index),
                bytes: small.bytes.into(),
                id: small.id,
                context: self.contexts[usize::from(small.context)],
                owner: small.owner,
                graph: small.graph,
                order: self.streams.order(small.stream, small.id),
                attached: false,
                parked: false,
                overrun: false,
                error: None,
            });
        }
        let (&base, block) = self.blocks.range(..=at).next_back()?;
        let attached = block.holder == Holder::Attached;
        let lent = attached || block.holder == Holder::Program;
        (lent && at - base < block.asked.max(1)).then_some(BlockInfo {
            base,
            bytes: block.asked,
            id: block.id,
            context: block.context,
            owner: block.owner,
            graph: block.graph,
            order: block.order,
            attached,
            parked: false,
            overrun: false,
            error: None,
        })
    }

    /// A chunk that exists.
    pub fn chunk(&self, id: ChunkId) -> &Chunk {
        self.chunks.get(id)
    }

    /// A stitch that exists.
    pub fn stitch(&self, id: StitchId) -> &Stitch {
        self.stitches[id as usize].as_ref().expect("a stitch")
    }

    /// Adds a stitch whose chunks are mapped.
    pub fn add_stitch(&mut self, stitch: Stitch) -> StitchId {
        let id = self.stitches.iter().position(Option::is_none);
        let id = id.unwrap_or(self.stitches.len());
        for piece in &stitch.pieces {
            self.chunks.show(piece.chunk, id as StitchId);
        }
        if id == self.stitches.len() {
            self.stitches.push(None);
        }
        self.stitches[id] = Some(stitch);
        id as StitchId
    }

    /// Adds a chunk and returns its index.
    pub fn add_chunk(&mut self, chunk: Chunk) -> ChunkId {
        self.stats.physical_bytes += chunk.bytes;
        self.stats.idle_bytes += chunk.bytes;
        self.stats.peak_physical_bytes = self
            .stats
            .peak_physical_bytes
            .max(self.stats.physical_bytes);
        self.stats.chunks += 1;
        self.chunks.add(chunk)
    }

    /// Makes the bytes below a window free.
    pub fn give(&mut self, window: Window, last: Use) {
        let stitch = self.stitches[window.stitch as usize].as_ref();
        let stitch = stitch.expect("a stitch");
        for part in stitch.parts(window.offset, window.bytes) {
            self.chunks
                .give(part.chunk, part.start, part.bytes, last, &self.streams);
        }
    }

    /// Bytes that are free while uses of them may still run, warm windows and
    /// slabs included.
    pub fn pending(&self) -> u64 {
        let running = |last: &Use| !self.streams.is_done(*last);
        let spans = self.chunks.iter().flat_map(|(_, chunk)| &chunk.spans);
        let mut bytes: u64 = spans
            .filter(|span| running(&span.last))
            .map(|span| span.bytes)
            .sum();
        for ((length, _), windows) in &self.warm {
            bytes += length * windows.iter().filter(|(_, last)| running(last)).count() as u64;
        }
        self.slabs.each_free(|_, length, last| {
            if running(&last) {
                bytes += length;
            }
        });
        bytes
    }

    /// The short number of a context.
    pub fn context_index(&mut self, context: Context) -> u16 {
        let at = |wanted| self.contexts.iter().position(|known| *known == wanted);
        let index = at(context).or_else(|| at(VACANT)).unwrap_or_else(|| {
            self.contexts.push(VACANT);
            self.contexts.len() - 1
        });
        self.contexts[index] = context;
        index as u16
    }

    /// The short number of a context that was seen.
    pub fn known_context(&self, context: Context) -> Option<u16> {
        let known = self.contexts.iter().position(|known| *known == context);
        known.map(|index| index as u16)
    }

    /// What small allocations are left of a context are another's from now on,
    /// and its number is nobody's.
    pub fn replace_context(&mut self, context: Context, by: Context) {
        let Some(index) = self.known_context(context) else {
            return;
        };
        let by = self.context_index(by);
        let small = self
            .slabs
            .live()
            .filter(|(_, small)| small.context == index);
        let left: Vec<Address> = small.map(|(at, _)| at).collect();
        for at in left {
            self.slabs.adopt(at, by);
        }
        self.contexts[usize::from(index)] = VACANT;
    }
}
