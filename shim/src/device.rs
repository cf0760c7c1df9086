//! A device of this process: its pool, made at the first request, and what the
//! driver's own memory pool for it says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Code, sys};
use memcuda_core::pool::{Pool, Settings, Stats};

use crate::calls::{Calls, MemPool};
use crate::engine::Engine;

/// A sum that the driver's memory pool keeps of itself, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// Held from the device.
    Reserved,
    /// The most held since the peak was last set.
    ReservedPeak,
    /// Lent to the program.
    Used,
    /// The most lent since the peak was last set.
    UsedPeak,
}

/// What is kept of our pool beside its own counters; shared with the callback
/// that the pool makes at every change.
#[derive(Default)]
struct Beside {
    /// Most bytes held since the program set the driver's peak.
    reserved_peak: AtomicU64,
    /// Most bytes lent since then.
    used_peak: AtomicU64,
    /// Frees of addresses that are not the pool's.
    foreign_frees: AtomicU64,
}

/// One device.
pub struct Device {
    /// Its ordinal, as the process sees it.
    pub ordinal: u32,
    /// The driver's handle of it (`CUdevice`).
    pub handle: i32,
    /// The size to whose multiples the driver rounds a pitch, in bytes; 0
    /// while it is not known. See `cuMemAllocPitch`.
    pub pitch_unit: AtomicU64,
    pool: OnceLock<Option<Pool<Real>>>,
    default_mem_pool: OnceLock<Option<MemPool>>,
    beside: &'static Beside,
    other_mem_pool: AtomicBool,
    asked_mem_pool: AtomicBool,
}

impl Device {
    /// All devices of the process.
    pub fn all(calls: &Calls) -> Vec<Self> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { (calls.device_count)(&mut count) };
        let device = |ordinal: u32| {
            let mut handle = 0;
            // SAFETY: the pointer is valid for the call.
            let code = unsafe { (calls.device_get)(&mut handle, ordinal as i32) };
            (code == Code::SUCCESS).then(|| Self {
                ordinal,
                handle,
                pitch_unit: AtomicU64::new(0),
                pool: OnceLock::new(),
                default_mem_pool: OnceLock::new(),
                beside: Box::leak(Box::default()),
                other_mem_pool: AtomicBool::new(false),
                asked_mem_pool: AtomicBool::new(false),
            })
        };
        (0..count.max(0) as u32).filter_map(device).collect()
    }

    /// The pool, made now if need be; `None` where the device cannot have one
    /// (said once). A context of the device is current.
    pub fn pool(&self, engine: &Engine) -> Option<&Pool<Real>> {
        self.pool
            .get_or_init(|| match self.make(engine) {
                Ok(pool) => Some(pool),
                Err(code) => {
                    crate::log!(
                        Warn,
                        "device {} has no virtual memory management for this process ({code:?}); \
                         its memory comes from the plain driver",
                        self.ordinal
                    );
                    None
                }
            })
            .as_ref()
    }

    /// The pool if it was made already.
    pub fn made(&self) -> Option<&Pool<Real>> {
        self.pool.get()?.as_ref()
    }

    fn make(&self, engine: &Engine) -> Result<Pool<Real>, Code> {
        let mut supported = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe {
            let attribute = engine.calls.device_attribute;
            attribute(&mut supported, sys::ATTRIBUTE_VMM, self.handle).ok()?;
        }
        if supported == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let (page, ordinal, beside) = (engine.page, self.ordinal, self.beside);
        let publish = move |stats: &Stats| {
            let peak = Ordering::Relaxed;
            beside.reserved_peak.fetch_max(stats.physical_bytes, peak);
            beside.used_peak.fetch_max(stats.live_bytes, peak);
            page.publish(ordinal, stats, beside.foreign_frees.load(peak));
        };
        let settings = Settings {
            policy: engine.config.policy,
            limit: engine.config.limit_of(self.ordinal),
            chunk: engine.config.chunk,
            debug: engine.config.debug,
            publish: Some(Box::new(publish)),
        };
        Pool::new(engine.driver, self.ordinal, settings)
    }

    /// An address that is not ours was freed by the driver.
    pub fn count_foreign_free(&self) {
        self.beside.foreign_frees.fetch_add(1, Ordering::Relaxed);
    }

    /// What our pool adds to a sum of the driver's default memory pool.
    pub fn mem_pool_sum(&self, sum: Sum) -> u64 {
        let stats = || self.made().map(Pool::stats).unwrap_or_default();
        match sum {
            Sum::Reserved => stats().physical_bytes,
            Sum::ReservedPeak => self.beside.reserved_peak.load(Ordering::Relaxed),
            Sum::Used => stats().live_bytes,
            Sum::UsedPeak => self.beside.used_peak.load(Ordering::Relaxed),
        }
    }

    /// Starts a peak anew from what is held now; for the other sums, nothing.
    pub fn restart_peak(&self, sum: Sum) {
        let (peak, now) = match sum {
            Sum::ReservedPeak => (&self.beside.reserved_peak, Sum::Reserved),
            Sum::UsedPeak => (&self.beside.used_peak, Sum::Used),
            Sum::Reserved | Sum::Used => return,
        };
        peak.store(self.mem_pool_sum(now), Ordering::Relaxed);
    }

    /// The driver's default memory pool of this device.
    pub fn default_mem_pool(&self, calls: &Calls) -> Option<MemPool> {
        *self.default_mem_pool.get_or_init(|| {
            let mut pool = 0;
            // SAFETY: the pointer is valid for the call.
            let code = unsafe { (calls.default_mem_pool?)(&mut pool, self.handle) };
            (code == Code::SUCCESS).then_some(pool)
        })
    }

    /// Is the device's current memory pool its default one? Only then do
    /// stream-ordered allocations come from here.
    pub fn uses_default_mem_pool(&self, calls: &Calls) -> bool {
        if !self.asked_mem_pool.load(Ordering::Acquire) {
            self.ask_mem_pool(calls);
        }
        !self.other_mem_pool.load(Ordering::Relaxed)
    }

    /// Asks the driver for the current memory pool; after it may have changed.
    pub fn ask_mem_pool(&self, calls: &Calls) {
        let mut pool = 0;
        let code = match calls.mem_pool {
            // SAFETY: the pointer is valid for the call.
            Some(mem_pool) => unsafe { mem_pool(&mut pool, self.handle) },
            None => Code::NOT_FOUND,
        };
        let default = self.default_mem_pool(calls);
        let other = code != Code::SUCCESS || Some(pool) != default;
        self.other_mem_pool.store(other, Ordering::Relaxed);
        self.asked_mem_pool.store(true, Ordering::Release);
    }
}
