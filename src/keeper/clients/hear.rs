//! What connections say: new ones are accepted, every one is heard for its
//! share of a turn, and what it asks is answered once the turn ends.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tracing::warn;

use crate::keeper::Refusal;
use crate::keeper::clients::client::{Connection, Said, Stage, weight};
use crate::keeper::clients::process::{Peer, Watch};
use crate::keeper::clients::strays::{Strays, may_be_memory};
use crate::keeper::clock::GRACE;
use crate::keeper::entries::ClientId;
use crate::keeper::state::{Ghost, Keeper, Outgoing};
use crate::keeper::succession::key::Key;
use crate::keeper::token::Token;
use crate::share::protocol::{MOST_PARTS, Packet, Reply};
use crate::share::wire::{self, Broken};
use rustix::event::epoll;

/// What a connection may have answered in a turn, by [`weight`].
const SHARE: u32 = 16;
/// The same of all connections of a user who is not the keeper's own.
const USERS_SHARE: u32 = 4 * SHARE;
/// How long a turn takes at least while no client can be accepted.
const SHUT: Duration = Duration::from_millis(10);
/// Connections that are accepted in a turn.
const MOST_ACCEPTED: usize = 64;

impl Keeper {
    pub(in crate::keeper) fn accept(&mut self) {
        for _ in 0..MOST_ACCEPTED {
            let Some(listener) = self.descriptors.get(Key::Listener) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&**listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_shut, true) {
                        warn!("cannot accept clients for now: {error}");
                    }
                    // Who stands at the door is told of again at once.
                    return std::thread::sleep(SHUT);
                }
            };
            self.is_shut = false;
            let Ok(peer) = Peer::of(&socket) else {
                continue;
            };
            // Else what is behind a packet of no bytes would be closed with the socket.
            let _ = wire::tell_the_end(&socket);
            if let Err(refusal) = self.room_for_client(&peer) {
                let packet: Packet<Reply> = Packet {
                    number: 1,
                    body: refusal.into(),
                };
                let _ = wire::send(&socket, &packet, &[]);
                take_leave(&socket, &mut self.room, &self.strays);
                continue;
            }
            let client = self.next_client;
            if self.watch(&socket, Token::Client(client)).is_ok() {
                self.next_client += 1;
                self.new.push_back((Instant::now(), client));
                self.connections
                    .insert(client, Connection::new(socket, peer));
                // Mostly it has said already who it is and what it wants.
                self.hear_client(client);
            }
        }
    }

    /// One connection's share of a turn, and of its user's. What is left is told of again.
    pub(in crate::keeper) fn hear_client(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get(&client) else {
            return;
        };
        let user = connection.peer.uid;
        if self.waits(client) {
            return;
        }
        let share = match self.access.is_own(user) {
            true => SHARE,
            false => *self.shares.entry(user).or_insert(USERS_SHARE),
        };
        let left = self.hear_for(client, share.min(SHARE));
        if let Some(share) = self.shares.get_mut(&user) {
            *share -= (*share).min(SHARE) - left;
        }
    }

    /// Hears a connection for so long, by [`weight`]; what is left of it.
    fn hear_for(&mut self, client: ClientId, mut left: u32) -> u32 {
        while left > 0 {
            let Some(connection) = self.connections.get_mut(&client) else {
                return left;
            };
            // Outlives them, whatever becomes of the request.
            let _aside;
            let mut descriptors = Vec::new();
            let (socket, room) = (&connection.socket, &mut self.room);
            let received = wire::receive(socket, room, true, &mut descriptors);
            let strange = !descriptors.iter().all(may_be_memory);
            if strange {
                self.strays.close(std::mem::take(&mut descriptors));
            }
            _aside = self.strays.aside(&descriptors);
            let bytes = match received {
                Ok(received) => received,
                Err(Broken::Later) => return left,
                Err(Broken::Garbled | Broken::NoRoom) => {
                    let most = wire::MOST_BYTES;
                    let message =
                        format!("a packet of more than {most} bytes or {MOST_PARTS} descriptors");
                    self.refuse(client, 1, Refusal::invalid(message), true);
                    return left;
                }
                Err(Broken::Closed | Broken::System(_)) => {
                    self.hang_up(client);
                    return left;
                }
            };
            let peer = connection.peer;
            match connection.understand(bytes) {
                Said::Nothing => left -= 1,
                // It may be the client's own end of its connection, which would never end.
                Said::Request(number, _) if strange => {
                    let message = "a descriptor came that holds no memory".to_owned();
                    self.refuse(client, number, Refusal::invalid(message), true);
                    return left;
                }
                Said::Request(number, request) => {
                    left = left.saturating_sub(weight(&request));
                    let first = connection.stage == Stage::Introduce;
                    self.awake.heard(client, peer.pid, first, Instant::now());
                    match self.answer(client, peer, request, descriptors) {
                        Ok(answer) => {
                            self.reply(client, number, answer.reply, answer.beside, false)
                        }
                        Err(refusal) => self.refuse(client, number, refusal, first),
                    }
                }
                Said::Wrong {
                    number,
                    refusal,
                    close,
                } => {
                    left -= 1;
                    self.refuse(client, number, refusal, close);
                    if close {
                        return left;
                    }
                }
            }
        }
        left
    }

    /// Where `close`, that is the end of the connection.
    pub(in crate::keeper) fn refuse(
        &mut self,
        client: ClientId,
        number: u32,
        why: Refusal,
        close: bool,
    ) {
        self.reply(client, number, why.into(), Vec::new(), close);
    }

    fn reply(
        &mut self,
        client: ClientId,
        number: u32,
        body: Reply,
        beside: Vec<Rc<OwnedFd>>,
        close: bool,
    ) {
        let bytes = postcard::to_allocvec(&Packet { number, body }).unwrap_or_default();
        self.outgoing.push(Outgoing {
            client,
            bytes,
            beside,
            close,
        });
    }

    /// A connection is gone, and its leases with it, unless its process comes back,
    /// and but for what was opened by handle: the kernel closes the sockets of a
    /// process that dies before its devices, so that work of it may still run. That
    /// is over when the process is, which its watch tells.
    pub(in crate::keeper) fn hang_up(&mut self, client: ClientId) {
        self.awake.forget(client);
        let connection = self.end_connection(client);
        let comes_back = connection.as_ref().is_some_and(|it| it.comes_back);
        let watch = connection.and_then(|connection| connection.watch);
        let stays = match comes_back {
            true => self.entries.expect(client),
            false => watch.is_some() && self.entries.has_opened(client),
        };
        if stays {
            // Else what it has taken up over the next connection would count twice.
            let has_time = watch.is_none() || (comes_back && self.entries.may_be_back(client));
            let until = has_time.then(|| Instant::now() + GRACE);
            let ghost = Ghost { watch, until };
            self.ghosts.insert(client, ghost);
        }
        if !(stays && comes_back) {
            self.leave(client);
        }
    }

    /// Forgets a connection; its leases are the caller's to end.
    pub(in crate::keeper) fn end_connection(&mut self, client: ClientId) -> Option<Connection> {
        // Closing its descriptors takes them out of epoll, but for a watch that
        // somebody else has too: there is none.
        let connection = self.connections.remove(&client)?;
        take_leave(&connection.socket, &mut self.room, &self.strays);
        self.give_up_late(client);
        if self.unread.ends(client) {
            let _ = epoll::delete(&self.epoll, &connection.socket);
        }
        Some(connection)
    }

    /// How far a connection is.
    pub(in crate::keeper) fn set_stage(&mut self, client: ClientId, stage: Stage) {
        let Some(connection) = self.connections.get_mut(&client) else {
            return;
        };
        connection.stage = stage;
        if connection.watch.is_none()
            && let Ok(process) = self.entries.process(client)
        {
            let watch = Watch::of(&connection.socket, &connection.peer, &process);
            if let Some(watch) = &watch {
                let _ = self.mind(client, watch);
            }
            if let Some(connection) = self.connections.get_mut(&client) {
                connection.watch = watch;
            }
        }
    }
}

/// Before a connection is closed: what it has sent meanwhile is taken away. A socket that
/// is closed with something unread shows the other side an error in the place of the
/// answer, and what is beside that is closed with it, however long that takes.
fn take_leave(socket: &OwnedFd, room: &mut [u8], strays: &Strays) {
    // Nothing more comes; what is there is less than a socket's buffer.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    let mut beside = Vec::new();
    while let Ok(_) | Err(Broken::Garbled | Broken::NoRoom) =
        wire::receive(socket, room, true, &mut beside)
    {}
    strays.close(beside);
}
