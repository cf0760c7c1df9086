//! What lies below the file of a recording: who may have it, room on the disk behind each
//! of its bytes, and their pages in memory. Of what is written it knows the first word alone.

use std::ffi::{CString, c_void};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use memcuda_core::frames::MAGIC;

/// `MADV_POPULATE_WRITE` (Linux 5.14).
const POPULATE: libc::c_int = 23;

/// How often a call is made that signals interrupt.
const TRIES: u32 = 100;

/// Why there is no file, in words.
pub type Refused = String;

/// Opens a file to record in, and locks it; `None` where another process has.
pub fn open(path: &Path) -> Result<Option<OwnedFd>, Refused> {
    let file = open_as(path, 0)?.map_err(said)?;
    Ok(take_over(file.as_raw_fd())?.then_some(file))
}

/// Makes a file to record in, and locks it; `None` where anything has the name.
pub fn create(path: &Path) -> Result<Option<OwnedFd>, Refused> {
    match open_as(path, libc::O_EXCL)? {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(said(error)),
        Ok(file) => Ok(take_over(file.as_raw_fd())?.then_some(file)),
    }
}

fn said(error: Error) -> Refused {
    format!("cannot be opened: {error}")
}

fn open_as(path: &Path, how: libc::c_int) -> Result<Result<OwnedFd, Error>, Refused> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NONBLOCK | how;
    // SAFETY: the path is a string that ends in NUL.
    let opened = again(|| unsafe { libc::open(name.as_ptr(), flags, 0o644) });
    // SAFETY: it was opened above, and is nobody else's.
    Ok(opened.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// Locks an open file and empties it where it is a recording; false where
/// another process has it.
fn take_over(descriptor: libc::c_int) -> Result<bool, Refused> {
    let said = |error| format!("cannot be written: {error}");
    // SAFETY: zeros are a value of it.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    check(unsafe { libc::fstat(descriptor, &mut about) }).map_err(said)?;
    if about.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err("is no file".to_owned());
    }
    // SAFETY: takes no pointer.
    let locked = check(unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) });
    if let Err(error) = &locked
        && error.kind() == ErrorKind::WouldBlock
    {
        return Ok(false);
    }
    // SAFETY: the pointer is valid for the call.
    check(unsafe { libc::fstat(descriptor, &mut about) }).map_err(said)?;
    if about.st_size == 0 {
        return Ok(true);
    }
    let mut first = 0_u64;
    // SAFETY: reads into a word that is there.
    let read = unsafe { libc::pread(descriptor, (&raw mut first).cast(), 8, 0) };
    if read != 8 || first != MAGIC {
        return Err("is there and is no recording: it stays as it is".to_owned());
    }
    locked.map_err(|error| format!("is there and cannot be locked ({error})"))?;
    // Nobody has it mapped who still records.
    empty(descriptor).map_err(said)?;
    Ok(true)
}

/// Takes all bytes away.
pub fn empty(descriptor: libc::c_int) -> Result<(), Error> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::ftruncate(descriptor, 0) }).map(drop)
}

/// Has it no name any more?
pub fn is_deleted(descriptor: libc::c_int) -> Result<bool, Error> {
    // SAFETY: zeros are a value of it, and the pointer is valid for the call.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        check(libc::fstat(descriptor, &mut about))?;
        Ok(about.st_nlink == 0)
    }
}

fn check(result: libc::c_int) -> Result<libc::c_int, Error> {
    match result {
        -1 => Err(Error::last_os_error()),
        other => Ok(other),
    }
}

/// A call that a signal of the program may interrupt, as those of file systems in another
/// process (FUSE) do, and of tmpfs before Linux 6.0: made again, but not for ever, as a timer
/// may be faster.
fn again(call: impl Fn() -> libc::c_int) -> Result<libc::c_int, Error> {
    for _ in 1..TRIES {
        match check(call()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
    check(call())
}

/// Makes the file so long, with room on the disk behind every byte: a store into
/// a mapping whose file has none would end the program.
pub fn provide(descriptor: libc::c_int, offset: usize, bytes: usize) -> Result<(), Error> {
    // Beyond this limit the system would send the program a signal.
    // SAFETY: zeros are a value of it, and the pointer is valid for the call.
    let most = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        check(libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit)).map(|_| limit.rlim_cur)?
    };
    if (offset + bytes) as u64 > most {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let (start, length) = (offset as libc::off_t, bytes as libc::off_t);
    // SAFETY: takes no pointer.
    let given = again(|| unsafe { libc::fallocate(descriptor, 0, start, length) });
    match given {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            fill(descriptor, offset, bytes)
        }
        given => given.map(drop),
    }
}

/// The same where the file system cannot promise: by writing.
fn fill(descriptor: libc::c_int, offset: usize, bytes: usize) -> Result<(), Error> {
    let zeros = [0_u8; 4096];
    for at in (offset..offset + bytes).step_by(zeros.len()) {
        let (from, at) = (zeros.as_ptr().cast(), at as libc::off_t);
        // SAFETY: the buffer is as long as said.
        let wrote = again(|| unsafe { libc::pwrite(descriptor, from, zeros.len(), at) as _ })?;
        if wrote as usize != zeros.len() {
            return Err(ErrorKind::StorageFull.into());
        }
    }
    Ok(())
}

/// Maps a part of the file.
pub fn map(descriptor: libc::c_int, offset: usize, bytes: usize) -> Result<*mut c_void, Error> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (null, offset) = (ptr::null_mut(), offset as libc::off_t);
    // SAFETY: a fresh mapping, of a file that is so long.
    let at = unsafe { libc::mmap(null, bytes, access, libc::MAP_SHARED, descriptor, offset) };
    match at {
        libc::MAP_FAILED => Err(Error::last_os_error()),
        at => Ok(at),
    }
}

/// Has the pages made now, so that no writer waits for them. Where that cannot
/// be, it says so, and no store is tried.
pub fn populate(segment: *mut c_void, bytes: usize) -> Result<(), Error> {
    // SAFETY: so much was mapped just now.
    match check(unsafe { libc::madvise(segment, bytes, POPULATE) }) {
        // An older kernel: writers make them.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other.map(drop),
    }
}
