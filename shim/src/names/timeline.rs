//! The page with the versions of a name: shared memory of the host that the
//! keeper made. Word 0 is the newest version, word 1 the largest number that was
//! given out, word 2 the largest that a stream was told to write: its write is a plain
//! one and would take back what the host publishes before it. Word 3 is the largest that
//! the host is to write: each of the two says its own before it looks at the other's.
//! Streams reach it as page-locked memory, once one of them is asked.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use memcuda_core::descriptor;
use memcuda_core::driver::{Code, Context};
use memcuda_core::lock::lock;

use super::Failure;
use crate::engine::Engine;

const BYTES: usize = 4096;

/// The largest version: a stream that waits for a value looks whether the difference to it is
/// negative, as a number with a sign.
pub const MOST: u64 = i64::MAX as u64;

/// A number that was taken, and the largest that was before.
pub struct Taken {
    /// The number.
    pub number: u64,
    before: u64,
}

/// Who writes a version, and in which word that is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// A stream, when it comes to it.
    Stream = 2,
    /// The host, now.
    Host = 3,
}

/// A mapped page.
pub struct Page {
    at: *mut libc::c_void,
    /// Its address for the device, once it is page-locked.
    locked: Mutex<Option<u64>>,
    /// What was announced here, is not written, and could not be taken back since a larger
    /// one stood there; with what stood there before.
    over: Mutex<HashMap<(By, u64), u64>>,
}

