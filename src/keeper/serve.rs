//! The loop. A turn hears every connection that has something to say, for a
//! bounded time each; writes the journal; then lets the answers go. Nothing in
//! it waits for a client: who does not read its answers is dropped.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tracing::{error, info, warn};

use super::Refusal;
use super::access::Access;
use super::client::{COURTESY, Connection, Said, Stage, weight};
use super::descriptors::{Descriptors, Key, most_clients};
use super::entries::{ClientId, Entries};
use super::journal::Journal;
use super::launch::Role;
use super::listen::{self, Door};
use super::pages::Epoch;
use super::process::{self, Peer};
use super::registry::Desk;
use super::standby::{Standby, Vault};
use super::start::Options;
use crate::share::protocol::{Code, Packet, Reply};
use crate::share::wire::{self, Broken};

/// What a connection may have answered in a turn, by [`weight`].
const SHARE: u32 = 16;
/// Connections that are accepted in a turn.
const MOST_ACCEPTED: usize = 64;
/// How long a process that came back may take to say all that it holds, and one
/// that cannot be seen to come back.
const GRACE: Duration = Duration::from_secs(5);

/// How the keeper ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// For good.
    Stop,
    /// To be started again, with everything.
    Restart,
    /// By a signal; systemd may start it again with everything.
    Signal,
}

/// What epoll tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Listener,
    Signal,
    Standby,
    Desk,
    Client(ClientId),
    Watch(ClientId),
}

impl Token {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Listener => 0,
            Self::Signal => 1,
            Self::Standby => 2,
            Self::Desk => 3,
            Self::Client(id) => id << 1 | 1 << 63,
            Self::Watch(id) => id << 1 | 1 << 63 | 1,
        })
    }

    fn of(data: EventData) -> Self {
        match data.u64() {
            0 => Self::Listener,
            1 => Self::Signal,
            2 => Self::Standby,
            3 => Self::Desk,
            n if n & 1 == 0 => Self::Client(n << 1 >> 2),
            n => Self::Watch(n << 1 >> 2),
        }
    }
}

/// A client of before the keeper was started anew.
pub(super) struct Ghost {
    /// Of its process; epoll has it while it is here.
    pub _watch: Option<OwnedFd>,
    /// When its leases end, if it has to come back.
    pub until: Option<Instant>,
}

/// All of it.
pub struct Keeper {
    pub(super) options: Options,
    pub(super) access: Access,
    pub(super) entries: Entries,
    pub(super) descriptors: Descriptors,
    pub(super) epoch: Epoch,
    pub(super) journal: Journal,
    pub(super) connections: HashMap<ClientId, Connection>,
    pub(super) ghosts: HashMap<ClientId, Ghost>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) desk: Option<Desk>,
    /// Answers to the registry, once the journal is written.
    pub(super) told: Vec<Box<dyn FnOnce()>>,
    pub(super) end: Option<End>,
    pub(super) node: u64,
    pub(super) restarts: u32,
    pub(super) started: Instant,
    pub(super) next_client: ClientId,
    door: Door,
    epoll: OwnedFd,
    signals: SignalFd,
    /// Who has not introduced itself yet, the oldest first.
    new: VecDeque<(Instant, ClientId)>,
    idle_since: Option<Instant>,
    standby_again: Option<Instant>,
    room: Box<[u8]>,
}

/// A packet to a client, once the journal is written.
pub(super) struct Outgoing {
    pub client: ClientId,
    pub bytes: Vec<u8>,
    pub beside: Vec<Rc<OwnedFd>>,
    pub close: bool,
}

