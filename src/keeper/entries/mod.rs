//! Names, generations and leases, and what follows when one of them changes.
//! Pure state: knows the time and the clients only by what it is told, holds no
//! descriptor, and decides no right. What others must learn of a change is a
//! list of [`Effect`]s, in order.

mod exports;
mod item;
mod leases;
mod list;
mod made;
mod names;
mod restore;
#[cfg(test)]
pub mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use item::Item;
pub use made::Made;
pub use names::{Opened, Wish};

use super::Refusal;
use crate::names::Name;
use crate::share::protocol::{Code, Entry, Generation, Holder, Persist, Process, State};

/// A connection, while it lasts and beyond: never used twice.
pub type ClientId = u64;

/// Most names and exports at a time; behind it is the memory of the keeper.
pub const MOST_ITEMS: usize = 100_000;
/// Most holders that an [`Entry`] tells.
const MOST_HOLDERS: usize = 16;

/// What changed, for the journal, the descriptors, the registry and the clients.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// This one is new or not as it was.
    Changed(Generation),
    /// This part of an export is gone; its handle is to be let go.
    GaveUp(Generation, u32),
    /// This one is gone; what it held is to be let go.
    Gone(Box<Item>),
    /// A name can no longer be opened as this generation.
    Hidden(Name),
    /// A name can no longer be opened for writing, also where that was done before.
    Sealed,
    /// A client introduced itself.
    Joined(ClientId),
    /// A client is gone, and its leases with it.
    Left(ClientId),
    /// A client holds a generation so often now.
    Held(ClientId, Generation, u32),
    /// Nobody holds this export any more, which its exporter withdrew.
    LetGo(ClientId, Generation),
}

struct Client {
    process: Process,
    leases: HashMap<Generation, u32>,
    /// What it made and what is there still.
    made: BTreeSet<Generation>,
    /// Not one of before the keeper was started anew, whose connection is gone.
    connected: bool,
    /// It has said all that it held before.
    whole: bool,
}

/// All that the keeper has.
#[derive(Default)]
pub struct Entries {
    items: BTreeMap<Generation, Item>,
    /// Names that can be opened, or are being made.
    live: HashMap<Name, Generation>,
    /// Every named item, deleted ones too, in the order of lists.
    named: BTreeSet<(Name, Generation)>,
    clients: HashMap<ClientId, Client>,
    /// Of each user.
    made: HashMap<u32, Made>,
    /// Seconds of the epoch at which a `Persist::Until` ends.
    deadlines: BTreeSet<(u64, Generation)>,
    effects: Vec<Effect>,
    now_us: u64,
}

impl Entries {
    /// What time it is, in microseconds of the Unix epoch, until the next call.
    pub fn set_time(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// What changed since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// One of them.
    pub fn item(&self, generation: Generation) -> Option<&Item> {
        self.items.get(&generation)
    }

    /// The generation that a name stands for now.
    pub fn find(&self, name: &Name) -> Option<&Item> {
        self.live
            .get(name)
            .map(|generation| &self.items[generation])
    }

    /// Does this client hold it?
    pub fn holds(&self, client: ClientId, generation: Generation) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| client.leases.contains_key(&generation))
    }

    /// What is told of an item. The version is the caller's to add.
    pub fn entry(&self, item: &Item) -> Entry {
        let holders = item.holders.iter().take(MOST_HOLDERS);
        Entry {
            name: item.name.clone(),
            generation: item.generation,
            spec: item.spec.clone(),
            mapped: item.mapped,
            offset: item.offset,
            state: item.state,
            version: 0,
            persist: item.persist,
            legacy: item.legacy.clone(),
            maker: item.maker.clone(),
            holders: holders
                .map(|(client, &count)| Holder {
                    process: self.clients[client].process.clone(),
                    count,
                })
                .collect(),
            references: references(item),
            created_us: item.created_us,
            changed_us: item.changed_us,
        }
    }

    fn insert(&mut self, item: Item) -> Result<(), Refusal> {
        if self.items.len() >= MOST_ITEMS {
            let message =
                format!("the keeper has {MOST_ITEMS} names and exports, which is its most");
            return Err(Refusal::new(Code::Unavailable, message));
        }
        if let Some(name) = &item.name {
            self.live.insert(name.clone(), item.generation);
            self.named.insert((name.clone(), item.generation));
        }
        self.effects.push(Effect::Changed(item.generation));
        self.note_made(item.maker.uid, 1, item.held_parts());
        let (generation, maker) = (item.generation, item.made_by);
        self.items.insert(generation, item);
        self.set_maker(generation, maker);
        Ok(())
    }

    /// Whose connection an item ends with, or is told of its end.
    fn set_maker(&mut self, generation: Generation, maker: Option<ClientId>) {
        let Some(item) = self.items.get_mut(&generation) else {
            return;
        };
        let before = std::mem::replace(&mut item.made_by, maker);
        if let Some(client) = before.and_then(|id| self.clients.get_mut(&id)) {
            client.made.remove(&generation);
        }
        if let Some(client) = maker.and_then(|id| self.clients.get_mut(&id)) {
            client.made.insert(generation);
        }
        self.effects.push(Effect::Changed(generation));
    }

    /// An item whose fields are about to change.
    fn change(&mut self, generation: Generation) -> Option<&mut Item> {
        let item = self.items.get_mut(&generation)?;
        item.changed_us = self.now_us;
        self.effects.push(Effect::Changed(generation));
        Some(item)
    }

    /// Nobody can open this name as this generation from now on.
    fn hide(&mut self, generation: Generation) {
        let Some(item) = self.change(generation) else {
            return;
        };
        item.state = State::Dying;
        let persist = std::mem::replace(&mut item.persist, Persist::No);
        let name = item.name.clone();
        if let Persist::Until(second) = persist {
            self.deadlines.remove(&(second, generation));
        }
        if let Some(name) = name
            && self.live.get(&name) == Some(&generation)
        {
            self.live.remove(&name);
            self.effects.push(Effect::Hidden(name));
        }
    }

    /// Lets an item go that nobody holds and nothing keeps.
    fn settle(&mut self, generation: Generation) {
        let Some(item) = self.items.get(&generation) else {
            return;
        };
        let kept =
            item.persist != Persist::No && matches!(item.state, State::Ready | State::Sealed);
        if kept || !item.holders.is_empty() {
            return;
        }
        if item.name.is_some() && item.state != State::Dying {
            self.hide(generation);
        }
        let Some(item) = self.items.remove(&generation) else {
            return;
        };
        self.note_gone(&item);
        if let Some(maker) = item.made_by.and_then(|id| self.clients.get_mut(&id)) {
            maker.made.remove(&generation);
        }
        match (&item.name, item.made_by) {
            (Some(name), _) => {
                self.named.remove(&(name.clone(), generation));
            }
            // A withdrawn export: the exporter waits for this.
            (None, Some(exporter)) if item.state == State::Dying => {
                self.effects.push(Effect::LetGo(exporter, generation));
            }
            (None, _) => {}
        }
        self.effects.push(Effect::Gone(Box::new(item)));
    }
}

fn references(item: &Item) -> u64 {
    item.holders.values().map(|&count| u64::from(count)).sum()
}
