//! Carries a plan out: new handles, address space, mappings, behind an old stitch
//! or as a new one. The state lock is free during the driver's calls; the growth lock
//! keeps builders apart. A failure leaves the pool as it was. Decides nothing: what a
//! stitch is made of is the plan's.

use super::Pool;
use super::arena;
use super::block::{Need, Window};
use super::chunk::{Chunk, ChunkId, Span};
use super::ends::room;
use super::plan::Plan;
use super::request::Lack;
use super::state::State;
use super::stitch::Stitch;
use super::streams::Use;
use crate::driver::{Access, Address, Code, Driver, Handle, Result};
use std::time::Instant;

/// What a plan takes out of the free bytes before the driver is called.
struct Held {
    /// With their uses, which stay theirs if they go back: nobody was lent them.
    spans: Vec<(ChunkId, Span)>,
    /// The chunks that are mapped, in order, new ones left out.
    chunks: Vec<(ChunkId, u64, Handle)>,
}

/// Addresses for a plan.
#[derive(Clone, Copy)]
struct Place {
    at: Address,
    /// Their bytes.
    room: u64,
    /// Bytes that were reserved with them, behind them.
    more: u64,
    /// Do others know them, who close what they have there once something is exported there?
    known: bool,
}

impl Place {
    /// Addresses that were there.
    fn at(at: Address, room: u64) -> Self {
        Self {
            at,
            room,
            more: 0,
            known: false,
        }
    }
}

/// Why nothing was mapped.
pub(super) struct Failed {
    pub(super) code: Code,
    /// Is nothing mapped that was not before?
    pub(super) undone: bool,
    /// Was it a mapping, or access to it, that could not be had?
    pub(super) mapping: bool,
    /// What lacked, where the code is that of too little memory.
    pub(super) lack: Lack,
}

impl Failed {
    /// Before anything was mapped.
    fn unmapped(code: Code) -> Self {
        Self {
            code,
            undone: true,
            mapping: false,
            lack: Lack::Memory,
        }
    }
}

