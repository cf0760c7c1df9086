//! A device of this process: its pool, made at the first request, and what the
//! driver's own memory pool for it says.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Code, Driver, sys};
use memcuda_core::pool::{Pool, Settings, Stats};

use crate::calls::{Calls, MemPool};
use crate::engine::{self, Engine};
use crate::memops::Memops;
use crate::neighbours::{self, Door};
use crate::oom;
use crate::page::Page;
use crate::pitch::Pitch;
use crate::stand_in::{Lent, StandIn, Sum};
use crate::watch;

/// One device.
pub struct Device {
    /// Its ordinal, as the process sees it.
    pub ordinal: u32,
    /// The driver's handle of it (`CUdevice`).
    pub handle: i32,
    /// What tells the device from every other one, in every process; `None`
    /// where the driver does not say.
    pub uuid: Option<[u8; 16]>,
    /// Its name; empty where the driver does not tell.
    pub name: String,
    /// Its memory in bytes; 0 where the driver does not tell.
    pub total: u64,
    /// Bytes that others, or this process beside the pool, had when it was made.
    pub foreign_before: OnceLock<u64>,
    /// How the driver rounds rows.
    pub pitch: Pitch,
    /// Allocations whose copies are to be synchronous.
    pub memops: Memops,
    pool: OnceLock<Option<Pool<Real>>>,
    door: OnceLock<Door>,
    default_mem_pool: OnceLock<Option<MemPool>>,
    /// Our pool as the driver's memory pool.
    pub stand_in: StandIn,
    /// Frees of addresses that are not the pool's; its callback reads it.
    foreign_frees: &'static AtomicU64,
    other_mem_pool: AtomicBool,
    asked_mem_pool: AtomicBool,
}

