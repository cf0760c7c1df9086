//! Memory that is not the pool's own: handles of other processes, or of a
//! name. Each attachment has a range of addresses to itself and is a block like
//! any other, so that every answer about addresses holds for it; it is never
//! lent, never given back, and leaves by [`Pool::detach`] alone.

use super::Pool;
use super::arena;
use super::block::{Block, Holder, Window};
use super::build::Failed;
use super::chunk::Chunk;
use super::front::{COMMON, Lent};
use super::request::{BlockInfo, Lack, NotOurs, Order};
use super::state::State;
use super::stitch::Stitch;
use crate::driver::{Access, Address, Code, Context, Driver, Handle, Result};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Memory to be attached.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Handles in the order in which they are mapped, whole, and their sizes in
    /// bytes. They are the pool's from here on, and released if it fails.
    pub handles: Vec<(Handle, u64)>,
    /// First byte of the allocation in the first handle.
    pub offset: u64,
    /// Bytes of the allocation.
    pub bytes: u64,
    /// The context that it ends with.
    pub context: Context,
    /// What devices may do with it.
    pub access: Access,
    /// Another device that must reach it, beside those that reach the pool.
    pub also: Option<u32>,
    /// One that reaches it if it can.
    pub beside: Option<u32>,
    /// Is it another process's, for which it counts? Else it counts against this one's limit.
    pub opened: bool,
}

impl<D: Driver> Pool<D> {
    /// Maps memory and returns the address of the allocation. Fails with the
    /// driver's code, `INVALID_VALUE` where the allocation does not lie in the
    /// handles, and `PEER_ACCESS_UNSUPPORTED` where the other device cannot
    /// reach it; then everything is as before, and the handles are released.
    pub fn attach(&self, what: Attachment) -> Result<Address> {
        let total: u64 = what.handles.iter().map(|(_, bytes)| bytes).sum();
        let inside = what.offset.checked_add(what.bytes);
        if what.bytes == 0 || inside.is_none_or(|end| end > total) {
            self.release(&what.handles);
            return Err(Code::INVALID_VALUE);
        }
        let mut failed = None;
        loop {
            let (code, lack) = match self.attach_once(&what, total) {
                Ok(at) => return Ok(at),
                Err(failed) => failed,
            };
            let since = *failed.get_or_insert_with(Instant::now);
            let starving = self.settings.starving.as_ref();
            let short = code == Code::OUT_OF_MEMORY;
            if !short || !starving.is_some_and(|ask| ask(total, since, lack)) {
                self.release(&what.handles);
                return Err(code);
            }
        }
    }

    /// The same, with what room there is.
    fn attach_once(
        &self,
        what: &Attachment,
        total: u64,
    ) -> std::result::Result<Address, (Code, Lack)> {
        let _builder = self.builder();
        let mut mapped = self.place_attached(what, total);
        if matches!(mapped, Err((Code::OUT_OF_MEMORY, _))) && self.make_mappings() {
            mapped = self.place_attached(what, total);
        }
        let at = mapped?;
        let mut state = self.lock();
        let at = state.enter_attached(what, at, total);
        self.publish(&mut state);
        Ok(at)
    }

    /// Reserves addresses for what is attached or made first, where there are
    /// none yet; where that fails, nothing.
    pub fn reserve_ahead(&self) {
        let _builder = self.builder();
        if !self.lock().arena.is_empty() {
            return;
        }
        if let Ok((at, bytes)) = arena::reserve(&self.driver, &self.bounds, arena::RANGE_ALIGN) {
            self.lock().arena.give(at, bytes);
        }
    }

    /// Imports a handle of its own, maps it and lets it go: the driver takes about
    /// twice as long for these calls the first time in a process, which is then not
    /// when the program attaches something. Where anything fails, nothing.
    pub fn rehearse(&self) {
        let _builder = self.builder();
        let Some(at) = self.lock().arena.take(arena::RANGE_ALIGN) else {
            return;
        };
        let bytes = arena::RANGE_ALIGN;
        let imported = self.driver.create(self.device, bytes).and_then(|own| {
            let exported = self.driver.export(own);
            let imported = exported.and_then(|memory| self.driver.import(memory.as_fd()));
            self.release(&[(own, bytes)]);
            imported
        });
        let Ok(handle) = imported else {
            return self.lock().arena.give(at, bytes);
        };
        let unmapped = self.driver.map(at, bytes, handle).map_or(true, |()| {
            let access = Access::Write;
            let _ = self.driver.set_access(at, bytes, self.device, access);
            self.driver.unmap(at, bytes).is_ok()
        });
        // What the driver did not unmap stays as it is.
        if unmapped {
            self.release(&[(handle, bytes)]);
            self.lock().arena.give(at, bytes);
        }
    }

    /// Physical bytes that count against a limit: not what other processes made.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Unmaps attached memory and releases its handles. The caller has waited
    /// for every use of it. Returns what it was.
    pub fn detach(&self, at: Address) -> std::result::Result<BlockInfo, NotOurs> {
        let _builder = self.builder();
        let mut state = self.lock();
        let info = match state.find(at) {
            Some(info) if info.attached && info.base == at => info,
            Some(info) if info.attached => return Err(NotOurs::Interior),
            _ => return Err(NotOurs::Unknown),
        };
        let (range, total, handles) = state.leave_attached(at);
        drop(state);
        let began = Instant::now();
        let unmapped = self.driver.unmap(range, total).is_ok();
        if unmapped {
            self.release(&handles);
        }
        let mut state = self.lock();
        state.stats.driver_ns += began.elapsed().as_nanos() as u64;
        if unmapped {
            state.arena.give(range, total);
        }
        self.publish(&mut state);
        Ok(info)
    }

