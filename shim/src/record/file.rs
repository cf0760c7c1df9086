//! The file that a process records itself in: mapped, and made longer ahead of
//! what is written, so that writing is a few stores into memory that the system
//! keeps whatever becomes of the process. Room that is not there in time is
//! events lost, and counted; no writer ever waits. Where the program closes it,
//! what is mapped is written still.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memcuda_core::descriptor::Lasting;
use memcuda_core::frames::{FRAME_BYTES, HEADER_BYTES, MAGIC, VERSION, WORDS, header};

use super::bell::Bell;
use super::disk::{self, Refused};

/// Bytes by which the file grows.
const SEGMENT_BYTES: usize = 8 << 20;
const SEGMENT: u64 = (SEGMENT_BYTES / FRAME_BYTES) as u64;
/// Frames for which there is room at least, whenever somebody looked.
const AHEAD: u64 = 2 * SEGMENT;
/// Most segments: 128 GiB.
const SEGMENTS: usize = 16 << 10;
/// Frames for which room is left when the program exits: for what threads are about to
/// write, and its destructors.
const LAST: u64 = 16 << 10;

/// The file.
pub struct File {
    file: Lasting,
    /// Somebody should make the file longer; where there is none, somebody looks
    /// now and then.
    bell: Option<Bell>,
    header: &'static [AtomicU64; HEADER_BYTES / 8],
    segments: Box<[AtomicPtr<AtomicU64>]>,
    /// Frames for which there is room.
    room: AtomicU64,
    full: AtomicBool,
    /// The program exits: no room comes any more.
    closed: AtomicBool,
    /// Segments that were written and are not looked at any more.
    left: AtomicUsize,
}

impl File {
    /// Makes the file, or takes one over in which another process recorded
    /// itself before. Where another one does so now it is beside it, under the
    /// process id. The path is that of the file.
    pub fn make(path: &Path, started_us: u64) -> Result<(Self, PathBuf), Refused> {
        let pid = std::process::id();
        let (file, path) = match disk::open(path)? {
            Some(file) => (file, path.to_owned()),
            None => {
                let mut beside = path.as_os_str().to_owned();
                beside.push(format!(".{pid}"));
                let beside = PathBuf::from(beside);
                let taken = || "is being written by another process".to_owned();
                (disk::open(&beside)?.ok_or_else(taken)?, beside)
            }
        };
        Ok((Self::lay_out(file, started_us, pid)?, path))
    }

    /// Makes a file in a folder, under the process id. Others may have that: processes of
    /// other PID namespaces, and what this one was before an `exec`. Then a number
    /// is behind it.
    pub fn make_in(folder: &Path, started_us: u64) -> Result<(Self, PathBuf), Refused> {
        let pid = std::process::id();
        let mut path = folder.join(pid.to_string());
        let mut number = 1_u64;
        let file = loop {
            if let Some(file) = disk::create(&path)? {
                break file;
            }
            number += 1;
            path = folder.join(format!("{pid}.{number}"));
        };
        let made = Self::lay_out(file, started_us, pid);
        let made = made.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        Ok((made, path))
    }

    fn lay_out(file: OwnedFd, started_us: u64, pid: u32) -> Result<Self, Refused> {
        let said = |error: Error| format!("cannot be written: {error}");
        let file = Lasting::new(file).map_err(|error| said(error.into()))?;
        Self::begin(file, started_us, pid).map_err(said)
    }

    fn begin(file: Lasting, started_us: u64, pid: u32) -> Result<Self, Error> {
        let descriptor = file.as_fd().as_raw_fd();
        // What is left behind is as it was found: empty.
        let undo = |_: &Error| drop(disk::empty(descriptor));
        disk::provide(descriptor, 0, HEADER_BYTES).inspect_err(undo)?;
        let at = disk::map(descriptor, 0, HEADER_BYTES).inspect_err(undo)?;
        // SAFETY: a fresh shared mapping of that size, never unmapped.
        let header = unsafe { &*at.cast::<[AtomicU64; HEADER_BYTES / 8]>() };
        let file = Self {
            file,
            bell: Bell::make().ok(),
            header,
            segments: (0..SEGMENTS).map(|_| AtomicPtr::default()).collect(),
            room: AtomicU64::new(0),
            full: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            left: AtomicUsize::new(0),
        };
        file.grow(0).inspect_err(undo)?;
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
        if place % SEGMENT < frames
            && let Some(bell) = &self.bell
        {
            bell.ring();
        }
        Some(place)
    }

