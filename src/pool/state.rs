//! What the pool knows, behind its state lock: chunks, stitches, blocks,
//! streams. Lends windows and takes them back. Of the driver it makes event
//! calls only.

use super::arena::Arena;
use super::chunk::{Chunk, ChunkId, StitchId};
use super::chunks::Chunks;
use super::hash::FastMap;
use super::request::{BlockInfo, NotOurs, Order, Release, Request};
use super::slab::{self, Slabs, Small};
use super::stats::Stats;
use super::stitch::Stitch;
use super::streams::{StreamId, Streams, Use};
use crate::driver::{Address, Code, Context, Driver, Result};
use std::collections::BTreeMap;

/// Windows remembered of one length, and lengths remembered.
const HINTS: usize = 32;
const HINT_SIZES: usize = 4096;

/// Where in the pool's address ranges a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The stitch.
    pub stitch: StitchId,
    /// Offset in the stitch, in bytes.
    pub offset: u64,
    /// Length in bytes, a multiple of 512.
    pub bytes: u64,
}

/// Who has a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The program.
    Program,
    /// The slabs.
    Slab,
    /// Nobody, but its bytes are not free again yet: the next request of this
    /// size gets it as it is.
    Warm,
}

/// A window that somebody has.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Where.
    pub window: Window,
    /// Who has it.
    pub holder: Holder,
    /// Bytes asked for.
    pub asked: u64,
    /// Unique number of the allocation.
    pub id: u64,
    /// The context it was asked for in.
    pub context: Context,
    /// The stream it was asked for on.
    pub order: Order,
    /// See [`Request::graph`].
    pub graph: bool,
}

/// A request as the windows see it.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Length in bytes, a multiple of 512.
    pub bytes: u64,
    /// Alignment of the base in bytes.
    pub align: u64,
    /// The stream of the first use, `None` where it is not known.
    pub stream: Option<StreamId>,
}

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
    /// Address space.
    pub arena: Arena,
    /// Pieces in all stitches.
    pub mappings: usize,
    /// The error that every allocation gets from now on.
    pub frozen: Option<Code>,
    /// Counters.
    pub stats: Stats,
    contexts: Vec<Context>,
    last_id: u64,
}

impl State {
    /// The stream of an order.
    pub fn stream(&mut self, order: Order) -> Option<StreamId> {
        match order {
            Order::Stream(key) => Some(self.streams.id(key)),
            Order::Unknown => None,
        }
    }

    /// Lends a small block from the slabs as they are.
    pub fn lend_small<D: Driver>(
        &mut self,
        driver: &D,
        request: &Request,
        stream: Option<StreamId>,
    ) -> Result<Option<Address>> {
        let small = Small {
            bytes: request.bytes as u32,
            id: self.last_id + 1,
            stream: stream.unwrap_or(Use::NOBODY),
            context: self.context_index(request.context),
            graph: request.graph,
        };
        let Some((at, last)) = self.slabs.lend(small, &self.streams) else {
            return Ok(None);
        };
        self.last_id += 1;
        if let Some(stream) = stream {
            let alias = self.slabs.alias(at).unwrap_or(Use::MIXED);
            if self.streams.needs_edge(last, alias) {
                if let Err(code) = self.streams.make_edge(driver, stream) {
                    let back = self.slabs.free(at, last, &self.streams);
                    debug_assert!(back.is_ok());
                    return Err(code);
                }
                self.stats.edges += 1;
            }
        }
        self.count_lent(request.bytes, slab::granted(request.bytes));
        Ok(Some(at))
    }

    /// Lends a window of exactly this length that was freed a moment ago.
    pub fn lend_warm(&mut self, request: &Request, need: Need) -> Option<Address> {
        if self.warm_windows == 0 {
            return None;
        }
        let at = need
            .stream
            .into_iter()
            .chain([Use::NOBODY])
            .find_map(|stream| {
                let windows = self.warm.get_mut(&(need.bytes, stream))?;
                let (at, _) = *windows.last()?;
                (at % need.align == 0).then(|| windows.pop())??;
                Some(at)
            })?;
        self.warm_windows -= 1;
        self.last_id += 1;
        let block = self.blocks.get_mut(&at).expect("a warm window is a block");
        *block = Block {
            window: block.window,
            ..block_of(block.window, request, self.last_id)
        };
        self.count_lent(request.bytes, need.bytes);
        Some(at)
    }

    /// Tells the chunks of all warm windows that they are free.
    pub fn settle_warm(&mut self) {
        if self.warm_windows == 0 {
            return;
        }
        self.warm_windows = 0;
        let mut warm = std::mem::take(&mut self.warm);
        for (_, windows) in warm.drain() {
            for (at, last) in windows {
                let block = self.blocks.remove(&at).expect("a warm window is a block");
                self.give(block.window, last);
                let hints = self.hints.entry(block.window.bytes).or_default();
                if hints.len() == HINTS {
                    hints.remove(0);
                }
                hints.push(block.window);
            }
        }
        // Goes back empty, with its room.
        self.warm = warm;
        if self.hints.len() > HINT_SIZES {
            self.hints.clear();
        }
    }

    /// Lends a window that [`State::search`](super::search) or a plan found.
    /// Its bytes are taken already.
    pub fn lend(&mut self, request: &Request, window: Window) -> Address {
        self.last_id += 1;
        let block = block_of(window, request, self.last_id);
        let at = self.enter(window, block);
        self.count_lent(request.bytes, window.bytes);
        at
    }

    /// Turns a window, whose bytes are taken already, into a slab.
    pub fn add_slab(&mut self, request: &Request, window: Window, last: Use) {
        let block = Block {
            holder: Holder::Slab,
            asked: 0,
            id: 0,
            ..block_of(window, request, 0)
        };
        let at = self.enter(window, block);
        self.slabs.add(at, window.stitch, last);
    }

