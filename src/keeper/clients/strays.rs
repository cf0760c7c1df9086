//! Descriptors that take long to close. Of those that clients send and that hold no memory
//! one may take as long as somebody else likes: a socket that lingers, a file of FUSE, one
//! of a server that is gone. The last one of a file in memory takes as long as its pages are
//! many. So a thread of its own does it, for whom nobody waits, or for a moment. Keeps none.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::lock;
use rustix::fs::{AtFlags, FileType, StatxFlags, fcntl_get_seals, fstat, readlink, statx};

/// So many that are not closed yet are many.
const MANY: usize = 1024;
const STACK: usize = 64 << 10;
/// Files in memory that have no more than this together are closed at once.
const FEW_BYTES: u64 = 1 << 20;

/// How many are still to be closed.
#[derive(Clone, Default)]
pub struct Strays {
    strange: Arc<Left>,
    files: Arc<Left>,
}

#[derive(Default)]
struct Left {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Left {
    fn lock(&self) -> MutexGuard<'_, usize> {
        lock::lock(&self.count)
    }
}

/// Some of them, counted until they are closed.
struct Closing {
    all: Vec<OwnedFd>,
    left: Arc<Left>,
}

impl Closing {
    /// By a thread; where there is none to be had they are closed here.
    fn spawn(all: Vec<OwnedFd>, left: &Arc<Left>) {
        if all.is_empty() {
            return;
        }
        *left.lock() += all.len();
        let left = left.clone();
        let closing = Self { all, left };
        let thread = thread::Builder::new().stack_size(STACK);
        let _ = thread.spawn(move || drop(closing));
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let count = self.all.len();
        self.all.clear();
        *self.left.lock() -= count;
        self.left.fewer.notify_all();
    }
}

/// Duplicates, closed by a thread when this goes out of scope: until then no other one is
/// the last.
pub struct Aside {
    all: Vec<OwnedFd>,
    left: Arc<Left>,
}

impl Drop for Aside {
    fn drop(&mut self) {
        Closing::spawn(std::mem::take(&mut self.all), &self.left);
    }
}

impl Strays {
    /// Closes all of them: now what is closed at once, the rest aside.
    pub fn close(&self, all: Vec<OwnedFd>) {
        let is_memory = |descriptor: &OwnedFd| may_be_memory(descriptor);
        let (memory, strange) = all.into_iter().partition(is_memory);
        Closing::spawn(strange, &self.strange);
        self.let_go(memory);
    }

    /// Closes memory: files aside where they have many pages, whatever is of a device now.
    pub fn let_go(&self, all: Vec<OwnedFd>) {
        if are_large(&all) {
            let has_pages = |descriptor: &OwnedFd| bytes_of_file(descriptor) > 0;
            let files = all.into_iter().filter(has_pages).collect();
            Closing::spawn(files, &self.files);
        }
    }

    /// Waits until the files are closed, no longer than this: mostly they were not the last,
    /// and what stands for a device's memory in a test is free behind it.
    pub fn settle(&self, most: Duration) {
        let (files, is_left) = (&self.files, |left: &mut usize| *left > 0);
        drop(files.fewer.wait_timeout_while(files.lock(), most, is_left));
    }

    /// For who is about to do something with these and may close them, at once or not.
    pub fn aside(&self, all: &[OwnedFd]) -> Aside {
        let files = all.iter().filter(|it| bytes_of_file(it) > 0);
        let all = match are_large(all) {
            true => files.flat_map(|it| it.try_clone()).collect(),
            false => Vec::new(),
        };
        let left = self.files.clone();
        Aside { all, left }
    }

    /// Are there so many that strangers are to bring no more?
    pub fn are_many(&self) -> bool {
        *self.strange.lock() >= MANY
    }
}

/// Of files in memory, the bytes that they have; of all else 0. Asks no server of a file
/// system.
fn bytes_of_file(descriptor: &OwnedFd) -> u64 {
    const BLOCK: u64 = 512;
    if fcntl_get_seals(descriptor).is_err() {
        return 0;
    }
    fstat(descriptor).map_or(0, |it| it.st_blocks as u64 * BLOCK)
}

fn are_large(all: &[OwnedFd]) -> bool {
    all.iter().map(bytes_of_file).sum::<u64>() > FEW_BYTES
}

/// Is it nothing that somebody else can hold up: a file in memory, a device, a pipe, or
/// a dma-buf, which has no type? Asks no server of a file system.
pub fn may_be_memory(descriptor: &OwnedFd) -> bool {
    if fcntl_get_seals(descriptor).is_ok() {
        return true;
    }
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(descriptor, "", flags, StatxFlags::TYPE).map(|it| u32::from(it.stx_mode));
    // Linux before 4.11, or a container that does not let it.
    let mode = found.or_else(|_| fstat(descriptor).map(|it| it.st_mode));
    match mode.map(FileType::from_raw_mode) {
        Ok(FileType::CharacterDevice | FileType::Fifo) => true,
        // The kernel has many such, of which some are slow to close.
        Ok(FileType::Unknown) => {
            let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
            let name = readlink(link, Vec::new());
            name.is_ok_and(|name| name.to_string_lossy().contains("dmabuf"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_may_be_memory_is_told_from_what_may_take_long_to_close() {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let device = File::open("/dev/null").unwrap();
        let nameless = eventfd(0, EventfdFlags::empty()).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let folder = File::open("/").unwrap();
        for (descriptor, is) in [
            (memory, true),
            (device.into(), true),
            (nameless, false),
            (one.into(), false),
            (file.into(), false),
            (folder.into(), false),
        ] {
            assert_eq!(may_be_memory(&descriptor), is, "{descriptor:?}");
        }
        let strays = Strays::default();
        strays.close(vec![other.into()]);
        while *strays.strange.lock() > 0 {
            thread::yield_now();
        }
    }
}
