//! A file that is open for long in a process whose program may close whatever it does not
//! know, as daemons do: what is open under its number then is the program's, and is left
//! alone. Its number is none of the first three: whoever has closed those may still write
//! to them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::fstat;
use rustix::io::{Errno, fcntl_dupfd_cloexec};

/// One of them.
pub struct Lasting<T: AsFd = OwnedFd> {
    /// `None` only while it is dropped.
    file: Option<T>,
    identity: (u64, u64),
}

impl<T: AsFd + From<OwnedFd>> Lasting<T> {
    /// Takes over a file that was opened just now.
    pub fn new(file: T) -> Result<Self, Errno> {
        let file = match file.as_fd().as_raw_fd() {
            0..=2 => T::from(fcntl_dupfd_cloexec(&file, 3)?),
            _ => file,
        };
        Ok(Self {
            identity: identity(&file)?,
            file: Some(file),
        })
    }
}

impl<T: AsFd> Lasting<T> {
    /// The file, while it is what is open under its number.
    pub fn ours(&self) -> Option<&T> {
        let file = self.file.as_ref()?;
        (identity(file) == Ok(self.identity)).then_some(file)
    }

    /// Its number, in the same way.
    pub fn number(&self) -> Option<RawFd> {
        self.ours().map(|file| file.as_fd().as_raw_fd())
    }
}

impl<T: AsFd> AsFd for Lasting<T> {
    /// Whatever is open under its number.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("not dropped").as_fd()
    }
}

impl<T: AsFd> Drop for Lasting<T> {
    fn drop(&mut self) {
        if self.ours().is_none() {
            std::mem::forget(self.file.take());
        }
    }
}

/// What tells a file from any other that is open at the same time. Of descriptors without
/// an inode of their own, as of an eventfd, it does not.
pub fn identity(file: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// How many bytes a file has.
pub fn length(file: impl AsFd) -> Result<u64, Errno> {
    Ok(u64::try_from(fstat(file)?.st_size).unwrap_or(0))
}
