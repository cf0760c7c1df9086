//! Cooperative reclaim in this process: a thread's ladder per thread of the
//! program, the counters per device, and what is logged of them. The decisions
//! are `memcuda::reclaim`'s, the same code that `memcuda replay` runs.

use memcuda_core::driver::{Address, Driver};
use memcuda_core::pool::{Pool, Refusal, Request};
use memcuda_core::reclaim::{Device, Ladder, Thread};

use super::{raise, withheld};

/// More devices than a process can have.
const DEVICES: usize = 128;
static RECLAIM: [Device; DEVICES] = [const { Device::new() }; DEVICES];

thread_local! {
    static THREAD: Thread = const { Thread::new() };
}

/// Serves a request of torch on the device with this ordinal.
pub fn alloc<D: Driver>(
    ordinal: u32,
    pool: &Pool<D>,
    request: &Request,
    may_fail: bool,
) -> Result<Address, Refusal> {
    raise::restore();
    let device = device(ordinal);
    let was_on_ladder = is_on_ladder();
    let (result, ended) = THREAD.with(|t| t.alloc(device, pool, request, may_fail));
    match result {
        Ok(_) => withheld::took(ordinal, request.bytes),
        Err(_) if !is_on_ladder() => withheld::end(ordinal),
        Err(_) if was_on_ladder => {}
        Err(_) => raise::raise(request.bytes),
    }
    log(device, ended);
    result
}

/// May this request fail softly, to be served by the plain driver otherwise?
pub fn ask_back(ordinal: u32, bytes: u64) -> bool {
    THREAD.with(|t| t.ask_back(device(ordinal), bytes))
}

/// May this page, which would be above the peak of the device, fail softly?
pub fn ask_at_peak(ordinal: u32, bytes: u64) -> bool {
    THREAD.with(|t| t.ask_at_peak(device(ordinal), bytes))
}

/// Has a request of this thread failed softly, and not been served since?
pub fn is_on_ladder() -> bool {
    THREAD.with(Thread::is_on_ladder)
}

/// There is no memory for a request of torch, which has brought what it has.
pub fn refused(ordinal: u32) {
    THREAD.with(Thread::refused);
    withheld::end(ordinal);
}

/// The same, from the plain driver, of which torch may ask once more.
pub fn had_none() {
    THREAD.with(Thread::had_none);
}

/// A request of torch was served: a segment, or a page that it has mapped.
pub fn served(ordinal: u32) {
    let device = device(ordinal);
    log(device, THREAD.with(|t| t.served(device)));
}

/// Torch gave a segment, or pages, of so many bytes back on this thread.
pub fn freed(ordinal: u32, bytes: u64) {
    withheld::gave(ordinal, bytes, is_on_ladder());
    THREAD.with(|t| t.freed(bytes));
}

/// The same of a segment of unknown size, to the plain driver.
pub fn freed_unknown() {
    THREAD.with(|t| t.freed(0));
}

fn device(ordinal: u32) -> &'static Device {
    &RECLAIM[ordinal as usize % DEVICES]
}

fn log(device: &Device, ended: Option<Ladder>) {
    let Some(Ladder { asked, brought }) = ended else {
        return;
    };
    crate::log!(
        Debug,
        "torch was asked for {asked} bytes, brought {brought}"
    );
    if device.ladders().is_power_of_two() {
        crate::log!(Info, "torch was asked to give memory back: {device}");
    }
}
