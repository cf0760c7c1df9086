//! The keeper's epoch page, mapped for reading: a word that grows whenever a
//! name may have become another allocation. Its file also tells a keeper that
//! knows what the one before knew, and has the same, from one that began anew.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use memcuda_core::descriptor;

const BYTES: usize = 4096;
/// Epochs that a keeper counts before the number of keepers: 2^48 deletions.
const KEEPER: u32 = 48;

/// The page that is read now; never unmapped, for somebody may be reading it.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Keepers that began anew.
static KEEPERS: AtomicU64 = AtomicU64::new(0);

/// The page of one connection.
pub struct Epoch {
    file: (u64, u64),
}

impl Epoch {
    /// Maps the page, unless it is the one that is mapped; `None` where it
    /// cannot be.
    pub fn open(page: OwnedFd, mapped: Option<&Epoch>) -> Option<Self> {
        let file = descriptor::identity(&page).ok()?;
        if descriptor::length(&page).ok()? < BYTES as u64 {
            return None;
        }
        if mapped.is_some_and(|mapped| mapped.file == file) {
            return Some(Self { file });
        }
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is as long.
        let at = unsafe {
            let (fd, anywhere) = (page.as_raw_fd(), std::ptr::null_mut());
            libc::mmap(anywhere, BYTES, read, shared, fd, 0)
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        // The page first: a reader in between has the old number with the new page, and that
        // is the epoch no more a moment later. The new number with the old page could come again.
        PAGE.store(at.cast(), Ordering::Release);
        KEEPERS.fetch_add(1, Ordering::Release);
        Some(Self { file })
    }

    /// Is it the page that was known before, so that the keeper knows what the
    /// one before knew?
    pub fn follows(&self, before: &Self) -> bool {
        self.file == before.file
    }
}

/// How many keepers that began anew were found up to now: the one that is spoken to is the last.
pub fn keepers() -> u64 {
    KEEPERS.load(Ordering::Acquire)
}

/// What becomes another number whenever a name may have become another allocation: the
/// epoch, with the number of keepers above it; `None` before the first request. Three loads.
pub fn now() -> Option<u64> {
    let keepers = KEEPERS.load(Ordering::Acquire);
    // SAFETY: null, or a page that stays mapped.
    let page = unsafe { PAGE.load(Ordering::Acquire).as_ref() }?;
    Some(keepers << KEEPER | page.load(Ordering::Acquire))
}