    /// Maps memory at a range of its own, which is returned. The caller holds the growth lock.
    fn place_attached(
        &self,
        what: &Attachment,
        total: u64,
    ) -> std::result::Result<Address, (Code, Lack)> {
        let mut state = self.lock();
        let range = state.arena.take(total);
        let peers = state.peers.devices();
        drop(state);
        let began = Instant::now();
        let range = range.map_or_else(
            || arena::reserve(&self.driver, &self.bounds, total),
            |at| Ok((at, total)),
        );
        let mapped = range.map(|(at, bytes)| {
            let mapped = self.map_attached(what, at, total, &peers);
            (at, at + bytes, mapped)
        });
        let mut state = self.lock();
        state.stats.driver_ns += began.elapsed().as_nanos() as u64;
        let own_tables = Lack::Tables(self.device);
        let (at, end, mapped) = mapped.map_err(|code| (code, own_tables))?;
        // Where something is still mapped the range stays out of use.
        let unused = match &mapped {
            Err(failed) if failed.undone => at,
            _ => at + total,
        };
        if end > unused {
            state.arena.give(unused, end - unused);
        }
        let mapped = mapped.map_err(|failed| (failed.code, failed.lack));
        mapped.map(|()| at)
    }

    /// Maps everything and opens it, or nothing.
    fn map_attached(
        &self,
        what: &Attachment,
        at: Address,
        total: u64,
        peers: &[u32],
    ) -> std::result::Result<(), Failed> {
        // The memory is there: what lacks is page tables of who is to reach it.
        let lacks = |device| move |code| (code, Lack::Tables(device));
        let (mapped, done) = self.map_in_order(&what.handles, at);
        let mut done = done.map_err(lacks(self.device));
        let open = |device| {
            let opened = self.driver.set_access(at, total, device, what.access);
            opened.map_err(lacks(device))
        };
        done = done.and_then(|()| match what.also {
            Some(also) if also != self.device => {
                open(also).map_err(|(code, lack)| (unreachable(code), lack))?;
                // The device may have no part in this process beside its memory.
                let _ = open(self.device);
                Ok(())
            }
            _ => open(self.device),
        });
        if let Some(beside) = what.beside {
            done = done.and_then(|()| match open(beside) {
                Err((code, _)) if unreachable(code) == Code::PEER_ACCESS_UNSUPPORTED => Ok(()),
                opened => opened,
            });
        }
        for &peer in peers {
            done = done.and_then(|()| open(peer));
        }
        done.map_err(|(code, lack)| {
            let bytes = what.handles[..mapped].iter().map(|(_, bytes)| bytes).sum();
            let undone = mapped == 0 || self.driver.unmap(at, bytes).is_ok();
            Failed {
                code,
                undone,
                mapping: true,
                lack,
            }
        })
    }
}

/// What it means that another device could not be given access.
fn unreachable(code: Code) -> Code {
    match code {
        Code::OUT_OF_MEMORY => code,
        _ => Code::PEER_ACCESS_UNSUPPORTED,
    }
}

impl State {
    /// Adds what was mapped at a range, all of its bytes taken.
    fn enter_attached(&mut self, what: &Attachment, range: Address, total: u64) -> Address {
        let pieces: Vec<_> = what
            .handles
            .iter()
            .map(|&(handle, bytes)| {
                let id = self.add_chunk(Chunk::new(handle, bytes));
                self.chunks.take(id, 0, bytes);
                (id, bytes)
            })
            .collect();
        self.stats.idle_bytes -= total;
        self.stats.shared_bytes += total;
        self.opened += if what.opened { total } else { 0 };
        let mut stitch = Stitch::new(range, pieces);
        stitch.opened = what.opened;
        stitch.access = what.access;
        stitch.also = what.also.or(what.beside);
        let window = Window {
            stitch: self.add_stitch(stitch),
            offset: what.offset,
            bytes: what.bytes,
        };
        let holder = Holder::Front(COMMON as u8);
        let at = range + what.offset;
        self.blocks.insert(at, Block { window, holder });
        let lent = Lent::attached(what.bytes, what.context);
        self.fronts().lock(COMMON).enter(at, lent, &Order::Unknown);
        at
    }

    /// Takes the attachment at an address out: its range and its handles.
    fn leave_attached(&mut self, at: Address) -> (Address, u64, Vec<(Handle, u64)>) {
        let block = self.blocks.remove(&at).expect("an attachment is a block");
        self.fronts().lock(COMMON).remove(at);
        let stitch = self.stitches.take(block.window.stitch);
        let stitch = stitch.expect("a stitch");
        let handles = stitch.pieces.iter().map(|piece| {
            let chunk = self.chunks.remove(piece.chunk);
            (chunk.handle, chunk.bytes)
        });
        let handles: Vec<_> = handles.collect();
        self.stats.physical_bytes -= stitch.bytes;
        self.stats.shared_bytes -= stitch.bytes;
        self.opened -= if stitch.opened { stitch.bytes } else { 0 };
        self.stats.chunks -= handles.len() as u64;
        (stitch.at, stitch.bytes, handles)
    }
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
