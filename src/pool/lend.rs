//! Lends windows and small blocks, orders them behind earlier uses, and takes
//! them back. Of the driver it makes event calls only.

use super::block::{Block, Holder, Need, Window};
use super::chunk::StitchId;
use super::front::{COMMON, Fronts, Lent, is_small, weights_of};
use super::request::{BlockInfo, NotOurs, Release, Request};
use super::slab;
use super::state::State;
use super::streams::{StreamId, Use};
use crate::driver::{Address, Context, Driver, Result};

impl State {
    /// Lends a window that [`State::search`](super::search) or a plan found.
    /// Its bytes are taken already.
    pub fn lend(&mut self, request: &Request, window: Window) -> Address {
        let home = Fronts::of(&request.order);
        let at = self.enter(window, Holder::Front(home as u8));
        self.hand_out(at, request, Lent::new(request, window.bytes, false));
        at
    }

    /// Lends a block of exactly this length from the shelf of its stream as it
    /// is. The request's context was just found whole: until the next epoch its
    /// front may serve without this.
    pub fn lend_shelved(&mut self, request: &Request, need: Need) -> Option<Address> {
        let (home, lane) = Fronts::place_of(need.stream.unwrap_or(Use::NOBODY));
        let fronts = self.fronts();
        fronts.collect_room(home, weights_of(request, need.bytes));
        let mut front = fronts.lock(home);
        front.vouch(lane, request.context, fronts.now());
        front.lend(lane, request, need.bytes)
    }

    /// The same for a request of a stream, of those whose uses are complete.
    pub fn lend_complete(&mut self, request: &Request, need: Need) -> Option<Address> {
        need.stream?;
        let fronts = self.fronts();
        if !fronts.has_shelved(COMMON, is_small(need.bytes)) {
            return None;
        }
        let mut common = fronts.lock(COMMON);
        let (at, lent) = common.give_away(0, need.bytes, request.align)?;
        drop(common);
        self.set_home(at, lent.small, Fronts::of(&request.order));
        self.hand_out(at, request, Lent::new(request, need.bytes, lent.small));
        Some(at)
    }

    /// Lends a small block from the slabs as they are, of so many a bin that are looked at. A
    /// slab has one address, so nothing in it is ever used through another.
    pub fn lend_small(
        &mut self,
        request: &Request,
        stream: Option<StreamId>,
        tries: usize,
    ) -> Option<Address> {
        let home = Fronts::of(&request.order) as u8;
        let (bytes, streams) = (request.bytes, &self.streams);
        let at = self.slabs.lend(bytes, stream, home, tries, streams)?;
        let granted = slab::granted(bytes);
        self.hand_out(at, request, Lent::new(request, granted, true));
        Some(at)
    }

    /// The same of all blocks: where many still run, one whose uses are over lies behind them.
    /// And what is longer than slabs are for has a hole in one sooner than nothing.
    pub fn lend_any_small(
        &mut self,
        request: &Request,
        stream: Option<StreamId>,
    ) -> Option<Address> {
        let fits = request.bytes <= slab::SLAB && request.align <= slab::GRANULE;
        fits.then(|| self.lend_small(request, stream, usize::MAX))?
    }

    /// The program has a block from now on that was at home in no front.
    fn hand_out(&mut self, at: Address, request: &Request, lent: Lent) {
        let home = Fronts::of(&request.order);
        let fronts = self.fronts();
        fronts.collect_room(home, lent.weights());
        fronts.lock(home).enter(at, lent, &request.order);
    }

    fn set_home(&mut self, at: Address, small: bool, home: usize) {
        if small {
            self.slabs.set_home(at, home as u8);
        } else if let Some(block) = self.blocks.get_mut(&at) {
            block.holder = Holder::Front(home as u8);
        }
    }

    /// Turns a window, whose bytes are taken already, into a slab.
    pub fn add_slab(&mut self, window: Window, last: Use) {
        let at = self.enter(window, Holder::Slab);
        self.slabs.add(at, window.stitch, last);
    }

    /// Gives windows of empty slabs back, all but `keep`, of so many that are looked at.
    pub fn reap_slabs(&mut self, keep: usize, tries: usize) {
        for (at, last) in self.slabs.take_empty(keep, tries, &self.streams) {
            let block = self.blocks.remove(&at).expect("a slab is a block");
            self.give(block.window, last);
        }
    }

