//! The line between the host program and this library: nothing that goes wrong
//! behind it crosses it.
//!
//! A hook's body runs only while the engine runs, and not inside another one
//! on the same thread (an interposer below may call back). If it panics, the
//! library stops taking new work, keeps honouring frees, and says so once.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use memcuda_core::driver::Code;

use crate::engine::{self, Engine};

thread_local! {
    /// Is this thread inside a hook's body? No destructor, so that it works
    /// at any moment of a thread's life.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` where it may run, `aside` where it may not, and `panicked`
/// after it panicked.
pub fn enter(
    body: impl FnOnce(&'static Engine) -> Code,
    panicked: impl FnOnce() -> Code,
    aside: impl FnOnce() -> Code,
) -> Code {
    match engine::running() {
        Some(engine) if !INSIDE.replace(true) => {
            let result = catch_unwind(AssertUnwindSafe(|| body(engine)));
            INSIDE.set(false);
            result.unwrap_or_else(|_| {
                engine::stop_taking_work();
                panicked()
            })
        }
        _ => aside(),
    }
}

/// No hook's body runs on this thread from now on: it is this library's own.
pub fn stay_outside() {
    INSIDE.set(true);
}

/// Runs `body`, or `otherwise` after it panicked; for entries that are no
/// driver calls.
pub fn or_else<T>(body: impl FnOnce() -> T, otherwise: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        engine::stop_taking_work();
        otherwise()
    })
}

/// Makes a panic of this library one line of the log. The hook is this
/// library's own copy of the standard library's, not the host's.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or(payload.downcast_ref::<String>().map(String::as_str));
        let (text, place) = (text.unwrap_or("no message"), panic.location());
        let (file, line) = place.map_or(("", 0), |place| (place.file(), place.line()));
        crate::log_once!(
            Error,
            "internal error, new memory now comes from the plain driver: {text} ({file}:{line})"
        );
    }));
}

/// In debug builds, panics where `MEMCUDA_PANIC_IN` names this place: how the
/// tests see that a panic stays inside.
pub fn planted_panic(_place: &str) {
    #[cfg(debug_assertions)]
    if crate::environment::raw(c"MEMCUDA_PANIC_IN")
        .is_some_and(|v| v.to_bytes() == _place.as_bytes())
    {
        panic!("planted in {_place}");
    }
}
