//! The lock under which primary contexts are retained, released and asked for. The driver
//! tells which context it is only who retains it: a release behind that may be the last one,
//! and none must be taken for it. Contexts of the program's own begin and end without it.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

use memcuda_core::lock::lock;

static PRIMARIES: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_HELD: Cell<bool> = const { Cell::new(false) };
}

/// It is held by this thread, until this is dropped.
pub struct Held(Option<MutexGuard<'static, ()>>);

/// Keeps other threads from calls by which a primary context may begin or end. A call of the
/// driver may call a tool back that asks for memory on the same thread: that has it already.
pub fn hold() -> Held {
    if IS_HELD.replace(true) {
        return Held(None);
    }
    Held(Some(lock(&PRIMARIES)))
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.is_some() {
            IS_HELD.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_it_has_it_again_and_gives_it_up_once() {
        let first = hold();
        drop(hold());
        assert!(IS_HELD.get() && PRIMARIES.try_lock().is_err());
        drop(first);
        assert!(!IS_HELD.get());
    }
}
