//! A number for each thread that uses its own default stream: thread ids of
//! the system are reused, these are not. Knows which of these threads have ended.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static END: Cell<Option<End>> = const { Cell::new(None) };
}

/// The numbers of threads that have ended, until somebody asks for them.
static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// How often a thread that ends tries to say so.
const TRIES: usize = 100;

/// What is dropped with the thread of this number.
struct End(u64);

impl Drop for End {
    fn drop(&mut self) {
        // In a forked child there may be nobody to let it go.
        let ended = (0..TRIES).find_map(|_| {
            let ended = ENDED.try_lock();
            ended.inspect_err(|_| std::thread::yield_now()).ok()
        });
        if let Some(mut ended) = ended {
            ended.push(self.0);
        }
    }
}

/// This thread's number, from 1 on.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
        // Of a thread that is ending already nobody hears.
        let _ = END.try_with(|end| end.set(Some(End(NUMBER.get()))));
    }
    NUMBER.get()
}

/// The threads that have ended since this was last asked.
pub fn ended() -> Vec<u64> {
    std::mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner))
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
