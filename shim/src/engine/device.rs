//! A device of this process: its pool, once it is made (`pool`), and what the
//! driver's own memory pool for it says.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Driver, sys};
use memcuda_core::pages::Pages;
use memcuda_core::pool::Pool;

use crate::counters::stats_page::Page;
use crate::counters::sums::Sums;
use crate::driver::calls::{Calls, MemPool};
use crate::driver::marks::Which;
use crate::driver::memops::Memops;
use crate::driver::pitch::Pitch;
use crate::driver::retains::Retains;
use crate::driver::stand_in::{Lent, StandIn, Sum};
use crate::driver::views::Views;
use crate::neighbours::Door;
use crate::neighbours::offers::Offers;

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
    /// Is its memory the host's?
    pub is_integrated: bool,
    /// Bytes that others, or this process beside the pool, had when it was made, or where
    /// that could not be asked, when it was first looked for others.
    pub foreign_before: OnceLock<u64>,
    /// How the driver rounds rows.
    pub pitch: Pitch,
    /// Allocations whose copies are to be synchronous.
    pub memops: Memops,
    /// Retains of its primary context.
    pub retains: Retains,
    /// Views of its primary context.
    pub views: Views,
    pool: OnceLock<Option<Pool<Real>>>,
    pages: OnceLock<Pages<Real>>,
    /// What both of them say on the page of statistics; their callbacks have it.
    pub sums: &'static Sums,
    door: OnceLock<Door>,
    /// From which others are asked where there is no door.
    asker: OnceLock<Door>,
    offers: Offers,
    default_mem_pool: OnceLock<Option<MemPool>>,
    /// Our pool as the driver's memory pool.
    pub stand_in: StandIn,
    /// Has the program forbidden that a stream is ordered behind another one for what it
    /// is lent?
    pub independent: Arc<AtomicBool>,
    /// Frees of addresses that are not the pool's; its callback reads it.
    foreign_frees: &'static AtomicU64,
    /// Questions for the current memory pool that were begun.
    asked_mem_pool: AtomicU64,
    /// The number of the latest of them that was answered, and in the lowest bit, whether it is
    /// another one than the default; 0 before the first.
    mem_pool_answer: AtomicU64,
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
                is_integrated: has(calls, handle, sys::ATTRIBUTE_INTEGRATED) == Ok(true),
                foreign_before: OnceLock::new(),
                pitch: Pitch::default(),
                memops: Memops::default(),
                retains: Retains::default(),
                views: Views::default(),
                pool: OnceLock::new(),
                pages: OnceLock::new(),
                sums: Box::leak(Box::default()),
                door: OnceLock::new(),
                asker: OnceLock::new(),
                offers: Offers::default(),
                default_mem_pool: OnceLock::new(),
                stand_in: StandIn::default(),
                independent: Arc::default(),
                foreign_frees: Box::leak(Box::default()),
                asked_mem_pool: AtomicU64::new(0),
                mem_pool_answer: AtomicU64::new(0),
            })
        };
        (0..count.max(0) as u32).map(device).collect()
    }

    /// The pool, made now where that was not tried before; `None` where the device
    /// cannot have one.
    pub fn pool_or(&self, make: impl FnOnce() -> Option<Pool<Real>>) -> Option<&Pool<Real>> {
        self.pool.get_or_init(make).as_ref()
    }

    /// The pool if it was made already.
    pub fn pool(&self) -> Option<&Pool<Real>> {
        self.pool.get()?.as_ref()
    }

    /// Takes memory of others away on which nothing runs any more, and what was marked of it.
    pub fn detach(&self, calls: &Calls, address: Address) {
        if let Some(pool) = self.pool()
            && let Ok(block) = pool.detach(address)
        {
            self.memops.clear(calls, Which::Block(block.id));
        }
    }

    /// The pages below torch's expandable segments, made now if need be.
    pub fn pages_or(&self, make: impl FnOnce() -> Pages<Real>) -> &Pages<Real> {
        self.pages.get_or_init(make)
    }

    /// The pages if there were any.
    pub fn pages(&self) -> Option<&Pages<Real>> {
        self.pages.get()
    }

    /// Bytes of pages that nobody uses.
    pub fn idle_pages(&self) -> u64 {
        self.pages().map_or(0, Pages::idle)
    }

    /// Nobody can make room for more than there is.
    pub fn could_hold(&self, bytes: u64) -> bool {
        self.total == 0 || bytes <= self.total
    }

    /// The door at which other processes ask for memory.
    pub fn door(&self) -> Option<&Door> {
        self.door.get()
    }

    /// The device has its door from now on, which is closed.
    pub fn set_door(&self, door: Door) {
        drop(self.door.set(door));
    }

    /// Opens the door, if there is one, where there is the thread that answers.
    pub fn open_door(&self) {
        if let Some(Err(error)) = self.door().map(Door::open) {
            crate::log!(
                Info,
                "no socket ({error}): other processes cannot ask for idle memory"
            );
        }
    }

    /// Asks other processes for memory ([`Door::make_room`]).
    pub fn make_room(&self, bytes: u64, lack: &dyn Fn() -> u64, failed: Instant) -> u64 {
        let gave = self
            .at_doors(|door| door.make_room(bytes, lack, failed))
            .unwrap_or(0);
        if gave > 0 {
            self.offers.forget();
        }
        gave
    }

    /// Bytes that other processes would give beside those that the driver has `free`.
    pub fn offered(&self, free: u64) -> u64 {
        let beside = |door: &Door| self.offers.beside(free, door);
        self.at_doors(beside).unwrap_or(0)
    }

    /// Who has no door of its own yet may ask at those of others.
    fn at_doors<T>(&self, ask: impl FnOnce(&Door) -> T) -> Option<T> {
        match self.door() {
            Some(door) => Some(ask(door)),
            None => self.uuid.map(|uuid| {
                let asker = self.asker.get_or_init(|| Door::new(uuid));
                ask(asker)
            }),
        }
    }

    /// How many bytes lack at least of so many for which there is no memory; 0 where nobody
    /// knows.
    pub fn lack(&self, driver: &Real, bytes: u64) -> u64 {
        let own = self.idle() + self.idle_pages();
        let free = driver.memory_info(self.ordinal);
        free.map_or(0, |(free, _)| {
            bytes.saturating_sub(free.saturating_add(own))
        })
    }

    /// Frees of addresses that are not the pool's.
    pub fn foreign_frees(&self) -> &'static AtomicU64 {
        self.foreign_frees
    }

    /// An address that is not ours was freed by the driver.
    pub fn count_foreign_free(&self, page: &Page) {
        let frees = self.foreign_frees.fetch_add(1, Ordering::Relaxed) + 1;
        page.publish_foreign_frees(self.ordinal, frees);
    }

    /// What our pool has lent in the place of the driver's memory pool.
    fn lent(&self) -> Lent {
        let (now, peak) = self.pool().map_or((0, 0), Pool::pooled);
        Lent { now, peak }
    }

    /// What our pool adds to a sum of the driver's default memory pool.
    pub fn mem_pool_sum(&self, sum: Sum) -> u64 {
        self.stand_in.sum(sum, self.lent(), self.idle())
    }

    /// Idle bytes that a program can have: those of whole pages, but for what the driver's
    /// memory pool would keep in the place of ours.
    pub fn free_to_have(&self) -> u64 {
        let idle = self.idle();
        let not_kept = idle - self.stand_in.kept(self.lent(), idle);
        not_kept.min(self.pool().map_or(0, Pool::to_have)) + self.idle_pages()
    }

    /// Bytes that pool and pages hold here.
    pub fn held(&self) -> u64 {
        let pages = self.pages().map_or(0, Pages::physical);
        self.pool().map_or(0, Pool::physical) + pages
    }

    /// Those of them that its limit counts.
    pub fn counted(&self) -> u64 {
        let pages = self.pages().map_or(0, Pages::physical);
        self.pool().map_or(0, Pool::counted) + pages
    }

    fn idle(&self) -> u64 {
        self.pool().map_or(0, Pool::idle)
    }

    /// Starts a peak anew from what is held now; for the other sums, nothing.
    pub fn restart_peak(&self, sum: Sum) {
        if matches!(sum, Sum::ReservedPeak | Sum::UsedPeak) {
            let lent = self.restart_lent();
            self.stand_in.restart(sum, lent, self.idle());
        }
    }

    /// The program set the release threshold of the driver's default memory pool.
    pub fn set_threshold(&self, bytes: u64) {
        self.stand_in.set_threshold(bytes, self.restart_lent());
    }

    /// It trimmed that pool, and ours has given back what it could.
    pub fn trimmed(&self, keep: u64) {
        let busy = self.pool().map_or(0, |pool| pool.stats().pending_bytes);
        self.stand_in.trim(keep, self.restart_lent(), busy);
    }

    /// What was lent until now: from here on the pool's peak is another one.
    fn restart_lent(&self) -> Lent {
        let now = self.lent().now;
        let peak = self.pool().map_or(0, Pool::restart_pooled).max(now);
        Lent { now, peak }
    }

    /// Has the device an engine that decompresses?
    pub fn decompresses(&self, calls: &Calls) -> bool {
        self.has(calls, sys::ATTRIBUTE_DECOMPRESS) == Ok(true)
    }

    /// Can memory be mapped here, as a pool needs?
    pub fn maps_memory(&self, calls: &Calls) -> bool {
        self.has(calls, sys::ATTRIBUTE_VMM) == Ok(true)
    }

    /// And by handles that other processes may open?
    pub fn maps_what_is_shared(&self, calls: &Calls) -> bool {
        self.maps_memory(calls) && self.has(calls, sys::ATTRIBUTE_POSIX_FD) == Ok(true)
    }

    /// Is an attribute of the device other than 0?
    pub fn has(&self, calls: &Calls, attribute: i32) -> Result<bool, Code> {
        has(calls, self.handle, attribute)
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
        let answer = match self.mem_pool_answer.load(Ordering::Relaxed) {
            0 => self.ask_mem_pool(calls),
            answer => answer,
        };
        answer & 1 == 0
    }

    /// The driver's current memory pool of this device.
    pub fn current_mem_pool(&self, calls: &Calls) -> Option<MemPool> {
        let mut pool = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (calls.mem_pool?)(&mut pool, self.handle) };
        (code == Code::SUCCESS).then_some(pool)
    }

    /// Asks the driver for the current memory pool; after it may have changed. Of two threads
    /// that do, whoever began last was told of the changes of both: that answer stays.
    pub fn ask_mem_pool(&self, calls: &Calls) -> u64 {
        let number = self.asked_mem_pool.fetch_add(1, Ordering::AcqRel) + 1;
        let current = self.current_mem_pool(calls);
        let other = current.is_none() || current != self.default_mem_pool(calls);
        let answer = number << 1 | u64::from(other);
        self.mem_pool_answer
            .fetch_max(answer, Ordering::AcqRel)
            .max(answer)
    }
}

fn has(calls: &Calls, handle: i32, attribute: i32) -> Result<bool, Code> {
    let mut value = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { (calls.device_attribute)(&mut value, attribute, handle) }.ok()?;
    Ok(value != 0)
}

fn uuid(calls: &Calls, handle: i32) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let ask = calls.device_uuid_of_slice.or(calls.device_uuid)?;
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { ask(&mut uuid, handle) };
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
