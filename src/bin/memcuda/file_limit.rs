//! The limit of a file's size (`ulimit -f`): a write beyond it fails and is told in a
//! line; it does not end the command by SIGXFSZ, which is blocked (to ignore a signal is
//! nothing that safe code can do). Programs that are started get it as it was.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Was it blocked before?
static BEFORE: OnceLock<bool> = OnceLock::new();

/// Holds the signal on this thread and on all that it starts.
pub fn hold() {
    let own = SigSet::from(Signal::SIGXFSZ);
    if let Ok(before) = own.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
        let _ = BEFORE.set(before.contains(Signal::SIGXFSZ));
    }
}

/// What is blocked in a program that such a thread starts.
pub fn of_program(mut blocked: SigSet) -> SigSet {
    if BEFORE.get() == Some(&false) {
        blocked.remove(Signal::SIGXFSZ);
    }
    blocked
}

/// Before this process becomes another program.
pub fn let_go() {
    if BEFORE.get() == Some(&false) {
        let _ = SigSet::from(Signal::SIGXFSZ).thread_unblock();
    }
}

/// Files of this process may be as long as it is allowed to say.
pub fn raise() {
    // Not every sandbox tells it.
    if let Ok((_, maximum)) = getrlimit(Resource::RLIMIT_FSIZE) {
        let _ = setrlimit(Resource::RLIMIT_FSIZE, maximum, maximum);
    }
}
