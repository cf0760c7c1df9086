//! The end of a turn: what changed is journalled, what is gone is let go, then
//! the answers leave, and the registry is told. In this order, so that nobody
//! knows of anything that a successor would not.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::{error, info};

use super::clients::client::Stage;
use super::clients::unread::Whose;
use super::entries::{Effect, Item};
use super::registry::Ask;
use super::state::{Keeper, Outgoing};
use super::succession::journal::{Journal, Record};
use super::succession::key::Key;
use crate::names::Name;
use crate::share::protocol::{Event, Packet};
use crate::share::wire;

/// How long files in memory may take to close before others are answered.
const A_MOMENT: Duration = Duration::from_millis(10);

impl Keeper {
    /// Ends a turn.
    pub(super) fn finish_turn(&mut self) {
        // Who is dropped for not reading changes more.
        loop {
            let effects = self.entries.take_effects();
            if effects.is_empty() && self.outgoing.is_empty() && self.told.is_empty() {
                return self.look_at_standby();
            }
            self.settle(effects);
            self.told.drain(..).for_each(|tell| tell());
            self.send_all();
        }
    }

    /// One that lacks something is given all again, a little later; so is a journal written.
    fn look_at_standby(&mut self) {
        if self.standby_again.is_none() && self.lacks() {
            self.standby_again = Some(Instant::now() + Duration::from_secs(1));
        }
    }

    /// Is there something that a successor would not have?
    pub(super) fn lacks(&self) -> bool {
        self.unwritten || self.descriptors.vault.lacks()
    }

    /// Gives it all, and a journal that it may not have got.
    pub(super) fn complete_vault(&mut self) {
        self.descriptors.refill();
        let was_said = self.unwritten;
        if !self.descriptors.vault.lacks()
            && let Err(error) = self.renew_journal()
            && !was_said
        {
            error!("the journal cannot be made anew ({error})");
        }
    }

    fn settle(&mut self, effects: Vec<Effect>) {
        let mut gone = Vec::new();
        let mut given_up = Vec::new();
        let mut changed = BTreeSet::new();
        for effect in effects {
            self.mark(&effect, &mut changed);
            match effect {
                Effect::Changed(generation) => {
                    if let Some(item) = self.entries.item(generation) {
                        self.journal.add(&Record::Item(Box::new(item.clone())));
                    }
                }
                Effect::GaveUp(generation, part) => {
                    self.journal.add(&Record::GaveUp(generation, part));
                    given_up.push(Key::Part(generation, part));
                }
                Effect::Gone(item) => {
                    self.journal.add(&Record::Gone(item.generation));
                    gone.push(item);
                }
                Effect::Hidden(_) | Effect::Sealed => self.epoch.grow(),
                Effect::Joined(client) => {
                    if let Ok(process) = self.entries.process(client) {
                        self.journal.add(&Record::Joined(client, process));
                    }
                }
                Effect::Left(client) => self.journal.add(&Record::Left(client)),
                Effect::Held(client, generation, count) => {
                    self.journal.add(&Record::Held(client, generation, count));
                }
                Effect::LetGo(client, generation) => {
                    let body = Event::LetGo(generation);
                    let bytes = postcard::to_allocvec(&Packet { number: 0, body });
                    self.outgoing.push(Outgoing {
                        client,
                        bytes: bytes.unwrap_or_default(),
                        beside: Vec::new(),
                        close: false,
                    });
                }
            }
        }
        // One that is made anew may be shorter than a file may be.
        if let Err(error) = self.journal.write()
            && self.renew_journal().is_err()
            && !std::mem::replace(&mut self.unwritten, true)
        {
            error!("the journal cannot be written ({error}); a restart now would lose what is new");
        }
        let mut let_go = self.descriptors.drop_all(&given_up);
        for item in &gone {
            let_go.extend(self.let_go(item));
        }
        self.close(let_go);
        self.strays.settle(A_MOMENT);
        if !given_up.is_empty() || gone.iter().any(|item| !item.parts.is_empty()) {
            // Who is told that it is done may ask the device for the same bytes.
            self.descriptors.vault.settle();
        }
        if let Some(desk) = &self.desk {
            desk.mark(changed);
        }
        if self.journal.is_long()
            && !self.descriptors.vault.lacks()
            && let Err(error) = self.renew_journal()
        {
            error!("the journal cannot be made anew ({error})");
        }
    }

    /// Closes those of them that nobody has any more.
    pub(super) fn close(&self, all: Vec<Rc<OwnedFd>>) {
        let last = all.into_iter().filter_map(Rc::into_inner);
        self.strays.let_go(last.collect());
    }

    fn let_go(&mut self, item: &Item) -> Vec<Rc<OwnedFd>> {
        if let Some(name) = &item.name {
            let maker = &item.maker;
            self.access
                .discharge(maker.uid, maker.gid, name, item.mapped);
        }
        self.descriptors.forget(item.generation)
    }

