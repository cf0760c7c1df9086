//! The stitching pool of one device.
//!
//! Physical memory comes in *chunks* (one handle each); a *stitch* is a range
//! of addresses onto which whole chunks are mapped, and stitches alias; a
//! *block* is a window of a stitch whose bytes are free in every chunk below.
//! Any such window is lent without a driver call; when there is none, a stitch
//! is made from free chunks and only the shortfall in new ones.
//!
//! The pool never decides what a program is (that is `shim/`), never prints,
//! and holds no state lock across a driver call that can call back. A hit takes
//! one lock, that of its stream's *front*. Lock order: growth, then state, then a
//! front or captures.

mod addresses;
mod arena;
mod attach;
mod block;
mod build;
mod captures;
mod chunk;
mod chunks;
mod contexts;
mod debug;
mod ends;
mod export;
mod front;
mod groups;
mod growing;
mod handles;
mod hash;
mod health;
mod host_waits;
mod lend;
mod peers;
mod picture;
mod plan;
mod ranges;
mod reach;
mod request;
mod retire;
mod search;
mod serve;
mod slab;
mod slots;
mod slow;
mod state;
mod stats;
mod stitch;
mod streams;
pub(crate) mod timeline;
mod to_have;
mod trim;
mod wait;
mod warm;
mod whole;

pub use attach::Attachment;
pub use captures::{Beginning, CAPTURES, Captures};
pub use export::Export;
pub use front::{FRONTS, Line, WORDS as LINE_WORDS};
pub use host_waits::Place;
pub use peers::Grantee;
pub use request::{
    BlockInfo, Effort, Lack, NotOurs, Order, Owner, Refusal, Release, Request, StreamKey,
};
pub use slow::STALL;
pub use stats::Stats;

use crate::config::{Debug, Policy};
use crate::driver::{Access, Address, Code, Context, Driver, Result};
use crate::lock;
use crate::units::HANDLE;
use arena::Bounds;
use front::{Fronts, Sum};
use slab::SLAB;
use state::State;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Instant;
use timeline::Timeline;

type StateGuard<'a> = MutexGuard<'a, State>;

/// Bytes beyond which a request is none: sums of such lengths and of alignments are 64 bits.
const MOST: u64 = 1 << 50;

/// What a pool is told about its process.
#[derive(Default)]
pub struct Settings {
    /// [`Policy::Stitch`] or [`Policy::Direct`]; `Track` never reaches a pool.
    pub policy: Policy,
    /// Most physical bytes.
    pub limit: Option<u64>,
    /// Bytes of the device; `None` where they are not known.
    pub total: Option<u64>,
    /// What else of the device the limit counts: bytes held, and those of them that
    /// nobody uses. Called under the state lock: it must be quick and must not call
    /// the pool.
    pub beside: Option<Box<dyn Fn() -> (u64, u64) + Send + Sync>>,
    /// Asked in the same way where there is a limit: may the pool come to hold so many
    /// bytes? If so they count for what is beside it, until it is told 0: they are there, or
    /// could not be made.
    pub claim: Option<Box<dyn Fn(u64) -> bool + Send + Sync>>,
    /// Has the process a limit of its addresses, which the program needs, too?
    pub few_addresses: bool,
    /// Has the process other devices, which may be let in? Then the first mapping of a handle stays
    /// while it has others.
    pub beside_devices: bool,
    /// Size of handles in bytes, where it is fixed.
    pub chunk: Option<u64>,
    /// True while no stream may be ordered behind another one for what it is lent.
    pub independent: Arc<AtomicBool>,
    /// Extra checks.
    pub debug: Debug,
    /// Keep what was lent and held in the last minute, for pictures.
    pub timeline: bool,
    /// Called with no lock held where there was no memory left for a
    /// request, with its bytes, the moment when it first failed and what lacks:
    /// true where another try is worth it. It may have the pool give back, and ask it for nothing.
    #[expect(clippy::type_complexity, reason = "a plain callback")]
    pub starving: Option<Box<dyn Fn(u64, Instant, Lack) -> bool + Send + Sync>>,
    /// Where the fronts count, [`FRONTS`] lines; memory of the pool's own if fewer.
    pub lines: Option<&'static [Line]>,
    /// Called with all that the fronts do not count, and with the bytes that a limit counts,
    /// after each change and under the state lock: it must be quick and must not call the pool.
    #[expect(clippy::type_complexity, reason = "a plain callback")]
    pub publish: Option<Box<dyn Fn(&Stats, u64) + Send + Sync>>,
}

