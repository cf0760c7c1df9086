//! Clients and their leases: they come, hold, let go, end, and come back after
//! the keeper itself was gone.

use std::collections::{BTreeSet, HashMap};

use super::{Client, ClientId, Effect, Entries, Item, Refusal};
use crate::names::Name;
use crate::share::protocol::{Backend, Code, Generation, Lease, Process, State};

impl Entries {
    /// A client introduced itself.
    pub fn join(&mut self, client: ClientId, process: Process) {
        let new = Client {
            process,
            leases: HashMap::new(),
            made: BTreeSet::new(),
            connected: true,
            whole: false,
        };
        self.clients.insert(client, new);
        self.effects.push(Effect::Joined(client));
    }

    /// The process behind a connection.
    pub fn process(&self, client: ClientId) -> Result<Process, Refusal> {
        let client = self.clients.get(&client);
        client
            .map(|client| client.process.clone())
            .ok_or_else(|| Refusal::invalid("introduce yourself first".to_owned()))
    }

    /// The user of that process.
    pub fn user(&self, client: ClientId) -> Option<u32> {
        Some(self.clients.get(&client)?.process.uid)
    }

    /// Does a client hold something, or has it made something that is there still?
    pub fn has_any(&self, client: ClientId) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| !client.leases.is_empty() || !client.made.is_empty())
    }

    /// Clients whose connections are gone, and whose processes may not be.
    pub fn earlier(&self) -> impl Iterator<Item = (ClientId, &Process)> {
        let earlier = self.clients.iter().filter(|(_, client)| !client.connected);
        earlier.map(|(&id, client)| (id, &client.process))
    }

    /// Those of them that are of the same process as this one.
    pub fn earlier_of(&self, client: ClientId) -> Vec<ClientId> {
        let Some(new) = self.clients.get(&client) else {
            return Vec::new();
        };
        let earlier = self
            .earlier()
            .filter(|(_, process)| same(process, &new.process));
        earlier.map(|(id, _)| id).collect()
    }

    /// Gives a client so many counts more.
    pub(super) fn grant(
        &mut self,
        client: ClientId,
        generation: Generation,
        more: u32,
    ) -> Result<(), Refusal> {
        let (Some(item), Some(holder)) = (
            self.items.get_mut(&generation),
            self.clients.get_mut(&client),
        ) else {
            return Err(Refusal::not_found(generation));
        };
        let count = holder.leases.entry(generation).or_insert(0);
        let Some(sum) = count.checked_add(more) else {
            return Err(Refusal::new(
                Code::Quota,
                "it was opened 2^32 times".to_owned(),
            ));
        };
        *count = sum;
        item.holders.insert(client, sum);
        self.effects.push(Effect::Held(client, generation, sum));
        Ok(())
    }

    /// Takes counts from a client; [`u32::MAX`] for all.
    pub(super) fn drop_lease(&mut self, client: ClientId, generation: Generation, fewer: u32) {
        let Some(holder) = self.clients.get_mut(&client) else {
            return;
        };
        let Some(count) = holder.leases.get_mut(&generation) else {
            return;
        };
        *count = count.saturating_sub(fewer);
        let left = *count;
        if left == 0 {
            holder.leases.remove(&generation);
        }
        self.effects.push(Effect::Held(client, generation, left));
        if let Some(item) = self.items.get_mut(&generation) {
            match left {
                0 => item.holders.remove(&client),
                left => item.holders.insert(client, left),
            };
        }
        if left == 0 {
            self.hide_freed(client, generation);
            self.settle(generation);
        }
    }

    /// The driver's own memory ends with its maker's last use of it, whoever else has it.
    fn hide_freed(&mut self, client: ClientId, generation: Generation) {
        let freed = |item: &Item| {
            let made = item.made_by == Some(client) && item.name.is_some();
            made && item.spec.backend == Backend::CudaIpc && item.state != State::Dying
        };
        if self.items.get(&generation).is_some_and(freed) {
            self.hide(generation);
        }
    }

    /// One count fewer; none is no error.
    pub fn release(&mut self, client: ClientId, generation: Generation) {
        self.drop_lease(client, generation, 1);
    }

    /// An item of which this client holds a lease.
    pub fn held(&self, client: ClientId, generation: Generation) -> Result<&Item, Refusal> {
        let item = self.items.get(&generation);
        item.filter(|_| self.holds(client, generation))
            .ok_or_else(|| Refusal::not_found(generation))
    }

    /// A connection is gone, whatever becomes of its leases.
    pub fn disconnect(&mut self, client: ClientId) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.connected = false;
        }
    }

    /// A client is gone: so are its leases, what it was making, and what ends
    /// with its maker; of all that so much by this call. How much it was: less only
    /// where that was the rest, and the client is none any more.
    pub fn leave(&mut self, client: ClientId, most: usize) -> usize {
        let gone = self.let_go(client, most, |_| true);
        if gone < most && self.clients.remove(&client).is_some() {
            self.effects.push(Effect::Left(client));
        }
        gone
    }

    /// Has a client opened anything by handle? That its process holds as long as it lives.
    pub fn has_opened(&self, client: ClientId) -> bool {
        let by_handle = |generation: &Generation| {
            let item = self.items.get(generation);
            item.is_some_and(|item| item.name.is_none() && item.made_by != Some(client))
        };
        let client = self.clients.get(&client);
        client.is_some_and(|client| client.leases.keys().any(by_handle))
    }

    /// A connection is gone, and its process is not: as [`Self::leave`], but for what that
    /// has opened by handle.
    pub fn linger(&mut self, client: ClientId, most: usize) -> usize {
        self.let_go(client, most, |item| item.name.is_some())
    }

    /// A connection is gone, and its process comes back: until then all stays as it
    /// is. `false` where it is back already, which holds again what it said; what
    /// the other one made of that is this one's now.
    pub fn expect(&mut self, client: ClientId) -> bool {
        let Some(gone) = self.clients.get_mut(&client) else {
            return false;
        };
        gone.connected = false;
        let (process, made) = (gone.process.clone(), gone.made.clone());
        let is_it =
            |other: &Client| other.connected && other.whole && known_as(&other.process, &process);
        let back = self.clients.iter().find(|(_, other)| is_it(other));
        let Some((&back, _)) = back else {
            return true;
        };
        for generation in made {
            if self.items[&generation].name.is_none() || self.holds(back, generation) {
                self.set_maker(generation, Some(back));
            }
        }
        false
    }

    /// Is a process that was expected perhaps back already? Of one that is not seen that is
    /// never sure.
    pub fn may_be_back(&self, client: ClientId) -> bool {
        let Some(gone) = self.clients.get(&client) else {
            return false;
        };
        let is_it =
            |other: &Client| other.connected && other.whole && same(&other.process, &gone.process);
        self.clients.values().any(is_it)
    }

    /// What a client made, and what it holds of it, then its leases of what `goes`.
    fn let_go(&mut self, client: ClientId, most: usize, goes: impl Fn(&Item) -> bool) -> usize {
        let Some(holder) = self.clients.get(&client) else {
            return 0;
        };
        let made: Vec<Generation> = holder.made.iter().take(most).copied().collect();
        let leases = holder.leases.keys();
        let held = leases.filter(|generation| {
            !holder.made.contains(generation) && self.items.get(generation).is_some_and(&goes)
        });
        let held: Vec<Generation> = held.take(most - made.len()).copied().collect();
        for &generation in &made {
            self.set_maker(generation, None);
            let item = &self.items[&generation];
            let ends = item.name.is_some()
                && (item.state == State::Creating || item.spec.backend == Backend::CudaIpc);
            if ends {
                self.hide(generation);
            }
            self.settle(generation);
            self.drop_lease(client, generation, u32::MAX);
        }
        for &generation in &held {
            self.drop_lease(client, generation, u32::MAX);
        }
        made.len() + held.len()
    }

    /// How many leases a user has, by all its clients.
    pub fn leases_of(&self, uid: u32) -> usize {
        let clients = self.clients.values();
        let its = clients.filter(|client| client.process.uid == uid);
        its.map(|client| client.leases.len()).sum()
    }

    /// A client takes a lease up again that it held before the keeper was gone:
    /// from the earlier connections of the same process ([`Self::earlier_of`]), as far as
    /// these have it. `false` where there is nothing (any more). Of those that are not seen
    /// several processes may have one number: then nobody is taken for the maker of what ends
    /// with its maker. What nobody can open is only for a process that has it.
    pub fn resume(&mut self, client: ClientId, lease: Lease, earlier: &[ClientId]) -> bool {
        let Lease { generation, count } = lease;
        let Some(item) = self.items.get(&generation) else {
            return false;
        };
        let Some(holder) = self.clients.get(&client) else {
            return false;
        };
        let has = |id: &ClientId| same(&self.clients[id].process, &holder.process);
        let can_be_opened = matches!(item.state, State::Ready | State::Sealed);
        if !can_be_opened && !item.holders.keys().any(has) {
            return false;
        }
        let is_seen = holder.process.started != 0;
        let is_makers = item.name.is_none() || item.spec.backend == Backend::CudaIpc;
        let is_sure = !is_makers || is_seen || earlier.len() == 1;
        let is_maker = |id: &ClientId| item.made_by == Some(*id);
        let made_earlier = is_sure && earlier.iter().any(is_maker);
        let holders = earlier.iter().filter(|id| item.holders.contains_key(id));
        let earlier = holders.min_by_key(|id| is_maker(id)).copied();
        let grant = count > 0 && self.grant(client, generation, count).is_ok();
        // Before the earlier one lets go: what its maker holds no more may end.
        if made_earlier {
            self.set_maker(generation, Some(client));
        }
        if grant && let Some(earlier) = earlier {
            self.drop_lease(earlier, generation, count);
        }
        grant
    }

    /// A name that an earlier connection of the same process was to make, and that
    /// was not taken up with the rest: the process never heard so, and asks again.
    pub(super) fn give_up_unheard(&mut self, client: ClientId, name: &Name) {
        let Some((item, asker)) = self.find(name).zip(self.clients.get(&client)) else {
            return;
        };
        let generation = item.generation;
        let unheard = |id: &ClientId| {
            let maker = &self.clients[id];
            let known = known_as(&maker.process, &asker.process);
            item.state == State::Creating && !maker.connected && known
        };
        if let Some(maker) = item.made_by.filter(unheard) {
            self.hide(generation);
            self.drop_lease(maker, generation, u32::MAX);
        }
    }

    /// What another connection of the same process exported is this one's, also
    /// where that one is long gone.
    pub fn adopt(&mut self, client: ClientId, generation: Generation) {
        let (Some(holder), Some(item)) = (self.clients.get(&client), self.items.get(&generation))
        else {
            return;
        };
        let other = item.name.is_none() && item.made_by != Some(client);
        if other && same(&item.maker, &holder.process) {
            self.set_maker(generation, Some(client));
        }
    }
}

impl Entries {
    /// A client has said all that it holds: whatever earlier connections of the same process
    /// exported is its, too. Where that may be several processes, each has what it withdraws.
    pub fn adopt_exports(&mut self, client: ClientId) {
        let Some(new) = self.clients.get_mut(&client) else {
            return;
        };
        new.whole = true;
        let is_seen = new.process.started != 0;
        let earlier = self.earlier_of(client);
        if !is_seen && earlier.len() != 1 {
            return;
        }
        let made = earlier.iter().flat_map(|id| &self.clients[id].made);
        let exports: Vec<_> = made
            .filter(|generation| self.items[generation].name.is_none())
            .copied()
            .collect();
        for generation in exports {
            self.set_maker(generation, Some(client));
        }
    }
}

/// Are these two descriptions surely of one process? Of one that is not seen another
/// may have the number.
fn known_as(one: &Process, other: &Process) -> bool {
    one.started != 0 && same(one, other)
}

/// Are these two descriptions of one process?
fn same(one: &Process, other: &Process) -> bool {
    (one.pid, one.started, one.uid) == (other.pid, other.started, other.uid)
}
