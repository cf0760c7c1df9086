//! The stitching pool of one device.
//!
//! Physical memory comes in *chunks* (one handle each); a *stitch* is a range
//! of addresses onto which whole chunks are mapped, and stitches alias; a
//! *block* is a window of a stitch whose bytes are free in every chunk below.
//! Any such window is lent without a driver call; when there is none, a stitch
//! is made from free chunks and only the shortfall in new ones.
//!
//! The pool never decides what a program is (that is `shim/`), never prints,
//! and holds no state lock across a driver call that can call back. Lock
//! order: growth, then state, then captures.

mod arena;
mod attach;
mod block;
mod build;
mod captures;
mod chunk;
mod chunks;
mod contexts;
mod debug;
mod export;
mod hash;
mod health;
mod lend;
mod peers;
mod picture;
mod plan;
mod request;
mod search;
mod serve;
mod slab;
mod state;
mod stats;
mod stitch;
mod streams;
mod trim;
mod wait;
mod warm;

pub use attach::Attachment;
pub use captures::{Beginning, CAPTURES, Captures};
pub use export::Export;
pub use peers::Grantee;
pub use request::{BlockInfo, Effort, NotOurs, Order, Owner, Refusal, Release, Request, StreamKey};
pub use stats::Stats;

use crate::config::{Debug, Policy};
use crate::driver::{Address, Code, Context, Driver, Result, Stream};
use arena::Bounds;
use slab::SLAB;
use state::State;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

type StateGuard<'a> = MutexGuard<'a, State>;

/// What a pool is told about its process.
#[derive(Default)]
pub struct Settings {
    /// [`Policy::Stitch`] or [`Policy::Direct`]; `Track` never reaches a pool.
    pub policy: Policy,
    /// Most physical bytes.
    pub limit: Option<u64>,
    /// Size of handles in bytes, where it is fixed.
    pub chunk: Option<u64>,
    /// Extra checks.
    pub debug: Debug,
    /// Called with no lock held where the driver had no memory left for a
    /// request, with its bytes and the moment when it first failed: true where
    /// another try is worth it. It must not call the pool.
    pub starving: Option<Box<dyn Fn(u64, Instant) -> bool + Send + Sync>>,
    /// Called with the counters after every change, under the state lock: it
    /// must be quick and must not call the pool.
    #[expect(clippy::type_complexity, reason = "a plain callback")]
    pub publish: Option<Box<dyn Fn(&Stats) + Send + Sync>>,
}

/// The pool of one device.
pub struct Pool<D> {
    driver: D,
    device: u32,
    settings: Settings,
    bounds: Bounds,
    growth: Mutex<()>,
    state: Mutex<State>,
    idle: AtomicU64,
    physical: AtomicU64,
}

impl<D: Driver> Pool<D> {
    /// An empty pool. Fails with the driver's code where the device has no
    /// virtual memory management, or a granularity other than 2 MiB's.
    pub fn new(driver: D, device: u32, settings: Settings) -> Result<Self> {
        let granularity = driver.granularity(device)?;
        if granularity == 0 || !plan::STEP.is_multiple_of(granularity) {
            return Err(Code::NOT_SUPPORTED);
        }
        Ok(Self {
            driver,
            device,
            settings,
            bounds: Bounds::default(),
            growth: Mutex::default(),
            state: Mutex::default(),
            idle: AtomicU64::new(0),
            physical: AtomicU64::new(0),
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
        if request.bytes == 0 || request.bytes > 1 << 50 {
            let code = if request.bytes == 0 {
                Code::INVALID_VALUE
            } else {
                Code::OUT_OF_MEMORY
            };
            return Err(code.into());
        }
        let request = &self.padded(request);
        let mut state = self.lock();
        state.stats.requests += 1;
        let at = match self.alloc_quickly(&mut state, request)? {
            Some(at) => {
                state.stats.hits += 1;
                self.publish(&mut state);
                drop(state);
                at
            }
            None => {
                drop(state);
                self.alloc_timed(request)?
            }
        };
        if let Err(code) = self.prepare(request, at) {
            // A fill may be under way: the bytes wait for the whole context.
            let _ = self.lock().free(&self.driver, at, Release::Unknown);
            return Err(code.into());
        }
        Ok(at)
    }

    /// Frees the allocation at this address.
    pub fn free(&self, at: Address, release: Release) -> std::result::Result<BlockInfo, NotOurs> {
        let overrun = self.is_overrun(at, release);
        let mut state = self.lock();
        let mut info = state.free(&self.driver, at, release)?;
        if let Release::Stream(key) = release {
            info.error = state.streams.health.error(key.context);
        }
        self.publish(&mut state);
        drop(state);
        if self.settings.policy == Policy::Direct {
            let began = Instant::now();
            self.trim(0);
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

    /// Is the address inside the pool's reservations at all? Takes no lock.
    pub fn contains(&self, at: Address) -> bool {
        self.bounds.contains(at)
    }

    /// Before a stream is destroyed: records what is outstanding on it.
    pub fn stream_ends(&self, context: Context, stream: Stream) {
        let mut state = self.lock();
        let settled = state.streams.settle(&self.driver, context, stream);
        state.streams.health.notice(context, settled);
        state.streams.forget(context, stream);
    }

    /// Before a stream begins a capture: records what is outstanding on it.
    pub fn capture_begins(&self, context: Context, stream: Stream) {
        let mut state = self.lock();
        let settled = state.streams.settle(&self.driver, context, stream);
        state.streams.health.notice(context, settled);
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
        self.idle.load(Ordering::Relaxed)
    }

    /// The counters; pending bytes are brought up to date.
    pub fn stats(&self) -> Stats {
        let mut state = self.lock();
        state.stats.pending_bytes = state.pending();
        state.stats
    }

    fn lock(&self) -> StateGuard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &mut State) {
        state.least_idle = state.least_idle.min(state.stats.idle_bytes);
        let stats = &state.stats;
        self.idle.store(stats.idle_bytes, Ordering::Relaxed);
        self.physical.store(stats.physical_bytes, Ordering::Relaxed);
        if let Some(publish) = &self.settings.publish {
            publish(stats);
        }
    }
}

const _: () = assert!(SLAB == plan::STEP && arena::RANGE_ALIGN == plan::STEP);

#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