impl Keeper {
    /// With all that it has; serves nobody yet.
    pub fn new(
        mut options: Options,
        door: Door,
        access: Access,
        entries: Entries,
        descriptors: Descriptors,
    ) -> Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let epoch = descriptors
            .get(Key::Epoch)
            .context("no epoch page")?
            .clone();
        Ok(Self {
            access,
            entries,
            descriptors,
            epoch: Epoch::of(epoch).context("the epoch page cannot be used")?,
            journal: Journal::create().context("cannot make a journal")?,
            connections: HashMap::new(),
            ghosts: HashMap::new(),
            outgoing: Vec::new(),
            desk: options.desk.take(),
            told: Vec::new(),
            options,
            end: None,
            node: process::node().context("cannot read the boot's number")?,
            restarts: 0,
            started: Instant::now(),
            next_client: 1,
            door,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            signals: SignalFd::with_flags(&signals, flags).context("no signals")?,
            new: VecDeque::new(),
            idle_since: None,
            standby_again: None,
            room: vec![0; wire::MOST_BYTES].into_boxed_slice(),
        })
    }

    /// Goes on where a predecessor ended, or begins.
    pub fn begin(&mut self, restarts: u32, next_client: ClientId) -> Result<()> {
        (self.restarts, self.next_client) = (restarts, next_client);
        self.entries.set_time(now_us());
        self.renew_journal().context("cannot write the journal")?;
        self.listen()?;
        self.watch(&self.signals, Token::Signal)?;
        if let Some(desk) = &self.desk {
            self.watch(desk, Token::Desk)?;
            // Whatever was published before may not be so any more.
            desk.mark(self.entries.names().cloned());
        }
        let ghosts: Vec<_> = self
            .entries
            .earlier()
            .map(|(id, p)| (id, p.clone()))
            .collect();
        for (client, process) in ghosts {
            match process::watch_known(&process) {
                Some(watch) => {
                    self.watch(&watch, Token::Watch(client))?;
                    let ghost = Ghost {
                        _watch: Some(watch),
                        until: None,
                    };
                    self.ghosts.insert(client, ghost);
                }
                // It can be seen, and is not there.
                None if process.started != 0 => self.entries.leave(client),
                None => {
                    let until = Some(Instant::now() + GRACE);
                    let ghost = Ghost {
                        _watch: None,
                        until,
                    };
                    self.ghosts.insert(client, ghost);
                }
            }
        }
        match &self.descriptors.vault {
            Vault::None => self.start_standby(),
            Vault::Standby(standby) => self.watch(&standby.socket, Token::Standby)?,
            Vault::Systemd(_) => {}
        }
        self.finish_turn();
        Ok(())
    }

    /// Turns, until the end.
    pub fn serve(mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            while self.end.is_none() {
                let timeout = self.timeout().map(|t| t.try_into().unwrap_or_default());
                match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => bail!("cannot wait for clients: {error}"),
                }
                self.entries.set_time(now_us());
                for event in events.drain(..) {
                    self.hear(Token::of(event.data));
                }
                self.look_at_clock();
                self.finish_turn();
            }
            match self.end.take() {
                Some(End::Restart) => self.restart(),
                Some(end) => return self.stop(end),
                None => {}
            }
        }
    }

    fn hear(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Signal => self.hear_signal(),
            Token::Standby => {
                warn!("the standby is gone; starting another");
                self.start_standby();
            }
            Token::Desk => self.answer_desk(),
            Token::Client(client) => self.hear_client(client),
            Token::Watch(client) => {
                self.ghosts.remove(&client);
                self.drop_client(client);
                self.entries.leave(client);
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..MOST_ACCEPTED {
            let Some(listener) = self.descriptors.get(Key::Listener) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&**listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => return warn!("cannot accept a client: {error}"),
            };
            let most = most_clients(self.descriptors.limit);
            if self.connections.len() >= most {
                let message = format!("the keeper has {most} clients, which is its most");
                let reply = Refusal::new(Code::Unavailable, message).into();
                let packet: Packet<Reply> = Packet {
                    number: 1,
                    body: reply,
                };
                let _ = wire::send(&socket, &packet, &[]);
                continue;
            }
            let Ok(peer) = Peer::of(&socket) else {
                continue;
            };
            let client = self.next_client;
            if self.watch(&socket, Token::Client(client)).is_ok() {
                self.next_client += 1;
                self.new.push_back((Instant::now(), client));
                self.connections
                    .insert(client, Connection::new(socket, peer));
            }
        }
    }

    /// One connection's share of a turn. What is left is told of again.
    fn hear_client(&mut self, client: ClientId) {
        let mut left = SHARE;
        while left > 0 {
            let Some(connection) = self.connections.get_mut(&client) else {
                return;
            };
            let received = wire::receive_bytes(&connection.socket, &mut self.room, true);
            let (bytes, descriptors) = match received {
                Ok(received) => received,
                Err(Broken::Later) => return,
                Err(Broken::Garbled) => {
                    let message = format!(
                        "a packet of more than {} bytes or {} descriptors",
                        wire::MOST_BYTES,
                        crate::share::protocol::MOST_PARTS
                    );
                    self.reply(
                        client,
                        1,
                        Refusal::invalid(message).into(),
                        Vec::new(),
                        true,
                    );
                    return;
                }
                Err(Broken::Closed | Broken::System(_)) => {
                    self.drop_client(client);
                    self.entries.leave(client);
                    return;
                }
            };
            let peer = connection.peer;
            match connection.understand(bytes) {
                Said::Nothing => left -= 1,
                Said::Request(number, request) => {
                    left = left.saturating_sub(weight(&request));
                    let first = connection.stage == Stage::Introduce;
                    match self.answer(client, peer, request, descriptors) {
                        Ok(answer) => {
                            self.reply(client, number, answer.reply, answer.beside, false)
                        }
                        Err(refusal) => {
                            self.reply(client, number, refusal.into(), Vec::new(), first);
                        }
                    }
                }
                Said::Wrong {
                    number,
                    refusal,
                    close,
                } => {
                    left -= 1;
                    self.reply(client, number, refusal.into(), Vec::new(), close);
                    if close {
                        return;
                    }
                }
            }
        }
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

    /// Forgets a connection; its leases are the caller's to end.
    pub(super) fn drop_client(&mut self, client: ClientId) {
        // Closing its descriptors takes them out of epoll, but for a watch that
        // somebody else has too: there is none.
        self.connections.remove(&client);
    }

    /// How far a connection is.
    pub(super) fn set_stage(&mut self, client: ClientId, stage: Stage) {
        let Some(connection) = self.connections.get_mut(&client) else {
            return;
        };
        connection.stage = stage;
        if connection.watch.is_none() {
            let watch = process::watch(&connection.socket, &connection.peer);
            if let Some(watch) = &watch {
                let _ = epoll::add(
                    &self.epoll,
                    watch,
                    Token::Watch(client).data(),
                    EventFlags::IN,
                );
            }
            connection.watch = watch;
        }
    }

    /// A process has come back: what it held through other connections, and does
    /// not take up again soon, it holds no longer.
    pub(super) fn is_back(&mut self, client: ClientId) {
        let until = Instant::now() + GRACE;
        for earlier in self.entries.earlier_of(client) {
            if let Some(ghost) = self.ghosts.get_mut(&earlier) {
                ghost.until = Some(ghost.until.map_or(until, |before| before.min(until)));
            }
        }
    }

    fn hear_signal(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo != Signal::SIGHUP as u32 {
                self.end = Some(End::Signal);
                return;
            }
            let owner = rustix::process::geteuid().as_raw();
            match Access::load(owner, self.options.rules.as_deref()) {
                Ok(mut access) => {
                    for item in self.entries.items() {
                        if let Some(name) = &item.name {
                            access.charge(item.maker.uid, item.maker.gid, name, item.mapped);
                        }
                    }
                    self.access = access;
                    info!("the rules were read again");
                }
                Err(error) => error!("the rules stay as they were: {error}"),
            }
        }
    }

    fn listen(&self) -> Result<()> {
        let listener = self.descriptors.get(Key::Listener).context("no socket")?;
        self.watch(&**listener, Token::Listener)
    }

    pub(super) fn watch(&self, what: impl AsFd, token: Token) -> Result<()> {
        epoll::add(&self.epoll, what, token.data(), EventFlags::IN).context("cannot watch")
    }

    fn start_standby(&mut self) {
        let former = std::mem::replace(&mut self.descriptors.vault, Vault::None);
        if let Vault::Standby(former) = former {
            former.dismiss();
        }
        match Standby::start(&self.options.launch) {
            Ok(standby) => {
                let _ = self.watch(&standby.socket, Token::Standby);
                self.descriptors.vault = Vault::Standby(standby);
                self.descriptors.refill();
            }
            Err(error) => {
                error!("cannot start a standby: {error}; trying again");
                self.standby_again = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    /// Its standby's process; 0 where there is none.
    pub(super) fn standby_pid(&self) -> u32 {
        match &self.descriptors.vault {
            Vault::Standby(standby) => standby.pid,
            Vault::None | Vault::Systemd(_) => 0,
        }
    }

    /// How long the next turn may be away.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let new = self.new.front().map(|(since, _)| *since + COURTESY);
        let ghosts = self.ghosts.values().filter_map(|ghost| ghost.until).min();
        let idle = self.idle_since.zip(self.options.idle);
        let idle = idle.map(|(since, most)| since + most);
        let clocks = [new, ghosts, idle, self.standby_again];
        let next = clocks.into_iter().flatten().min();
        let expiry = self.entries.next_expiry_s().map(|second| {
            Duration::from_micros((second.saturating_mul(1_000_000)).saturating_sub(now_us()))
        });
        // Rounded up: a turn too early would be one for nothing.
        let next = next.map(|next| next.saturating_duration_since(now));
        let soonest = [next, expiry].into_iter().flatten().min()?;
        Some(soonest.min(Duration::from_secs(3600)) + Duration::from_millis(1))
    }

    fn look_at_clock(&mut self) {
        let now = Instant::now();
        self.entries.expire();
        while let Some(&(since, client)) = self.new.front()
            && now >= since + COURTESY
        {
            self.new.pop_front();
            let connection = self.connections.get(&client);
            if connection.is_some_and(|connection| connection.stage != Stage::Ready) {
                let message = "5 seconds without an introduction".to_owned();
                self.reply(
                    client,
                    1,
                    Refusal::invalid(message).into(),
                    Vec::new(),
                    true,
                );
            }
        }
        let over = |ghost: &Ghost| ghost.until.is_some_and(|until| until <= now);
        let over: Vec<_> = self
            .ghosts
            .iter()
            .filter(|(_, ghost)| over(ghost))
            .collect();
        let over: Vec<_> = over.into_iter().map(|(&client, _)| client).collect();
        for client in over {
            self.ghosts.remove(&client);
            self.entries.leave(client);
        }
        if self.standby_again.is_some_and(|at| at <= now) {
            self.standby_again = None;
            self.start_standby();
        }
        let busy = !(self.entries.is_empty() && self.connections.is_empty());
        self.idle_since = match self.idle_since {
            _ if busy => None,
            None => Some(now),
            since => since,
        };
        if let Some((since, most)) = self.idle_since.zip(self.options.idle)
            && now >= since + most
        {
            self.end_idle();
        }
    }

    /// Ends for want of work, unless somebody comes at this very moment.
    fn end_idle(&mut self) {
        let _ = std::fs::remove_file(&self.options.socket);
        self.accept();
        if self.connections.is_empty() {
            info!("nobody needs the keeper: it ends");
            self.end = Some(End::Stop);
            return;
        }
        match listen::bind_to(&self.options.socket, self.door) {
            Ok(listener) => {
                self.descriptors.drop_all(&[Key::Listener]);
                self.descriptors.keep(vec![(Key::Listener, listener)]);
                if let Err(error) = self.listen() {
                    error!("{error:#}");
                }
            }
            Err(error) => error!("{error:#}"),
        }
    }

    fn stop(mut self, end: End) -> Result<()> {
        let count = self.entries.items().count();
        if count > 0 {
            warn!("the keeper ends, and {count} names and exports with it");
        }
        if !(end == End::Signal && matches!(self.descriptors.vault, Vault::Systemd(_))) {
            let _ = std::fs::remove_file(&self.options.socket);
            let all: Vec<_> = self.descriptors.keys().collect();
            self.descriptors.vault.end(&all);
            if let Some(desk) = self.desk.take() {
                desk.close();
            }
        }
        Ok(())
    }

    /// Becomes the program that is there now; returns where that failed.
    fn restart(&mut self) {
        let socket = match &self.descriptors.vault {
            Vault::Standby(standby) => standby.socket.try_clone(),
            // The service manager starts it again.
            Vault::Systemd(_) => std::process::exit(0),
            Vault::None => return error!("not started anew: there is no standby"),
        };
        let error = match socket {
            Ok(socket) => self.options.launch.become_it(Role::Successor, socket),
            Err(error) => error,
        };
        error!("cannot be started anew: {error}");
    }
}

/// Microseconds of the Unix epoch.
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}
