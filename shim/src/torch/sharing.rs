//! Can processes share torch's expandable segments here? Torch passes the pages of
//! a tensor to another process as numbers of descriptors, which that one takes with
//! `pidfd_getfd`: a right that machines may withhold, where a tensor in a segment by
//! cudaMalloc is shared by any two processes. Looks, once; changes nothing.

use libc::c_long;

use crate::yama;

/// Why pages cannot be shared by all processes that can share other memory.
pub fn obstacle() -> Option<&'static str> {
    if !descriptors_can_be_taken() {
        return Some(
            "no process can take another's descriptors here (pidfd_getfd), as sharing pages needs",
        );
    }
    // Up to there a process that exports a page can make an exception of itself.
    (yama::scope() > yama::ANCESTORS).then_some(
        "kernel.yama.ptrace_scope forbids to take another's descriptors, as sharing pages needs",
    )
}

/// Does the kernel have the calls, and does no filter refuse them? Asked of this
/// process itself, which no other rule keeps from its own descriptors.
fn descriptors_can_be_taken() -> bool {
    // SAFETY: opens a descriptor of this process.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if own < 0 {
        return false;
    }
    // SAFETY: makes a second descriptor of what the first is of.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, own, own, 0) };
    close(taken);
    close(own);
    taken >= 0
}

fn close(descriptor: c_long) {
    if descriptor >= 0 {
        // SAFETY: made above, and nobody else's.
        unsafe { libc::close(descriptor as i32) };
    }
}