    /// Orders the stream of a request behind the uses of a window it is about
    /// to get: other streams' uses, and its own through another address.
    pub fn order<D: Driver>(
        &mut self,
        driver: &D,
        need: Need,
        uses: &[Use],
        alias: StitchId,
    ) -> Result<()> {
        let Some(stream) = need.stream else {
            debug_assert!(uses.iter().all(|last| self.streams.is_done(*last)));
            return Ok(());
        };
        let mut edge = None;
        let mut behind: Vec<Use> = Vec::new();
        for &last in uses.iter().filter(|last| !self.streams.is_done(**last)) {
            if last.stream == stream {
                if self.streams.needs_edge(last, alias) {
                    edge = edge.max(Some(last.seq));
                }
                continue;
            }
            match behind.iter_mut().find(|other| other.stream == last.stream) {
                Some(other) => other.seq = other.seq.max(last.seq),
                None => behind.push(last),
            }
        }
        for last in behind {
            self.streams.order_behind(driver, stream, last, need.late)?;
            self.stats.waits += 1;
        }
        if let Some(after) = edge {
            self.streams.make_edge(driver, stream, after, need.late)?;
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
        let (base, home) = self.home(at).ok_or(NotOurs::Unknown)?;
        let mut front = self.fronts().lock(home);
        let mut info = match front.info(base) {
            Some(info) if at - base >= info.bytes.max(1) => return Err(NotOurs::Unknown),
            Some(info) if info.attached => return Err(NotOurs::Attached),
            Some(info) if base == at => info,
            Some(_) => return Err(NotOurs::Interior),
            None => return Err(NotOurs::Unknown),
        };
        info.parked = self.exports.has(info.id);
        match info.parked {
            true => front.park(at),
            false => front.set_aside(at),
        }
        drop(front);
        let mut uses = self.last_uses(driver, release, info.context);
        if info.graph && matches!(release, Release::Stream(_)) {
            // A graph may use it elsewhere; in its stream the free is what it is all the same.
            uses.extend(self.last_uses(driver, Release::Unknown, info.context));
        } else if let Release::Stream(key) = release
            && self.streams.health.is_whole(key.context)
        {
            let (number, lane) = Fronts::place_of(uses[0].stream);
            let epoch = self.fronts().now();
            self.fronts().lock(number).vouch(lane, key.context, epoch);
        }
        if info.parked {
            self.exports.park(info.id, at, uses, info.bytes);
            self.stats.parked_bytes += info.bytes;
        } else {
            self.give_again(at, home, uses);
        }
        Ok(info)
    }

    /// A block that was set aside goes from the front that it is at home in onto
    /// the shelf of its last use. Where it has several it stays aside until all but one are
    /// over.
    pub(super) fn give_again(&mut self, at: Address, home: usize, mut uses: Vec<Use>) {
        uses.retain(|last| !self.streams.is_done(*last));
        if uses.len() > 1 {
            self.aside.push((at, uses));
            return;
        }
        let last = uses.pop().unwrap_or(Use::DONE);
        let mut front = self.fronts().lock(home);
        let lent = front.remove(at).expect("a block that was set aside");
        if self.streams.is_whole_context(last.stream) {
            // No request takes from that shelf.
            drop(front);
            self.release(at, lent, last);
            return;
        }
        let (number, lane) = Fronts::place_of(last.stream);
        if number != home {
            drop(front);
            self.set_home(at, lent.small, number);
            front = self.fronts().lock(number);
        }
        front.shelve(at, lent, lane, last.seq);
    }

    /// Gives again what stays aside for several uses.
    pub(super) fn give_aside(&mut self) {
        for (at, uses) in std::mem::take(&mut self.aside) {
            let (_, home) = self.home(at).expect("a block that was set aside");
            self.give_again(at, home, uses);
        }
    }

    /// The uses that a free ends, through whatever address, as far as they may still run.
    fn last_uses<D: Driver>(&mut self, driver: &D, release: Release, context: Context) -> Vec<Use> {
        let streams = &mut self.streams;
        let used = match release {
            Release::Complete => return Vec::new(),
            Release::Own => return streams.noted_elsewhere(context),
            Release::Stream(key) => vec![streams.id(key)],
            Release::Unknown => {
                // It may be a view of the primary one, whose other streams use it as well.
                let whole = streams.health.primary();
                let whole = whole.filter(|it| *it != context && streams.health.is_whole(*it));
                let both = [Some(context), whole].into_iter().flatten();
                both.map(|it| streams.whole_context(it)).collect()
            }
        };
        let mut last = |stream| {
            streams.part(stream);
            let last = streams.tag(driver, stream, Use::MIXED);
            let last = last.inspect(|last| streams.mark_free(driver, *last));
            last.unwrap_or_else(|code| {
                // Without an event nothing tells when the use ends.
                let context = streams.context(stream);
                streams.health.notice(context, Err(code));
                streams.lose(stream, Use::MIXED)
            })
        };
        used.into_iter().map(&mut last).collect()
    }

    fn enter(&mut self, window: Window, holder: Holder) -> Address {
        let at = self.stitch(window.stitch).at + window.offset;
        self.blocks.insert(at, Block { window, holder });
        at
    }
}

#[cfg(test)]
#[path = "lend_tests.rs"]
mod tests;
