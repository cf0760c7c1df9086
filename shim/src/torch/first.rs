//! Torch's first page. Releases 2.11 and 2.12 find out with it whether handles can be for a
//! fabric, and note for the whole process that they are to be, as long as that takes: a
//! thread that asks for the first page of another device meanwhile fails, by the driver's
//! error or for want of memory. So until a page is made torch's threads allocate one after
//! the other. Later ones never wait for each other here, and none waits for long: who
//! allocates may wait for a lock of the program's (Python's) that the next one holds.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use memcuda_core::waiting::Waiting;

use super::{environment, switch};

/// As long as a page takes, with the context that it may be the first to need, and not longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks.
const NAP: Duration = Duration::from_micros(500);

static FIRST: First = First::new(PATIENCE);

thread_local! {
    /// What torch calls while it allocates may allocate, too.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Torch has got a page.
pub fn page_made() {
    FIRST.made.store(true, Ordering::Release);
}

/// An allocation of torch's; by itself until there is a page, where torch has any.
pub fn alone<T>(allocate: impl FnOnce() -> T) -> T {
    match FIRST.is_made() || !environment::maps_pages() || switch::is_off() {
        true => allocate(),
        false => FIRST.alone(allocate),
    }
}

struct First {
    made: AtomicBool,
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

impl First {
    const fn new(patience: Duration) -> Self {
        Self {
            made: AtomicBool::new(false),
            turn: Mutex::new(()),
            patience,
        }
    }

    fn is_made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }

    fn alone<T>(&self, allocate: impl FnOnce() -> T) -> T {
        if INSIDE.replace(true) {
            return allocate();
        }
        let _inside = Inside;
        let _turn = self.turn();
        allocate()
    }

    /// The turn, while there is no page; `None` also where it does not come.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let mut waiting = Waiting::begin();
        while !self.is_made() && waiting.lasted() < self.patience {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) => waiting.pause(NAP),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    /// As one does that waits for Python's lock, which the other one holds.
    #[test]
    fn who_waits_for_the_next_one_is_waited_for_a_moment_only() {
        let first = First::new(Duration::from_millis(20));
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| first.alone(|| both.wait()));
            }
        });
    }

    #[test]
    fn until_there_is_a_page_threads_allocate_one_after_the_other() {
        let (first, inside) = (First::new(Duration::MAX), AtomicU32::new(0));
        let allocate = || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            first.alone(thread::yield_now);
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| first.alone(allocate)));
            }
        });
        first.made.store(true, Ordering::Release);
        let all = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| first.alone(|| all.wait()));
            }
        });
    }
}
