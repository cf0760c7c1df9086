//! Torch's own limit (a fraction of the device's memory) beside a pool that has an allocator of its
//! own. What is beyond the limit fails without a call of the runtime, and what torch then gives
//! back of such a pool is no `cudaFree` of torch's: the first call that is seen of a request may be
//! torch's last try, which must not fail softly. Knows whether both are there; forgets neither.

use std::sync::atomic::{AtomicBool, Ordering};

/// Has torch a limit?
static LIMIT: AtomicBool = AtomicBool::new(false);
/// And a pool with an allocator?
static ALLOCATOR: AtomicBool = AtomicBool::new(false);

/// The key of torch's setting by which it has a limit from the beginning.
pub const KEY: &str = "per_process_memory_fraction";

/// Torch has a limit from now on. Are both there?
pub fn has_limit() -> bool {
    notes(&LIMIT)
}

/// A pool has an allocator of its own from now on. Are both there?
pub fn has_allocator() -> bool {
    notes(&ALLOCATOR)
}

/// Of two threads that note one each the later one finds both.
fn notes(what: &AtomicBool) -> bool {
    what.store(true, Ordering::SeqCst);
    [&LIMIT, &ALLOCATOR]
        .iter()
        .all(|it| it.load(Ordering::SeqCst))
}
