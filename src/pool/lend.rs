//! Lends windows and small blocks, orders them behind earlier uses, and takes
//! them back. Of the driver it makes event calls only.

use super::block::{Block, Holder, Window};
use super::chunk::StitchId;
use super::request::{BlockInfo, NotOurs, Release, Request};
use super::slab::{self, Small};
use super::state::State;
use super::streams::{StreamId, Use};
use crate::driver::{Address, Context, Driver, Result};

impl State {
    /// Lends a window that [`State::search`](super::search) or a plan found.
    /// Its bytes are taken already.
    pub fn lend(&mut self, request: &Request, window: Window) -> Address {
        self.streams.last_lent += 1;
        let block = Block::new(window, request, self.streams.last_lent);
        let at = self.enter(window, block);
        self.count_lent(request.bytes, window.bytes);
        at
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
            id: self.streams.last_lent + 1,
            stream: stream.unwrap_or(Use::NOBODY),
            context: self.context_index(request.context),
            owner: request.owner,
            graph: request.graph,
        };
        let Some((at, last)) = self.slabs.lend(small, &self.streams) else {
            return Ok(None);
        };
        self.streams.last_lent += 1;
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

    /// Turns a window, whose bytes are taken already, into a slab.
    pub fn add_slab(&mut self, request: &Request, window: Window, last: Use) {
        let block = Block {
            holder: Holder::Slab,
            asked: 0,
            id: 0,
            ..Block::new(window, request, 0)
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

    /// Frees the allocation at an address, or parks it where others may have it
    /// open. `Ok` holds what it was.
    pub fn free<D: Driver>(
        &mut self,
        driver: &D,
        at: Address,
        release: Release,
    ) -> std::result::Result<BlockInfo, NotOurs> {
        let mut info = match self.find(at) {
            Some(info) if info.attached => return Err(NotOurs::Attached),
            Some(info) if info.base == at => info,
            Some(_) => return Err(NotOurs::Interior),
            None => return Err(NotOurs::Unknown),
        };
        let release = if info.graph && release != Release::Complete {
            Release::Unknown
        } else {
            release
        };
        let alias = match self.slabs.contains(at) {
            true => self.slabs.alias(at).unwrap_or(Use::MIXED),
            false => self.blocks[&at].window.stitch,
        };
        let last = self.last_use(driver, release, info.context, alias);
        self.stats.frees += 1;
        self.stats.live_bytes -= info.bytes;
        info.parked = self.exports.park(info.id, at, last);
        if info.parked {
            self.stats.parked_bytes += info.bytes;
        } else {
            self.give_again(at, last)?;
        }
        Ok(info)
    }

    /// The bytes of an allocation that nobody has any more are free.
    pub(super) fn give_again(
        &mut self,
        at: Address,
        last: Use,
    ) -> std::result::Result<(), NotOurs> {
        let granted = if self.slabs.contains(at) {
            let small = self.slabs.free(at, last, &self.streams)?;
            self.reap_slabs(1);
            slab::granted(small.bytes.into())
        } else {
            let block = self.blocks.get_mut(&at).ok_or(NotOurs::Unknown)?;
            block.holder = Holder::Warm;
            let bytes = block.window.bytes;
            let windows = self.warm.entry((bytes, last.stream)).or_default();
            windows.push((at, last));
            self.warm_windows += 1;
            bytes
        };
        self.stats.granted_bytes -= granted;
        self.stats.idle_bytes += granted;
        Ok(())
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
                let context = self.streams.context(stream);
                self.streams.health.notice(context, Err(code));
                self.streams.lose(stream, alias)
            })
    }

    fn enter(&mut self, window: Window, block: Block) -> Address {
        let at = self.stitch(window.stitch).at + window.offset;
        self.blocks.insert(at, block);
        at
    }

    pub(super) fn count_lent(&mut self, asked: u64, granted: u64) {
        let stats = &mut self.stats;
        stats.live_bytes += asked;
        stats.granted_bytes += granted;
        stats.idle_bytes -= granted;
        stats.peak_live_bytes = stats.peak_live_bytes.max(stats.live_bytes);
    }
}
