//! The file that a process records itself in: mapped, and made longer ahead of
//! what is written, so that writing is a few stores into memory that the system
//! keeps whatever becomes of the process. Room that is not there in time is
//! events lost, and counted; no writer ever waits.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memcuda_core::trace::frames::{FRAME_BYTES, HEADER_BYTES, MAGIC, VERSION, WORDS, header};

use super::disk::{self, Refused};

/// Bytes by which the file grows.
const SEGMENT_BYTES: usize = 8 << 20;
const SEGMENT: u64 = (SEGMENT_BYTES / FRAME_BYTES) as u64;
/// Frames for which there is room at least, whenever somebody looked.
const AHEAD: u64 = 2 * SEGMENT;
/// Most segments: 128 GiB.
const SEGMENTS: usize = 16 << 10;
/// Frames at whose places threads may be about to write when the program exits.
const IN_FLIGHT: u64 = 1024;

/// The file.
pub struct File {
    descriptor: libc::c_int,
    /// An event descriptor: somebody should make the file longer.
    bell: libc::c_int,
    header: &'static [AtomicU64; HEADER_BYTES / 8],
    segments: Box<[AtomicPtr<AtomicU64>]>,
    /// Frames for which there is room.
    room: AtomicU64,
    full: AtomicBool,
    /// Segments that were written and are not looked at any more.
    left: AtomicUsize,
}

impl File {
    /// Makes the file, or takes one over in which another process recorded
    /// itself before. Where another one does so now it is beside it, under the
    /// process id. The path is that of the file.
    pub fn make(path: &Path, started_us: u64) -> Result<(Self, PathBuf), Refused> {
        let pid = std::process::id();
        let (descriptor, path) = match disk::open(path)? {
            Some(descriptor) => (descriptor, path.to_owned()),
            None => {
                let mut beside = path.as_os_str().to_owned();
                beside.push(format!(".{pid}"));
                let beside = PathBuf::from(beside);
                let taken = || "is being written by another process".to_owned();
                (disk::open(&beside)?.ok_or_else(taken)?, beside)
            }
        };
        let made = Self::lay_out(descriptor, started_us, pid);
        if made.is_err() {
            // SAFETY: takes no pointer; this function's own descriptor, of a file that was empty.
            unsafe {
                libc::ftruncate(descriptor, 0);
                libc::close(descriptor);
            }
        }
        let said = |error| format!("cannot be written: {error}");
        made.map(|file| (file, path)).map_err(said)
    }