/// The pool of one device.
pub struct Pool<D> {
    driver: D,
    device: u32,
    settings: Settings,
    bounds: Bounds,
    growth: Mutex<()>,
    state: Mutex<State>,
    fronts: Arc<Fronts>,
    /// Physical bytes that are not attached.
    own: AtomicU64,
    physical: AtomicU64,
    /// Of these what [`State::counted`] says.
    counted: AtomicU64,
}

impl<D: Driver> Pool<D> {
    /// An empty pool. Fails with the driver's code where the device has no
    /// virtual memory management, or a granularity other than 2 MiB's.
    pub fn new(driver: D, device: u32, settings: Settings) -> Result<Self> {
        // With a smaller one others' handles, too, need be no whole number of steps.
        if driver.granularity(device)? != HANDLE {
            return Err(Code::NOT_SUPPORTED);
        }
        let fronts = Arc::new(Fronts::new(settings.lines));
        let timeline = settings.timeline.then(Timeline::default);
        let bounds = Bounds::new(settings.total, settings.few_addresses);
        let mut state = State::new(Arc::clone(&fronts), timeline);
        state.retired.keeps_first = settings.beside_devices;
        Ok(Self {
            driver,
            device,
            settings,
            bounds,
            growth: Mutex::default(),
            state: Mutex::new(state),
            fronts,
            own: AtomicU64::new(0),
            physical: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        })
    }

    /// The driver below.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Allocates. Fails with [`Refusal::NoWindow`] where only an existing
    /// window may be lent and there is none, with `OUT_OF_MEMORY` after all
    /// idle memory was considered and growth failed, with the sticky error of
    /// a broken context, and with `INVALID_VALUE` for 0 bytes.
    pub fn alloc(&self, request: &Request) -> std::result::Result<Address, Refusal> {
        if request.bytes == 0 {
            return Err(Code::INVALID_VALUE.into());
        }
        if request.bytes > MOST {
            // That its context is broken comes first, as with any other length.
            (self.lock().streams.health).check(&self.driver, request.context)?;
            return Err(Code::OUT_OF_MEMORY.into());
        }
        let padded;
        let request = match self.padding() {
            0 => request,
            _ => {
                padded = self.padded(request);
                &padded
            }
        };
        let at = match self.alloc_at_front(request) {
            Ok(at) => at,
            Err(miss) => self.alloc_behind(request, miss)?,
        };
        if let Err(code) = self.prepare(request, at) {
            // A fill may be under way: the bytes wait for the whole context.
            let _ = self.lock().free(&self.driver, at, Release::Unknown);
            return Err(code.into());
        }
        Ok(at)
    }

    /// What its front could not serve.
    #[cold]
    fn alloc_behind(
        &self,
        request: &Request,
        miss: serve::Miss,
    ) -> std::result::Result<Address, Refusal> {
        let mut state = self.lock();
        let before = (state.stats.edges, state.stats.waits);
        let served = self.alloc_quickly(&mut state, request, miss);
        if !matches!(served, Ok(Some(_))) {
            state.stats.hits = state.stats.hits.wrapping_sub(1);
        }
        if served.is_err() || before != (state.stats.edges, state.stats.waits) {
            self.publish(&mut state);
        }
        drop(state);
        match served? {
            Some(at) => Ok(at),
            None => self.alloc_timed(request),
        }
    }

    /// Frees the allocation at this address.
    pub fn free(&self, at: Address, release: Release) -> std::result::Result<BlockInfo, NotOurs> {
        let overrun = self.is_overrun(at, release);
        let mut info = match self.free_at_front(at, release) {
            Some(info) => info,
            None => self.free_behind(at, release)?,
        };
        if self.settings.policy == Policy::Direct {
            let began = Instant::now();
            self.trim();
            self.count_stall(began);
        }
        info.bytes -= self.padding();
        info.overrun = overrun;
        Ok(info)
    }

    /// The live allocation around an address.
    pub fn find(&self, at: Address) -> Option<BlockInfo> {
        let mut info = self.lock().find(at)?;
        if !info.attached {
            info.bytes -= self.padding();
        }
        (at - info.base < info.bytes).then_some(info)
    }