impl<D: Driver> Pool<D> {
    /// Builds the stitch of a plan and returns the window in it, taken. The
    /// caller holds the growth lock; `state` is the state lock, which comes
    /// back locked.
    pub(super) fn build<'a>(
        &'a self,
        mut state: super::StateGuard<'a>,
        plan: &Plan,
        need: Need,
    ) -> (super::StateGuard<'a>, Result<Window>) {
        let over_limit = self.over_limit(&state, plan.growth());
        state.lack = Lack::Memory;
        state.lacks_mappings = false;
        if let Some(code) = over_limit {
            state.lack = Lack::Limit;
            return (state, Err(code));
        }
        let held = match self.hold(&mut state, plan, need) {
            Ok(held) => held,
            Err(code) => return (state, Err(code)),
        };
        let total = held.chunks.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + plan.fresh_bytes();
        let (place, ended) = match plan.behind {
            Some(end) => {
                let at = state.stitch(end.stitch).end();
                (Some(Place::at(at, total)), Vec::new())
            }
            None => {
                let made = held.chunks.len() + plan.fresh.len();
                let place = state.place(room(total), need.alone);
                let short = self.bounds.are_short(|| state.arena.free_bytes());
                (place, state.retire(made, short))
            }
        };
        let peers = state.peers.devices();
        let leaving = plan.exchanged.map(|id| state.remove_chunk(id));
        drop(state);

        let began = Instant::now();
        // What leaves may be mapped in what ends, too.
        let free = self.unmap(ended);
        let stuck = self.give_away(leaving.as_slice());
        let place = place.map_or_else(|| self.reserve(total, need.alone), Ok);
        let made = match place {
            Ok(place) => {
                let made = self.execute(plan, &held.chunks, place.at, &peers);
                made.map(|fresh| (place, fresh))
            }
            Err(code) => Err(Failed::unmapped(code)),
        };
        let spent = began.elapsed().as_nanos() as u64;

        let mut state = self.lock();
        state.stats.driver_ns += spent;
        for (at, room) in free {
            state.arena.give(at, room);
        }
        state.end_empty_stitches(leaving.as_slice(), &stuck);
        if let Ok(Place { at, room, more, .. }) = place
            && more > 0
        {
            state.arena.give(at + room, more);
        }
        let window = match made {
            Ok((place, fresh)) => Ok(state.enter_built(plan, need, place, held, fresh)),
            Err(failed) => Err(state.give_up(plan, place.ok(), held, failed)),
        };
        (state, window)
    }

    fn over_limit(&self, state: &State, growth: u64) -> Option<Code> {
        let limit = self.settings.limit?;
        let soon = state.counted() + growth;
        // Also where it does not grow: a chunk that is exchanged is still the pool's.
        let fits = soon + self.beside().0 <= limit && self.may_hold(soon);
        (growth > 0 && !fits).then_some(Code::OUT_OF_MEMORY)
    }

    /// Takes the free bytes of a plan and orders the request behind their uses.
    fn hold(&self, state: &mut State, plan: &Plan, need: Need) -> Result<Held> {
        let mut left = need.bytes;
        let mut parts = Vec::new();
        if let Some(end) = plan.behind {
            let shown = state.stitch(end.stitch).parts(end.offset, end.bytes);
            parts.extend(shown.map(|part| (part.chunk, part.start, part.bytes)));
            left -= end.bytes;
        }
        if let Some((id, start)) = plan.head {
            let bytes = state.chunk(id).bytes - start;
            parts.push((id, start, bytes));
            left -= bytes;
        }
        for &id in &plan.whole {
            let bytes = state.chunk(id).bytes.min(left);
            parts.push((id, 0, bytes));
            left -= bytes;
        }
        if let Some(id) = plan.tail {
            parts.push((id, 0, left - plan.fresh_bytes()));
        }
        let mut spans = Vec::new();
        for &(id, start, bytes) in &parts {
            let below = state.chunk(id).below(start, bytes);
            spans.extend(below.map(|span| (id, span)));
        }
        let uses: Vec<_> = spans.iter().map(|(_, span)| span.last).collect();
        // A new stitch is an address that nothing was used through.
        let alias = plan.behind.map_or(Use::MIXED - 1, |end| end.stitch);
        state.order(&self.driver, need, &uses, alias)?;
        for &(id, start, bytes) in &parts {
            state.chunks.take(id, start, bytes);
        }
        let chunks = chunks_of(state, plan);
        Ok(Held { spans, chunks })
    }

    /// Newly reserved addresses for a stitch of so many bytes. Where there are none to make it
    /// longer within, what is there has to do.
    fn reserve(&self, total: u64, alone: bool) -> Result<Place> {
        let reserved = |room| {
            let (at, bytes) = arena::reserve(&self.driver, &self.bounds, room)?;
            let more = bytes - room;
            Ok(Place {
                more,
                ..Place::at(at, room)
            })
        };
        reserved(room(total)).or_else(|_| {
            let place = self.lock().place(total, alone);
            place.map_or_else(|| reserved(total), Ok)
        })
    }

    /// The driver's part: returns the new handles; on failure everything is undone,
    /// as far as that works.
    fn execute(
        &self,
        plan: &Plan,
        known: &[(ChunkId, u64, Handle)],
        at: Address,
        peers: &[u32],
    ) -> std::result::Result<Vec<(Handle, u64)>, Failed> {
        let fresh = self.create(&plan.fresh).map_err(Failed::unmapped)?;
        let tail = known.len() - usize::from(plan.tail.is_some());
        let (before, behind) = known.split_at(tail);
        let old = |&(_, bytes, handle): &(ChunkId, u64, Handle)| (handle, bytes);
        let pieces = before.iter().map(old).chain(fresh.iter().copied());
        let pieces: Vec<_> = pieces.chain(behind.iter().map(old)).collect();
        match self.map_all(&pieces, at, peers) {
            Ok(()) => Ok(fresh),
            Err(failed) => {
                if failed.undone {
                    self.release(&fresh);
                }
                Err(failed)
            }
        }
    }

    /// Maps everything and opens it, or nothing.
    fn map_all(
        &self,
        pieces: &[(Handle, u64)],
        at: Address,
        peers: &[u32],
    ) -> std::result::Result<(), Failed> {
        let (mapped, done) = self.map_in_order(pieces, at);
        let total = pieces.iter().map(|(_, bytes)| bytes).sum();
        let open = |device| self.driver.set_access(at, total, device, Access::Write);
        let done = done.and_then(|()| open(self.device));
        let mut done = done.map_err(|code| (code, Lack::Memory));
        for &peer in peers {
            done = done.and_then(|()| open(peer).map_err(|code| (code, Lack::Tables(peer))));
        }
        done.map_err(|(code, lack)| {
            let (mut undone, mut next) = (true, at);
            for (_, bytes) in &pieces[..mapped] {
                undone &= self.driver.unmap(next, *bytes).is_ok();
                next += bytes;
            }
            Failed {
                code,
                undone,
                mapping: true,
                lack,
            }
        })
    }

    /// Maps handles whole, one behind the other, until one fails: how many were mapped.
    pub(super) fn map_in_order(
        &self,
        pieces: &[(Handle, u64)],
        mut at: Address,
    ) -> (usize, Result<()>) {
        for (mapped, &(handle, bytes)) in pieces.iter().enumerate() {
            let done = self.driver.map(at, bytes, handle);
            if done.is_err() {
                return (mapped, done);
            }
            at += bytes;
        }
        (pieces.len(), Ok(()))
    }
}