    /// Gives windows of empty slabs back, all but `keep`.
    pub fn reap_slabs(&mut self, keep: u32) {
        while let Some((at, last)) = self.slabs.take_empty(keep, &self.streams) {
            let block = self.blocks.remove(&at).expect("a slab is a block");
            self.give(block.window, last);
        }
    }

    /// Orders the stream of a request behind the uses of a window it is about
    /// to get: other streams' uses, and its own through another address.
    pub fn order<D: Driver>(
        &mut self,
        driver: &D,
        stream: Option<StreamId>,
        uses: &[Use],
        alias: StitchId,
    ) -> Result<()> {
        let Some(stream) = stream else {
            debug_assert!(uses.iter().all(|last| self.streams.is_done(*last)));
            return Ok(());
        };
        let mut edge = false;
        let mut behind: Vec<Use> = Vec::new();
        for &last in uses.iter().filter(|last| !self.streams.is_done(**last)) {
            if last.stream == stream {
                edge |= self.streams.needs_edge(last, alias);
                continue;
            }
            match behind.iter_mut().find(|other| other.stream == last.stream) {
                Some(other) => other.seq = other.seq.max(last.seq),
                None => behind.push(last),
            }
        }
        for last in behind {
            self.streams.order_behind(driver, stream, last)?;
            self.stats.waits += 1;
        }
        if edge {
            self.streams.make_edge(driver, stream)?;
            self.stats.edges += 1;
        }
        Ok(())
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

    /// Frees the allocation at an address. `Ok` holds what it was.
    pub fn free<D: Driver>(
        &mut self,
        driver: &D,
        at: Address,
        release: Release,
    ) -> std::result::Result<BlockInfo, NotOurs> {
        let info = match self.find(at) {
            Some(info) if info.base == at => info,
            Some(_) => return Err(NotOurs::Interior),
            None => return Err(NotOurs::Unknown),
        };
        let release = if info.graph && release != Release::Complete {
            Release::Unknown
        } else {
            release
        };
        let small = self.slabs.contains(at);
        let alias = match small {
            true => self.slabs.alias(at).unwrap_or(Use::MIXED),
            false => self.blocks[&at].window.stitch,
        };
        let last = self.last_use(driver, release, info.context, alias);
        let granted = if small {
            self.slabs.free(at, last, &self.streams)?;
            self.reap_slabs(1);
            slab::granted(info.bytes)
        } else {
            let block = self.blocks.get_mut(&at).expect("found above");
            block.holder = Holder::Warm;
            let bytes = block.window.bytes;
            let windows = self.warm.entry((bytes, last.stream)).or_default();
            windows.push((at, last));
            self.warm_windows += 1;
            bytes
        };
        self.stats.frees += 1;
        self.stats.live_bytes -= info.bytes;
        self.stats.granted_bytes -= granted;
        self.stats.idle_bytes += granted;
        Ok(info)
    }

    /// The live allocation around an address.
    pub fn find(&self, at: Address) -> Option<BlockInfo> {
        if let Some((index, small)) = self.slabs.find(at) {
            return Some(BlockInfo {
                base: self.slabs.address(index),
                bytes: small.bytes.into(),
                id: small.id,
                context: self.contexts[usize::from(small.context)],
                graph: small.graph,
                order: self.streams.order(small.stream),
                overrun: false,
            });
        }
        let (&base, block) = self.blocks.range(..=at).next_back()?;
        (block.holder == Holder::Program && at - base < block.asked.max(1)).then_some(BlockInfo {
            base,
            bytes: block.asked,
            id: block.id,
            context: block.context,
            graph: block.graph,
            order: block.order,
            overrun: false,
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
        self.mappings += stitch.pieces.len();
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
        let stitch = self.stitches[window.stitch as usize].as_mut();
        let stitch = stitch.expect("a stitch");
        stitch.blocks -= 1;
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
        self.slabs.each_free(|length, last| {
            if running(&last) {
                bytes += length;
            }
        });
        bytes
    }

    fn enter(&mut self, window: Window, block: Block) -> Address {
        let stitch = self.stitches[window.stitch as usize]
            .as_mut()
            .expect("a stitch");
        stitch.blocks += 1;
        let at = stitch.at + window.offset;
        self.blocks.insert(at, block);
        at
    }

    fn last_use<D: Driver>(
        &mut self,
        driver: &D,
        release: Release,
        context: Context,
        alias: u32,
    ) -> Use {
        let stream = match release {
            Release::Complete => return Use::DONE,
            Release::Stream(key) => self.streams.id(key),
            Release::Unknown => self.streams.whole_context(context),
        };
        self.streams
            .tag(driver, stream, alias)
            .unwrap_or_else(|code| {
                // Without an event nothing tells when the use ends.
                self.frozen.get_or_insert(code);
                Use {
                    stream,
                    alias,
                    seq: u64::MAX,
                }
            })
    }

    fn count_lent(&mut self, asked: u64, granted: u64) {
        let stats = &mut self.stats;
        stats.live_bytes += asked;
        stats.granted_bytes += granted;
        stats.idle_bytes -= granted;
        stats.peak_live_bytes = stats.peak_live_bytes.max(stats.live_bytes);
    }

    fn context_index(&mut self, context: Context) -> u16 {
        let known = self.contexts.iter().position(|known| *known == context);
        known.unwrap_or_else(|| {
            self.contexts.push(context);
            self.contexts.len() - 1
        }) as u16
    }
}

fn block_of(window: Window, request: &Request, id: u64) -> Block {
    Block {
        window,
        holder: Holder::Program,
        asked: request.bytes,
        id,
        context: request.context,
        order: request.order,
        graph: request.graph,
    }
}
