//! The pool of a device, made at the first request: what it is told, and what it
//! asks this process for. From then on the process is known to others on the
//! device.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Code, Driver, cancel, sys};
use memcuda_core::pool::{Grantee, Lack, Pool, Settings, Stats};
use memcuda_core::units::MIB;

use crate::driver::primaries;
use crate::engine::device::Device;
use crate::engine::worker;
use crate::engine::{self, Engine};
use crate::neighbours::Door;
use crate::neighbours::in_vain;

/// Longest wait for work that still uses idle memory.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that are given back at first where nobody knows how many lack.
pub const FIRST: u64 = 256 * MIB;

thread_local! {
    /// Since when this thread's request fails, how often others were asked for it,
    /// and whether they gave: then it may have been served.
    static ASKED: Cell<Option<(Instant, u32, bool)>> = const { Cell::new(None) };
}

/// The pool, made now if need be; `None` where the device cannot have one
/// (said once).
pub fn of<'a>(engine: &Engine, device: &'a Device) -> Option<&'a Pool<Real>> {
    let mut made = false;
    let pool = device.pool_or(|| {
        let _held = cancel::hold();
        match make(engine, device) {
            Ok(pool) => {
                made = true;
                meet_others(engine, device, &pool);
                Some(pool)
            }
            Err(code) => {
                crate::log!(
                    Warn,
                    "device {} has no virtual memory management for this process ({code:?}); \
                 its memory comes from the plain driver",
                    device.ordinal
                );
                None
            }
        }
    })?;
    if made {
        // Not while others wait for the pool: who ends a context may be one of them.
        mind_primary(engine, device, pool);
    }
    Some(pool)
}

/// What is asked for in a green context may be used in all views of the primary one: the
/// pool minds that one, if it is there.
pub fn mind_primary(engine: &Engine, device: &Device, pool: &Pool<Real>) {
    // It does not end before the pool knows.
    let _still = primaries::hold();
    if let Some(primary) = engine.primary_of(device) {
        pool.primary_joins(primary);
    }
}

/// Lets a device reach what another one's pool has and will have; a line of the
/// log where it cannot. Out of memory is its caller's to say, who makes room and asks again.
/// Where nothing is lent no pool is made for it.
pub fn grant(engine: &Engine, owner: &Device, device: u32, to: Grantee) -> Result<(), Code> {
    let pool = match engine.lends() {
        true => of(engine, owner),
        false => owner.pool(),
    };
    let granted = pool.map_or(Ok(()), |pool| pool.grant(device, to));
    granted.inspect_err(|code| {
        if *code != Code::OUT_OF_MEMORY {
            crate::log!(
                Warn,
                "device {device} gets no access to the pooled memory of device {}: {code:?}",
                owner.ordinal
            );
        }
    })
}

/// Since when this thread's request, which has just failed, does, and how often
/// others were asked for it, once; `None` where nobody was.
pub fn take_asked() -> Option<(Instant, u32)> {
    let asked = ASKED.take().filter(|(_, _, gave)| !gave);
    asked.map(|(since, count, _)| (since, count))
}

fn make(engine: &Engine, device: &Device) -> Result<Pool<Real>, Code> {
    if !device.has(&engine.calls, sys::ATTRIBUTE_VMM)? {
        return Err(Code::NOT_SUPPORTED);
    }
    engine.driver.learn_to_open(device.ordinal)?;
    let (page, ordinal, foreign_frees) = (engine.page, device.ordinal, device.foreign_frees());
    let sums = device.sums;
    let publish = move |stats: &Stats, counted| {
        let frees = || foreign_frees.load(Ordering::Relaxed);
        sums.pool(stats, counted, |sum| page.publish(ordinal, sum, frees()));
    };
    publish(&Stats::default(), 0);
    let limit = engine.config.limit_of(device.ordinal);
    let settings = Settings {
        policy: engine.config.policy,
        limit,
        total: (device.total > 0).then_some(device.total),
        beside: Some(Box::new(|| sums.beside())),
        claim: limit.map(|limit| Box::new(move |bytes| sums.pool_claims(bytes, limit)) as _),
        few_addresses: has_limited_addresses(),
        beside_devices: engine.devices.len() > 1,
        chunk: engine.config.chunk,
        independent: Arc::clone(&device.independent),
        debug: engine.config.debug,
        timeline: engine.config.oom_report.is_some(),
        starving: Some(Box::new(move |bytes, failed, lack| {
            let engine = engine::running();
            let device = |ordinal| engine.and_then(|engine| engine.by_ordinal(ordinal));
            match lack {
                Lack::Tables(reader) => make_tables(device(reader), failed),
                Lack::Memory | Lack::Limit => {
                    let device = device(ordinal).filter(|device| device.could_hold(bytes));
                    let limited = lack == Lack::Limit;
                    give_pages(device, bytes)
                        || !limited && ask_others(device, bytes, bytes, failed)
                }
            }
        })),
        lines: page.lines(ordinal),
        publish: Some(Box::new(publish)),
    };
    Pool::new(engine.driver, device.ordinal, settings)
}

/// Are the addresses of this process limited (`ulimit -v`)?
fn has_limited_addresses() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    limit.rlim_cur != libc::RLIM_INFINITY
}

/// Lets the other processes on the device find this one, and this one mind
/// them.
fn meet_others(engine: &Engine, device: &Device, pool: &Pool<Real>) {
    // With another device's context current, the driver would tell of that one.
    let current = engine.current().map(|(_, current)| current.ordinal);
    if current == Ok(device.ordinal)
        && let Ok((free, total)) = pool.driver().memory_info(device.ordinal)
    {
        let _ = device.foreign_before.set(total - free);
    }
    match device.uuid {
        Some(uuid) => device.set_door(Door::new(uuid)),
        None => crate::log!(
            Info,
            "a device without a name: no process can ask for its memory"
        ),
    }
    // The thread opens it as well, before it waits for the first time.
    if worker::start() {
        device.open_door();
    }
}

/// Room for page tables of who may reach another device's memory: what is idle there goes
/// back. True where some did, so that another try is worth it, as of what follows.
fn make_tables(reader: Option<&Device>, failed: Instant) -> bool {
    let pool = reader.and_then(Device::pool);
    give_pages(reader, FIRST)
        || pool.is_some_and(|pool| pool.give_back(FIRST, PATIENCE) > 0)
        // Nobody knows how many lack.
        || ask_others(reader, FIRST, 0, failed)
}

fn give_pages(device: Option<&Device>, bytes: u64) -> bool {
    let pages = device.and_then(Device::pages);
    pages.is_some_and(|pages| pages.give_back(bytes, PATIENCE) > 0)
}

/// Asks for so many bytes, of which a request needs no fewer than these.
fn ask_others(device: Option<&Device>, asked: u64, needed: u64, failed: Instant) -> bool {
    let ask = |(engine, device): (&Engine, &Device)| {
        let lack = || device.lack(&engine.driver, needed);
        device.make_room(asked, &lack, failed)
    };
    let given = engine::running().zip(device).map_or(0, ask);
    if given >= asked {
        in_vain::given(failed);
    }
    note_asked(failed, given > 0);
    given > 0
}

/// Others were asked for memory, for a request that has failed since then; did they give?
fn note_asked(failed: Instant, gave: bool) {
    let before = ASKED.get().filter(|(since, ..)| *since == failed);
    let count = before.map_or(1, |(_, count, _)| count + 1);
    ASKED.set(Some((failed, count, gave)));
}
