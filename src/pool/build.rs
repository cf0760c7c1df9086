//! Carries a plan out: new handles, address space, mappings, behind an old stitch
//! or as a new one. The state lock
//! is free during the driver's calls; the growth lock keeps builders apart.
//! A failure leaves the pool as it was.

use super::Pool;
use super::arena;
use super::block::{Need, Window};
use super::chunk::{Chunk, ChunkId};
use super::ends::room;
use super::plan::Plan;
use super::state::State;
use super::stitch::Stitch;
use super::streams::Use;
use crate::driver::{Access, Address, Code, Driver, Handle, Result};
use std::time::Instant;

/// What a plan takes out of the free bytes before the driver is called.
struct Held {
    parts: Vec<(ChunkId, u64, u64)>,
    /// What the bytes' last use is if they go back.
    last: Use,
}

/// A mapping to be made.
struct Mapping {
    at: Address,
    bytes: u64,
    handle: Handle,
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
        if let Some(code) = self.over_limit(&state, plan.growth()) {
            return (state, Err(code));
        }
        let offset = match plan.behind {
            Some(end) => end.offset,
            None => plan.head.map_or(0, |(_, start)| start),
        };
        let held = match self.hold(&mut state, plan, need) {
            Ok(held) => held,
            Err(code) => return (state, Err(code)),
        };
        let known: Vec<(ChunkId, u64, Handle)> = chunks_of(&state, plan);
        let total = known.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + plan.fresh_bytes();
        let (room, at) = match plan.behind {
            Some(end) => (total, Some(state.stitch(end.stitch).end())),
            None => {
                let room = room(total);
                (room, state.arena.take(room))
            }
        };
        let peers = state.peers.devices();
        let leaving = plan.exchanged.map(|id| state.remove_chunk(id));
        drop(state);

        let began = Instant::now();
        let stuck = self.give_away(leaving.as_slice());
        let placed = self.place(at, room);
        let made = match placed {
            Ok((at, _)) => self.execute(plan, &known, at, total, &peers),
            Err(code) => Err((code, true)),
        };
        let spent = began.elapsed().as_nanos() as u64;

