//! The client's end of a connection, in a process whose program may close whatever
//! it does not know, as daemons do: what is open under its number then is the
//! program's, and is left alone. Says and hears nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// One of them.
pub struct Socket {
    /// `None` only while it is dropped.
    descriptor: Option<OwnedFd>,
    identity: (u64, u64),
}

impl Socket {
    /// Connects, and waits so long for each packet; with `wait`, to be let in as well.
    pub fn connect(path: &Path, wait: bool, patience: Duration) -> Result<Self, Errno> {
        let address = SocketAddrUnix::new(path)?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let mut flags = SocketFlags::CLOEXEC;
        flags.set(SocketFlags::NONBLOCK, !wait);
        let socket = socket_with(family, kind, flags, None)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(patience))?;
        }
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if !wait {
            rustix::io::ioctl_fionbio(&socket, false)?;
        }
        Ok(Self {
            identity: identity(&socket)?,
            descriptor: Some(socket),
        })
    }

    /// Is it still what is open under its number?
    pub fn is_ours(&self) -> bool {
        identity(self) == Ok(self.identity)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("not dropped").as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.descriptor.take());
        }
    }
}

/// What tells a file from any other that is open at the same time.
fn identity(file: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}
