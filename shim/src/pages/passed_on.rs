//! The descriptors of pages that torch has passed on, for a forked child. Torch keeps each until it
//! gives the page up; the child's copy, of which nobody there knows, would keep the memory for as
//! long as the child lives. So the child closes its copies: whoever receives a page takes it from
//! the process that passed it on. The child waits for nothing, locks nothing, allocates nothing.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use memcuda_core::driver::Handle;
use memcuda_core::lock::lock;

use crate::process::inherited::Inherited;

/// A descriptor. Never freed: a child may be reading.
struct Passed {
    descriptor: Inherited,
    before: Option<&'static Passed>,
}

/// The newest of all that ever were needed at once.
static NEWEST: AtomicPtr<Passed> = AtomicPtr::new(ptr::null_mut());

/// Those that are in use, by the handle of the page, and those that are not.
struct Books {
    of: BTreeMap<u64, &'static Passed>,
    unused: Vec<&'static Passed>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    of: BTreeMap::new(),
    unused: Vec::new(),
});

fn newest() -> Option<&'static Passed> {
    // SAFETY: null, or one that is never freed.
    unsafe { NEWEST.load(Ordering::Acquire).as_ref() }
}

/// Torch has got this descriptor of a page. What is started by an exec has none, either.
pub fn note(page: Handle, descriptor: c_int) {
    // SAFETY: a number, and a flag of what is open under it.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    let mut books = lock(&BOOKS);
    let passed = books.unused.pop().unwrap_or_else(one_more);
    if !passed.descriptor.note(descriptor) {
        books.unused.push(passed);
        return;
    }
    if let Some(earlier) = books.of.insert(page.0, passed) {
        over(&mut books, earlier);
    }
}

/// Torch gives the page up, and has closed the descriptor.
pub fn forget(page: Handle) {
    if newest().is_none() {
        return;
    }
    let mut books = lock(&BOOKS);
    if let Some(passed) = books.of.remove(&page.0) {
        over(&mut books, passed);
    }
}

fn over(books: &mut Books, passed: &'static Passed) {
    passed.descriptor.forget();
    books.unused.push(passed);
}

/// Called under the lock.
fn one_more() -> &'static Passed {
    let passed = Box::leak(Box::new(Passed {
        descriptor: Inherited::none(),
        before: newest(),
    }));
    NEWEST.store(passed, Ordering::Release);
    passed
}

/// In a forked child. Async-signal-safe.
pub fn in_child() {
    let mut next = newest();
    while let Some(passed) = next {
        next = passed.before;
        passed.descriptor.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn open(file: &str) -> File {
        File::open(file).unwrap()
    }

    /// Forks, and asks in the child which of these are still open there.
    fn left_in_child(files: &[&File]) -> Vec<bool> {
        let numbers: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
        // SAFETY: the child makes calls that are async-signal-safe, and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                in_child();
                let mut left = 0;
                for (bit, number) in numbers.iter().enumerate() {
                    left |= i32::from(libc::fcntl(*number, libc::F_GETFD) >= 0) << bit;
                }
                libc::_exit(left);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            let left = libc::WEXITSTATUS(status);
            (0..files.len()).map(|bit| left >> bit & 1 == 1).collect()
        }
    }

    #[test]
    fn a_child_closes_what_is_passed_on_and_is_that_file_still() {
        let files = [0; 4].map(|_| open("/dev/null"));
        let [one, two, given_up, own] = &files;
        for (page, file) in [one, two, given_up].into_iter().enumerate() {
            note(Handle(page as u64), file.as_raw_fd());
        }
        forget(Handle(2));
        let other = open("/dev/zero");
        // SAFETY: two files of this test's own.
        unsafe { libc::dup2(other.as_raw_fd(), two.as_raw_fd()) };
        let left = left_in_child(&[one, two, given_up, own]);
        assert_eq!(left, [false, true, true, true]);
        // The number is passed on once more, and the entry used for another page.
        note(Handle(0), two.as_raw_fd());
        note(Handle(3), own.as_raw_fd());
        let left = left_in_child(&[one, two, given_up, own]);
        assert_eq!(left, [true, false, true, false]);
        // SAFETY: asks for a flag.
        let flags = unsafe { libc::fcntl(own.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        [0, 1, 3].into_iter().for_each(|page| forget(Handle(page)));
    }
}
