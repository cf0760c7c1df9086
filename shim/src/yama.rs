//! Descriptors that another process takes by itself. Torch passes the pages of its
//! expandable segments on as numbers of descriptors, which the other process takes by
//! `pidfd_getfd`. That asks for the right to trace the giver: Yama's first level,
//! which several distributions set, gives it to a process's ancestors alone, and who
//! takes is mostly its child or its sibling. So the giver allows all that may trace
//! it otherwise: its own user and root.

use std::sync::Once;

/// `/proc/sys/kernel/yama/ptrace_scope` where only ancestors, and whom a process
/// names, may trace it.
const ANCESTORS: &[u8] = b"1";

/// This process gives a descriptor away: who may trace it but for Yama may take it.
/// Once a process; nothing where Yama forbids nothing, or all.
pub fn let_others_take() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let scope = std::fs::read("/proc/sys/kernel/yama/ptrace_scope");
        if scope.is_ok_and(|scope| scope.trim_ascii() == ANCESTORS) {
            allow_all();
        }
    });
}

fn allow_all() {
    // SAFETY: changes who may trace this process, and no memory.
    let done = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    match done {
        0 => crate::log!(
            Debug,
            "torch passes memory on by descriptors: processes of this user may take them \
             (PR_SET_PTRACER, for Yama's ptrace_scope is 1)"
        ),
        _ => crate::log!(
            Debug,
            "torch passes memory on by descriptors, which other processes may not take \
             (ptrace_scope is 1): {}",
            std::io::Error::last_os_error()
        ),
    }
}
