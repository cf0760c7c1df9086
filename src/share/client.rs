//! A connection to the keeper, and its requests one at a time. The leases that
//! were taken over it end with it; taking them up again over another one is the
//! owner's to do. Starts no keeper.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::protocol::{Code, Event, Generation, Hello, Lease, MOST_LEASES, Packet, Reply, Request};
use super::wire::{self, Broken};

/// How long an answer may take before the keeper counts as gone.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer is waited for awake.
const AWAKE: Duration = Duration::from_micros(500);
/// A keeper that is awake itself has answered by then.
const PROMPT: Duration = Duration::from_micros(30);
/// The shortest sleep there is.
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1,
};

/// Why a request has no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// No keeper listens.
    Absent(Errno),
    /// The connection is of no use any more; nothing is known of the request.
    Lost,
    /// The answer came with more descriptors than this process may open. What it
    /// gave is not known here: the connection must end.
    NoRoom,
    /// The keeper refuses.
    Refused(Code, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(error) => write!(f, "no keeper answers ({error})"),
            Self::Lost => f.write_str("the keeper went away, or does not answer"),
            Self::NoRoom => f.write_str("this process has no descriptors to spare (RLIMIT_NOFILE)"),
            Self::Refused(_, message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// A connection that has introduced itself.
pub struct Client {
    socket: Socket,
    /// Numbers of the last request and of the last answer: these come in order.
    asked: u32,
    answered: u32,
    /// As long as the longest packet up to now.
    room: Vec<u8>,
    events: VecDeque<Event>,
}

/// A connection on which it was said who speaks; what the keeper says to that
/// is still to be heard.
pub struct Dialled {
    client: Client,
    /// Leases that did not find room in the first packet.
    rest: Vec<Lease>,
}

/// What the keeper says at the beginning.
pub struct Welcome {
    /// The host and its boot, as in handles.
    pub node: u64,
    /// 4096 bytes whose first 64-bit word grows whenever a name is deleted or sealed.
    pub epoch: OwnedFd,
    /// Leases that could not be taken up: what they were on is gone.
    pub lost: Vec<Generation>,
}

impl Client {
    /// Connects, and takes up these leases again.
    pub fn connect(
        socket: &Path,
        pid: u32,
        command: &str,
        leases: &[Lease],
    ) -> Result<(Self, Welcome), Error> {
        Self::dial(socket, pid, command, leases)?.welcome()
    }

    /// The same, without waiting for the keeper's word.
    pub fn dial(
        socket: &Path,
        pid: u32,
        command: &str,
        leases: &[Lease],
    ) -> Result<Dialled, Error> {
        Self::greet(reach(socket, true), pid, command, leases)
    }

    /// The same without leases, where the keeper lets it in without a wait.
    pub fn dial_now(socket: &Path, pid: u32, command: &str) -> Result<Dialled, Error> {
        Self::greet(reach(socket, false), pid, command, &[])
    }

    fn greet(
        socket: Result<OwnedFd, Errno>,
        pid: u32,
        command: &str,
        leases: &[Lease],
    ) -> Result<Dialled, Error> {
        let mut client = Self {
            socket: socket.and_then(Socket::new).map_err(Error::Absent)?,
            asked: 0,
            answered: 0,
            room: Vec::new(),
            events: VecDeque::new(),
        };
        let hello = Hello::OURS.to_bytes();
        said(wire::send_bytes(&client.socket, &hello, &[]))?;
        let (first, rest) = leases.split_at(leases.len().min(MOST_LEASES));
        let introduce = Request::Introduce {
            pid,
            command: command.to_owned(),
            leases: first.to_vec(),
            more: !rest.is_empty(),
        };
        client.send(introduce, &[])?;
        let rest = rest.to_vec();
        Ok(Dialled { client, rest })
    }

    /// Asks, and waits for the answer. Where that is [`Error::Lost`] the
    /// connection is of no use any more.
    pub fn call(
        &mut self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        self.send(request, descriptors)?;
        self.receive()
    }

    /// Waits for the answer to what was asked by [`Dialled::ask`].
    pub fn answer(&mut self) -> Result<(Reply, Vec<OwnedFd>), Error> {
        self.receive()
    }

    fn send(&mut self, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.intact()?;
        self.asked = next(self.asked);
        let packet = Packet {
            number: self.asked,
            body: request,
        };
        said(wire::send(&self.socket, &packet, descriptors))
    }

    /// Waits for the next answer.
    fn receive(&mut self) -> Result<(Reply, Vec<OwnedFd>), Error> {
        self.answered = next(self.answered);
        self.wait_awake();
        loop {
            let (said, beside) = self.hear(false).map_err(|broken| match broken {
                Broken::NoRoom => Error::NoRoom,
                _ => Error::Lost,
            })?;
            match said {
                Said::Event(event) => self.events.push_back(event),
                Said::Reply(number, _) if number != self.answered => return Err(Error::Lost),
                Said::Reply(_, reply) => match *reply {
                    Reply::Failed { code, message } => return Err(Error::Refused(code, message)),
                    reply => return Ok((reply, beside)),
                },
            }
        }
    }

    /// Waits without sleeping, for a moment at most: a keeper that is well answers
    /// in less time than a processor takes to fall asleep and to be woken.
    fn wait_awake(&self) {
        let began = Instant::now();
        let none_yet = || matches!(wire::length_of_next(&self.socket, true), Err(Broken::Later));
        let mut napped = false;
        while none_yet() && began.elapsed() < AWAKE {
            if napped || began.elapsed() < PROMPT {
                std::thread::yield_now();
            } else {
                // A keeper that was woken on this very processor does not get it by
                // a yield, which passes over who has run more than its share.
                let socket = PollFd::new(&self.socket, PollFlags::IN);
                let _ = poll(&mut [socket], Some(&NAP));
                napped = true;
            }
        }
    }

    /// What the keeper has said unasked since the last time; never waits.
    pub fn events(&mut self) -> Result<Vec<Event>, Error> {
        self.intact()?;
        loop {
            match self.hear(true) {
                Ok((Said::Event(event), _)) => self.events.push_back(event),
                Ok((Said::Reply(..), _)) => return Err(Error::Lost),
                Err(Broken::Later) => return Ok(self.events.drain(..).collect()),
                Err(_) => return Err(Error::Lost),
            }
        }
    }

    /// The next packet; where there is none `now`, [`Broken::Later`].
    fn hear(&mut self, now: bool) -> Result<(Said, Vec<OwnedFd>), Broken> {
        // Room is made as it is needed: to touch the memory for the longest
        // packet takes as long as a request.
        if self.room.len() < wire::MOST_BYTES {
            let length = wire::length_of_next(&self.socket, now)?;
            let length = length.next_power_of_two().clamp(512, wire::MOST_BYTES);
            self.room.resize(length.max(self.room.len()), 0);
        }
        let (bytes, beside) = wire::receive_bytes(&self.socket, &mut self.room, now)?;
        Ok((read(bytes)?, beside))
    }

    /// Is the socket still open? Programs close what they do not know.
    pub fn is_intact(&self) -> bool {
        self.socket.is_ours()
    }

    fn intact(&self) -> Result<(), Error> {
        self.socket.is_ours().then_some(()).ok_or(Error::Lost)
    }
}

impl Dialled {
    /// Asks before the keeper has answered to who this is: both arrive at once.
    /// The answer is the first one behind the welcome ([`Client::answer`]). Not
    /// where there are more leases than a packet holds.
    pub fn ask(&mut self, request: Request) -> Result<(), Error> {
        debug_assert!(self.rest.is_empty(), "the leases come first");
        self.client.send(request, &[])
    }

    /// Waits so long for each answer, where a program would wait for [`PATIENCE`].
    pub fn be_patient(&self, patience: Duration) -> Result<(), Error> {
        let set = set_socket_timeout(&self.client.socket, Timeout::Recv, Some(patience));
        set.map_err(|_| Error::Lost)
    }

    /// Is the keeper's word there?
    pub fn is_answered(&self) -> bool {
        wire::length_of_next(&self.client.socket, true).is_ok()
    }

    /// Waits for the keeper's word, and takes up the leases that are left.
    pub fn welcome(self) -> Result<(Client, Welcome), Error> {
        let Self { mut client, rest } = self;
        let (Reply::Welcome { node, mut lost }, beside) = client.receive()? else {
            return Err(Error::Lost);
        };
        let Ok([epoch]) = <[OwnedFd; 1]>::try_from(beside) else {
            return Err(Error::Lost);
        };
        let pages = rest.len().div_ceil(MOST_LEASES);
        for (page, leases) in rest.chunks(MOST_LEASES).enumerate() {
            let more = page + 1 < pages;
            let leases = leases.to_vec();
            let (Reply::Lost(also), _) = client.call(Request::Leases { leases, more }, &[])? else {
                return Err(Error::Lost);
            };
            lost.extend(also);
        }
        Ok((client, Welcome { node, epoch, lost }))
    }
}

impl AsFd for Dialled {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

impl AsFd for Client {
    /// Its socket: readable when there are events, and at its end.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The number after this one; 0 is none.
fn next(number: u32) -> u32 {
    number.wrapping_add(1).max(1)
}

/// A socket in a process whose program may close whatever it does not know, as
/// daemons do: what is open under its number then is the program's.
struct Socket {
    /// `None` only while it is dropped.
    descriptor: Option<OwnedFd>,
    identity: (u64, u64),
}

impl Socket {
    fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            identity: identity(&descriptor)?,
            descriptor: Some(descriptor),
        })
    }

    fn is_ours(&self) -> bool {
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

/// A keeper that has closed the connection may have said why, which is there to
/// be read.
fn said(sent: Result<(), Broken>) -> Result<(), Error> {
    match sent {
        Ok(()) | Err(Broken::Closed) => Ok(()),
        Err(_) => Err(Error::Lost),
    }
}

enum Said {
    Event(Event),
    Reply(u32, Box<Reply>),
}

/// An event is a packet of number 0, of another type than the rest.
fn read(bytes: &[u8]) -> Result<Said, Broken> {
    Ok(match bytes.first() {
        Some(0) => Said::Event(wire::understand::<Packet<Event>>(bytes)?.body),
        _ => {
            let Packet { number, body } = wire::understand(bytes)?;
            Said::Reply(number, Box::new(body))
        }
    })
}

/// Connects; with `wait`, for as long as the keeper may take.
fn reach(socket: &Path, wait: bool) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(socket)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, !wait);
    let socket = socket_with(family, kind, flags, None)?;
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
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
    Ok(socket)
}
