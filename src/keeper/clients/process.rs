//! Who a peer is: credentials of a socket, the start of a process, the boot of
//! the host, what tells of a death. Reads /proc; changes nothing.

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

/// What tells of the end of a process, though a child of it may still have its socket.
pub enum Watch {
    /// Readable once it has ended.
    Descriptor(OwnedFd),
    /// Its number and its start, by which it is looked for now and then: the system lends
    /// no descriptor of it.
    Number(Pid, u64),
}

impl Watch {
    /// Of the process behind a socket, as its peer is known; none where that is not seen.
    pub fn of(socket: &impl AsFd, peer: &Peer, process: &Process) -> Option<Self> {
        // Linux 6.5 and later; it cannot name another process of the same number.
        let lent = getsockopt(socket, sockopt::PeerPidfd).ok();
        match lent.or_else(|| watch_pid(peer.pid)) {
            Some(watch) => Some(Self::Descriptor(watch)),
            None => Self::by_number(process),
        }
    }

    fn by_number(process: &Process) -> Option<Self> {
        let is_seen = process.started != 0;
        let number = pid(process.pid).filter(|_| is_seen)?;
        Some(Self::Number(number, process.started))
    }

    /// For epoll, if it is one.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        match self {
            Self::Descriptor(watch) => Some(watch),
            Self::Number(..) => None,
        }
    }

    /// Is it known by its number to have ended?
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Descriptor(_) => false,
            Self::Number(number, start) => has_ended(*number, *start),
        }
    }
}

/// Also where nobody has waited for it yet. One that cannot be seen just now has not.
fn has_ended(number: Pid, start: u64) -> bool {
    let it = number.as_raw_nonzero();
    let is_dead = |state: char| matches!(state, 'Z' | 'X');
    // Of one whose first thread has ended alone the others are counted.
    let is_last = || proc_stat::field(it, proc_stat::THREADS).is_some_and(|count: u32| count <= 1);
    test_kill_process(number) == Err(Errno::SRCH)
        || proc_stat::field(it, proc_stat::STARTED).is_some_and(|now: u64| now != start)
        || (proc_stat::field(it, proc_stat::STATE).is_some_and(is_dead) && is_last())
}

/// What has become of a process that was known before.
pub enum Known {
    /// It is there, and this tells of its end.
    Watched(Watch),
    /// Its number is nobody's any more, or another process's.
    Ended,
    /// It cannot be seen, and nothing tells of its end.
    Unwatched,
}

/// Looks for it. A system that lends no descriptor of a process, or none more, does not
/// make it one that has ended.
pub fn look_for(process: &Process) -> Known {
    let Some(number) = Watch::by_number(process) else {
        return Known::Unwatched;
    };
    let lent = watch_pid(process.pid).map(Watch::Descriptor);
    // Only now is it sure that the number was not another process's meanwhile.
    match number.has_ended() {
        true => Known::Ended,
        false => Known::Watched(lent.unwrap_or(number)),
    }
}

/// A descriptor of a process by its number. Linux before 5.10 knows no flag of it.
pub fn watch_pid(number: u32) -> Option<OwnedFd> {
    pidfd_open(pid(number)?, PidfdFlags::empty()).ok()
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
    Ok(crate::keeper::succession::journal::digest(
        boot.trim().as_bytes(),
    ))
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
        assert!(!Watch::by_number(&process).unwrap().has_ended());
        process.started += 1;
        assert!(matches!(look_for(&process), Known::Ended));
        let unseen = Peer { pid: 0, ..peer };
        assert_eq!(unseen.process(77, "x").pid, 77);
        assert!(node().unwrap() != 0);
    }

    #[test]
    fn by_its_number_one_has_ended_with_its_last_thread_and_before_it_is_waited_for() {
        let script = "import ctypes, platform, threading, time\n\
                      threading.Thread(target=time.sleep, args=(100,)).start()\n\
                      end_of_thread = {'x86_64': 60, 'aarch64': 93}[platform.machine()]\n\
                      ctypes.CDLL(None).syscall(end_of_thread, 0)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let number = pid(child.id()).unwrap();
        let watch = Watch::Number(number, started(child.id()).unwrap());
        let until = |what: &dyn Fn() -> bool| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !what() {
                assert!(std::time::Instant::now() < end);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        let first_has_ended = || proc_stat::field(child.id(), proc_stat::STATE) == Some('Z');
        until(&first_has_ended);
        assert!(!watch.has_ended());
        child.kill().unwrap();
        until(&|| watch.has_ended());
        child.wait().unwrap();
        assert!(watch.has_ended());
    }
}
