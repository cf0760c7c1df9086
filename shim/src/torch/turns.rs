//! Allocations of torch's that go one at a time, while something of torch's is not each
//! thread's own: until its first page is made (`first`), and while a private pool is open
//! (`switch`). Otherwise none waits for another here, and none waits for long: who allocates
//! may wait for a lock of the program's (Python's) that the next one holds.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// As long as a page takes, with the context that it may be the first to need, and not longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks.
const NAP: Duration = Duration::from_micros(500);

static TURNS: Turns = Turns::new(PATIENCE);

thread_local! {
    /// What torch calls while it allocates may allocate, too.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Allocates, while it is needed alone. It is told whether it is.
pub fn alone<T>(needed: impl Fn() -> bool, allocate: impl FnOnce(bool) -> T) -> T {
    TURNS.alone(needed, allocate)
}

struct Turns {
    turn: Mutex<()>,
    patience: Duration,
}

/// This thread allocates. Dropped also where torch throws.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl Turns {
    const fn new(patience: Duration) -> Self {
        Self {
            turn: Mutex::new(()),
            patience,
        }
    }

    fn alone<T>(&self, needed: impl Fn() -> bool, allocate: impl FnOnce(bool) -> T) -> T {
        if !needed() || INSIDE.replace(true) {
            return allocate(false);
        }
        let _inside = Inside;
        let turn = self.turn(needed);
        allocate(turn.is_some())
    }

    /// The turn, while it is needed; `None` also where it does not come.
    fn turn(&self, needed: impl Fn() -> bool) -> Option<MutexGuard<'_, ()>> {
        let began = Instant::now();
        while needed() && began.elapsed() < self.patience {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(NAP),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    /// As one does that waits for Python's lock, which the other one holds.
    #[test]
    fn who_waits_for_the_next_one_is_waited_for_a_moment_only() {
        let turns = Turns::new(Duration::from_millis(20));
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| turns.alone(|| true, |_| both.wait()));
            }
        });
    }

    #[test]
    fn while_it_is_needed_threads_allocate_one_after_the_other() {
        let (turns, inside) = (Turns::new(Duration::MAX), AtomicU32::new(0));
        let needed = AtomicBool::new(true);
        let needed = || needed.load(Ordering::SeqCst);
        let allocate = |alone: bool| {
            assert!(alone);
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            turns.alone(needed, |_| thread::yield_now());
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| turns.alone(needed, allocate)));
            }
        });
        let all = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| turns.alone(|| false, |_| all.wait()));
            }
        });
    }
}
