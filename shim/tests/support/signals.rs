//! Signals to what a test has started. The program `kill` is not everywhere.

/// Sends a signal to a process, if it still is.
pub fn signal(pid: i32, which: i32) {
    assert!(pid > 1);
    // SAFETY: takes no pointer.
    unsafe { libc::kill(pid, which) };
}
