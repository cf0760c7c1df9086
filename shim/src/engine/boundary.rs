//! The line between the host program and this library: nothing that goes wrong
//! behind it crosses it.
//!
//! A hook's body runs only while the engine runs, and not inside another one
//! on the same thread (an interposer below may call back). If it panics, the
//! library stops taking new work, keeps honouring frees, and says so once; the
//! program gets what the driver has answered already, or is asked now.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use memcuda_core::driver::Code;

use crate::engine::reserve;
use crate::engine::{self, Engine};
use crate::libraries::routes;
use crate::process::log;

/// The line of the source in which a lookup panicked; 0 is none. Its text is not
/// kept: nothing is formatted inside a lookup.
static FAILED_LOOKUP: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Is this thread inside a hook's body? No destructor, so that it works
    /// at any moment of a thread's life.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// What the driver answered the program's own call in this thread's hook.
    static ANSWER: Cell<Option<Code>> = const { Cell::new(None) };
}

/// Runs the body of the hook of this name where it may run, `aside` where it
/// may not. After it panicked the answer is the driver's, if the program's call
/// was passed on by then, else that of `panicked`.
pub fn enter(
    name: &str,
    body: impl FnOnce(&'static Engine) -> Code,
    panicked: impl FnOnce() -> Code,
    aside: impl FnOnce() -> Code,
) -> Code {
    match engine::running() {
        Some(engine) if !INSIDE.replace(true) => {
            ANSWER.set(None);
            if log::is_due() {
                speak();
            }
            let result = catch_unwind(AssertUnwindSafe(|| {
                planted_panic(name);
                let code = body(engine);
                planted_panic_behind(name);
                code
            }));
            INSIDE.set(false);
            result.unwrap_or_else(|_| {
                engine::stop_taking_work();
                ANSWER.take().unwrap_or_else(panicked)
            })
        }
        _ => aside(),
    }
}

/// Runs a function of this library's own interface: what it asks of the driver
/// comes to no hook.
pub fn inside<T>(body: impl FnOnce() -> T) -> T {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _leave = Leave(INSIDE.replace(true));
    body()
}

/// Makes a call inside a hook's body at which somebody else stands: what that one asks of
/// the driver comes to hooks. Nothing of ours is locked meanwhile.
pub fn outside<T>(call: impl FnOnce() -> T) -> T {
    INSIDE.set(false);
    let result = call();
    INSIDE.set(true);
    unanswered();
    result
}

/// No hook's body runs on this thread from now on: it is this library's own.
pub fn stay_outside() {
    INSIDE.set(true);
}

/// The driver has answered the program's own call.
pub fn answered(code: Code) -> Code {
    ANSWER.set(Some(code));
    code
}

/// What was answered is not the whole answer: it must be asked for again.
pub fn unanswered() {
    ANSWER.set(None);
}

/// Runs `body`, or `otherwise` after it panicked; for entries that are no
/// driver calls.
pub fn or_else<T>(name: &str, body: impl FnOnce() -> T, otherwise: impl FnOnce() -> T) -> T {
    quiet_panics();
    let result = catch_unwind(AssertUnwindSafe(|| {
        planted_panic(name);
        body()
    }));
    result.unwrap_or_else(|_| {
        engine::stop_taking_work();
        otherwise()
    })
}

/// Says what lookups left to be said.
#[cold]
fn speak() {
    log::none_due();
    routes::say();
    if reserve::is_to_be_said() {
        crate::log_once!(
            Error,
            "no host memory, new memory now comes from the plain driver"
        );
    }
    let line = FAILED_LOOKUP.swap(0, Ordering::Relaxed);
    if line != 0 {
        crate::log!(
            Error,
            "internal error in a lookup (line {line}), new memory now comes from the plain driver"
        );
    }
}

/// Makes a panic of this library one line of the log. The hook is this
/// library's own copy of the standard library's, not the host's.
fn quiet_panics() {
    static QUIET: AtomicBool = AtomicBool::new(false);
    if !QUIET.load(Ordering::Relaxed) && !QUIET.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|panic| {
            let payload = panic.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or(payload.downcast_ref::<String>().map(String::as_str));
            let (text, place) = (text.unwrap_or("no message"), panic.location());
            let (file, line) = place.map_or(("", 0), |place| (place.file(), place.line()));
            if log::is_silent() {
                FAILED_LOOKUP.store(line.max(1), Ordering::Relaxed);
                return log::make_due();
            }
            crate::log_once!(
                Error,
                "internal error, new memory now comes from the plain driver: {text} ({file}:{line})"
            );
        }));
    }
}

/// In debug builds, panics once where `MEMCUDA_PANIC_IN` names this place: how
/// the tests see that a panic stays inside.
pub fn planted_panic(_place: &str) {
    #[cfg(debug_assertions)]
    planted::panic_in(_place, "");
}

/// The same, behind a hook's body: `MEMCUDA_PANIC_IN=NAME:behind`.
fn planted_panic_behind(_name: &str) {
    #[cfg(debug_assertions)]
    planted::panic_in(_name, ":behind");
}

#[cfg(debug_assertions)]
mod planted {
    use std::ffi::CString;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    pub fn panic_in(name: &str, behind: &str) {
        static DONE: AtomicBool = AtomicBool::new(false);
        static BEFORE: OnceLock<Option<CString>> = OnceLock::new();
        let read = || Some(crate::process::environment::raw(c"MEMCUDA_PANIC_IN")?.to_owned());
        // Programs plant one in an allocation as they go. Lookups read no variable.
        let wanted = match name.starts_with("cuMem") {
            true => read(),
            false => BEFORE.get_or_init(read).clone(),
        };
        let wanted = wanted.as_ref().map(|place| place.to_bytes());
        let wanted = wanted.and_then(|place| place.strip_prefix(name.as_bytes()));
        if wanted == Some(behind.as_bytes()) && !DONE.swap(true, Ordering::Relaxed) {
            panic!("planted in {name}{behind}");
        }
    }
}
