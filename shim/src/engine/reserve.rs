//! Host memory of this library where malloc has none: a program to which the kernel gives no
//! more may go on by itself, and must not end by what a hook needs. Taken from the kernel when
//! CUDA starts; with the first byte that is used of it new memory comes from the plain driver,
//! so that little more is needed. Gives nothing to the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::engine;
use crate::process::log;

/// Bytes of it. The cells of one slab have 128 KiB.
const BYTES: usize = 4 << 20;
/// What its beginning is aligned to.
const PAGE: usize = 4096;

static BEGINNING: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// So much of it is in use, from its beginning.
static USED: AtomicUsize = AtomicUsize::new(0);
/// It was used, and nobody has said so.
static UNSAID: AtomicBool = AtomicBool::new(false);

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// malloc, and behind it the reserve.
struct Allocator;

/// Takes it from the kernel, once. Where that gives none there is none.
pub fn take() {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own, which is never unmapped.
    let made = unsafe { libc::mmap(null_mut(), BYTES, protection, flags, -1, 0) };
    if made != libc::MAP_FAILED {
        BEGINNING.store(made.cast(), Ordering::Release);
    }
}

/// Was it used, and nobody has said so?
pub fn is_to_be_said() -> bool {
    UNSAID.swap(false, Ordering::Relaxed)
}

/// How far behind the beginning an address of the reserve lies.
fn offset(at: *mut u8) -> Option<usize> {
    let beginning = BEGINNING.load(Ordering::Relaxed);
    let offset = at.addr().wrapping_sub(beginning.addr());
    (!beginning.is_null() && offset < BYTES).then_some(offset)
}

#[cold]
fn lend(layout: Layout) -> *mut u8 {
    let beginning = BEGINNING.load(Ordering::Acquire);
    if beginning.is_null() || layout.align() > PAGE {
        return null_mut();
    }
    let place = |used: usize| Some(used.next_multiple_of(layout.align()));
    let behind = |used| {
        place(used)?
            .checked_add(layout.size())
            .filter(|&it| it <= BYTES)
    };
    let lent = USED.fetch_update(Ordering::AcqRel, Ordering::Acquire, behind);
    let Some(offset) = lent.ok().and_then(place) else {
        return null_mut();
    };
    if offset == 0 {
        engine::stop_taking_work();
        UNSAID.store(true, Ordering::Relaxed);
        log::make_due();
    }
    // SAFETY: inside the mapping, and so many bytes behind it are this caller's.
    unsafe { beginning.add(offset) }
}

/// What was lent last can be lent again; of all else it is not worth a list.
#[cold]
fn take_back(offset: usize, layout: Layout) {
    let end = offset + layout.size();
    let _ = USED.compare_exchange(end, offset, Ordering::AcqRel, Ordering::Relaxed);
}

// SAFETY: what it lends is malloc's, or a part of the mapping that is nobody else's until it is
// taken back by its length; it is known by its address. Never unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller has promised.
        match unsafe { System.alloc(layout) } {
            at if at.is_null() => lend(layout),
            at => at,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller has promised; what is lent is as long as that.
        unsafe {
            let at = System.alloc_zeroed(layout);
            if !at.is_null() {
                return at;
            }
            let at = lend(layout);
            if !at.is_null() {
                at.write_bytes(0, layout.size());
            }
            at
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match offset(at) {
            Some(offset) => take_back(offset, layout),
            // SAFETY: malloc's, as all that is not the reserve's.
            None => unsafe { System.dealloc(at, layout) },
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller has promised; both are as long as what is copied.
        unsafe {
            if offset(at).is_none() {
                let moved = System.realloc(at, layout, bytes);
                if !moved.is_null() {
                    return moved;
                }
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(at, moved, layout.size().min(bytes));
                self.dealloc(at, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_apart_and_aligned_and_the_last_is_lent_again() {
        let of = |bytes, align| Layout::from_size_align(bytes, align).unwrap();
        assert!(lend(of(8, 8)).is_null(), "there is none yet");
        take();
        let first = lend(of(3, 1));
        let second = lend(of(100, 64));
        assert_eq!(offset(first), Some(0));
        assert_eq!(offset(second), Some(64));
        assert!(is_to_be_said() && !is_to_be_said());
        // SAFETY: lent above, so long.
        unsafe {
            second.write_bytes(7, 100);
            let grown = Allocator.realloc(second, of(100, 64), 200);
            assert_eq!(offset(grown), None, "malloc has some again");
            assert_eq!((*grown, *grown.add(99)), (7, 7));
            Allocator.dealloc(grown, of(200, 64));
        }
        assert_eq!(lend(of(100, 64)), second);
        take_back(0, of(3, 1));
        assert_eq!(offset(lend(of(1, 1))), Some(164), "it was not the last");
        assert!(lend(of(BYTES, 1)).is_null() && lend(of(1, 8192)).is_null());
        assert_eq!(offset(lend(of(BYTES - 165, 1))), Some(165));
        assert!(lend(of(1, 1)).is_null());
        let mut own = 0_u8;
        assert_eq!(offset(&raw mut own), None);
    }
}
