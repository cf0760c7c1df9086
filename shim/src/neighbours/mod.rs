//! Other preloaded processes on a device, found without a daemon. Each process
//! with a pool listens on a socket of the abstract namespace that has the
//! device and the user in its name; it is gone with the process, however that
//! ends. Who has no memory left asks all of them at once and waits a moment.
//!
//! The kernel vouches for who is at the other end: another user's process is
//! neither asked nor answered. Containers with a network of their own do not
//! see each other. At the same socket this process is asked how much it would
//! give (`offers`), and for its picture (`memcuda::picture::ask`), by its own user
//! and root.

pub mod in_vain;
pub mod offers;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use memcuda_core::descriptor::Lasting;
use memcuda_core::picture::ask::{self, DOORS, QUESTION, SHOW};

use crate::neighbours::in_vain::InVain;

/// How long a request may wait in all for others to make room: long enough for
/// memory that was used a moment ago to count as idle (`watch`).
const PATIENCE: Duration = Duration::from_millis(1250);
/// How long one round of asking waits for answers: a stopped process gives none.
const ROUND: Duration = Duration::from_millis(300);
/// Pause before asking again where somebody's memory will be idle soon.
const PAUSE: Duration = Duration::from_millis(50);
/// Most neighbours that are asked.
const MOST: usize = 64;
/// Behind a request for no bytes: how much would be given? Who does not know it hangs up.
const OFFER: [u8; 8] = *b"memcgive";

/// What a neighbour answers, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answer {
    /// Given back to the driver, or what would be.
    pub given: u64,
    /// Idle, but used too short a time ago.
    pub soon: u64,
}

/// The socket on which this process is asked about one device.
pub struct Door {
    /// What the names of all doors to this device begin with.
    device: String,
    name: String,
    /// None where it could not be had.
    listener: OnceLock<Option<Lasting<UnixListener>>>,
    in_vain: InVain,
}

impl Door {
    /// The door of this process to the device of this identity, closed.
    pub fn new(uuid: [u8; 16]) -> Self {
        // SAFETY: has no preconditions.
        let user = unsafe { libc::geteuid() };
        let device = format!("{DOORS}{user}/{:032x}/", u128::from_be_bytes(uuid));
        // Ids of processes may be the same in two containers.
        let mut nonce = [0; 8];
        // SAFETY: the buffer is as long as said.
        unsafe { libc::getrandom(nonce.as_mut_ptr().cast(), nonce.len(), libc::GRND_NONBLOCK) };
        let (process, nonce) = (std::process::id(), u64::from_ne_bytes(nonce));
        let name = format!("{device}{process}-{nonce:016x}");
        Self {
            device,
            name,
            listener: OnceLock::new(),
            in_vain: InVain::default(),
        }
    }

    /// Opens it, once: where there is a thread that answers.
    pub fn open(&self) -> std::io::Result<()> {
        let mut opened = Ok(());
        self.listener.get_or_init(|| match listen(&self.name) {
            Ok(listener) => Some(listener),
            Err(error) => {
                opened = Err(error);
                None
            }
        });
        opened
    }

    fn listener(&self) -> Option<&Lasting<UnixListener>> {
        self.listener.get()?.as_ref()
    }

    /// The descriptor to wait on for a question; `None` where it is closed, or the program
    /// has closed it.
    pub fn descriptor(&self) -> Option<i32> {
        self.listener()?.number()
    }

