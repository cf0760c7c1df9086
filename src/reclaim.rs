//! Cooperative reclaim: when is a request of PyTorch's own allocator answered
//! with out-of-memory, so that torch hands back its idle segments instead of
//! the pool growing? Keeps the state of a thread's ladder and of a device, and
//! serves a request by it. Who is torch, and where it may be asked at all, is
//! proven elsewhere (`shim/src/torch`).
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
//!
//! Small segments are asked for one by one and by the hundred, and only the last
//! rung brings anything for them: all idle segments at once. They are served from
//! windows that exist, and fail softly only where the pool would have to grow and
//! does not pause.
//!
//! What torch is told so that it can be asked is said here, too: the shim tells it, and a replay
//! plays it.
//!
//! What torch does between a soft failure and its next question is time for which its
//! request stands still: the pool counts it as a stall, if it is long.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::driver::{Address, Code, Driver};
use crate::pool::{Effort, Pool, Refusal, Request};

/// Torch's small segments, in bytes.
pub const SMALL_SEGMENT: u64 = 2 << 20;

/// Below this torch splits segments, so that tensors share them; from it on each
/// has a segment of its own, or a cached one that is up to 20 MiB larger. More
/// shares what then nobody can give back, less wastes what is larger than needed:
/// by replays of recorded jobs (docs/research.md). The key is as old as the
/// oldest torch that is supported; other sizes of the shared segments
/// (`large_segment_size_mb`) hold less for some jobs and more for others.
pub const SPLIT_MB: u64 = 32;

/// Bytes of a page of expandable segments: the least that torch takes and that is a
/// multiple of 2 MiB. From [`PAGES_SPLIT_MB`] on tensors do not nibble at free ranges that
/// are larger; those are given back and mapped anew (docs/research.md).
pub const PAGE_MB: u64 = 12;
/// See [`PAGE_MB`].
pub const PAGES_SPLIT_MB: u64 = 192;

/// Longest run of requests that are served unasked.
const LONGEST_PAUSE: u64 = 16;

/// What cooperative reclaim did on one device.
pub struct Device {
    soft_failures: AtomicU64,
    ladders: AtomicU64,
    short_ladders: AtomicU64,
    bytes_brought: AtomicU64,
    /// Requests to be served unasked after a short ladder.
    pause: AtomicU64,
    /// How many of these are left.
    unasked: AtomicU64,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
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

    /// Requests that were answered with out-of-memory on purpose.
    pub fn soft_failures(&self) -> u64 {
        self.soft_failures.load(Relaxed)
    }

    /// Of these, those after which torch asked again and was served.
    pub fn ladders(&self) -> u64 {
        self.ladders.load(Relaxed)
    }

    /// Ladders that brought back less than was asked for.
    pub fn short_ladders(&self) -> u64 {
        self.short_ladders.load(Relaxed)
    }

    /// Bytes that torch gave back in all ladders.
    pub fn bytes_brought(&self) -> u64 {
        self.bytes_brought.load(Relaxed)
    }

    /// Is the next request served unasked, if a window that exists serves it?
    fn pauses(&self) -> bool {
        self.unasked.load(Relaxed) > 0
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} soft failures, {} served after it, {} of them brought less than was asked for, {} bytes in all",
            self.soft_failures(),
            self.ladders(),
            self.short_ladders(),
            self.bytes_brought()
        )
    }
}

/// A ladder: how many bytes torch was asked for and how many it brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    /// Bytes of the request that failed softly.
    pub asked: u64,
    /// Bytes that torch has freed since.
    pub brought: u64,
}

/// Where a thread of torch stands.
pub struct Thread {
    /// The ladder that it is on.
    ladder: Cell<Option<Ladder>>,
    /// When that began, until torch asks again.
    since: Cell<Option<Instant>>,
    /// Has torch freed a segment on this thread since it last got one, or is it on a ladder that
    /// ended in vain? Then the call at hand may be its last try.
    freed: Cell<bool>,
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

impl Thread {
    /// A thread on which nothing happened.
    pub const fn new() -> Self {
        Self {
            ladder: Cell::new(None),
            since: Cell::new(None),
            freed: Cell::new(false),
        }
    }

