//! The state of a predecessor: every generation and every client, whose
//! connections are gone.

use std::collections::HashMap;

use super::{ClientId, Entries, Item};
use crate::keeper::succession::journal::Known;
use crate::share::protocol::{Generation, Persist, Process, State};

impl Entries {
    /// What a journal says. `has` tells of a generation's part whether it was
    /// handed over: what has lost one is left out, and told. Nothing of it is an effect.
    pub fn restore(known: Known, has: impl Fn(Generation, u32) -> bool) -> (Self, Vec<Item>) {
        let mut entries = Self::default();
        for (client, (process, _)) in &known.clients {
            entries.join(*client, process.clone());
        }
        entries
            .clients
            .values_mut()
            .for_each(|client| client.connected = false);
        let mut lost = Vec::new();
        for (_, mut item) in known.items {
            item.holders.clear();
            let is_there = |part| item.given_up.contains(&part) || has(item.generation, part);
            if !(0..item.parts.len() as u32).all(is_there) {
                lost.push(item);
                continue;
            }
            let maker = item.made_by.filter(|id| entries.clients.contains_key(id));
            let generation = item.generation;
            if let Persist::Until(second) = item.persist {
                entries.deadlines.insert((second, generation));
            }
            if let Some(name) = &item.name {
                entries.named.insert((name.clone(), generation));
                if item.state != State::Dying {
                    entries.live.insert(name.clone(), generation);
                }
            }
            entries.note_made(item.maker.uid, 1, item.held_parts());
            entries.items.insert(generation, item);
            entries.set_maker(generation, maker);
        }
        for (client, (_, leases)) in known.clients {
            for (generation, count) in leases {
                // What is gone was lost above.
                let _ = entries.grant(client, generation, count);
            }
        }
        // Whoever was let go between two records of one change.
        let all: Vec<_> = entries.items.keys().copied().collect();
        all.into_iter()
            .for_each(|generation| entries.settle(generation));
        // A successor writes down all that there is: the same once more, cut short,
        // would be clients that joined and hold nothing.
        entries.effects.clear();
        (entries, lost)
    }

    /// Every client, with its process and leases, as a journal has them.
    pub fn known(&self) -> impl Iterator<Item = (ClientId, &Process, &HashMap<Generation, u32>)> {
        let clients = self.clients.iter();
        clients.map(|(&id, client)| (id, &client.process, &client.leases))
    }
}
