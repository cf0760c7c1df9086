//! Descriptors that clients send and that hold no memory. To close one may take as long
//! as somebody else likes: a socket that lingers, a file of FUSE, one of a server that
//! is gone. So a thread of its own does it, for whom nobody waits. Keeps none.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{AtFlags, FileType, StatxFlags, fcntl_get_seals, fstat, statx};

/// So many that are not closed yet are many.
const MANY: usize = 1024;
const STACK: usize = 64 << 10;

/// How many are still to be closed.
#[derive(Default)]
pub struct Strays {
    left: Arc<AtomicUsize>,
}

/// Some of them, counted until they are closed.
struct Closing {
    all: Vec<OwnedFd>,
    left: Arc<AtomicUsize>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let count = self.all.len();
        self.all.clear();
        self.left.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Strays {
    /// Closes all of them: now what is closed at once, the rest aside.
    pub fn close(&self, mut all: Vec<OwnedFd>) {
        all.retain(|descriptor| !closes_at_once(descriptor));
        if all.is_empty() {
            return;
        }
        self.left.fetch_add(all.len(), Ordering::Relaxed);
        let left = self.left.clone();
        let closing = Closing { all, left };
        let thread = thread::Builder::new().stack_size(STACK);
        // Where there is no thread to be had they are closed here.
        let _ = thread.spawn(move || drop(closing));
    }

    /// Are there so many that strangers are to bring no more?
    pub fn are_many(&self) -> bool {
        self.left.load(Ordering::Relaxed) >= MANY
    }
}

/// Is it nothing that somebody else can hold up: a file in memory, a device, a pipe, or
/// something without a type, as a dma-buf is? Asks no server of a file system.
pub fn closes_at_once(descriptor: &OwnedFd) -> bool {
    if fcntl_get_seals(descriptor).is_ok() {
        return true;
    }
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(descriptor, "", flags, StatxFlags::TYPE).map(|it| u32::from(it.stx_mode));
    // Linux before 4.11, or a container that does not let it.
    let mode = found.or_else(|_| fstat(descriptor).map(|it| it.st_mode));
    let kind = mode.map(FileType::from_raw_mode);
    matches!(
        kind,
        Ok(FileType::CharacterDevice | FileType::Fifo | FileType::Unknown)
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_is_closed_at_once_is_told_from_what_may_take_long() {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let device = File::open("/dev/null").unwrap();
        let nameless = eventfd(0, EventfdFlags::empty()).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let folder = File::open("/").unwrap();
        for (descriptor, is) in [
            (memory, true),
            (device.into(), true),
            (nameless, true),
            (one.into(), false),
            (file.into(), false),
            (folder.into(), false),
        ] {
            assert_eq!(closes_at_once(&descriptor), is, "{descriptor:?}");
        }
        let strays = Strays::default();
        strays.close(vec![other.into()]);
        while strays.left.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }
}
