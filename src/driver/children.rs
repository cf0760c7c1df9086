//! Children of this process: a keeper's standby and who makes memory for it, and programs that
//! a verb starts. A process that was started by one that ignores SIGCHLD ignores it, too, and
//! then no child can be waited for. Calls the system, not the driver.

/// Lets children be waited for; they, too, have the signal's default then. Only before this
/// process has a handler of its own for their ends.
pub fn can_be_waited_for() {
    // SAFETY: the default for a signal, for which nobody here has set a handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}