    /// Serves a request of torch: first by asking torch for what it holds idle
    /// if it `may_fail` softly (out-of-memory, answered once), then from the
    /// pool. Says too which ladder ended with it, if one did.
    pub fn alloc<D: Driver>(
        &self,
        device: &Device,
        pool: &Pool<D>,
        request: &Request,
        may_fail: bool,
    ) -> (Result<Address, Refusal>, Option<Ladder>) {
        if may_fail {
            let small = request.bytes <= SMALL_SEGMENT;
            let pauses = device.pauses();
            if (small || pauses) && self.ladder.get().is_none() {
                let effort = match small && pauses {
                    true => Effort::Growth,
                    false => Effort::Window,
                };
                if let Ok(address) = pool.alloc(&Request { effort, ..*request }) {
                    self.served_unasked(device);
                    return (Ok(address), None);
                }
            }
            if self.begins(device, request.bytes) {
                return (Err(Refusal::Driver(Code::OUT_OF_MEMORY)), None);
            }
        }
        // What torch did meanwhile, and waited for, was for this request.
        if let Some(since) = self.since.take() {
            pool.count_stall(since);
        }
        let result = pool.alloc(request);
        let ended = match &result {
            Ok(_) => self.served(device),
            Err(_) => {
                self.had_none();
                None
            }
        };
        (result, ended)
    }

    /// There is no memory for what torch asks, though it may have brought some and may try
    /// again: what it says of that is true, and nothing fails softly before it has got something.
    pub fn had_none(&self) {
        if self.is_on_ladder() {
            self.refused();
            self.freed.set(true);
        }
    }

    /// A request was served unasked.
    fn served_unasked(&self, device: &Device) {
        let left = device.unasked.load(Relaxed);
        device.unasked.store(left.saturating_sub(1), Relaxed);
        self.freed.set(false);
    }

    /// May this request of `bytes`, which the plain driver is to serve, fail
    /// softly? If so the ladder has begun: answer out-of-memory.
    pub fn ask_back(&self, device: &Device, bytes: u64) -> bool {
        bytes > SMALL_SEGMENT && self.begins(device, bytes)
    }

    /// A page of `bytes` would take the device above its peak: may it fail softly?
    /// If so the ladder has begun: answer out-of-memory. There are no pauses: what
    /// torch brings is idle pages of the size that it asks for.
    pub fn ask_at_peak(&self, device: &Device, bytes: u64) -> bool {
        self.begins(device, bytes)
    }

    /// Has a request failed softly, and not been served since?
    pub fn is_on_ladder(&self) -> bool {
        self.ladder.get().is_some()
    }

    /// There is no memory for what torch asks, whatever it has brought: what follows is
    /// not for our sake.
    pub fn refused(&self) {
        self.ladder.set(None);
        self.since.set(None);
    }

    /// Begins a ladder, unless the thread is on one or may be.
    fn begins(&self, device: &Device, bytes: u64) -> bool {
        if self.ladder.get().is_some() || self.freed.get() {
            return false;
        }
        self.ladder.set(Some(Ladder {
            asked: bytes,
            brought: 0,
        }));
        self.since.set(Some(Instant::now()));
        device.soft_failures.fetch_add(1, Relaxed);
        true
    }

    /// Torch gave a segment back on this thread; 0 bytes where the size is
    /// unknown.
    pub fn freed(&self, bytes: u64) {
        self.freed.set(true);
        if let Some(mut ladder) = self.ladder.get() {
            ladder.brought += bytes;
            self.ladder.set(Some(ladder));
        }
    }

    /// A request of torch was served: its ladder, if it was on one, is over.
    pub fn served(&self, device: &Device) -> Option<Ladder> {
        self.freed.set(false);
        self.since.set(None);
        let ladder = self.ladder.take()?;
        device.ladders.fetch_add(1, Relaxed);
        device.bytes_brought.fetch_add(ladder.brought, Relaxed);
        let short = ladder.brought < ladder.asked;
        device.short_ladders.fetch_add(u64::from(short), Relaxed);
        let pause = match short {
            true => (device.pause.load(Relaxed) * 2).clamp(1, LONGEST_PAUSE),
            false => 0,
        };
        device.pause.store(pause, Relaxed);
        device.unasked.store(pause, Relaxed);
        Some(ladder)
    }
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