// SAFETY: the page is only reached through atomics, and unmapped by who is last.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps the page behind a descriptor; `None` where it is none.
    pub fn open(file: &OwnedFd) -> Option<Self> {
        if descriptor::length(file).ok()? < BYTES as u64 {
            return None;
        }
        let (both, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is as long.
        let at = unsafe { libc::mmap(ptr::null_mut(), BYTES, both, shared, file.as_raw_fd(), 0) };
        (at != libc::MAP_FAILED).then(|| Self {
            at,
            locked: Mutex::default(),
            over: Mutex::default(),
        })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: inside the page, aligned, and mapped for as long as `self`.
        unsafe { AtomicU64::from_ptr(self.at.cast::<u64>().add(index)) }
    }

    /// The newest version; 0 for none.
    pub fn newest(&self) -> u64 {
        self.word(0).load(Ordering::Acquire)
    }

    /// A version takes effect, unless a later one has.
    pub fn set_newest(&self, version: u64) {
        self.word(0).fetch_max(version, Ordering::AcqRel);
    }

    /// Takes the next number; `None` behind the largest.
    pub fn take_next(&self) -> Option<Taken> {
        self.word(1).fetch_max(self.newest(), Ordering::AcqRel);
        let next = |last| (last < MOST).then(|| last + 1);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.word(1).fetch_update(success, failure, next).ok()?;
        let number = before + 1;
        Some(Taken { number, before })
    }

    /// Takes this number; the largest before it is the error where that is not
    /// smaller.
    pub fn take(&self, number: u64) -> Result<Taken, u64> {
        let before = self.word(1).fetch_max(number, Ordering::AcqRel);
        let before = before.max(self.newest());
        if number > before {
            Ok(Taken { number, before })
        } else {
            Err(before)
        }
    }

    /// A number will not be published: it can be taken again, unless a larger one was.
    pub fn give_back(&self, taken: Taken) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let last = self.word(1);
        let _ = last.compare_exchange(taken.number, taken.before, success, failure);
    }

    /// Says who will write a number; the largest before, for [`Self::take_back`].
    pub fn announce(&self, who: By, number: u64) -> u64 {
        self.word(who as usize).fetch_max(number, Ordering::SeqCst)
    }

    /// Who announced a number will not write it; nor whoever announced the one before, where
    /// that came to nothing meanwhile.
    pub fn take_back(&self, who: By, number: u64, before: u64) {
        let newest = self.newest();
        let mut over = lock(&self.over);
        over.retain(|(_, number), _| *number > newest);
        over.insert((who, number), before);
        let last = self.word(who as usize);
        loop {
            let stands = last.load(Ordering::Acquire);
            let Some(&before) = over.get(&(who, stands)) else {
                return;
            };
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            if last
                .compare_exchange(stands, before, success, failure)
                .is_ok()
            {
                over.remove(&(who, stands));
            }
        }
    }

    /// The number that a stream is still to write.
    pub fn to_come(&self) -> Option<u64> {
        let queued = self.word(By::Stream as usize).load(Ordering::SeqCst);
        (queued > self.newest()).then_some(queued)
    }

    /// Would a stream that writes this number take one of the host's back? Then numbers
    /// are given out behind that one from now on.
    pub fn is_behind(&self, number: u64) -> bool {
        let host = self.word(By::Host as usize).load(Ordering::SeqCst);
        if host > number {
            self.word(1).fetch_max(host, Ordering::AcqRel);
        }
        host > number
    }

    /// The address of word 0 for streams of this context.
    pub fn for_streams(&self, engine: &Engine, context: Context) -> Result<u64, Failure> {
        const PORTABLE_AND_MAPPED: u32 = 3;
        let calls = &engine.calls;
        let mut locked = lock(&self.locked);
        if let Some(address) = *locked {
            return Ok(address);
        }
        let (Some(lock), Some(address_of)) = (calls.host_register, calls.host_address) else {
            return Err(Failure::Driver(Code::NOT_SUPPORTED, "cuMemHostRegister"));
        };
        let mut address = 0;
        let made = calls.within(context, || {
            calls.relaxed(|| {
                // SAFETY: the page stays mapped until it is unregistered, or its
                // context is gone.
                unsafe {
                    lock(self.at, BYTES, PORTABLE_AND_MAPPED).ok()?;
                    address_of(&mut address, self.at, 0).ok().inspect_err(|_| {
                        calls.host_unregister.map(|unlock| unlock(self.at));
                    })
                }
            })
        });
        made.and_then(|made| made)
            .map_err(Failure::of("cuMemHostRegister"))?;
        *locked = Some(address);
        Ok(address)
    }

    /// Streams have no use of it any more.
    pub fn unregister(&self, engine: &Engine, context: Context) {
        let mut locked = lock(&self.locked);
        let calls = &engine.calls;
        if let (Some(_), Some(unlock)) = (locked.take(), calls.host_unregister) {
            // SAFETY: registered above; the caller has waited for all uses.
            let _ = calls.within(context, || calls.relaxed(|| unsafe { unlock(self.at) }));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and nobody has it any more.
        unsafe { libc::munmap(self.at, BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        Page::open(&file.into()).unwrap()
    }

    #[test]
    fn what_two_announced_at_once_and_neither_writes_is_not_to_come() {
        for first in [0, 1] {
            let page = page();
            let taken = [(); 2].map(|()| {
                let number = page.take_next().unwrap().number;
                (number, page.announce(By::Stream, number))
            });
            assert_eq!(page.to_come(), Some(2));
            for (number, before) in [taken[first], taken[1 - first]] {
                page.take_back(By::Stream, number, before);
            }
            assert_eq!(page.to_come(), None, "{first}");
        }
    }

    #[test]
    fn of_two_who_publish_at_once_the_later_version_stays() {
        let page = page();
        let [first, second] = [(); 2].map(|()| page.take_next().unwrap().number);
        page.set_newest(second);
        page.set_newest(first);
        assert_eq!(
            (page.newest(), page.take(second).err()),
            (second, Some(second))
        );
    }

    #[test]
    fn what_is_written_stays_announced_whoever_takes_back_below_it() {
        let page = page();
        let before = page.announce(By::Stream, 1);
        page.announce(By::Stream, 2);
        page.take_back(By::Stream, 1, before);
        assert_eq!(page.to_come(), Some(2));
        page.set_newest(2);
        let before = page.announce(By::Stream, 3);
        page.take_back(By::Stream, 3, before);
        assert_eq!((page.to_come(), page.newest()), (None, 2));
        assert!(page.over.lock().unwrap().is_empty());
    }
}
