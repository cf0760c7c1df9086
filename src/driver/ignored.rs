//! Which signals this process was begun with as ignored, as SIGHUP by `nohup` and SIGPIPE in
//! a service of systemd's, and which of its first descriptors were closed (`<&-`): a program
//! that it starts, or becomes, is to have the same. They are noted before `main`, since Rust's
//! runtime ignores SIGPIPE then, and opens /dev/null for what is closed. Calls the system, not
//! the driver, and changes nothing of this process.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit each, by its number.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

// SAFETY: the section has functions of this kind, each called once.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note;

extern "C" fn note() {
    let is_ignored = |signal: &libc::c_int| {
        // SAFETY: zeros are a value of it; it is written to, and nothing is changed.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(*signal, std::ptr::null(), &mut now);
            asked == 0 && now.sa_sigaction == libc::SIG_IGN
        }
    };
    let bits = |bits: u64, number: libc::c_int| bits | 1 << number;
    let ignored = (1..32).filter(is_ignored).fold(0, bits);
    IGNORED.store(ignored, Ordering::Relaxed);
    // SAFETY: takes no pointer.
    let is_closed = |file: &libc::c_int| unsafe { libc::fcntl(*file, libc::F_GETFD) } == -1;
    CLOSED.store((0..3).filter(is_closed).fold(0, bits), Ordering::Relaxed);
}

/// Was this one?
pub fn was_ignored(signal: i32) -> bool {
    IGNORED.load(Ordering::Relaxed) >> signal & 1 != 0
}

/// Those of the first three descriptors that were closed.
pub fn closed() -> impl Iterator<Item = i32> {
    (0..3).filter(|file| CLOSED.load(Ordering::Relaxed) >> file & 1 != 0)
}

/// Becomes a program, which ignores SIGPIPE where this process was to; the standard library
/// gives it the default. Returns where that fails.
pub fn exec(command: &mut Command) -> Error {
    let close = || {
        for file in closed() {
            // SAFETY: takes no pointer; what is open there is the runtime's /dev/null.
            unsafe { libc::close(file) };
        }
        Ok(())
    };
    // SAFETY: calls of the system, which may be made after a fork, and here none is.
    unsafe { command.pre_exec(close) };
    if was_ignored(libc::SIGPIPE) {
        let ignore = || {
            // SAFETY: has no preconditions.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: a call of the system, which may be made after a fork, and here none is.
        unsafe { command.pre_exec(ignore) };
    }
    command.exec()
}
