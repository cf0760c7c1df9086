//! A number for each thread that uses its own default stream: thread ids of
//! the system are reused, these are not. Knows which of these threads have ended,
//! and tells others of theirs.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use memcuda_core::lock::lock;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The numbers of threads that have ended, until somebody asks for them.
static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// How often a thread that ends tries to say so.
const TRIES: usize = 100;

/// Something of a thread, of which a function is told when the thread ends. Not a
/// thread-local value with a destructor: to register one is to wait for the loader, where a
/// constructor may wait for this thread.
pub struct UntilEnd {
    key: OnceLock<Option<libc::pthread_key_t>>,
    ends: extern "C" fn(*mut c_void),
}

impl UntilEnd {
    pub const fn new(ends: extern "C" fn(*mut c_void)) -> Self {
        let key = OnceLock::new();
        Self { key, ends }
    }

    /// This thread's is this one, not null; false where its end cannot be told.
    pub fn set(&self, value: *const c_void) -> bool {
        let make = || {
            let mut key = 0;
            // SAFETY: the pointer is valid for the call, the function never unloaded.
            let code = unsafe { libc::pthread_key_create(&mut key, Some(self.ends)) };
            (code == 0).then_some(key)
        };
        // SAFETY: a key that is never deleted; what the value is only `ends` knows.
        let keep = |key: &_| unsafe { libc::pthread_setspecific(*key, value) } == 0;
        self.key.get_or_init(make).as_ref().is_some_and(keep)
    }
}

/// The thread of this number ends.
extern "C" fn ends(number: *mut c_void) {
    // In a forked child there may be nobody to let it go.
    let ended = (0..TRIES).find_map(|_| {
        let ended = ENDED.try_lock();
        ended.inspect_err(|_| std::thread::yield_now()).ok()
    });
    if let Some(mut ended) = ended {
        ended.push(number.addr() as u64);
    }
}

/// This thread's number, from 1 on.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static NUMBERS: UntilEnd = UntilEnd::new(ends);
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
        NUMBERS.set(ptr::without_provenance(NUMBER.get() as usize));
    }
    NUMBER.get()
}

/// The threads that have ended since this was last asked.
pub fn ended() -> Vec<u64> {
    std::mem::take(&mut *lock(&ENDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_thread_that_has_a_number_it_is_told_once_that_it_ended() {
        let thread = std::thread::spawn(|| (number(), number()));
        let (first, again) = thread.join().unwrap();
        assert_eq!(first, again);
        assert_ne!(number(), first);
        assert!(ended().contains(&first));
        assert!(!ended().contains(&first));
    }
}
