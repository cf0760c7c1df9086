//! Torch's first page. Releases 2.11 and 2.12 find out with it whether handles can be for a
//! fabric, and note for the whole process that they are to be, as long as that takes: a
//! thread that asks for the first page of another device meanwhile fails, by the driver's
//! error or for want of memory. So until a page is made torch's threads allocate one after
//! the other. Later ones never wait for each other here.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::environment;

static FIRST: First = First::new();

thread_local! {
    /// What torch calls while it allocates may allocate, too.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Torch has got a page.
pub fn made() {
    FIRST.made.store(true, Ordering::Release);
}

/// An allocation of torch's; by itself until there is a page, where torch has any.
pub fn alone<T>(allocate: impl FnOnce() -> T) -> T {
    match environment::maps_pages() {
        true => FIRST.alone(allocate),
        false => allocate(),
    }
}

struct First {
    made: AtomicBool,
    turn: Mutex<()>,
}

/// This thread allocates. Dropped also where torch throws.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl First {
    const fn new() -> Self {
        Self {
            made: AtomicBool::new(false),
            turn: Mutex::new(()),
        }
    }

    fn is_made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }

    fn alone<T>(&self, allocate: impl FnOnce() -> T) -> T {
        if self.is_made() || INSIDE.replace(true) {
            return allocate();
        }
        let _inside = Inside;
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _turn = (!self.is_made()).then_some(turn);
        allocate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    #[test]
    fn until_there_is_a_page_threads_allocate_one_after_the_other() {
        let (first, inside) = (First::new(), AtomicU32::new(0));
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
