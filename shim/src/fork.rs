//! A forked child is left alone: CUDA does not survive a fork, so in a child of
//! a process in which the engine ran every hook is the real function.

use crate::pages::passed_on;
use crate::share::keeper;
use crate::{engine, watch};

unsafe extern "C" fn in_child() {
    if let Some(engine) = engine::running() {
        watch::in_child(engine);
        keeper::in_child();
        passed_on::in_child();
    }
    engine::leave_alone();
}

/// Registers the handler; at the start of the engine only, so that programs
/// without CUDA, and children forked before it, are not touched.
pub fn watch() {
    // SAFETY: the handler is a function of this library, which is never
    // unloaded, and makes async-signal-safe calls alone.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}
