//! Cooperative reclaim: when may a request of torch be answered with
//! out-of-memory, so that torch hands back its idle segments instead of the
//! pool growing? Keeps the state of each thread's ladder; decides, allocates
//! nothing.
//!
//! Torch's ladder, per thread and under its own lock: `cudaMalloc` fails,
//! torch frees cached segments (`cudaFree`), and asks again. A soft failure is
//! given at most once a ladder; whatever comes next on the thread is served.
//!
//! A request that may fail softly does, also where the pool has idle memory for
//! it: what torch caches is memory of one size that it will not share, what the
//! pool has is memory of any size. Asking only when the pool must grow leaves
//! idle segments with torch and scattered bytes with the pool, and costs more
//! in stitches than the ladders do (docs/measurements/replay.md). But a ladder
//! that brings too little flushes torch's caches for nothing, so after such a
//! one the next requests are served unasked from windows that exist: 1, then 2,
//! up to 16, until a ladder brings enough again.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What cooperative reclaim did on one device.
pub struct Device {
    /// Requests that were answered with out-of-memory on purpose.
    soft_failures: AtomicU64,
    /// Of these, those after which torch asked again and was served.
    ladders: AtomicU64,
    /// Ladders that brought back less than was asked for.
    short_ladders: AtomicU64,
    /// Bytes that torch gave back in all ladders.
    bytes_brought: AtomicU64,
    /// Requests to be served unasked after a short ladder.
    pause: AtomicU64,
    /// How many of these are left.
    unasked: AtomicU64,
}

impl Device {
    /// A device on which nothing happened.
    pub const fn new() -> Self {
        Self {
            soft_failures: AtomicU64::new(0),
            ladders: AtomicU64::new(0),
            short_ladders: AtomicU64::new(0),
            bytes_brought: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} soft failures, {} served after it, {} of them brought less than was asked for, {} bytes in all",
            self.soft_failures.load(Relaxed),
            self.ladders.load(Relaxed),
            self.short_ladders.load(Relaxed),
            self.bytes_brought.load(Relaxed)
        )
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

/// Longest run of requests that are served unasked.
const LONGEST_PAUSE: u64 = 16;

/// Should this request be served unasked, if a window that exists serves it?
pub fn pauses(device: &Device) -> bool {
    device.unasked.load(Relaxed) > 0 && LADDER.get().is_none()
}

/// A request was served unasked.
pub fn served_unasked(device: &Device) {
    let left = device.unasked.load(Relaxed);
    device.unasked.store(left.saturating_sub(1), Relaxed);
    FREED.set(false);
}

/// May this request of `bytes` fail softly? If so the ladder has begun: answer
/// out-of-memory.
pub fn ask_back(device: &Device, bytes: u64) -> bool {
    if LADDER.get().is_some() || FREED.get() {
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

/// A request of torch was served: its ladder, if it was on one, is over.
pub fn served(device: &Device) {
    FREED.set(false);
    let Some(ladder) = LADDER.take() else { return };
    let ladders = device.ladders.fetch_add(1, Relaxed) + 1;
    device.bytes_brought.fetch_add(ladder.brought, Relaxed);
    let short = ladder.brought < ladder.asked;
    device.short_ladders.fetch_add(u64::from(short), Relaxed);
    let pause = match short {
        true => (device.pause.load(Relaxed) * 2).clamp(1, LONGEST_PAUSE),
        false => 0,
    };
    device.pause.store(pause, Relaxed);
    device.unasked.store(pause, Relaxed);
    crate::log!(
        Debug,
        "torch was asked for {} bytes, brought {}",
        ladder.asked,
        ladder.brought
    );
    if ladders.is_power_of_two() {
        crate::log!(Info, "torch was asked to give memory back: {device}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_ladder_gets_one_soft_failure() {
        let device = Device::new();
        assert!(ask_back(&device, 64 * MIB));
        assert!(!ask_back(&device, 64 * MIB), "torch's second try");
        freed(64 * MIB);
        assert!(!ask_back(&device, 64 * MIB), "torch's last try");
        served(&device);
        assert!(ask_back(&device, 64 * MIB), "a new ladder");
        assert_eq!(device.soft_failures.load(Relaxed), 2);
        assert_eq!(device.ladders.load(Relaxed), 1);
        assert_eq!(device.short_ladders.load(Relaxed), 0);
        assert_eq!(device.bytes_brought.load(Relaxed), 64 * MIB);
    }

    #[test]
    fn a_free_before_the_first_call_may_mean_the_last_try() {
        let device = Device::new();
        freed(MIB);
        assert!(!ask_back(&device, 64 * MIB));
        served(&device);
        assert!(ask_back(&device, 64 * MIB));
    }

    #[test]
    fn a_ladder_that_brings_too_little_is_counted() {
        let device = Device::new();
        assert!(ask_back(&device, 64 * MIB));
        freed(63 * MIB);
        served(&device);
        assert_eq!(device.short_ladders.load(Relaxed), 1);
    }

    #[test]
    fn short_ladders_are_followed_by_longer_and_longer_pauses() {
        let device = Device::new();
        for expected in [1, 2, 4, 8, 16, 16] {
            assert!(ask_back(&device, 64 * MIB));
            served(&device);
            let mut unasked = 0;
            while pauses(&device) {
                served_unasked(&device);
                unasked += 1;
            }
            assert_eq!(unasked, expected);
        }
        assert!(ask_back(&device, 64 * MIB));
        freed(64 * MIB);
        served(&device);
        assert!(!pauses(&device), "a good ladder ends it");
    }

    #[test]
    fn ladders_belong_to_threads() {
        static DEVICE: Device = Device::new();
        assert!(ask_back(&DEVICE, MIB));
        std::thread::spawn(|| assert!(ask_back(&DEVICE, MIB)))
            .join()
            .unwrap();
        assert!(!ask_back(&DEVICE, MIB));
    }
}
