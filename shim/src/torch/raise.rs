//! Torch's split size, raised to what is asked for while that fails softly: in the releases
//! 2.4 to 2.8. Of cached blocks of at least the split size torch gives back one that is
//! large enough, else several; those of 2.5 to 2.8 read each of several once more after they
//! have deleted it. With the split size raised there are no several: one that is large
//! enough, else all that is idle.
//!
//! A thread on another device must not see it raised: torch relies on it that blocks above
//! it are whole. So from torch's second device on, and where the pool has stopped, nothing is
//! raised any more and torch has no split size, as by itself: it cuts all blocks up, and
//! has fewer to give back. Changes nothing in other releases.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use memcuda_core::lock::lock;

use super::{places, split};

/// What torch takes for a split size, in bytes; what lies outside is none.
const SIZES: std::ops::Range<usize> = 20 << 20..1 << 50;

/// Threads whose request has failed softly, and torch's split size before the first.
struct Raised {
    threads: usize,
    own: usize,
}

static RAISED: Mutex<Raised> = Mutex::new(Raised { threads: 0, own: 0 });

thread_local! {
    static BY_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// A segment is for this device.
pub fn used_on(device: u32) {
    static FIRST: AtomicU32 = AtomicU32::new(u32::MAX);
    if FIRST.load(Ordering::Relaxed) == device {
        return;
    }
    let noted = FIRST.compare_exchange(u32::MAX, device, Ordering::Relaxed, Ordering::Relaxed);
    if noted.is_err_and(|first| first != device) {
        end();
    }
}

/// Nothing is raised from now on.
pub fn end() {
    if word().is_some() {
        split::end();
    }
}

/// A request of these bytes fails softly now.
pub fn raise(bytes: u64) {
    let Some(word) = word() else { return };
    let mut raised = lock(&RAISED);
    if raised.threads == 0 {
        raised.own = word.load(Ordering::Relaxed);
    }
    if SIZES.contains(&raised.own) {
        raised.threads += 1;
        BY_THIS_THREAD.set(true);
        word.fetch_max(bytes as usize, Ordering::Relaxed);
    }
}

/// This thread of torch asks again, or for something else.
pub fn restore() {
    if !BY_THIS_THREAD.replace(false) {
        return;
    }
    let Some(word) = word() else { return };
    let mut raised = lock(&RAISED);
    raised.threads -= 1;
    if raised.threads == 0 {
        // Torch may have none any more.
        let own = |now| (now != split::NONE).then_some(raised.own);
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, own);
    }
}

/// The split size of these releases.
fn word() -> Option<&'static AtomicUsize> {
    static WORD: OnceLock<&'static AtomicUsize> = OnceLock::new();
    if let Some(word) = WORD.get() {
        return Some(word);
    }
    if places::has_common_configuration() {
        return None;
    }
    split::exported().map(|word| *WORD.get_or_init(|| word))
}
