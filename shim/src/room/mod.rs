//! Room on a device: what is done where the driver has no memory left while
//! idle memory lies about. First the pools of this process give back, a growing
//! part at a time so that one small call does not cost the pool everything;
//! then other processes are asked. Ends no capture, and takes a bounded time. Below
//! `MEMCUDA_LIMIT` this process alone makes room for itself.

pub mod nvml;
pub mod others;

use std::time::{Duration, Instant};

use memcuda_core::driver::{Code, cancel};

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::neighbours::in_vain;
use crate::pool::{FIRST, PATIENCE};

/// Where a call takes its memory.
pub enum Place<'a> {
    /// On this device.
    Device(&'a Device),
    /// On this one, as a rule; on some other one else.
    First(&'a Device),
    /// On some device, nobody knows which.
    Somewhere,
    /// On none that could give any: it is the host's memory, or the call has met another limit.
    Nowhere,
}

impl Place<'_> {
    /// The same, but it may be elsewhere.
    pub fn first(self) -> Self {
        match self {
            Place::Device(device) => Place::First(device),
            place => place,
        }
    }

    /// The same for so many bytes: for what a device could never hold there is no room.
    pub fn holding(self, bytes: u64) -> Self {
        match self {
            Place::Device(device) if !device.could_hold(bytes) => Place::Nowhere,
            place => place,
        }
    }
}

/// Makes a call, and where it is out of memory makes it again while room could
/// be made for it. `place` is asked only then.
pub fn with_room<'a>(
    engine: &'a Engine,
    place: impl FnOnce() -> Place<'a>,
    real: impl Fn() -> Code,
) -> Code {
    with_room_for(engine, u64::MAX, place, real)
}

/// The same of a call that takes no more than so many bytes.
pub fn with_room_for<'a>(
    engine: &'a Engine,
    bytes: u64,
    place: impl FnOnce() -> Place<'a>,
    real: impl Fn() -> Code,
) -> Code {
    match real() {
        Code::OUT_OF_MEMORY => again(engine, bytes, &place(), &real),
        code => code,
    }
}

/// Would pages and pool of a device together hold more than `MEMCUDA_LIMIT`, though what is
/// idle of both is given back for it? What still runs there is waited for no longer than this.
pub fn is_beyond_the_limit(
    engine: &Engine,
    device: &Device,
    bytes: u64,
    (of_pages, of_pool): (Duration, Duration),
) -> bool {
    let Some(limit) = engine.config.limit_of(device.ordinal) else {
        return false;
    };
    let (pool, pages) = (device.pool(), device.pages());
    let over = || {
        let counted = device.counted();
        counted.saturating_add(bytes).saturating_sub(limit)
    };
    if let (1.., Some(pages)) = (over(), pages) {
        pages.give_back(over(), of_pages);
    }
    let began = Instant::now();
    while let (1.., Some(pool)) = (over(), pool)
        && pool.give_back(over(), of_pool.saturating_sub(began.elapsed())) > 0
    {}
    over() > 0
}

#[cold]
fn again(engine: &Engine, bytes: u64, place: &Place<'_>, real: &dyn Fn() -> Code) -> Code {
    let _held = cancel::hold();
    let all = engine.devices.iter();
    match place {
        Place::Device(device) => on_any_of(engine, &[*device], bytes, real),
        Place::First(device) => match on_any_of(engine, &[*device], bytes, real) {
            Code::OUT_OF_MEMORY => {
                let others = all.filter(|other| other.ordinal != device.ordinal);
                on_any_of(engine, &others.collect::<Vec<_>>(), bytes, real)
            }
            code => code,
        },
        Place::Somewhere => on_any_of(engine, &all.collect::<Vec<_>>(), bytes, real),
        Place::Nowhere => Code::OUT_OF_MEMORY,
    }
}

/// Makes room on these devices, and the call again.
fn on_any_of(engine: &Engine, devices: &[&Device], bytes: u64, real: &dyn Fn() -> Code) -> Code {
    let began = Instant::now();
    let mut part = FIRST;
    loop {
        let patience = PATIENCE.saturating_sub(began.elapsed());
        let pools = devices.iter().filter_map(|device| device.pool());
        let pages = devices.iter().filter_map(|device| device.pages());
        // Most of their pages need no wait.
        let released: u64 = pages.map(|pages| pages.give_back(part, patience)).sum();
        let released = match released {
            0 => pools.map(|pool| pool.give_back(part, patience)).sum(),
            released => released,
        };
        if released == 0 {
            break;
        }
        crate::log!(Debug, "{released} idle bytes given back for another call");
        match real() {
            Code::OUT_OF_MEMORY => part = part.saturating_mul(4),
            code => return code,
        }
    }
    let failed = Instant::now();
    let may_ask = |device: &&&Device| engine.lends() || device.door().is_some();
    // The driver may take somewhat more than the call wants.
    let (asked, needed) = match bytes {
        u64::MAX => (FIRST, 0),
        bytes => (bytes.max(FIRST), bytes),
    };
    for device in devices.iter().filter(may_ask) {
        let lack = || device.lack(&engine.driver, needed);
        while let given @ 1.. = device.make_room(asked, &lack, failed) {
            if given >= bytes {
                in_vain::given(failed);
            }
            match real() {
                Code::OUT_OF_MEMORY => {}
                code => return code,
            }
        }
    }
    Code::OUT_OF_MEMORY
}
