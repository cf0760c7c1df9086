//! Children of this process: a keeper's standby and who makes memory for it, and programs that
//! a verb starts. A process that was started by one that ignores SIGCHLD ignores it, too, and
//! then no child can be waited for. A verb ends as its program did. Calls the system, not the
//! driver.

/// Lets children be waited for; they, too, have the signal's default then. Only before this
/// process has a handler of its own for their ends.
pub fn can_be_waited_for() {
    // SAFETY: the default for a signal, for which nobody here has set a handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Ends this process by the signal that ended a program, or by which it was asked to end
/// itself: a shell goes on with its loop where a child ends by an exit, and others tell the two
/// apart. No core is written, which would not be the program's. Returns where the signal ends
/// nobody, as in the first process of a PID namespace: with the status that a shell shows.
pub fn end_by(signal: i32) -> u8 {
    // SAFETY: takes no pointer; zeros are a value of the set, and it is valid for the calls.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut own: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut own, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &own, std::ptr::null_mut());
        libc::raise(signal);
    }
    128_u8.wrapping_add(signal as u8)
}