impl State {
    /// So many bytes of addresses; for what may be exported those that others know, if it
    /// can be. `None` where more have to be reserved.
    fn place(&mut self, room: u64, alone: bool) -> Option<Place> {
        let known = alone.then(|| self.arena.take_known(room)).flatten();
        let at = known.or_else(|| self.arena.take(room))?;
        Some(Place {
            known: known.is_some(),
            ..Place::at(at, room)
        })
    }

    /// Enters what was mapped for a plan: the new chunks, and the stitch that is made or
    /// made longer of all. Returns the window.
    fn enter_built(
        &mut self,
        plan: &Plan,
        need: Need,
        place: Place,
        held: Held,
        fresh: Vec<(Handle, u64)>,
    ) -> Window {
        let tail = plan.tail.map(|id| (id, self.chunk(id).bytes));
        let is_tail = |id: ChunkId| Some(id) == plan.tail;
        let known = held.chunks.iter().map(|(id, bytes, _)| (*id, *bytes));
        let mut pieces: Vec<_> = known.filter(|(id, _)| !is_tail(*id)).collect();
        let before = held.spans.iter().filter(|(id, _)| !is_tail(*id));
        let mut left = need.bytes - before.map(|(_, span)| span.bytes).sum::<u64>();
        for (handle, bytes) in fresh {
            let id = self.add_chunk(Chunk::new(handle, bytes));
            let used = left.min(bytes);
            left -= used;
            if used > 0 {
                self.chunks.take(id, 0, used);
            }
            pieces.push((id, bytes));
        }
        pieces.extend(tail);
        self.stats.handles_mapped += pieces.len() as u64;
        if plan.growth() > 0 {
            self.stats.growths += 1;
            self.growing.grew(pieces.len());
        }
        let (stitch, offset) = match plan.behind {
            Some(end) => {
                self.lengthen(end.stitch, &pieces);
                (end.stitch, end.offset)
            }
            None => {
                self.stats.stitches += 1;
                let mut stitch = Stitch::new(place.at, pieces);
                stitch.room = place.room;
                stitch.known = need.alone;
                let offset = plan.head.map_or(0, |(_, start)| start);
                (self.add_stitch(stitch), offset)
            }
        };
        Window {
            stitch,
            offset,
            bytes: need.bytes,
        }
    }

    /// Gives back what a plan held that could not be carried out; `place` is where.
    fn give_up(&mut self, plan: &Plan, place: Option<Place>, held: Held, failed: Failed) -> Code {
        let Failed { code, undone, .. } = failed;
        let short = code == Code::OUT_OF_MEMORY;
        self.arena.is_short = place.is_none();
        self.lacks_mappings = failed.mapping && short;
        self.lack = failed.lack;
        self.was_full |= place.is_some() && !failed.mapping && short;
        match (plan.behind, place) {
            (None, Some(place)) if undone && place.known => {
                self.arena.give_known(place.at, place.room);
            }
            (None, Some(place)) if undone => self.arena.give(place.at, place.room),
            (Some(end), _) if !undone => self.stitch_mut(end.stitch).stuck = true,
            // Something is still mapped there: the range stays out of use.
            _ => {}
        }
        for (id, span) in held.spans {
            self.chunks
                .give(id, span.start, span.bytes, span.last, &self.streams);
        }
        code
    }
}

/// The chunks that a plan maps, in order, new ones left out.
fn chunks_of(state: &State, plan: &Plan) -> Vec<(ChunkId, u64, Handle)> {
    let head = plan.head.map(|(id, _)| id);
    head.into_iter()
        .chain(plan.whole.iter().copied())
        .chain(plan.tail)
        .map(|id| {
            let chunk = state.chunk(id);
            (id, chunk.bytes, chunk.handle)
        })
        .collect()
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
