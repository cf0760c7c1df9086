//! The connection to the keeper as a forked child must see it: it is the
//! parent's, and the child closes its copy. Async-signal-safe.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The connection's descriptor, for a forked child; -1 for none. What is open
/// under its number may be a file of the program's by then: its inode tells.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Notes the connection for a forked child.
pub fn remember(connection: BorrowedFd<'_>) {
    let descriptor = connection.as_raw_fd();
    INODE.store(inode(descriptor).unwrap_or(0), Ordering::Relaxed);
    DESCRIPTOR.store(descriptor, Ordering::Relaxed);
}

/// There is no connection any more.
pub fn forget() {
    DESCRIPTOR.store(-1, Ordering::Relaxed);
}

/// The inode of a socket; `None` of anything else.
fn inode(descriptor: i32) -> Option<u64> {
    // SAFETY: all-zero is a valid value of this plain structure, and the pointer
    // is valid for the call.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        let found = libc::fstat(descriptor, &mut about) == 0;
        (found && about.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(about.st_ino)
    }
}

/// In a forked child: the connection is the parent's.
pub fn in_child() {
    let descriptor = DESCRIPTOR.swap(-1, Ordering::Relaxed);
    if descriptor >= 0 && inode(descriptor) == Some(INODE.load(Ordering::Relaxed)) {
        // SAFETY: the child's copy of a descriptor that it never uses.
        unsafe { libc::close(descriptor) };
    }
}
