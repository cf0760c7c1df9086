//! Who a peer is: credentials of a socket, the start of a process, the boot of
//! the host, a descriptor that tells of a death. Reads /proc; changes nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use crate::proc_stat;
use crate::share::protocol::Process;

/// What the kernel says of the other end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process; 0 where that is in a namespace that is not seen from here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Peer {
    /// Of a connected socket. (`rustix` has a type for this that cannot be 0.)
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let peer = getsockopt(socket, sockopt::PeerCredentials)?;
        Ok(Self {
            pid: u32::try_from(peer.pid()).unwrap_or(0),
            uid: peer.uid(),
            gid: peer.gid(),
        })
    }

    /// As it introduced itself. What it says of its number counts only where
    /// the kernel does not tell.
    pub fn process(&self, says: u32, command: &str) -> Process {
        let (pid, started) = match self.pid {
            0 => (says, 0),
            pid => (pid, started(pid).unwrap_or(0)),
        };
        let printable = command.chars().filter(char::is_ascii_graphic);
        Process {
            pid,
            started,
            uid: self.uid,
            gid: self.gid,
            command: printable.take(15).collect(),
        }
    }
}

/// A descriptor that is readable once the process behind a socket has ended,
/// though a child of it may still have the socket.
pub fn watch(socket: &impl AsFd, peer: &Peer) -> Option<OwnedFd> {
    // Linux 6.5 and later; it cannot name another process of the same number.
    match getsockopt(socket, sockopt::PeerPidfd) {
        Ok(watch) => Some(watch),
        Err(_) => watch_pid(peer.pid),
    }
}

/// What has become of a process that was known before.
pub enum Known {
    /// It is there; readable once it has ended.
    Watched(OwnedFd),
    /// Its number is nobody's any more, or another process's.
    Ended,
    /// It is there, or cannot be seen, and nothing tells of its end.
    Unwatched,
}

/// Looks for it. A system that lends no descriptor of a process, or none more, does not
/// make it one that has ended.
pub fn look_for(process: &Process) -> Known {
    let Some(number) = pid(process.pid).filter(|_| process.started != 0) else {
        return Known::Unwatched;
    };
    let watch = watch_pid(process.pid);
    if test_kill_process(number) == Err(Errno::SRCH) {
        return Known::Ended;
    }
    // Only now is it sure that the number was not another process's meanwhile.
    match (started(process.pid), watch) {
        (Some(started), _) if started != process.started => Known::Ended,
        (Some(_), Some(watch)) => Known::Watched(watch),
        _ => Known::Unwatched,
    }
}

/// A descriptor of a process by its number.
pub fn watch_pid(number: u32) -> Option<OwnedFd> {
    pidfd_open(pid(number)?, PidfdFlags::NONBLOCK).ok()
}

/// When a process started, in clock ticks since boot.
pub fn started(pid: u32) -> Option<u64> {
    proc_stat::field(pid, proc_stat::STARTED)
}

/// The processor that the first thread of a process is on, or was last.
pub fn processor(pid: u32) -> Option<usize> {
    proc_stat::field(pid, 39)
}

/// How many threads of this machine run, or would if they had a processor.
pub fn running() -> Option<usize> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let (running, _) = load.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// The host and its boot, in 64 bits: the same in every process of the host.
pub fn node() -> io::Result<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(super::journal::digest(boot.trim().as_bytes()))
}

/// A number as the kernel takes it; none for 0, which stands for others there.
pub fn pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_from_one_that_started_at_another_time() {
        let peer = Peer {
            pid: std::process::id(),
            uid: 0,
            gid: 0,
        };
        let mut process = peer.process(77, "a b\n\u{1b}[2Jc0123456789abcdef");
        assert_eq!(process.command, "ab[2Jc012345678");
        assert_eq!(process.pid, std::process::id());
        assert!(process.started > 0);
        assert!(processor(process.pid).is_some());
        assert!(running().unwrap() > 0);
        assert!(matches!(look_for(&process), Known::Watched(_)));
        let unseen = Process {
            started: 0,
            ..process.clone()
        };
        assert!(matches!(look_for(&unseen), Known::Unwatched));
        process.started += 1;
        assert!(matches!(look_for(&process), Known::Ended));
        let unseen = Peer { pid: 0, ..peer };
        assert_eq!(unseen.process(77, "x").pid, 77);
        assert!(node().unwrap() != 0);
    }
}