impl Device {
    /// All devices of the process.
    pub fn all(calls: &Calls) -> Result<Vec<Self>, Code> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { (calls.device_count)(&mut count) }.ok()?;
        let device = |ordinal: u32| {
            let mut handle = 0;
            // SAFETY: the pointer is valid for the call.
            unsafe { (calls.device_get)(&mut handle, ordinal as i32) }.ok()?;
            Ok(Self {
                ordinal,
                handle,
                uuid: uuid(calls, handle),
                name: name(calls, handle),
                total: total(calls, handle),
                foreign_before: OnceLock::new(),
                pitch: Pitch::default(),
                memops: Memops::default(),
                pool: OnceLock::new(),
                door: OnceLock::new(),
                default_mem_pool: OnceLock::new(),
                stand_in: StandIn::default(),
                foreign_frees: Box::leak(Box::default()),
                other_mem_pool: AtomicBool::new(false),
                asked_mem_pool: AtomicBool::new(false),
            })
        };
        (0..count.max(0) as u32).map(device).collect()
    }

    /// The pool, made now if need be; `None` where the device cannot have one
    /// (said once). A context of the device is current.
    pub fn pool(&self, engine: &Engine) -> Option<&Pool<Real>> {
        self.pool
            .get_or_init(|| match self.make(engine) {
                Ok(pool) => {
                    self.meet_others(&pool);
                    Some(pool)
                }
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
        let (page, ordinal, foreign_frees) = (engine.page, self.ordinal, self.foreign_frees);
        page.publish(
            ordinal,
            &Stats::default(),
            foreign_frees.load(Ordering::Relaxed),
        );
        let publish = move |stats: &Stats| {
            page.publish(ordinal, stats, foreign_frees.load(Ordering::Relaxed));
        };
        let settings = Settings {
            policy: engine.config.policy,
            limit: engine.config.limit_of(self.ordinal),
            chunk: engine.config.chunk,
            debug: engine.config.debug,
            timeline: engine.config.oom_report.is_some(),
            starving: Some(Box::new(move |bytes, failed| {
                let devices = engine::running().map(|engine| &engine.devices);
                let device = devices.and_then(|all| all.iter().find(|d| d.ordinal == ordinal));
                let device = device.filter(|device| device.could_hold(bytes));
                let asked = device.is_some_and(|d| neighbours::make_room(d, bytes, failed));
                oom::note_asked(failed);
                asked
            })),
            lines: page.lines(ordinal),
            publish: Some(Box::new(publish)),
        };
        Pool::new(engine.driver, self.ordinal, settings)
    }

    /// Lets the other processes on the device find this one, and this one mind
    /// them. A context of the device is current.
    fn meet_others(&self, pool: &Pool<Real>) {
        if let Ok((free, total)) = pool.driver().memory_info(self.ordinal) {
            let _ = self.foreign_before.set(total - free);
        }
        match self.uuid.map(Door::open) {
            Some(Ok(door)) => drop(self.door.set(door)),
            None => crate::log!(
                Info,
                "a device without a name: no process can ask for its memory"
            ),
            Some(Err(error)) => crate::log!(
                Info,
                "no socket ({error}): other processes cannot ask for idle memory"
            ),
        }
        watch::start();
    }

    /// Nobody can make room for more than there is.
    fn could_hold(&self, bytes: u64) -> bool {
        self.total == 0 || bytes <= self.total
    }

    /// The door at which other processes ask for memory.
    pub fn door(&self) -> Option<&Door> {
        self.door.get()
    }

    /// An address that is not ours was freed by the driver.
    pub fn count_foreign_free(&self, page: &Page) {
        let frees = self.foreign_frees.fetch_add(1, Ordering::Relaxed) + 1;
        page.publish_foreign_frees(self.ordinal, frees);
    }

    /// What our pool has lent in the place of the driver's memory pool.
    fn lent(&self) -> Lent {
        let (now, peak) = self.made().map_or((0, 0), Pool::pooled);
        Lent { now, peak }
    }

    /// What our pool adds to a sum of the driver's default memory pool.
    pub fn mem_pool_sum(&self, sum: Sum) -> u64 {
        self.stand_in.sum(sum, self.lent(), self.idle())
    }

    /// Idle bytes that a program can have: all but what the driver's memory
    /// pool would keep in the place of ours.
    pub fn free_to_have(&self) -> u64 {
        let idle = self.idle();
        idle - self.stand_in.kept(self.lent(), idle)
    }

    fn idle(&self) -> u64 {
        self.made().map_or(0, Pool::idle)
    }

    /// Starts a peak anew from what is held now; for the other sums, nothing.
    pub fn restart_peak(&self, sum: Sum) {
        if matches!(sum, Sum::ReservedPeak | Sum::UsedPeak)
            && let Some(pool) = self.made()
        {
            let now = self.lent().now;
            let peak = pool.restart_pooled().max(now);
            self.stand_in.restart(sum, Lent { now, peak }, self.idle());
        }
    }

    /// Has the device an engine that decompresses?
    pub fn decompresses(&self, engine: &Engine) -> bool {
        let mut algorithms = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe {
            let attribute = engine.calls.device_attribute;
            attribute(&mut algorithms, sys::ATTRIBUTE_DECOMPRESS, self.handle)
        };
        code == Code::SUCCESS && algorithms != 0
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

fn uuid(calls: &Calls, handle: i32) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { (calls.device_uuid?)(&mut uuid, handle) };
    (code == Code::SUCCESS).then_some(uuid)
}

fn name(calls: &Calls, handle: i32) -> String {
    let mut name = [0_u8; 128];
    if let Some(ask) = calls.device_name {
        // SAFETY: the buffer is as long as said, and its last byte stays 0.
        unsafe { ask(name.as_mut_ptr(), name.len() as i32 - 1, handle) };
    }
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn total(calls: &Calls, handle: i32) -> u64 {
    let mut total = 0;
    if let Some(ask) = calls.device_total {
        // SAFETY: the pointer is valid for the call.
        unsafe { ask(&mut total, handle) };
    }
    total as u64
}
