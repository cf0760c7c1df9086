//! A connection to the keeper, and its requests one at a time. The leases that
//! were taken over it end with it; taking them up again over another one is the
//! owner's to do. Starts no keeper.

mod error;
mod waits;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::protocol::{Event, Generation, Hello, Lease, MOST_LEASES, Packet, Reply, Request};
use super::socket::reach;
use super::wire::{self, Broken};
use crate::descriptor::Lasting;
use crate::waiting::Waiting;

pub use error::Error;

/// How long an answer may take before the keeper counts as gone.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How soon it is tried again where the kernel takes no descriptors for now.
const PAUSE: Duration = Duration::from_millis(5);

/// A connection that has introduced itself.
pub struct Client {
    socket: Lasting,
    /// How long it waits, whatever signals come meanwhile.
    patience: Duration,
    /// Numbers of the last request and of the last answer: these come in order.
    asked: u32,
    answered: u32,
    /// An answer that nobody waits for any more; 0 is none.
    late: u32,
    /// Did the last request go out? Where the keeper's end was closed it was not heard.
    sent: bool,
    /// As long as the longest packet up to now.
    room: Vec<u8>,
    events: VecDeque<Event>,
}

/// A connection on which it was said who speaks; what the keeper says to that
/// is still to be heard.
pub struct Dialled {
    client: Client,
    /// To be taken up again; the first [`MOST_LEASES`] of them were said.
    leases: Vec<Lease>,
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
        Self::greet(reach(socket, true, PATIENCE), pid, command, leases)
    }

    /// The same without leases, where the keeper lets it in without a wait.
    pub fn dial_now(socket: &Path, pid: u32, command: &str) -> Result<Dialled, Error> {
        Self::greet(reach(socket, false, PATIENCE), pid, command, &[])
    }

    fn greet(
        socket: Result<Lasting, Errno>,
        pid: u32,
        command: &str,
        leases: &[Lease],
    ) -> Result<Dialled, Error> {
        let mut client = Self {
            socket: socket.map_err(Error::Absent)?,
            patience: PATIENCE,
            asked: 0,
            answered: 0,
            late: 0,
            sent: false,
            room: Vec::new(),
            events: VecDeque::new(),
        };
        let hello = Hello::OURS.to_bytes();
        client.put(|socket| wire::send_bytes(socket, &hello, &[]))?;
        let first = &leases[..leases.len().min(MOST_LEASES)];
        let introduce = Request::Introduce {
            pid,
            command: command.to_owned(),
            leases: first.to_vec(),
            more: first.len() < leases.len(),
        };
        client.send(introduce, &[])?;
        let leases = leases.to_vec();
        Ok(Dialled { client, leases })
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

    fn hear_welcome(&mut self, leases: &[Lease]) -> Result<Welcome, Error> {
        let (Reply::Welcome { node, mut lost }, beside) = self.receive()? else {
            return Err(Error::Lost);
        };
        let Ok([epoch]) = <[OwnedFd; 1]>::try_from(beside) else {
            return Err(Error::Lost);
        };
        let mut pages = leases.chunks(MOST_LEASES).skip(1).peekable();
        while let Some(page) = pages.next() {
            let (leases, more) = (page.to_vec(), pages.peek().is_some());
            let (Reply::Lost(also), _) = self.call(Request::Leases { leases, more }, &[])? else {
                return Err(Error::Lost);
            };
            lost.extend(also);
        }
        Ok(Welcome { node, epoch, lost })
    }

    /// Ends the connection of a process that comes back over another one with all
    /// that it holds: a keeper that is only slow hears so before it hears the end.
    pub fn come_back(mut self) {
        // With one request before it, it finds room at once.
        let _ = self.send(Request::ComeBack, &[]);
    }

    fn send(&mut self, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.sent = false;
        self.intact()?;
        self.asked = next(self.asked);
        let packet = Packet {
            number: self.asked,
            body: request,
        };
        self.sent = self.put(|socket| wire::send(socket, &packet, descriptors))?;
        Ok(())
    }

    /// Sends a packet, and waits for room for it; did it go out? A keeper that has closed
    /// the connection may have said why, which is there to be read.
    fn put(&self, send: impl Fn(&Lasting) -> Result<(), Broken>) -> Result<bool, Error> {
        let (deadline, mut tries) = (Instant::now() + self.patience, Waiting::begin());
        loop {
            match send(&self.socket) {
                Ok(()) => return Ok(true),
                Err(Broken::Closed) => return Ok(false),
                Err(Broken::Later) => self.wait(PollFlags::OUT, deadline)?,
                // Too many descriptors of this user's are on their way, whoever sent them.
                Err(Broken::System(Errno::TOOMANYREFS)) if tries.lasted() < self.patience => {
                    tries.pause(PAUSE);
                    self.intact()?;
                }
                Err(_) => return Err(Error::Lost),
            }
        }
    }

    /// Waits until the socket is ready, or somebody has to look.
    fn wait(&self, until: PollFlags, deadline: Instant) -> Result<(), Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        match !left.is_zero() && self.wait_for(until, left)? {
            true => Ok(()),
            false => Err(Error::Lost),
        }
    }

    /// The same, and no longer than this: false where it has passed.
    fn wait_for(&self, until: PollFlags, left: Duration) -> Result<bool, Error> {
        let time = Timespec::try_from(left).map_err(|_| Error::Lost)?;
        match poll(&mut [PollFd::new(&self.socket, until)], Some(&time)) {
            // Meanwhile the program may have closed it, and have another one there.
            Ok(ready) => self.intact().map(|()| ready > 0),
            Err(Errno::INTR) => self.intact().map(|()| true),
            Err(_) => Err(Error::Lost),
        }
    }

    /// Waits for the next answer.
    fn receive(&mut self) -> Result<(Reply, Vec<OwnedFd>), Error> {
        self.answered = next(self.answered);
        self.wait_awake();
        let deadline = Instant::now() + self.patience;
        loop {
            match self.next_answer()? {
                Some(answer) => return Ok(answer),
                None => self.wait(PollFlags::IN, deadline)?,
            }
        }
    }

    /// The next answer, where it is there.
    fn next_answer(&mut self) -> Result<Option<(Reply, Vec<OwnedFd>)>, Error> {
        loop {
            let (said, beside) = match self.hear() {
                Ok(heard) => heard,
                Err(Broken::Later) => return Ok(None),
                Err(Broken::NoRoom) => return Err(Error::NoRoom),
                Err(_) => return Err(Error::Lost),
            };
            match said {
                Said::Event(event) => self.events.push_back(event),
                Said::Reply(number, _) if number == self.late => self.late = 0,
                Said::Reply(number, _) if number != self.answered => return Err(Error::Lost),
                Said::Reply(_, reply) => match *reply {
                    Reply::Failed { code, message } => return Err(Error::Refused(code, message)),
                    reply => return Ok(Some((reply, beside))),
                },
            }
        }
    }

    /// What the keeper has said unasked since the last time; never waits.
    pub fn events(&mut self) -> Result<Vec<Event>, Error> {
        self.hear_events()?;
        Ok(self.events.drain(..).collect())
    }

    fn hear_events(&mut self) -> Result<(), Error> {
        self.intact()?;
        loop {
            match self.hear() {
                Ok((Said::Event(event), _)) => self.events.push_back(event),
                Ok((Said::Reply(number, _), _)) if number == self.late => self.late = 0,
                Ok((Said::Reply(..), _)) => return Err(Error::Lost),
                Err(Broken::Later) => return Ok(()),
                Err(_) => return Err(Error::Lost),
            }
        }
    }

    /// The next packet; where there is none, [`Broken::Later`].
    fn hear(&mut self) -> Result<(Said, Vec<OwnedFd>), Broken> {
        // Room is made as it is needed: to touch the memory for the longest
        // packet takes as long as a request.
        if self.room.len() < wire::MOST_BYTES {
            let length = wire::length_of_next(&self.socket)?;
            let length = length.next_power_of_two().clamp(512, wire::MOST_BYTES);
            self.room.resize(length.max(self.room.len()), 0);
        }
        let (bytes, beside) = wire::receive_bytes(&self.socket, &mut self.room, true)?;
        Ok((read(bytes)?, beside))
    }

    /// May what was asked last have been done, whatever came of the answer?
    pub fn may_be_done(&self) -> bool {
        self.sent
    }

    /// Is the socket still open? Programs close what they do not know.
    pub fn is_intact(&self) -> bool {
        self.socket.ours().is_some()
    }

    fn intact(&self) -> Result<(), Error> {
        self.is_intact().then_some(()).ok_or(Error::Lost)
    }
}

impl Dialled {
    /// Asks before the keeper has answered to who this is: both arrive at once.
    /// The answer is the first one behind the welcome ([`Client::answer`]). Not
    /// where there are leases.
    pub fn ask(&mut self, request: Request) -> Result<(), Error> {
        debug_assert!(self.leases.is_empty(), "the leases come first");
        self.client.send(request, &[])
    }

    /// Waits so long for each answer, where a program would wait for [`PATIENCE`].
    pub fn be_patient(&mut self, patience: Duration) {
        self.client.patience = patience;
    }

    /// Is the keeper's word there?
    pub fn is_answered(&self) -> bool {
        wire::length_of_next(&self.client.socket).is_ok()
    }

    /// Waits for the keeper's word, and takes up the leases that are left.
    pub fn welcome(self) -> Result<(Client, Welcome), Error> {
        let Self { mut client, leases } = self;
        match client.hear_welcome(&leases) {
            Ok(welcome) => Ok((client, welcome)),
            Err(error) => {
                // What was taken up is there for another try.
                if !leases.is_empty() {
                    client.come_back();
                }
                Err(error)
            }
        }
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
