//! Which contexts are ending: from before the driver's call until pools and tables have heard
//! of it. The driver may give the handle of one to a context that begins meanwhile; that one
//! is nobody's before the end of the old one was heard. Nobody waits here for work of a
//! context, nor for another handle. Calls no driver.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use memcuda_core::driver::Context;
use memcuda_core::lock;

static ENDING: Mutex<Vec<Context>> = Mutex::new(Vec::new());
static HEARD: Condvar = Condvar::new();

/// A context whose end is under way, until this is dropped.
pub struct Ending(Context);

/// One that is about to end; of two calls for one handle the second waits for the first.
pub fn begin(context: Context) -> Ending {
    without(context).push(context);
    Ending(context)
}

/// Waits until the end of whatever had this handle was heard: for who has got the handle of
/// the driver just now.
pub fn until_heard(context: Context) {
    drop(without(context));
}

/// Is any context ending?
pub fn any() -> bool {
    !lock().is_empty()
}

impl Drop for Ending {
    fn drop(&mut self) {
        lock().retain(|ending| *ending != self.0);
        HEARD.notify_all();
    }
}

/// The list, once this handle is not in it.
fn without(context: Context) -> MutexGuard<'static, Vec<Context>> {
    let heard = HEARD.wait_while(lock(), |ending| ending.contains(&context));
    heard.unwrap_or_else(PoisonError::into_inner)
}

fn lock() -> MutexGuard<'static, Vec<Context>> {
    lock::lock(&ENDING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_gets_the_handle_of_a_context_that_ends_waits_and_nobody_else() {
        let (old, other) = (Context(0x100), Context(0x200));
        let ending = begin(old);
        drop(begin(other));
        until_heard(other);
        assert!(any());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| until_heard(old));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(ending);
        });
        until_heard(old);
    }
}
