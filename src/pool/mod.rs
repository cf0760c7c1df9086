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
mod build;
mod captures;
mod chunk;
mod chunks;
mod debug;
mod hash;
mod plan;
mod request;
mod search;
mod slab;
mod state;
mod stats;
mod stitch;
mod streams;
mod trim;

pub use captures::{Beginning, CAPTURES, Captures};
pub use request::{BlockInfo, Effort, NotOurs, Order, Refusal, Release, Request, StreamKey};
pub use stats::Stats;

use crate::config::{Debug, Policy};
use crate::driver::{Address, Code, Context, Driver, Result, Stream};
use arena::Bounds;
use search::Usable;
use slab::{GRANULE, SLAB, SMALL_MAX};
use state::{Need, State, Window};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use streams::{StreamId, Use};

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
    lost: AtomicU64,
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
            lost: AtomicU64::new(0),
        })
    }

    /// The driver below.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Allocates. Fails with [`Refusal::NoWindow`] where only an existing
    /// window may be lent and there is none, with `OUT_OF_MEMORY` after all idle memory was considered
    /// and growth failed, with the sticky error of a broken context, and with
    /// `INVALID_VALUE` for 0 bytes.
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
                self.alloc_slowly(request)?
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
        self.publish(&mut state);
        drop(state);
        if self.settings.policy == Policy::Direct {
            self.trim(0);
        }
        info.bytes -= self.padding();
        info.overrun = overrun;
        Ok(info)
    }

    /// The live allocation around an address.
    pub fn find(&self, at: Address) -> Option<BlockInfo> {
        let mut info = self.lock().find(at)?;
        info.bytes -= self.padding();
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
        self.notice(&mut state, settled);
        state.streams.forget(context, stream);
    }

    /// Before a stream begins a capture: records what is outstanding on it.
    pub fn capture_begins(&self, context: Context, stream: Stream) {
        let mut state = self.lock();
        let settled = state.streams.settle(&self.driver, context, stream);
        self.notice(&mut state, settled);
    }

    /// A sticky error of the device's context was seen: allocations return it
    /// from now on.
    pub fn freeze(&self, code: Code) {
        self.lock().frozen.get_or_insert(code);
    }

    /// A context was destroyed: nothing of it runs any more.
    pub fn context_ends(&self, context: Context) {
        self.lock().streams.forget_context(context);
    }

    /// Waits on the host for a whole context, as cudaFree does. `Ok(false)`
    /// where that is impossible because a capture is under way.
    pub fn synchronize(&self, context: Context) -> Result<bool> {
        let places = self.lock().streams.places(context);
        let Some(waited) = self.wait_for_context(context) else {
            return Ok(false);
        };
        let mut state = self.lock();
        state.stats.host_waits += 1;
        self.notice(&mut state, waited);
        waited?;
        for (stream, place) in places {
            state.streams.passed(stream, place);
        }
        Ok(true)
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
        let stats = &state.stats;
        self.idle.store(stats.idle_bytes, Ordering::Relaxed);
        self.physical.store(stats.physical_bytes, Ordering::Relaxed);
        if let Some(publish) = &self.settings.publish {
            publish(stats);
        }
    }

    /// Remembers an error that stays with its context.
    fn notice(&self, state: &mut State, result: Result<()>) {
        if let Err(code) = result
            && code.is_sticky()
        {
            state.frozen.get_or_insert(code);
        }
    }

    /// What the slabs and the warm windows can serve: no driver call but, for
    /// another address on the same stream, an event record and wait.
    fn alloc_quickly(&self, state: &mut State, request: &Request) -> Result<Option<Address>> {
        if let Some(code) = state.frozen {
            return Err(code);
        }
        if self.settings.policy == Policy::Direct {
            return Ok(None);
        }
        let stream = state.stream(request.order);
        let served = if is_small(request) {
            state.lend_small(&self.driver, request, stream)
        } else {
            self.lend_again(state, request, stream)
        };
        match served {
            // Ordering was impossible just now; the slow path knows more ways.
            Err(Code::NOT_READY) => Ok(None),
            served => served,
        }
    }

    /// A window of this very length that was free a moment, or longer, ago.
    fn lend_again(
        &self,
        state: &mut State,
        request: &Request,
        stream: Option<StreamId>,
    ) -> Result<Option<Address>> {
        let need = need(request, stream);
        if let Some(at) = state.lend_warm(request, need) {
            return Ok(Some(at));
        }
        state.settle_warm();
        let Some(window) = state.recall(need, Usable::Ready(stream)) else {
            return Ok(None);
        };
        self.claim(state, request, window).map(Some)
    }

    /// Lends a window that is free: orders the request behind its uses.
    fn claim(&self, state: &mut State, request: &Request, window: Window) -> Result<Address> {
        let stream = state.stream(request.order);
        let uses = state.uses(window);
        state.order(&self.driver, stream, &uses, window.stitch)?;
        state.take(window);
        Ok(state.lend(request, window))
    }

    /// Everything else, one builder at a time: a search over all windows, a
    /// stitch of what is free, growth, and last a wait for what is pending.
    fn alloc_slowly(&self, request: &Request) -> std::result::Result<Address, Refusal> {
        let _builder = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waited = false;
        let mut ready_only = false;
        loop {
            let mut state = self.lock();
            state.stats.searches += 1;
            let polled = self.make_ready(&mut state);
            self.notice(&mut state, polled);
            // Somebody may have freed the very thing meanwhile.
            let (mut state, served) = match self.alloc_quickly(&mut state, request)? {
                Some(at) => {
                    state.stats.hits += 1;
                    (state, Ok(at))
                }
                None => self.alloc_window(state, request, ready_only),
            };
            let refused = match served {
                Ok(at) => {
                    self.publish(&mut state);
                    return Ok(at);
                }
                Err(refused) => refused,
            };
            let short = matches!(
                refused,
                Refusal::Driver(Code::OUT_OF_MEMORY | Code::NOT_READY)
            );
            if short && !waited {
                drop(state);
                waited = true;
                self.wait_for_pending()?;
                continue;
            }
            if refused == Refusal::Driver(Code::NOT_READY) && !ready_only {
                // Bytes that cannot be ordered behind their uses (a capture, or
                // another thread's default stream) are no reason to fail: grow.
                ready_only = true;
                continue;
            }
            self.publish(&mut state);
            if !short {
                return Err(refused);
            }
            state.stats.out_of_memory += 1;
            return Err(Code::OUT_OF_MEMORY.into());
        }
    }

    fn make_ready(&self, state: &mut State) -> Result<()> {
        state.streams.poll(&self.driver)?;
        state.settle_warm();
        Ok(())
    }

    /// A window for a request (or for the slab that a small one needs).
    fn alloc_window<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        request: &Request,
        ready_only: bool,
    ) -> (StateGuard<'a>, std::result::Result<Address, Refusal>) {
        let stream = state.stream(request.order);
        let small = is_small(request) && self.settings.policy != Policy::Direct;
        let need = match small {
            true => Need {
                bytes: SLAB,
                align: SLAB,
                stream,
            },
            false => need(request, stream),
        };
        if !small {
            state.reap_slabs(0);
        }
        let (mut state, found) = self.find_window(state, need, request.effort, ready_only);
        let window = match found {
            Ok(window) => window,
            Err(refused) => return (state, Err(refused)),
        };
        if !small {
            let at = state.lend(request, window);
            return (state, Ok(at));
        }
        // Ordered behind earlier uses for this stream alone, so the slab's
        // bytes count as used by it.
        let last = stream.map(|stream| state.streams.tag(&self.driver, stream, window.stitch));
        let last = match last.transpose() {
            Ok(last) => last.unwrap_or(Use::DONE),
            Err(code) => return (state, Err(code.into())),
        };
        state.add_slab(request, window, last);
        let lent = state.lend_small(&self.driver, request, stream);
        let lent = lent.map(|at| at.expect("an empty slab holds any small request"));
        (state, lent.map_err(Refusal::from))
    }

    /// Finds or builds a window and takes its bytes.
    fn find_window<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        need: Need,
        effort: Effort,
        ready_only: bool,
    ) -> (StateGuard<'a>, std::result::Result<state::Window, Refusal>) {
        let direct = self.settings.policy == Policy::Direct;
        let passes: &[Usable] = match need.stream {
            _ if direct => &[],
            Some(_) if !ready_only => &[Usable::Ready(need.stream), Usable::All],
            Some(_) => &[Usable::Ready(need.stream)],
            None => &[Usable::Ready(None)],
        };
        for &usable in passes {
            let found = state.recall(need, usable);
            if let Some(window) = found.or_else(|| state.search(need, usable)) {
                let uses = state.uses(window);
                let ordered = state.order(&self.driver, need.stream, &uses, window.stitch);
                if let Err(code) = ordered {
                    return (state, Err(code.into()));
                }
                state.take(window);
                state.stats.hits += 1;
                return (state, Ok(window));
            }
            let plan = state.plan(need, usable, self.settings.chunk);
            if plan.growth() == 0 && effort == Effort::Growth {
                let (state, built) = self.build(state, &plan, need);
                return (state, built.map_err(Refusal::from));
            }
        }
        if effort == Effort::Window {
            return (state, Err(Refusal::NoWindow));
        }
        let plan = match passes.last() {
            Some(&usable) => state.plan(need, usable, self.settings.chunk),
            None => plan::Plan {
                fresh: vec![need.bytes.next_multiple_of(plan::STEP)],
                ..plan::Plan::default()
            },
        };
        let (state, built) = self.build(state, &plan, need);
        (state, built.map_err(Refusal::from))
    }

    /// Waits on the host for every outstanding use.
    fn wait_for_pending(&self) -> Result<()> {
        let mut state = self.lock();
        state.stats.host_waits += 1;
        let events = state.streams.outstanding(&self.driver)?;
        drop(state);
        for (stream, seq, event) in events {
            let waited = self.driver.synchronize_event(event);
            let mut state = self.lock();
            self.notice(&mut state, waited);
            waited?;
            state.streams.passed(stream, seq);
        }
        // What no event could cover, a wait for its context does.
        let uncovered = self.lock().streams.uncovered_contexts();
        for context in uncovered {
            self.synchronize(context)?;
        }
        Ok(())
    }

    /// Records a context-wide event under the captures' lock, then waits for
    /// it without; `None` during a capture.
    fn wait_for_context(&self, context: Context) -> Option<Result<()>> {
        let recorded = CAPTURES.exclude(|| {
            let event = self.driver.create_event(context)?;
            let recorded = self.driver.record_context(event, context);
            if recorded.is_err() {
                let _ = self.driver.destroy_event(event);
            }
            recorded.map(|()| event)
        })?;
        let waited = recorded.and_then(|event| {
            let waited = self.driver.synchronize_event(event);
            let _ = self.driver.destroy_event(event);
            waited
        });
        // No such event (a driver older than 12.5), or none to be had now:
        // wait the plain way. What stays with the context would come again.
        Some(waited.or_else(|code| match code.is_sticky() {
            true => Err(code),
            false => self.driver.synchronize_context(context),
        }))
    }
}

fn is_small(request: &Request) -> bool {
    request.bytes <= SMALL_MAX && request.align <= GRANULE
}

fn need(request: &Request, stream: Option<StreamId>) -> Need {
    Need {
        bytes: request.bytes.next_multiple_of(GRANULE),
        align: request.align,
        stream,
    }
}

const _: () = assert!(SLAB == plan::STEP && arena::RANGE_ALIGN == plan::STEP);

#[cfg(test)]
mod tests;
