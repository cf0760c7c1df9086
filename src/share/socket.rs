//! The client's end of a connection, as it is made. Says and hears nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::descriptor::Lasting;

/// Does this process lack something, or the whole machine, whoever would be asked?
pub fn is_own_want(error: Errno) -> bool {
    use Errno as E;
    matches!(error, E::MFILE | E::NFILE | E::NOMEM | E::NOBUFS)
}

/// Connects; with `wait`, it waits so long to be let in. From then on it waits for nothing.
pub fn reach(path: &Path, wait: bool, patience: Duration) -> Result<Lasting, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, !wait);
    let socket = Lasting::new(socket_with(family, kind, flags, None)?)?;
    let deadline = Instant::now() + patience;
    loop {
        // The limit is that of a call, of which each signal of the program's makes another.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::AGAIN);
        }
        set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
