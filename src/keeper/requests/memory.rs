//! Requests that make memory, bring it, or hand it out.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::keeper::Refusal;
use crate::keeper::clients::process::Peer;
use crate::keeper::entries::{ClientId, Item, Opened, Wish};
use crate::keeper::pages;
use crate::keeper::requests::answer::{Answer, Answered, denied};
use crate::keeper::state::Keeper;
use crate::keeper::succession::key::Key;
use crate::share::protocol::{Code, Entry, Generation, MOST_PARTS, Mode, Reply};

impl Keeper {
    /// Opens a name, or has it made.
    pub(in crate::keeper) fn open(&mut self, client: ClientId, peer: Peer, wish: Wish) -> Answered {
        let rights = self.access.rights(&peer, &wish.name);
        let there = self.entries.find(&wish.name).is_some();
        let (may, what) = match (there, wish.mode) {
            (_, Mode::Create) | (false, Mode::CreateOrAttach) => (rights.create, "create"),
            _ if wish.write && rights.open => (rights.write, "write"),
            _ => (rights.open, "open"),
        };
        let name = &wish.name;
        match () {
            // Neither answer says whether it is there.
            () if !rights.any() && wish.mode == Mode::Attach => {
                return Err(Refusal::not_found(name));
            }
            () if !rights.any() => return Err(denied("create", name)),
            () if !may => return Err(denied(what, name)),
            () => {}
        }
        if !there {
            self.access
                .check_quota(peer.uid, peer.gid, name, wish.spec.bytes)?;
            self.room_for_memory(&peer, 1)?;
        }
        self.room_for_leases(&peer, 1)?;
        match self.entries.open(client, wish, fresh()?)? {
            Opened::Make(generation) => Ok(Reply::Make { generation }.into()),
            Opened::There(generation) => self.memory(generation),
        }
    }

    /// Takes the memory of a name.
    pub(in crate::keeper) fn commit(
        &mut self,
        client: ClientId,
        peer: Peer,
        generation: Generation,
        mapped: u64,
        legacy: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let item = self.entries.held(client, generation)?;
        let (name, again) = (item.name.clone(), item.is_whole());
        let parts = vec![mapped; descriptors.len().min(2)];
        let new = match again || descriptors.is_empty() {
            true => Vec::new(),
            false => self.arrived(&peer, generation, 0, &parts, descriptors)?,
        };
        if let Some(name) = name.as_ref().filter(|_| !again) {
            self.access
                .check_quota(peer.uid, peer.gid, name, mapped.max(item.spec.bytes))?;
        }
        self.entries.commit(client, generation, parts, legacy)?;
        if let Some((name, item)) = name.zip(self.entries.item(generation).filter(|_| !again)) {
            let (maker, bytes) = (&item.maker, item.mapped);
            self.access.charge(maker.uid, maker.gid, &name, bytes);
        }
        self.keep_new(new);
        Ok(Reply::Done)
    }

    /// Descriptors that came with a packet, as the next parts of a generation.
    pub(in crate::keeper) fn arrived(
        &self,
        peer: &Peer,
        generation: Generation,
        before: usize,
        parts: &[u64],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Vec<(Key, OwnedFd)>, Refusal> {
        if parts.len() != descriptors.len() || parts.is_empty() {
            return Err(Refusal::invalid(format!(
                "{} descriptors came for {} parts; accepted: one each",
                descriptors.len(),
                parts.len()
            )));
        }
        self.room_for_memory(peer, parts.len())?;
        let keys = (before..).map(|place| Key::Part(generation, place as u32));
        Ok(keys.zip(descriptors).collect())
    }

    /// Keeps those of them that are not there.
    pub(in crate::keeper) fn keep_new(&mut self, new: Vec<(Key, OwnedFd)>) {
        // An export that was said again has them.
        let missing = |(key, _): &(Key, OwnedFd)| self.descriptors.get(*key).is_none();
        let new: Vec<_> = new.into_iter().filter(missing).collect();
        self.descriptors.keep(new);
    }

    /// The answer to who opened something.
    pub(in crate::keeper) fn memory(&self, generation: Generation) -> Answered {
        let item = self.entries.item(generation);
        let item = item.ok_or_else(|| Refusal::not_found(generation))?;
        let (parts, beside) = self.parts(item, 0)?;
        let reply = Reply::Memory {
            entry: Entry {
                holders: Vec::new(),
                ..self.entry(item)
            },
            parts,
            total: item.total,
        };
        Ok(Answer { reply, beside })
    }

    /// Parts of it, from one on; another one for each that was given up.
    pub(in crate::keeper) fn parts(
        &self,
        item: &Item,
        from: usize,
    ) -> Result<(Vec<u64>, Vec<Rc<OwnedFd>>), Refusal> {
        let places = (from..item.parts.len()).take(MOST_PARTS);
        let part = |place: usize| {
            let held = item.instead_of(place as u32);
            let descriptor = self.descriptors.get(Key::Part(item.generation, held));
            let descriptor = descriptor.ok_or_else(|| Refusal::not_found(item.generation))?;
            Ok((item.parts[place], descriptor.clone()))
        };
        places.map(part).collect()
    }

    /// The page of its versions, which counts for the user who is the first to ask for it.
    pub(in crate::keeper) fn timeline(
        &mut self,
        client: ClientId,
        peer: Peer,
        generation: Generation,
    ) -> Answered {
        self.entries.held(client, generation)?;
        let key = Key::Timeline(generation);
        if self.descriptors.get(key).is_none() {
            self.room_for_memory(&peer, 1)?;
            let page = pages::timeline().map_err(|error| {
                let message = format!("the keeper cannot make a timeline: {error}");
                Refusal::new(Code::Unavailable, message)
            })?;
            self.descriptors.keep(vec![(key, page)]);
            self.entries.note_page(generation, peer.uid);
        }
        let beside = self.descriptors.get(key).into_iter().cloned().collect();
        let reply = Reply::Done;
        Ok(Answer { reply, beside })
    }
}

/// A generation that nobody has.
fn fresh() -> Result<Generation, Refusal> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(Generation(bytes)),
        _ => {
            let message = "the system gives no random numbers".to_owned();
            Err(Refusal::new(Code::Unavailable, message))
        }
    }
}