    /// What the pool's own device may do with the memory at this address, where a block is:
    /// all, but with some that was attached.
    pub fn access(&self, at: Address) -> Option<Access> {
        let state = self.lock();
        let (_, block) = state.blocks.range(..=at).next_back()?;
        Some(state.stitch(block.window.stitch).access)
    }

    /// Is the address inside the pool's reservations at all? Takes no lock.
    pub fn contains(&self, at: Address) -> bool {
        self.bounds.contains(at)
    }

    /// An error that stays with its context was seen: allocations there return
    /// it from now on.
    pub fn freeze(&self, context: Context, code: Code) {
        self.lock().streams.health.notice(context, Err(code));
    }

    /// A context of the device that lives and is not broken, if the pool knows
    /// one.
    pub fn context(&self) -> Option<Context> {
        self.lock().streams.health.whole()
    }

    /// Physical bytes held.
    pub fn physical(&self) -> u64 {
        self.physical.load(Ordering::Relaxed)
    }

    /// Physical bytes held and not lent.
    pub fn idle(&self) -> u64 {
        let own = self.own.load(Ordering::Relaxed);
        own.saturating_sub(self.fronts.sum(Sum::Granted))
    }

    fn idle_of(&self, state: &State) -> u64 {
        let granted = self.fronts.sum(Sum::Granted);
        state.stats.idle_bytes.saturating_sub(granted)
    }

    /// Live bytes of [`Owner::MemoryPool`], and the most that they were since
    /// [`Pool::restart_pooled`].
    pub fn pooled(&self) -> (u64, u64) {
        let now = self.fronts.sum(Sum::Pooled);
        (now, self.fronts.peak(Sum::Pooled).max(now))
    }

    /// Starts their peak anew from what they are now, and returns what it was.
    pub fn restart_pooled(&self) -> u64 {
        let _state = self.lock();
        let (_, peak) = self.pooled();
        self.fronts.restart(Sum::Pooled);
        peak
    }

    /// The counters; pending bytes are brought up to date.
    pub fn stats(&self) -> Stats {
        let mut state = self.lock();
        state.stats.pending_bytes = state.pending();
        self.counters(&state)
    }

    /// The counters, pending bytes as of the last time that they were asked for.
    fn counters(&self, state: &State) -> Stats {
        let mut stats = state.stats;
        self.fronts.add_to(&mut stats);
        stats
    }

    /// See [`Settings::beside`].
    fn beside(&self) -> (u64, u64) {
        self.settings
            .beside
            .as_ref()
            .map_or((0, 0), |beside| beside())
    }

    /// As [`Settings::claim`] says.
    fn may_hold(&self, bytes: u64) -> bool {
        let claim = self.settings.claim.as_ref();
        claim.is_none_or(|claim| claim(bytes))
    }

    /// Nobody else builds meanwhile, nor takes anything away.
    fn builder(&self) -> Builder<'_, D> {
        let held = lock::lock(&self.growth);
        Builder(self, held)
    }

    /// The same; `None` where somebody builds just now.
    fn try_builder(&self) -> Option<Builder<'_, D>> {
        let held = match self.growth.try_lock() {
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Ok(held) => held,
        };
        Some(Builder(self, held))
    }

    fn lock(&self) -> StateGuard<'_> {
        lock::lock(&self.state)
    }

    fn publish(&self, state: &mut State) {
        state.note_idle();
        state.note_change();
        let stats = &state.stats;
        self.own.store(stats.idle_bytes, Ordering::Relaxed);
        self.physical.store(stats.physical_bytes, Ordering::Relaxed);
        self.counted.store(state.counted(), Ordering::Relaxed);
        if let Some(publish) = &self.settings.publish {
            publish(stats, state.counted());
        }
    }
}

/// The growth lock. What was built is there before it is let go.
struct Builder<'a, D: Driver>(
    &'a Pool<D>,
    #[expect(dead_code, reason = "held")] MutexGuard<'a, ()>,
);

impl<D: Driver> Drop for Builder<'_, D> {
    fn drop(&mut self) {
        if self.0.settings.limit.is_some() {
            self.0.may_hold(0);
        }
    }
}

const _: () = assert!(SLAB == HANDLE);

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
