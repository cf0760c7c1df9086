//! Other preloaded processes on a device, found without a daemon. Each process
//! with a pool listens on a socket of the abstract namespace that has the
//! device and the user in its name; it is gone with the process, however that
//! ends. Who has no memory left asks all of them (`asking`) and waits a moment.
//!
//! The kernel vouches for who is at the other end: another user's process is
//! neither asked nor answered. Containers with a network of their own do not
//! see each other. At the same socket this process is asked how much it would
//! give (`offers`), and for its picture (`memcuda::picture::ask`), by its own user
//! and root.

mod asking;
pub mod in_vain;
pub mod offers;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use memcuda_core::descriptor::Lasting;
use memcuda_core::picture::ask::{self, DOORS, QUESTION, SHOW};
use memcuda_core::waiting::Waiting;

use crate::neighbours::asking::{Known, Question};
use crate::neighbours::in_vain::InVain;

/// How long a request may wait in all for others to make room: long enough for
/// memory that was used a moment ago to count as idle (`watch`), which takes up to
/// 1.25 s, where processors are scarce, too.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one round of asking waits for answers: a stopped process gives none.
const ROUND: Duration = Duration::from_millis(300);
/// Pause before asking again where somebody's memory will be idle soon.
const PAUSE: Duration = Duration::from_millis(50);
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
    known: Known,
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
            known: Known::default(),
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
        doors
    }

    /// Asks all others for this many bytes, and adds their answers up.
    fn ask(&self, bytes: u64) -> Answer {
        let question = Question {
            words: &bytes.to_ne_bytes(),
            enough: bytes,
            each: ROUND,
            all: PATIENCE,
        };
        self.known.ask(self.others(), &question)
    }

    /// Bytes that all others would give, of those who answer within this time; none where
    /// they would be of no use.
    pub fn offered(&self, patience: Duration) -> u64 {
        if self.in_vain.rests(Instant::now()) {
            return 0;
        }
        let question = Question {
            words: &[[0; 8], OFFER].concat(),
            enough: u64::MAX,
            each: patience,
            all: patience,
        };
        self.known.ask(self.others(), &question).given
    }

    /// Asks the others on the device for memory, for a request that has found none
    /// since `failed`. Returns how many bytes were given; with some another try is worth it.
    /// Nobody is asked where that was in vain. What will be idle soon is waited for, unless that
    /// was in vain, or more bytes than that `lack`; 0 where nobody knows how many do.
    pub fn make_room(&self, bytes: u64, lack: &dyn Fn() -> u64, failed: Instant) -> u64 {
        let mut waiting = Waiting::since(failed);
        let before = waiting.lasted();
        let mut waits = false;
        while waiting.lasted() < PATIENCE && !self.in_vain.rests(failed) {
            let Answer { given, soon } = self.ask(bytes);
            if given > 0 {
                crate::log!(Debug, "other processes gave {given} bytes back");
                self.in_vain.came();
                return given;
            }
            if soon == 0 || !self.in_vain.is_patient() || soon < lack() {
                break;
            }
            waiting.pause(PAUSE);
            waits = true;
        }
        if waits {
            self.in_vain.waited(waiting.lasted() - before);
        }
        0
    }
}

fn listen(name: &str) -> std::io::Result<Lasting<UnixListener>> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(Lasting::new(listener)?)
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
