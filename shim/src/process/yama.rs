//! Descriptors that another process takes by itself. Torch passes the pages of its
//! expandable segments on as numbers of descriptors, which the other process takes by
//! `pidfd_getfd`. That asks for the right to trace the giver: Yama's first level,
//! which several distributions set, gives it to a process's ancestors alone, and who
//! takes is mostly its child or its sibling. So the giver allows all that may trace
//! it otherwise: its own user and root.

use std::sync::Once;

/// The scope in which only ancestors, and whom a process names, may trace it; beyond it
/// nobody may who is not root (Documentation/admin-guide/LSM/Yama.rst).
pub const ANCESTORS: u32 = 1;

/// `/proc/sys/kernel/yama/ptrace_scope`; 0 where there is no Yama.
pub fn scope() -> u32 {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    scope.map_or(0, |scope| scope.trim().parse().unwrap_or(0))
}

/// This process gives a descriptor away: who may trace it but for Yama may take it.
/// Once a process; nothing where Yama forbids nothing, or all.
pub fn let_others_take() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        if scope() == ANCESTORS {
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
