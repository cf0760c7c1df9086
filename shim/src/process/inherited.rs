//! A descriptor of which a forked child closes its copy, since the file is its parent's. What is
//! open under its number by then may be a file of the program's, which device and inode tell. The
//! child waits for nothing here, locks nothing, allocates nothing.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use memcuda_core::descriptor;

/// One of them, or none (-1).
pub struct Inherited {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Inherited {
    /// None yet.
    pub const fn none() -> Self {
        Self {
            number: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// It is this one from now on, of what is open under it; false where nothing is.
    pub fn note(&self, number: RawFd) -> bool {
        let Some((device, inode)) = identity(number) else {
            return false;
        };
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        // Whoever sees the number sees what it is of.
        self.number.store(number, Ordering::Release);
        true
    }

    /// It is none any more.
    pub fn forget(&self) {
        self.number.store(-1, Ordering::Relaxed);
    }

    /// In a forked child. Async-signal-safe.
    pub fn close(&self) {
        let number = self.number.swap(-1, Ordering::Acquire);
        let noted = [&self.device, &self.inode].map(|word| word.load(Ordering::Relaxed));
        if identity(number) == Some(noted.into()) {
            // SAFETY: the child's copy of a descriptor that it never uses.
            unsafe { libc::close(number) };
        }
    }
}

fn identity(number: RawFd) -> Option<(u64, u64)> {
    if number < 0 {
        return None;
    }
    // SAFETY: for one question, whose answer is an error where nothing is open under it.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    descriptor::identity(file).ok()
}