    fn lay_out(descriptor: libc::c_int, started_us: u64, pid: u32) -> Result<Self, Error> {
        disk::provide(descriptor, 0, HEADER_BYTES)?;
        let at = disk::map(descriptor, 0, HEADER_BYTES)?;
        // SAFETY: a fresh shared mapping of that size, never unmapped.
        let header = unsafe { &*at.cast::<[AtomicU64; HEADER_BYTES / 8]>() };
        // SAFETY: takes no pointer.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let file = Self {
            descriptor,
            bell,
            header,
            segments: (0..SEGMENTS).map(|_| AtomicPtr::default()).collect(),
            room: AtomicU64::new(0),
            full: AtomicBool::new(false),
            left: AtomicUsize::new(0),
        };
        file.grow()?;
        for (word, value) in [
            (header::VERSION, VERSION),
            (header::FRAME, FRAME_BYTES as u64),
            (header::STARTED_US, started_us),
            (header::PID, pid.into()),
        ] {
            header[word].store(value, Ordering::Relaxed);
        }
        // Last, so that a half-made header is none.
        header[header::MAGIC].store(MAGIC, Ordering::Release);
        Ok(file)
    }

    /// Places for so many frames, one behind the other; `None` where there is
    /// no room.
    pub fn claim(&self, frames: u64) -> Option<u64> {
        let begun = &self.header[header::BEGUN];
        let room = self.room.load(Ordering::Acquire);
        // Looked at first, so that the number stays near the room there is.
        if begun.load(Ordering::Relaxed) + frames > room {
            return None;
        }
        let place = begun.fetch_add(frames, Ordering::Relaxed);
        if place + frames > room {
            return None;
        }
        if place % SEGMENT < frames {
            self.ring();
        }
        Some(place)
    }

    /// An event was lost.
    pub fn lose(&self) {
        self.header[header::LOST].fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a frame at a place that was claimed.
    pub fn write(&self, place: u64, words: &[u64; WORDS]) {
        let segment = self.segments[(place / SEGMENT) as usize].load(Ordering::Acquire);
        let at = (place % SEGMENT) as usize * WORDS;
        // SAFETY: a place that was claimed lies in a segment that is mapped,
        // whole, for the life of the process.
        let into = unsafe { &*segment.add(at).cast::<[AtomicU64; WORDS]>() };
        for (into, word) in into.iter().zip(words).take(WORDS - 1) {
            into.store(*word, Ordering::Relaxed);
        }
        // Behind the rest: it says that they are there.
        into[WORDS - 1].store(words[WORDS - 1], Ordering::Release);
    }

    /// Frames that were begun, and events that were lost.
    pub fn counts(&self) -> (u64, u64) {
        let count = |word: usize| self.header[word].load(Ordering::Relaxed);
        (count(header::BEGUN), count(header::LOST))
    }

    /// Makes the file longer where that is due, and lets what was written go
    /// from this process's memory. For one thread.
    pub fn look(&self) {
        let mut rings = 0_u64;
        // SAFETY: reads into a word that is there.
        unsafe { libc::read(self.bell, (&raw mut rings).cast(), 8) };
        let begun = || self.counts().0;
        while self.room.load(Ordering::Relaxed) < begun() + AHEAD {
            match self.grow() {
                Ok(()) => self.full.store(false, Ordering::Relaxed),
                Err(error) => {
                    if !self.full.swap(true, Ordering::Relaxed) {
                        crate::log!(
                            Warn,
                            "MEMCUDA_TRACE: no more room ({error}): events that do not fit are lost, and counted"
                        );
                    }
                    break;
                }
            }
        }
        // One behind the current one: a thread may still be about to write there,
        // and finds it again.
        let done = (begun() / SEGMENT).saturating_sub(1) as usize;
        for at in self.left.load(Ordering::Relaxed)..done {
            let segment = self.segments[at].load(Ordering::Relaxed);
            // SAFETY: a shared mapping of a file: what was written stays the file's.
            unsafe { libc::madvise(segment.cast(), SEGMENT_BYTES, libc::MADV_DONTNEED) };
            self.left.store(at + 1, Ordering::Relaxed);
        }
    }

    /// What rings when [`look`](Self::look) is due.
    pub fn bell(&self) -> libc::c_int {
        self.bell
    }

    /// The program exits: the room that it did not use goes back to the disk.
    /// The file keeps its length: threads may write until the end.
    pub fn shrink(&self) {
        let page = HEADER_BYTES as u64;
        let used = (self.counts().0 + IN_FLIGHT) * FRAME_BYTES as u64;
        let used = used.next_multiple_of(page) + HEADER_BYTES as u64;
        let all = self.room.load(Ordering::Relaxed) * FRAME_BYTES as u64 + HEADER_BYTES as u64;
        if used < all {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (start, bytes) = (used as libc::off_t, (all - used) as libc::off_t);
            // SAFETY: takes no pointer.
            unsafe { libc::fallocate(self.descriptor, mode, start, bytes) };
        }
    }

    /// In a forked child: the file is its parent's.
    pub fn leave(&self) {
        for descriptor in [self.descriptor, self.bell] {
            // SAFETY: the child's copy of a descriptor that it never uses.
            unsafe { libc::close(descriptor) };
        }
    }

    fn ring(&self) {
        let one = 1_u64;
        // SAFETY: writes from a word that is there; where it fails the bell has rung.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::write(self.bell, (&raw const one).cast(), 8);
            *errno = before;
        }
    }

    /// One segment more.
    fn grow(&self) -> Result<(), Error> {
        let room = self.room.load(Ordering::Relaxed);
        let at = (room / SEGMENT) as usize;
        let slot = self.segments.get(at).ok_or(ErrorKind::FileTooLarge)?;
        let offset = HEADER_BYTES + at * SEGMENT_BYTES;
        disk::provide(self.descriptor, offset, SEGMENT_BYTES)?;
        let segment = disk::map(self.descriptor, offset, SEGMENT_BYTES)?;
        if let Err(error) = disk::populate(segment, SEGMENT_BYTES) {
            // SAFETY: mapped above, and nobody else's.
            unsafe { libc::munmap(segment, SEGMENT_BYTES) };
            return Err(error);
        }
        slot.store(segment.cast(), Ordering::Release);
        self.room.store(room + SEGMENT, Ordering::Release);
        Ok(())
    }
}
