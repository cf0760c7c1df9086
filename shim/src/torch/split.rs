//! Torch's own split size, raised to what is asked for while that fails softly: in the
//! releases 2.4 to 2.8, whose word for it is known. Of cached blocks of at least the split
//! size torch gives back one that is large enough, else several; those of 2.5 to 2.8 read
//! each of several once more after they have deleted it. With the split size raised there
//! are no several: one that is large enough, else all that is idle.
//!
//! A thread on another device must not see it raised: torch relies on it that blocks above
//! it are whole. So from torch's second device on, and where the pool has stopped, nothing is
//! raised any more and torch has no split size, as by itself: it cuts all blocks up, and
//! has fewer to give back. Changes nothing in other releases.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{LAYOUT, places};
use crate::dynamic;

/// The pointer to `c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance()`.
const INSTANCE: &CStr =
    c"_ZZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig8instanceEvE10s_instance";

/// What torch takes for a split size, in bytes; what lies outside is something else.
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
        leave();
    }
}

/// Torch has no split size from now on.
pub fn leave() {
    let Some(word) = word() else { return };
    let mut raised = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    raised.own = usize::MAX;
    word.store(usize::MAX, Ordering::Relaxed);
}

/// A request of these bytes fails softly now.
pub fn raise(bytes: u64) {
    let Some(word) = word() else { return };
    let mut raised = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
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
    let mut raised = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    raised.threads -= 1;
    if raised.threads == 0 {
        word.store(raised.own, Ordering::Relaxed);
    }
}

/// The first of the configuration; `None` in other releases, and until torch has one.
fn word() -> Option<&'static AtomicUsize> {
    static WORD: OnceLock<&'static AtomicUsize> = OnceLock::new();
    if let Some(word) = WORD.get() {
        return Some(word);
    }
    let is_known = LAYOUT.get().is_some_and(Result::is_ok);
    if !is_known || places::has_common_configuration() {
        return None;
    }
    // The pointer to it is in each library of torch's that reads it; one is used by all.
    let word = dynamic::find_object(INSTANCE, |at| {
        // SAFETY: a static pointer of torch's, which it sets before it allocates, to an
        // object that is never gone.
        let word = unsafe { ptr::read(at.cast::<*const AtomicUsize>()) };
        // SAFETY: as above; in these releases that object begins with this atomic word.
        unsafe { word.as_ref() }
    });
    word.map(|word| *WORD.get_or_init(|| word))
}
