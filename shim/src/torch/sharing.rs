//! Can processes share torch's expandable segments here? Torch passes the pages of
//! a tensor to another process as numbers of descriptors, which that one takes with
//! `pidfd_getfd`: a right that machines may withhold, where a tensor in a segment by
//! cudaMalloc is shared by any two processes. Looks, once; changes nothing. What a filter
//! may end a process for is tried by a child, of which the program hears nothing.

use std::ffi::{c_int, c_long};
use std::mem::zeroed;
use std::ptr;

use memcuda_core::driver::cancel;

use crate::process::yama;

/// No flag, pointer or signal.
const NONE: c_long = 0;

/// Why pages cannot be shared by all processes that can share other memory.
pub fn obstacle() -> Option<&'static str> {
    if !may_be_traced() {
        return Some(
            "nobody may take this process's descriptors, as sharing pages needs: it has another user than \
             it began with, or wants it so (PR_SET_DUMPABLE)",
        );
    }
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

/// May its own user trace this process?
fn may_be_traced() -> bool {
    // SAFETY: asks, and changes nothing.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) == 1 }
}

/// Does the kernel have the calls, and does no filter refuse them, or end who makes them?
fn descriptors_can_be_taken() -> bool {
    let _cancel = cancel::hold();
    // SAFETY: zeros are a value of a set, and the pointers are valid for the calls. A fork
    // with no signal at its end: the program's handler hears of none, and whether it ignores
    // them the child can be waited for, by nobody who does not ask for such children. Its
    // memory is its own, since older kernels end all who share it when one of them dumps core,
    // and no handler of the program's runs in it.
    let child = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, &mut before);
        let child = libc::syscall(libc::SYS_clone, NONE, NONE, NONE, NONE, NONE);
        if child == 0 {
            try_in_child();
        }
        libc::sigprocmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        child
    };
    child > 0 && ended_well(child)
}

/// Takes a descriptor of this process itself, which no other rule keeps from it, and ends.
fn try_in_child() -> ! {
    // SAFETY: calls of the system alone, in a process of its own, which leaves no dump of the
    // program's memory if it is ended.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, NONE);
        let itself = libc::syscall(libc::SYS_getpid);
        let own = libc::syscall(libc::SYS_pidfd_open, itself, NONE);
        let taken = own >= 0 && libc::syscall(libc::SYS_pidfd_getfd, own, own, NONE) >= 0;
        libc::_exit(c_int::from(!taken))
    }
}

fn ended_well(child: c_long) -> bool {
    let mut status = 0;
    loop {
        // SAFETY: a child of this process, and a valid pointer.
        let ended = unsafe { libc::waitpid(child as c_int, &mut status, libc::__WALL) };
        if ended >= 0 {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return false;
        }
    }
}
