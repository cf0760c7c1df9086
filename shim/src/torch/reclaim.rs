//! Cooperative reclaim: when may a request of torch be answered with
//! out-of-memory, so that torch hands back its idle segments instead of the
//! pool growing? Keeps the state of each thread's ladder and each device's
//! back-off; decides, allocates nothing.
//!
//! Torch's ladder, per thread and under its own lock: `cudaMalloc` fails,
//! torch frees cached segments (`cudaFree`), and asks again. A soft failure is
//! given at most once a ladder; whatever comes next on the thread grows.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What cooperative reclaim did in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counters {
    /// Requests that were answered with out-of-memory on purpose.
    soft_failures: u64,
    /// Of these, those after which torch asked again and was served.
    ladders: u64,
    /// Ladders that brought back less than was asked for.
    short_ladders: u64,
    /// Bytes that torch gave back in all ladders.
    bytes_brought: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} soft failures, {} served after it, {} of them brought less than was asked for, {} bytes in all",
            self.soft_failures, self.ladders, self.short_ladders, self.bytes_brought
        )
    }
}

/// After a short ladder the pool may grow by 1/128 of what it holds before the
/// next soft failure: torch had little idle memory, and each ladder that finds
/// too little flushes every cache. Bounds the loss at 0.8 %; a request that
/// must grow by more than that is always worth a ladder.
const BACK_OFF_SHARE: u64 = 128;

/// One device's back-off and counts.
pub struct Device {
    grown: AtomicU64,
    allowance: AtomicU64,
    soft_failures: AtomicU64,
    ladders: AtomicU64,
    short_ladders: AtomicU64,
    bytes_brought: AtomicU64,
}

impl Device {
    /// A device on which nothing happened.
    pub const fn new() -> Self {
        Self {
            grown: AtomicU64::new(0),
            allowance: AtomicU64::new(0),
            soft_failures: AtomicU64::new(0),
            ladders: AtomicU64::new(0),
            short_ladders: AtomicU64::new(0),
            bytes_brought: AtomicU64::new(0),
        }
    }

    /// What was done so far.
    fn counters(&self) -> Counters {
        Counters {
            soft_failures: self.soft_failures.load(Relaxed),
            ladders: self.ladders.load(Relaxed),
            short_ladders: self.short_ladders.load(Relaxed),
            bytes_brought: self.bytes_brought.load(Relaxed),
        }
    }
}

/// The ladder that a thread is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ladder {
    asked: u64,
    brought: u64,
}

thread_local! {
    static LADDER: Cell<Option<Ladder>> = const { Cell::new(None) };
    /// Has torch freed a segment on this thread since it last got one? Then
    /// the call at hand may be its last try.
    static FREED: Cell<bool> = const { Cell::new(false) };
}

/// May this request fail softly? If so the ladder has begun: answer
/// out-of-memory. The pool could serve these `bytes` only by growing, by
/// about as much as they exceed its `idle` bytes.
pub fn ask_back(device: &Device, bytes: u64, idle: u64) -> bool {
    let growth = device.grown.load(Relaxed) + bytes.saturating_sub(idle);
    let allowance = device.allowance.load(Relaxed);
    let backing_off = allowance > 0 && growth <= allowance;
    if LADDER.get().is_some() || FREED.get() || backing_off {
        return false;
    }
    LADDER.set(Some(Ladder {
        asked: bytes,
        brought: 0,
    }));
    device.soft_failures.fetch_add(1, Relaxed);
    true
}

/// Torch gave a segment back on this thread; 0 bytes where the size is unknown.
pub fn freed(bytes: u64) {
    FREED.set(true);
    if let Some(mut ladder) = LADDER.get() {
        ladder.brought += bytes;
        LADDER.set(Some(ladder));
    }
}

/// A request of torch was served; the pool grew by about `grown` bytes for it.
/// `held` is what the pool holds now; `None` where nobody knows what a ladder
/// brings (the plain driver): no back-off then.
pub fn served(device: &Device, grown: u64, held: Option<u64>) {
    FREED.set(false);
    device.grown.fetch_add(grown, Relaxed);
    let Some(ladder) = LADDER.take() else { return };
    let ladders = device.ladders.fetch_add(1, Relaxed) + 1;
    device.bytes_brought.fetch_add(ladder.brought, Relaxed);
    if let Some(held) = held {
        let short = ladder.brought < ladder.asked;
        device.short_ladders.fetch_add(u64::from(short), Relaxed);
        let allowance = if short { held / BACK_OFF_SHARE } else { 0 };
        device.allowance.store(allowance, Relaxed);
        device.grown.store(0, Relaxed);
    }
    crate::log!(
        Debug,
        "torch was asked for {} bytes, brought {}; grown by {grown}",
        ladder.asked,
        ladder.brought
    );
    if ladders.is_power_of_two() {
        let counters = device.counters();
        crate::log!(Info, "torch was asked to give memory back: {counters}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_ladder_gets_one_soft_failure() {
        let device = Device::new();
        assert!(ask_back(&device, 64 * MIB, 0));
        assert!(!ask_back(&device, 64 * MIB, 0), "torch's second try");
        freed(64 * MIB);
        assert!(!ask_back(&device, 64 * MIB, 0), "torch's last try");
        served(&device, 0, Some(1 << 30));
        assert!(ask_back(&device, 64 * MIB, 0), "a new ladder");
        let counters = device.counters();
        assert_eq!((counters.soft_failures, counters.ladders), (2, 1));
        assert_eq!(
            (counters.short_ladders, counters.bytes_brought),
            (0, 64 * MIB)
        );
    }

    #[test]
    fn a_free_before_the_first_call_may_mean_the_last_try() {
        let device = Device::new();
        freed(MIB);
        assert!(!ask_back(&device, 64 * MIB, 0));
        served(&device, 64 * MIB, Some(1 << 30));
        assert!(ask_back(&device, 64 * MIB, 0));
    }

    #[test]
    fn after_a_short_ladder_the_pool_grows_a_little_first() {
        let device = Device::new();
        let held = 128 * 100 * MIB;
        assert!(ask_back(&device, 64 * MIB, 0));
        freed(63 * MIB);
        served(&device, 2 * MIB, Some(held));
        let mut grown = 0;
        while !ask_back(&device, 64 * MIB, 34 * MIB) {
            served(&device, 30 * MIB, Some(held));
            grown += 30;
        }
        assert_eq!(grown, 90, "the last multiple of 30 within 100");
        freed(64 * MIB);
        served(&device, 0, Some(held));
        assert!(ask_back(&device, 2 * MIB, 0), "a good ladder ends it");
    }

    #[test]
    fn a_request_beyond_the_allowance_asks_at_once() {
        let device = Device::new();
        assert!(ask_back(&device, 64 * MIB, 0));
        served(&device, 64 * MIB, Some(128 * 100 * MIB));
        assert!(ask_back(&device, 101 * MIB, 0));
    }

    #[test]
    fn over_the_plain_driver_there_is_no_back_off() {
        let device = Device::new();
        for _ in 0..3 {
            assert!(ask_back(&device, 64 * MIB, 0));
            freed(0);
            served(&device, 64 * MIB, None);
        }
        assert_eq!(device.counters().short_ladders, 0);
    }

    #[test]
    fn ladders_belong_to_threads() {
        static DEVICE: Device = Device::new();
        assert!(ask_back(&DEVICE, MIB, 0));
        std::thread::spawn(|| assert!(ask_back(&DEVICE, MIB, 0)))
            .join()
            .unwrap();
        assert!(!ask_back(&DEVICE, MIB, 0));
    }
}