    /// Answers everyone who has a question now: `answer` gives so many bytes,
    /// `offer` tells how many it would, `show` makes a picture. Fails where there may be more
    /// who cannot be let in, as in a process without descriptors to spare.
    pub fn answer(
        &self,
        answer: impl Fn(u64) -> Answer,
        offer: impl Fn() -> u64,
        show: impl Fn() -> std::io::Result<OwnedFd>,
    ) -> std::io::Result<()> {
        while let Some(listener) = self.listener().and_then(Lasting::ours) {
            let mut asker = match listener.accept() {
                Ok((asker, _)) => asker,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let (ours, mut bytes) = (is_ours(&asker), [0; 8]);
            if !ours && user(&asker) != Some(0) {
                continue;
            }
            // What fails here is the asker's loss: it waits a bounded time.
            let _ = asker
                .set_nonblocking(false)
                .and_then(|()| asker.set_read_timeout(Some(QUESTION)))
                .and_then(|()| asker.read_exact(&mut bytes))
                .and_then(|()| {
                    let (bytes, mut word) = (u64::from_ne_bytes(bytes), [0; SHOW.len()]);
                    // Nobody asks for no bytes of memory: another question follows.
                    if bytes == 0 {
                        asker.read_exact(&mut word)?;
                    }
                    let answer = match (bytes, word) {
                        _ if has_left(&asker) => return Ok(()),
                        (0, SHOW) => {
                            ask::answer(&mut asker, show());
                            return Ok(());
                        }
                        (0, OFFER) if ours => Answer {
                            given: offer(),
                            soon: 0,
                        },
                        (1.., _) if ours => answer(bytes),
                        _ => return Ok(()),
                    };
                    let words = [answer.given.to_ne_bytes(), answer.soon.to_ne_bytes()];
                    asker.write_all(&words.concat())
                });
        }
        Ok(())
    }

    /// The doors of other processes, as the kernel lists them.
    pub fn others(&self) -> Vec<String> {
        let mut list = Vec::new();
        let read = std::fs::File::open("/proc/net/unix").and_then(|mut f| f.read_to_end(&mut list));
        if read.is_err() {
            return Vec::new();
        }
        let list = String::from_utf8_lossy(&list);
        let names = list.lines().filter_map(|line| line.split_once('@'));
        let mut doors: Vec<String> = names
            .map(|(_, name)| name.trim_end())
            .filter(|name| name.starts_with(&self.device) && *name != self.name)
            .map(str::to_owned)
            .collect();
        // A door with somebody in it is listed once more.
        doors.sort_unstable();
        doors.dedup();
        doors.truncate(MOST);
        doors
    }

    /// Asks all others for this many bytes, and adds their answers up.
    fn ask(&self, bytes: u64) -> Answer {
        self.hear_all(&bytes.to_ne_bytes(), ROUND)
    }

    /// Bytes that all others would give, of those who answer within this time; none where
    /// they would be of no use.
    pub fn offered(&self, patience: Duration) -> u64 {
        if self.in_vain.rests(Instant::now()) {
            return 0;
        }
        let question = [[0; 8], OFFER].concat();
        self.hear_all(&question, patience).given
    }

    fn hear_all(&self, question: &[u8], patience: Duration) -> Answer {
        let deadline = Instant::now() + patience;
        let ask = |name: &String| {
            let mut stream = connect(name).filter(is_ours)?;
            stream.write_all(question).ok()?;
            Some(stream)
        };
        let asked: Vec<UnixStream> = self.others().iter().filter_map(ask).collect();
        let mut sum = Answer::default();
        for stream in asked {
            if let Some(answer) = hear(stream, deadline) {
                sum.given = sum.given.saturating_add(answer.given);
                sum.soon = sum.soon.saturating_add(answer.soon);
            }
        }
        sum
    }

    /// Asks the others on the device for memory, for a request that has found none
    /// since `failed`. Returns how many bytes were given; with some another try is worth it.
    /// Nobody is asked where that was in vain.
    pub fn make_room(&self, bytes: u64, failed: Instant) -> u64 {
        while failed.elapsed() < PATIENCE && !self.in_vain.rests(failed) {
            let Answer { given, soon } = self.ask(bytes);
            if given > 0 {
                crate::log!(Debug, "other processes gave {given} bytes back");
                return given;
            }
            if soon == 0 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        0
    }
}

fn listen(name: &str) -> std::io::Result<Lasting<UnixListener>> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(Lasting::new(listener)?)
}

/// Connects without waiting; a full queue is the neighbour's answer.
fn connect(name: &str) -> Option<UnixStream> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0: the abstract namespace.
    let path = address.sun_path.get_mut(1..=name.len())?;
    for (to, from) in path.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a descriptor of our own; the address is as long as said.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let address = (&raw const address).cast();
        let connected = libc::connect(socket.as_raw_fd(), address, length as libc::socklen_t);
        (connected == 0).then_some(socket)?
    };
    Some(UnixStream::from(socket))
}

/// Reads an answer; `None` where none came in time, or the neighbour ended.
fn hear(mut stream: UnixStream, deadline: Instant) -> Option<Answer> {
    stream.set_nonblocking(false).ok()?;
    let mut words = [0; 16];
    let mut heard = 0;
    while heard < words.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        // Whatever came already is heard, also after a neighbour that is late.
        let least = Duration::from_millis(1);
        stream.set_read_timeout(Some(left.max(least))).ok()?;
        match stream.read(&mut words[heard..]) {
            Ok(0) => return None,
            Ok(more) => heard += more,
            // A signal of the program's, which may come again and again.
            Err(error) if error.kind() == ErrorKind::Interrupted && left > least => {}
            Err(_) => return None,
        }
    }
    let (given, soon) = words.split_at(8);
    Some(Answer {
        given: u64::from_ne_bytes(given.try_into().ok()?),
        soon: u64::from_ne_bytes(soon.try_into().ok()?),
    })
}

/// Has the process at the other end given up waiting? Then what it asked for
/// long ago, when this process was stopped, is of no use to it.
fn has_left(asker: &UnixStream) -> bool {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for the one byte that is asked for.
    unsafe { libc::recv(asker.as_raw_fd(), (&raw mut byte).cast(), 1, flags) == 0 }
}

/// Is the process at the other end this user's?
fn is_ours(stream: &UnixStream) -> bool {
    // SAFETY: has no preconditions.
    user(stream) == Some(unsafe { libc::geteuid() })
}

/// The user of the process at the other end.
fn user(stream: &UnixStream) -> Option<libc::uid_t> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure is as long as said; the call has no precondition.
    let got = unsafe {
        let at = (&raw mut peer).cast();
        let socket = stream.as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut length)
    };
    (got == 0).then_some(peer.uid)
}

#[cfg(test)]
mod tests;