    /// Notes the names that a registry is to hear of.
    fn mark(&self, effect: &Effect, changed: &mut BTreeSet<Name>) {
        if self.desk.is_none() {
            return;
        }
        let name = match effect {
            Effect::Changed(generation) | Effect::Held(_, generation, _) => self
                .entries
                .item(*generation)
                .and_then(|item| item.name.clone()),
            Effect::Gone(item) => item.name.clone(),
            Effect::Hidden(name) => Some(name.clone()),
            Effect::GaveUp(..)
            | Effect::Sealed
            | Effect::Joined(_)
            | Effect::Left(_)
            | Effect::LetGo(..) => None,
        };
        changed.extend(name);
    }

    fn send_all(&mut self) {
        let mut over = Vec::new();
        for packet in std::mem::take(&mut self.outgoing) {
            let client = packet.client;
            let Some(connection) = self.connections.get_mut(&client) else {
                over.extend(packet.beside);
                continue;
            };
            let (uid, count) = (connection.peer.uid, packet.beside.len());
            let whose = match self.access.is_own(uid) {
                true => Whose::Own(uid),
                false => Whose::Others(uid),
            };
            let most = whose.most(self.open_files);
            let has_room = count == 0 || self.unread.has_room(client, whose, count, most);
            if !has_room || self.late.has(client) {
                self.postpone(packet);
                continue;
            }
            let beside: Vec<_> = packet.beside.iter().map(|it| it.as_fd()).collect();
            let sent = wire::send_bytes(&connection.socket, &packet.bytes, &beside);
            if sent.is_ok() && count > 0 {
                self.unread.sent(client, whose, &connection.socket, count);
            }
            if let Err(error) = &sent {
                // It lives, and finds that out: until then its leases are its own.
                connection.comes_back |= connection.stage == Stage::Ready
                    && connection.watch.is_some()
                    && self.entries.has_any(client);
                info!(
                    "process {} does not read its answers ({error:?})",
                    connection.peer.pid
                );
            }
            if packet.close || sent.is_err() {
                self.hang_up(client);
            }
            over.extend(packet.beside);
        }
        self.close(over);
    }

    /// Writes all that is known into a new journal, and puts it in the place of
    /// the old ones.
    pub(super) fn renew_journal(&mut self) -> std::io::Result<()> {
        let mut journal = Journal::create()?;
        journal.begin(self.restarts, self.next_client);
        for item in self.entries.items() {
            journal.add(&Record::Item(Box::new(item.clone())));
        }
        for (client, process, leases) in self.entries.known() {
            journal.add(&Record::Joined(client, process.clone()));
            for (&generation, &count) in leases {
                journal.add(&Record::Held(client, generation, count));
            }
        }
        journal.write()?;
        journal.renewed();
        let old: Vec<Key> = self
            .descriptors
            .keys()
            .filter(|key| matches!(key, Key::State(_)))
            .collect();
        let number = old.iter().map(|key| match key {
            Key::State(number) => number + 1,
            _ => 0,
        });
        let number = number.max().unwrap_or(0);
        let key = Key::State(number);
        self.descriptors.keep(vec![(key, journal.descriptor()?)]);
        if self.descriptors.vault.lacks() {
            // A successor goes on by the one that the standby has.
            self.descriptors.drop_all(&[key]);
            let why = "too many descriptors are on their way";
            return Err(std::io::Error::other(why));
        }
        self.descriptors.drop_all(&old);
        self.journal = journal;
        if std::mem::take(&mut self.unwritten) {
            info!("the journal is written again");
        }
        Ok(())
    }

    /// Answers what the registry asks; like a client it hears it once the journal
    /// is written.
    pub(super) fn answer_desk(&mut self) {
        let Some(desk) = &self.desk else {
            return;
        };
        desk.calm();
        while let Some(ask) = self.desk.as_ref().and_then(|desk| desk.next()) {
            // Who does not wait any more does not need the answer.
            match ask {
                Ask::Entries(names, sender) => {
                    let entry = |name: Name| {
                        let entry = self.entries.find(&name).map(|item| self.entry(item));
                        (name, entry)
                    };
                    let entries = names.into_iter().map(entry).collect();
                    self.told.push(Box::new(move || drop(sender.send(entries))));
                }
                Ask::Names(sender) => {
                    let names = self.entries.names().cloned().collect();
                    self.told.push(Box::new(move || drop(sender.send(names))));
                }
                Ask::Delete(name, generation, sender) => {
                    let deleted = self.entries.delete(&name, generation);
                    self.told.push(Box::new(move || drop(sender.send(deleted))));
                }
                Ask::Persist(name, persist, sender) => {
                    let persisted = self.entries.persist(&name, persist);
                    self.told
                        .push(Box::new(move || drop(sender.send(persisted))));
                }
            }
        }
    }
}
