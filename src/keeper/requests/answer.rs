//! Every request, with the rights of who asks: each is checked against the
//! peer's credentials, and what the peer has no right to know of is answered as
//! what is not there.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::keeper::Refusal;
use crate::keeper::clients::client::{Connection, Stage};
use crate::keeper::clients::process::Peer;
use crate::keeper::entries::{ClientId, Item, Wish};
use crate::keeper::pages;
use crate::keeper::requests::rules::Rights;
use crate::keeper::state::{End, Keeper};
use crate::keeper::succession::key::Key;
use crate::names::Name;
use crate::share::protocol::{
    Code, Entry, Generation, Lease, MOST_ENTRIES, MOST_LEASES, Persist, Place, Reply, Request,
    State, Status,
};
use crate::units::show_bytes;

/// What goes back.
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// Descriptors beside it.
    pub beside: Vec<Rc<OwnedFd>>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        let beside = Vec::new();
        Self { reply, beside }
    }
}

/// An answer, or why there is none.
pub type Answered = Result<Answer, Refusal>;
const DONE: Result<Reply, Refusal> = Ok(Reply::Done);

impl Keeper {
    /// Answers a request of a connection.
    pub(in crate::keeper) fn answer(
        &mut self,
        client: ClientId,
        peer: Peer,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Answered {
        let reply = match request {
            Request::Introduce {
                pid,
                command,
                leases,
                more,
            } => return self.introduce(client, peer, (pid, &command), &leases, more),
            Request::Leases { leases, more } => {
                Ok(Reply::Lost(self.take_up(client, peer, &leases, more)))
            }
            Request::Open {
                name,
                mode,
                spec,
                write,
                hidden,
            } => {
                let wish = Wish {
                    name,
                    mode,
                    spec,
                    write,
                    hidden,
                };
                return self.open(client, peer, wish);
            }
            Request::Commit {
                generation,
                mapped,
                legacy,
            } => self.commit(client, peer, generation, mapped, legacy, descriptors),
            Request::Abort { generation } => {
                self.entries.abort(client, generation)?;
                DONE
            }
            Request::Seal { generation } => self.seal(client, peer, generation),
            Request::Release { generation } => {
                self.entries.release(client, generation);
                DONE
            }
            Request::Persist { name, persist } => {
                self.may_persist(peer, &name, persist)?;
                self.entries.persist(&name, persist)?;
                DONE
            }
            Request::Delete { name, generation } => {
                self.allowed(peer, &name, "delete", |rights| rights.delete)?;
                self.entries.delete(&name, generation)?;
                DONE
            }
            Request::Show { name } => self.show(peer, &name),
            Request::List { after, all } => Ok(self.list(peer, after.as_ref(), all)),
            Request::Timeline { generation } => return self.timeline(client, peer, generation),
            Request::Export {
                generation,
                spec,
                offset,
                parts,
                total,
            } => {
                let new = self.arrived(&peer, generation, 0, &parts, descriptors)?;
                self.entries
                    .export(client, generation, spec, offset, parts, total)?;
                self.keep_new(new);
                DONE
            }
            Request::ExportMore { generation, parts } => {
                let item = self.entries.held(client, generation)?;
                let before = item.parts.len();
                let new = self.arrived(&peer, generation, before, &parts, descriptors)?;
                self.entries.export_more(client, generation, parts)?;
                self.keep_new(new);
                DONE
            }
            Request::Import { generation } => return self.import(client, peer, generation),
            Request::Parts { generation, from } => {
                let item = self.entries.held(client, generation)?;
                let (parts, beside) = self.parts(item, from as usize)?;
                let reply = Reply::Parts(parts);
                return Ok(Answer { reply, beside });
            }
            Request::Withdraw { generation } => {
                self.entries.adopt(client, generation);
                Ok(self.entries.withdraw(client, generation).into())
            }
            Request::GiveUp { parts } => {
                for (generation, part) in parts.into_iter().take(MOST_LEASES) {
                    self.entries.adopt(client, generation);
                    self.entries.give_up(client, generation, part);
                }
                DONE
            }
            Request::ComeBack => {
                if let Some(connection) = self.connections.get_mut(&client) {
                    connection.comes_back = true;
                }
                DONE
            }
            Request::Status => {
                self.own(peer)?;
                Ok(Reply::Status(self.status()))
            }
            Request::Collect { dry, kept } => {
                self.own(peer)?;
                let (count, bytes) = self.entries.collect(dry, kept);
                Ok(Reply::Collected { count, bytes })
            }
            Request::Stop { force } => self.end_by_request(peer, force),
            Request::Restart => {
                self.own(peer)?;
                self.end = Some(End::Restart);
                DONE
            }
        };
        reply.map(Answer::from)
    }

    fn seal(
        &mut self,
        client: ClientId,
        peer: Peer,
        generation: Generation,
    ) -> Result<Reply, Refusal> {
        let item = self.entries.held(client, generation)?;
        let may_write = |name| self.access.rights(&peer, name).write;
        let made = item.made_by == Some(client);
        if !made && !item.name.as_ref().is_some_and(may_write) {
            return Err(denied("seal", generation));
        }
        self.entries.seal(client, generation)?;
        DONE
    }

    fn show(&self, peer: Peer, name: &Name) -> Result<Reply, Refusal> {
        self.allowed(peer, name, "open", |rights| rights.open)?;
        let item = self.entries.find(name);
        let item = item.ok_or_else(|| Refusal::not_found(name))?;
        let entries = vec![self.entry(item)];
        let next = None;
        Ok(Reply::Entries { entries, next })
    }

    fn list(&self, peer: Peer, after: Option<&Place>, all: bool) -> Reply {
        let shown = |item: &Item| self.may_see(peer, item);
        let (page, next) = self.entries.list(after, all, MOST_ENTRIES, shown);
        let entries = page.into_iter().map(|item| self.entry(item)).collect();
        Reply::Entries { entries, next }
    }

    fn import(&mut self, client: ClientId, peer: Peer, generation: Generation) -> Answered {
        let item = self.entries.item(generation);
        let Some(item) = item.filter(|item| self.may_see(peer, item)) else {
            return Err(Refusal::not_found(generation));
        };
        // Who opens a handle writes to its memory, but where that is sealed.
        let to_write = item.name.as_ref().filter(|_| item.state != State::Sealed);
        if to_write.is_some_and(|name| !self.access.rights(&peer, name).write) {
            return Err(denied("write", generation));
        }
        self.room_for_leases(&peer, 1)?;
        self.entries.import(client, generation)?;
        self.memory(generation)
    }

    fn end_by_request(&mut self, peer: Peer, force: bool) -> Result<Reply, Refusal> {
        self.own(peer)?;
        let totals = self.entries.totals();
        let held = totals.names + totals.dying + totals.exports;
        if held > 0 && !force {
            let message = format!(
                "the keeper has memory in its keeping (names: {}, exports: {}, {}); --force stops it with them",
                totals.names + totals.dying,
                totals.exports,
                show_bytes(totals.bytes)
            );
            return Err(Refusal::new(Code::Denied, message));
        }
        self.end = Some(End::Stop);
        DONE
    }

    fn introduce(
        &mut self,
        client: ClientId,
        peer: Peer,
        (pid, command): (u32, &str),
        leases: &[Lease],
        more: bool,
    ) -> Answered {
        if !self.access.serves(&peer) {
            let message = format!("user {} is not served here", peer.uid);
            return Err(Refusal::new(Code::Denied, message));
        }
        // Who waited no longer comes back over another connection. What this one took up
        // would end with it.
        if self
            .connections
            .get(&client)
            .is_some_and(Connection::is_left)
        {
            let message = "the client has hung up".to_owned();
            return Err(Refusal::new(Code::Unavailable, message));
        }
        self.entries.join(client, peer.process(pid, command));
        let reply = Reply::Welcome {
            node: self.node,
            lost: self.take_up(client, peer, leases, more),
        };
        let beside = vec![self.epoch.for_clients()];
        Ok(Answer { reply, beside })
    }

    /// Leases from before the keeper was gone; those that cannot be had again.
    fn take_up(
        &mut self,
        client: ClientId,
        peer: Peer,
        leases: &[Lease],
        more: bool,
    ) -> Vec<Generation> {
        let mut lost = Vec::new();
        let earlier = self.entries.earlier_of(client);
        // What goes from one connection to the next takes no room.
        let has_room = self.room_for_leases(&peer, 0).is_ok();
        for &lease in leases.iter().take(MOST_LEASES) {
            let item = self.entries.item(lease.generation);
            let seen = item.is_some_and(|item| self.may_see(peer, item));
            if !seen || !has_room || !self.entries.resume(client, lease, &earlier) {
                lost.push(lease.generation);
            }
        }
        let next = if more { Stage::Leases } else { Stage::Ready };
        self.set_stage(client, next);
        if !more {
            self.entries.adopt_exports(client);
            self.is_back(client);
        }
        lost
    }

    /// An entry, with its version.
    pub(in crate::keeper) fn entry(&self, item: &Item) -> Entry {
        let page = self.descriptors.get(Key::Timeline(item.generation));
        Entry {
            version: page.map_or(0, pages::word),
            ..self.entries.entry(item)
        }
    }

    /// A name by its rights; an export is its maker's user's.
    fn may_see(&self, peer: Peer, item: &Item) -> bool {
        match &item.name {
            Some(name) => self.access.rights(&peer, name).open,
            None => item.maker.uid == peer.uid || self.access.is_own(peer.uid),
        }
    }

    /// Has the peer a right on a name? Its own it may always delete and persist.
    fn allowed(
        &self,
        peer: Peer,
        name: &Name,
        what: &str,
        right: impl Fn(Rights) -> bool,
    ) -> Result<(), Refusal> {
        let rights = self.access.rights(&peer, name);
        let made = self.entries.find(name);
        let made = made.is_some_and(|item| item.maker.uid == peer.uid);
        match () {
            // Also where the rules give it no right any more.
            () if made || right(rights) => Ok(()),
            () if !rights.any() => Err(Refusal::not_found(name)),
            () => Err(denied(what, name)),
        }
    }

    /// To let a name go sooner than it would is to take it away from others.
    fn may_persist(&self, peer: Peer, name: &Name, persist: Persist) -> Result<(), Refusal> {
        let there = self.entries.find(name);
        match there.is_some_and(|item| persist.is_shorter_than(item.persist)) {
            true => self.allowed(peer, name, "shorten the life of", |rights| rights.delete),
            false => self.allowed(peer, name, "persist", |rights| rights.create),
        }
    }

    /// Is it the keeper's own user?
    fn own(&self, peer: Peer) -> Result<(), Refusal> {
        match self.access.is_own(peer.uid) {
            true => Ok(()),
            false => Err(Refusal::new(
                Code::Denied,
                "that is for the keeper's own user".to_owned(),
            )),
        }
    }

    fn status(&self) -> Status {
        let totals = self.entries.totals();
        Status {
            pid: std::process::id(),
            standby: self.standby_pid(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            socket: self.options.socket.display().to_string(),
            up_s: self.started.elapsed().as_secs(),
            restarts: self.restarts,
            names: totals.names,
            dying: totals.dying,
            exports: totals.exports,
            clients: self.connections.len() as u64,
            references: totals.references,
            bytes: totals.bytes,
            unheld_bytes: totals.unheld_bytes,
            redis: self
                .desk
                .as_ref()
                .map_or_else(String::new, |desk| desk.state()),
        }
    }
}

/// The refusal of something to who may know of it.
pub fn denied(what: &str, name: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::Denied, format!("you may not {what} {name}"))
}