    /// Is there room for a frame?
    pub fn has_room(&self) -> bool {
        self.counts().0 < self.room.load(Ordering::Relaxed)
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
        if let Some(bell) = &self.bell {
            bell.hear();
        }
        let begun = || self.counts().0;
        loop {
            // Before the other: room that was taken back says that it was closed.
            let room = self.room.load(Ordering::Acquire);
            if room >= begun() + AHEAD || self.closed.load(Ordering::Relaxed) {
                break;
            }
            match self.grow(room) {
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

    /// What to wait on until [`look`](Self::look) is due.
    pub fn bell(&self) -> Option<RawFd> {
        self.bell.as_ref()?.descriptor()
    }

    /// All that it has open, for a forked child: it is its parent's.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let bell = self.bell.iter().flat_map(Bell::descriptors);
        self.file.number().into_iter().chain(bell)
    }

    /// The program exits: the room that it is not to use any more goes back to the disk,
    /// which may be full when a place there is written to. The file keeps its length.
    pub fn shrink(&self) {
        let Some(descriptor) = self.file.number() else {
            return;
        };
        self.closed.store(true, Ordering::Relaxed);
        let last = || self.counts().0 + LAST;
        let room = self.room.fetch_min(last(), Ordering::AcqRel);
        // Who has seen the room before may have a place behind what is left, but not far.
        let page = HEADER_BYTES as u64;
        let used = (last() * FRAME_BYTES as u64).next_multiple_of(page) + page;
        let all = room * FRAME_BYTES as u64 + page;
        if used < all {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (start, bytes) = (used as libc::off_t, (all - used) as libc::off_t);
            // SAFETY: takes no pointer.
            unsafe { libc::fallocate(descriptor, mode, start, bytes) };
        }
    }

    /// One segment more than this room.
    fn grow(&self, room: u64) -> Result<(), Error> {
        let at = (room / SEGMENT) as usize;
        let slot = self.segments.get(at).ok_or(ErrorKind::FileTooLarge)?;
        let offset = HEADER_BYTES + at * SEGMENT_BYTES;
        let closed = || Error::other("the program has closed the file");
        let descriptor = self.file.number().ok_or_else(closed)?;
        // What nobody can read would take the disk until the end of the process.
        if disk::is_deleted(descriptor)? {
            return Err(Error::other("the file is deleted"));
        }
        disk::provide(descriptor, offset, SEGMENT_BYTES)?;
        let segment = disk::map(descriptor, offset, SEGMENT_BYTES)?;
        if let Err(error) = disk::populate(segment, SEGMENT_BYTES) {
            // SAFETY: mapped above, and nobody else's.
            unsafe { libc::munmap(segment, SEGMENT_BYTES) };
            return Err(error);
        }
        slot.store(segment.cast(), Ordering::Release);
        let (more, order) = (room + SEGMENT, Ordering::Release);
        // It is less where the file was closed meanwhile, and stays so.
        let _ = self
            .room
            .compare_exchange(room, more, order, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_closed_has_room_for_the_last_frames_alone() {
        let path = std::env::temp_dir().join(format!("memcuda-closed-{}", std::process::id()));
        let (file, path) = File::make(&path, 0).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(file.claim(10), Some(0));
        file.look();
        file.shrink();
        file.look();
        let places = std::iter::from_fn(|| file.claim(1));
        assert_eq!(places.count() as u64, LAST);
        file.write(10 + LAST - 1, &[1; WORDS]);
        assert!(!file.has_room());
    }

    #[test]
    fn in_a_folder_nobody_writes_over_anothers_file() {
        let folder = std::env::temp_dir().join(format!("memcuda-in-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let pid = std::process::id();
        let made = || {
            let (file, path) = File::make_in(&folder, 0).unwrap();
            (file, path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        let (first, name) = made();
        assert_eq!(name, pid.to_string());
        // While that is written, and when it is written no more.
        assert_eq!(made().1, format!("{pid}.2"));
        assert_eq!(first.claim(10), Some(0));
        drop(first);
        let (last, name) = made();
        assert_eq!((name, last.counts().0), (format!("{pid}.3"), 0));
        let bytes = std::fs::read(folder.join(pid.to_string())).unwrap();
        assert_eq!(bytes[8 * header::BEGUN], 10);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_is_deleted_grows_no_more() {
        let path = std::env::temp_dir().join(format!("memcuda-deleted-{}", std::process::id()));
        let (file, path) = File::make(&path, 0).unwrap();
        let open = std::fs::File::open(&path).unwrap();
        let length = || open.metadata().unwrap().len();
        file.look();
        assert_eq!(file.claim(SEGMENT), Some(0));
        let before = length();
        file.look();
        assert_eq!(length(), before + SEGMENT_BYTES as u64);
        std::fs::remove_file(path).unwrap();
        assert_eq!(file.claim(SEGMENT), Some(SEGMENT));
        file.look();
        assert_eq!(length(), before + SEGMENT_BYTES as u64);
    }
}
