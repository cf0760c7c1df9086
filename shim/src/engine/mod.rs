//! The state of the library in this process, from the moment at which it was
//! started (`hooks/start`). Until then, and wherever it cannot start, every hook
//! is the real function.

pub mod boundary;
pub mod device;
pub mod endings;
pub mod reserve;
pub mod worker;

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use memcuda_core::config::{Config, Policy};
use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Context, Driver, Stream};
use memcuda_core::names::rules::Rules;
use memcuda_core::pages::{Contexts, Pages};
use memcuda_core::pool::{Owner, Pool, Request, Stats, StreamKey};

use crate::counters::stats_page::Page;
use crate::counters::track::Track;
use crate::driver::calls::Calls;
use crate::driver::captures::Captures;
use crate::driver::{places, primaries};
use crate::engine::device::Device;
use crate::process::threads;
use crate::record::{Caller, Freeing, Recorder};

static STATE: AtomicU8 = AtomicU8::new(UNSTARTED);
static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(ptr::null_mut());
static TAKES_WORK: AtomicBool = AtomicBool::new(true);

/// `cuInit` has not succeeded yet.
const UNSTARTED: u8 = 0;
/// One thread is starting the engine.
const STARTING: u8 = 1;
/// The same, and the `cuInit` of another one has come back: no hook sees the contexts that
/// it makes now.
const PASSED: u8 = 2;
/// Hooks do their work.
const RUNNING: u8 = 3;
/// Hooks are the real functions, for good: disabled, unusable driver, wrong
/// settings, or a forked child.
const ASIDE: u8 = 4;

/// Everything that the hooks share. Made once, never freed.
pub struct Engine {
    /// The settings of this process.
    pub config: Config,
    /// The driver, as the pool uses it.
    pub driver: Real,
    /// The driver, as the hooks use it.
    pub calls: Calls,
    /// The devices by ordinal.
    pub devices: Vec<Device>,
    /// Which allocations get a name.
    pub rules: Rules,
    /// The contexts that the program has had.
    pub contexts: Arc<Contexts>,
    /// The stream captures under way.
    pub captures: Captures,
    /// The books of `MEMCUDA_POLICY=track`.
    pub track: Track,
    /// The statistics page.
    pub page: &'static Page,
    /// The recording, where one is made (`MEMCUDA_TRACE`).
    pub recorder: Option<Recorder>,
    /// What the library's own thread does (`worker`).
    pub duty: fn(&Engine),
}

/// The engine, while hooks do their work.
pub fn running() -> Option<&'static Engine> {
    if STATE.load(Ordering::Acquire) != RUNNING {
        return None;
    }
    // SAFETY: published before the state, never freed.
    unsafe { ENGINE.load(Ordering::Acquire).as_ref() }
}

/// Are hooks the real functions, for good?
pub fn is_aside() -> bool {
    STATE.load(Ordering::Acquire) == ASIDE
}

/// Is this address one of a pool's, as far as there are any?
pub fn is_pooled(address: Address) -> bool {
    running().is_some_and(|engine| engine.owner(address).is_some())
}

/// Starts with the engine that is made now, once; later calls do nothing. Where
/// none can be made, hooks stay the real functions. Was this the first one?
pub fn start(make: impl FnOnce() -> Option<Engine>) -> bool {
    let turn = |from, to| {
        let turned = STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        turned.is_ok()
    };
    if !turn(UNSTARTED, STARTING) {
        turn(STARTING, PASSED);
        return false;
    }
    let Some(engine) = make() else {
        STATE.store(ASIDE, Ordering::Release);
        return true;
    };
    let contexts = Arc::clone(&engine.contexts);
    ENGINE.store(Box::into_raw(Box::new(engine)), Ordering::Release);
    if !turn(STARTING, RUNNING) {
        contexts.are_unknown();
        STATE.store(RUNNING, Ordering::Release);
    }
    true
}

/// Turns every hook into the real function: in a forked child.
pub fn leave_alone() {
    STATE.store(ASIDE, Ordering::Release);
}

/// After an internal error: new memory comes from the real driver, what was
/// lent is still taken back.
pub fn stop_taking_work() {
    TAKES_WORK.store(false, Ordering::Release);
}

impl Engine {
    /// Does the pool still lend? Not after an internal error, and not under
    /// `MEMCUDA_POLICY=track`.
    pub fn lends(&self) -> bool {
        self.config.policy != Policy::Track && TAKES_WORK.load(Ordering::Acquire)
    }

    /// The current context and its device.
    pub fn current(&self) -> Result<(Context, &Device), Code> {
        let context = self.calls.current()?;
        Ok((context, self.device_of(context)?))
    }

    /// The context for which this thread asks for a device's memory: the current one, or where
    /// there is none the primary one, which the runtime makes current before the thread's first
    /// work.
    pub fn context_for(&self, device: &Device) -> Option<Context> {
        let current = self.calls.current().ok();
        current.or_else(|| self.primary_of(device))
    }

    /// The primary context of a device, if it is active.
    pub fn primary_of(&self, device: &Device) -> Option<Context> {
        let _still = primaries::hold();
        let primary = self.calls.relaxed(|| self.calls.primary(device.handle));
        primary.ok().flatten()
    }