        let mut state = self.lock();
        state.stats.driver_ns += spent;
        if leaving.is_some() {
            state.end_empty_stitches(&stuck);
        }
        if let Ok((at, more @ 1..)) = placed {
            state.arena.give(at + room, more);
        }
        let fresh = match made {
            Ok(fresh) => fresh,
            Err((code, undone)) => {
                state.arena.is_short = placed.is_err();
                state.was_full |= placed.is_ok() && code == Code::OUT_OF_MEMORY;
                match (plan.behind, placed) {
                    (None, Ok((at, _))) if undone => state.arena.give(at, room),
                    (Some(end), _) if !undone => state.stitch_mut(end.stitch).stuck = true,
                    // Something is still mapped there: the range stays out of use.
                    _ => {}
                }
                for (id, start, bytes) in held.parts {
                    let State {
                        chunks, streams, ..
                    } = &mut *state;
                    chunks.give(id, start, bytes, held.last, streams);
                }
                return (state, Err(code));
            }
        };
        let tail = plan.tail.map(|id| (id, state.chunk(id).bytes));
        let known = known.into_iter().map(|(id, bytes, _)| (id, bytes));
        let mut pieces: Vec<_> = known.filter(|(id, _)| Some(*id) != plan.tail).collect();
        let mut left = need.bytes
            - held
                .parts
                .iter()
                .filter(|(id, ..)| Some(*id) != plan.tail)
                .map(|(.., bytes)| bytes)
                .sum::<u64>();
        for (handle, bytes) in fresh {
            let id = state.add_chunk(Chunk::new(handle, bytes));
            let used = left.min(bytes);
            left -= used;
            if used > 0 {
                state.chunks.take(id, 0, used);
            }
            pieces.push((id, bytes));
        }
        pieces.extend(tail);
        state.stats.handles_mapped += pieces.len() as u64;
        if plan.growth() > 0 {
            state.stats.growths += 1;
            state.growing.grew(pieces.len());
        }
        let stitch = match (plan.behind, placed) {
            (Some(end), _) => {
                state.lengthen(end.stitch, &pieces);
                end.stitch
            }
            (None, placed) => {
                state.stats.stitches += 1;
                let (at, _) = placed.expect("something was mapped");
                let mut stitch = Stitch::new(at, pieces);
                stitch.room = room;
                state.add_stitch(stitch)
            }
        };
        let window = Window {
            stitch,
            offset,
            bytes: need.bytes,
        };
        (state, Ok(window))
    }

    fn over_limit(&self, state: &State, growth: u64) -> Option<Code> {
        let limit = self.settings.limit?;
        let held = state.stats.physical_bytes + self.beside().0;
        let over = growth > 0 && held + growth > limit;
        over.then_some(Code::OUT_OF_MEMORY)
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
        let mut uses = Vec::new();
        for &(id, start, bytes) in &parts {
            uses.extend(state.chunk(id).uses(start, bytes));
        }
        // A new stitch is an address that nothing was used through.
        let alias = plan.behind.map_or(Use::MIXED - 1, |end| end.stitch);
        state.order(&self.driver, need.stream, &uses, alias)?;
        let last = match need.stream {
            Some(stream) if !parts.is_empty() => {
                state.streams.tag(&self.driver, stream, Use::MIXED)?
            }
            _ => Use::DONE,
        };
        for &(id, start, bytes) in &parts {
            state.chunks.take(id, start, bytes);
        }
        Ok(Held { parts, last })
    }

    /// So many bytes of addresses: those that are known, or newly reserved ones, behind
    /// which so many more were reserved.
    fn place(&self, known: Option<Address>, room: u64) -> Result<(Address, u64)> {
        if let Some(at) = known {
            return Ok((at, 0));
        }
        let (at, bytes) = arena::reserve(&self.driver, &self.bounds, room)?;
        Ok((at, bytes - room))
    }

    /// The driver's part: returns the new handles; on failure everything is undone,
    /// and the error says whether that worked.
    fn execute(
        &self,
        plan: &Plan,
        known: &[(ChunkId, u64, Handle)],
        at: Address,
        total: u64,
        peers: &[u32],
    ) -> std::result::Result<Vec<(Handle, u64)>, (Code, bool)> {
        let fresh = self.create(&plan.fresh).map_err(|code| (code, true))?;
        let tail = known.len() - usize::from(plan.tail.is_some());
        let (before, behind) = known.split_at(tail);
        let old = |&(_, bytes, handle): &(ChunkId, u64, Handle)| (handle, bytes);
        let pieces = before.iter().map(old);
        let pieces = pieces.chain(fresh.iter().copied());
        let pieces = pieces.chain(behind.iter().map(old));
        let mut next = at;
        let mappings: Vec<Mapping> = pieces
            .map(|(handle, bytes)| {
                let mapping = Mapping {
                    at: next,
                    bytes,
                    handle,
                };
                next += bytes;
                mapping
            })
            .collect();
        match self.map_all(&mappings, at, total, peers) {
            Ok(()) => Ok(fresh),
            Err((code, undone)) => {
                for (handle, _) in fresh.into_iter().filter(|_| undone) {
                    // A failure cannot be retried: the memory is lost, to nobody's harm.
                    let _ = self.driver.release(handle);
                }
                Err((code, undone))
            }
        }
    }

    fn create(&self, sizes: &[u64]) -> Result<Vec<(Handle, u64)>> {
        let mut made: Vec<(Handle, u64)> = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            match self.driver.create(self.device, bytes) {
                Ok(handle) => made.push((handle, bytes)),
                Err(code) => {
                    for (handle, _) in made {
                        // A failure cannot be retried: the memory is lost, to nobody's harm.
                        let _ = self.driver.release(handle);
                    }
                    return Err(code);
                }
            }
        }
        Ok(made)
    }

    /// Maps everything, or nothing; the error says whether the undoing worked.
    fn map_all(
        &self,
        mappings: &[Mapping],
        at: Address,
        total: u64,
        peers: &[u32],
    ) -> std::result::Result<(), (Code, bool)> {
        let mut done = Ok(());
        let mut mapped = 0;
        for mapping in mappings {
            done = self.driver.map(mapping.at, mapping.bytes, mapping.handle);
            if done.is_err() {
                break;
            }
            mapped += 1;
        }
        for &device in [self.device].iter().chain(peers) {
            done = done.and_then(|()| self.driver.set_access(at, total, device, Access::Write));
        }
        done.map_err(|code| {
            let mut undone = true;
            for mapping in &mappings[..mapped] {
                undone &= self.driver.unmap(mapping.at, mapping.bytes).is_ok();
            }
            (code, undone)
        })
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
