//! Keeps forks and looks at the loader's list of files apart. A fork copies the lock of that
//! list as it is: held by another thread it is nobody's in the child, whose first `dlopen`
//! waits for ever. So a fork waits until no thread is at the list, and who comes to it
//! meanwhile waits for the fork.
//!
//! Neither waits for long: behind both may stand a lock that another library's own fork
//! handler has taken. A thread never waits for itself: not in a signal's handler that forks,
//! nor where it looks between its own handlers.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use memcuda_core::waiting::Waiting;

/// Looks under way, and above them forks.
static GATE: AtomicU64 = AtomicU64::new(0);
const LOOK: u64 = 1;
const FORK: u64 = 1 << 32;

/// A look takes a microsecond, where its thread runs; a fork as long as the kernel copies.
const FOR_LOOKS: Duration = Duration::from_millis(100);
const FOR_FORKS: Duration = Duration::from_secs(1);

thread_local! {
    /// Looks that this thread has under way, one within the other, and its fork.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Runs a look at the list.
pub fn pass<T>(look: impl FnOnce() -> T) -> T {
    watch();
    let own = OWN.get();
    // First: what a signal's handler forks here is no fork to wait for.
    OWN.set(own + LOOK);
    let before = GATE.fetch_add(LOOK, Ordering::AcqRel);
    if before >= FORK && own == 0 {
        step_back();
    }
    let seen = look();
    GATE.fetch_sub(LOOK, Ordering::Release);
    OWN.set(own);
    seen
}

/// Lets forks go before this look.
#[cold]
fn step_back() {
    let mut waiting = Waiting::begin();
    let mut is_free = false;
    while !is_free {
        GATE.fetch_sub(LOOK, Ordering::Release);
        wait(&mut waiting, FOR_FORKS, || {
            GATE.load(Ordering::Relaxed) < FORK
        });
        let before = GATE.fetch_add(LOOK, Ordering::AcqRel);
        is_free = before < FORK || waiting.lasted() >= FOR_FORKS;
    }
}

/// Not by a sleep, in which a thread may be cancelled.
fn wait(waiting: &mut Waiting, longest: Duration, is_over: impl Fn() -> bool) {
    while !is_over() && waiting.lasted() < longest {
        waiting.step_aside();
    }
}

/// Registers the handlers, once: early, so that they are the last before a fork.
fn watch() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.load(Ordering::Relaxed) || IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: functions of this library, which is never unloaded; they only change atomics
    // and this thread's number.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    let own = OWN.get();
    OWN.set(own + LOOK);
    GATE.fetch_add(FORK, Ordering::AcqRel);
    // Its own looks go on after the fork.
    GATE.fetch_sub(own, Ordering::AcqRel);
    wait(&mut Waiting::begin(), FOR_LOOKS, || {
        GATE.load(Ordering::Acquire).is_multiple_of(FORK)
    });
}

unsafe extern "C" fn in_parent() {
    let own = OWN.get() - LOOK;
    OWN.set(own);
    GATE.fetch_add(own, Ordering::AcqRel);
    GATE.fetch_sub(FORK, Ordering::AcqRel);
}

/// There is no thread but this one.
unsafe extern "C" fn in_child() {
    let own = OWN.get() - LOOK;
    OWN.set(own);
    GATE.store(own, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_forks_while_it_looks_is_all_that_looks_in_the_child() {
        // SAFETY: the child compares two numbers and ends.
        let child = pass(|| unsafe {
            let child = libc::fork();
            if child == 0 {
                let looks = (OWN.get(), GATE.load(Ordering::Relaxed));
                libc::_exit(i32::from(looks != (LOOK, LOOK)));
            }
            child
        });
        let mut status = -1;
        // SAFETY: the pointer is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((status, OWN.get()), (0, 0));
        pass(|| assert!(GATE.load(Ordering::Relaxed) % FORK >= LOOK));
    }
}