    /// The context of a stream and its device; else the driver's code.
    #[inline(always)]
    pub fn of_stream(&self, stream: Stream) -> Result<(Context, &Device), Code> {
        let context = match stream.is_default() {
            true => self.calls.current()?,
            false => places::context_of(stream, || self.calls.context_of(stream))?,
        };
        Ok((context, self.device_of(context)?))
    }

    /// The device of a context.
    pub fn device_of(&self, context: Context) -> Result<&Device, Code> {
        let ask = || {
            let handle = self
                .calls
                .within(context, || self.calls.current_device())??;
            // The driver tells it of a context that has ended, too.
            if let Err(Code::CONTEXT_IS_DESTROYED) = self.driver.check(context) {
                return Err(Code::CONTEXT_IS_DESTROYED);
            }
            let mut devices = self.devices.iter();
            let place = devices.position(|device| device.handle == handle);
            place.ok_or(Code::INVALID_DEVICE)
        };
        Ok(&self.devices[places::device_of(context, ask)?])
    }

    /// The device of a driver's handle (`CUdevice`).
    pub fn by_handle(&self, handle: i32) -> Option<&Device> {
        self.devices.iter().find(|device| device.handle == handle)
    }

    /// The device with this ordinal.
    pub fn by_ordinal(&self, ordinal: u32) -> Option<&Device> {
        self.devices.get(ordinal as usize)
    }

    /// The pool of the device with this ordinal, if it was made already.
    pub fn pool_of(&self, ordinal: u32) -> Option<&Pool<Real>> {
        self.by_ordinal(ordinal)?.pool()
    }

    /// The pools that there are, device by device.
    pub fn pools(&self) -> impl Iterator<Item = &Pool<Real>> {
        self.devices.iter().filter_map(Device::pool)
    }

    /// The pages below torch's expandable segments, device by device.
    pub fn pages(&self) -> impl Iterator<Item = &Pages<Real>> {
        self.devices.iter().filter_map(Device::pages)
    }

    /// The device in whose pool an address lies, and that pool.
    pub fn owner(&self, address: Address) -> Option<(&Device, &Pool<Real>)> {
        let pools = self.devices.iter();
        let mut pools = pools.filter_map(|device| Some((device, device.pool()?)));
        pools.find(|(_, pool)| pool.contains(address))
    }

    /// A stream's identity for the pool, on the calling thread.
    pub fn key(&self, context: Context, stream: Stream) -> StreamKey {
        let own = stream == Stream::PER_THREAD;
        StreamKey::new(context, stream, if own { threads::number() } else { 0 })
    }

    /// Records a free that begins, where that is done.
    pub fn freeing(&self, device: u32, address: Address, caller: Caller) -> Option<Freeing<'_>> {
        let recorder = self.recorder.as_ref()?;
        Some(recorder.freeing(address, device, caller))
    }

    /// The plain driver gave memory out; counted under `MEMCUDA_POLICY=track`.
    pub fn plain_allocated(
        &self,
        device: &Device,
        request: &Request,
        address: Address,
        caller: Caller,
    ) {
        let ordinal = device.ordinal;
        if let Some(recorder) = &self.recorder {
            recorder.plain_gave(ordinal, request, address, caller);
        }
        if self.config.policy == Policy::Track {
            let ends_with = (request.owner == Owner::Context).then_some(request.context);
            let memory = (address, request.bytes);
            self.track
                .allocated(ordinal, ends_with, memory, self.tracked());
        }
    }

    /// Runs the plain driver's free. What is kept of the memory leaves before: once the driver
    /// has it, another thread may be given its address.
    pub fn plain_free(
        &self,
        address: Address,
        caller: Caller,
        real: impl FnOnce() -> Code,
    ) -> Code {
        let freeing = self.freeing(0, address, caller);
        let tracks = self.config.policy == Policy::Track;
        let left = tracks.then(|| self.track.leaves(address, self.tracked()));
        let code = real();
        if code != Code::SUCCESS {
            if let Some(left) = left.flatten() {
                self.track.stays(address, left, self.tracked());
            }
            return code;
        }
        if let Some(freeing) = freeing {
            freeing.of_others();
        }
        if !tracks && let Ok((_, device)) = self.current() {
            device.count_foreign_free(self.page);
        }
        code
    }

    /// Shows what the books of `MEMCUDA_POLICY=track` say.
    fn tracked(&self) -> impl Fn(u32, &Stats) {
        |device, totals| self.page.publish(device, totals, 0)
    }

    /// Runs work on a pool with a context of its device current, where one is
    /// known; `None` where that context cannot be made current.
    pub fn within<T>(&self, pool: &Pool<Real>, work: impl FnOnce() -> T) -> Option<T> {
        match pool.context() {
            Some(context) => self.calls.within(context, work).ok(),
            None => Some(work()),
        }
    }

    /// A context is gone, and the plain driver's memory of it. Recorded after the
    /// pools have heard it.
    pub fn plain_context_ended(&self, context: Context) {
        if let Some(recorder) = &self.recorder {
            recorder.context_ended(context);
        }
        self.track.context_ended(context, self.tracked());
    }
}
