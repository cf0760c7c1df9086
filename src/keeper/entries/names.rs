//! The life of a name: made, filled, sealed, kept, deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClientId, Effect, Entries, Item, Refusal};
use crate::names::{MOST_EXTENTS, Name, bytes_of};
use crate::share::protocol::{Backend, Code, Generation, Mode, Persist, Process, Spec, State};

/// Most bytes of one name, so that sums of them are numbers still.
pub(super) const MOST_BYTES: u64 = 1 << 48;

/// How a name is wanted: as in `Request::Open`.
pub struct Wish {
    /// Which.
    pub name: Name,
    /// How.
    pub mode: Mode,
    /// What is expected.
    pub spec: Spec,
    /// To be written?
    pub write: bool,
    /// Not to be seen before it is sealed?
    pub hidden: bool,
}

/// What became of a wish. The client holds a lease.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// The client is to make it.
    Make(Generation),
    /// It is there.
    There(Generation),
}

impl Entries {
    /// Opens a name, or begins one as the generation `fresh`.
    pub fn open(
        &mut self,
        client: ClientId,
        wish: Wish,
        fresh: Generation,
    ) -> Result<Opened, Refusal> {
        let Wish { name, mode, .. } = &wish;
        self.give_up_unheard(client, name);
        match (self.find(name), mode) {
            (None, Mode::Attach) => Err(Refusal::not_found(name)),
            (None, _) => self.begin(client, wish, fresh).map(Opened::Make),
            (Some(item), Mode::Create) if item.is_whole() => {
                let message = format!("the name {name} is taken; delete it first, or attach to it");
                Err(Refusal::new(Code::Exists, message))
            }
            (Some(item), _) => {
                fits(item, &wish)?;
                let generation = item.generation;
                self.grant(client, generation, 1)?;
                Ok(Opened::There(generation))
            }
        }
    }

    fn begin(
        &mut self,
        client: ClientId,
        wish: Wish,
        generation: Generation,
    ) -> Result<Generation, Refusal> {
        check(&wish.spec)?;
        let maker = self.process(client)?;
        let item = Item {
            hidden: wish.hidden,
            ..begun(
                Some(wish.name),
                wish.spec,
                generation,
                maker,
                client,
                self.now_us,
            )
        };
        self.insert(item)?;
        self.grant(client, generation, 1)?;
        Ok(generation)
    }

    /// The memory of a name that this client makes. `parts` are the bytes of its
    /// handle, or nothing where it has a legacy one. Again is no error.
    pub fn commit(
        &mut self,
        client: ClientId,
        generation: Generation,
        parts: Vec<u64>,
        legacy: Vec<u8>,
    ) -> Result<(), Refusal> {
        let item = self.being_made(client, generation)?;
        let (bytes, backend) = (item.spec.bytes, item.spec.backend);
        let mapped = match (backend, &parts[..]) {
            (Backend::Vmm, &[mapped]) if legacy.is_empty() => mapped,
            (Backend::CudaIpc, []) if legacy.len() == 64 => bytes,
            _ => 0,
        };
        if mapped < bytes || mapped > MOST_BYTES {
            return Err(Refusal::invalid(format!(
                "what was made is not what {generation} is to hold: {bytes} bytes in one handle of at least \
                 as many, or a legacy handle of 64 bytes"
            )));
        }
        if item.is_whole() {
            return Ok(());
        }
        self.note_made(item.maker.uid, 0, parts.len());
        if let Some(item) = self.change(generation) {
            item.total = parts.len() as u32;
            item.mapped = mapped;
            item.parts = parts;
            item.legacy = legacy;
            // One that was deleted meanwhile stays so.
            if item.state == State::Creating && !item.hidden {
                item.state = State::Ready;
            }
        }
        Ok(())
    }

    /// The client cannot make it after all.
    pub fn abort(&mut self, client: ClientId, generation: Generation) -> Result<(), Refusal> {
        let state = self.being_made(client, generation)?.state;
        if matches!(state, State::Ready | State::Sealed) {
            return Err(Refusal::invalid("it is made already; delete it".to_owned()));
        }
        self.hide(generation);
        self.drop_lease(client, generation, u32::MAX);
        Ok(())
    }

    /// The bytes are final.
    pub fn seal(&mut self, client: ClientId, generation: Generation) -> Result<(), Refusal> {
        let item = self.held(client, generation)?;
        match item.state {
            State::Sealed => Ok(()),
            _ if item.name.is_none() || !item.is_whole() => Err(Refusal::invalid(
                "only a name with memory can be sealed".to_owned(),
            )),
            State::Dying => Err(Refusal::not_found(generation)),
            State::Creating | State::Ready => {
                if let Some(item) = self.change(generation) {
                    item.state = State::Sealed;
                }
                self.effects.push(Effect::Sealed);
                Ok(())
            }
        }
    }

    /// Whether a name outlives its holders.
    pub fn persist(&mut self, name: &Name, persist: Persist) -> Result<(), Refusal> {
        let item = self.find(name).ok_or_else(|| Refusal::not_found(name))?;
        let (generation, before) = (item.generation, item.persist);
        if item.spec.backend == Backend::CudaIpc && persist != Persist::No {
            return Err(Refusal::invalid(format!(
                "{name} is of the backend cuda_ipc, which ends with its maker and cannot be persisted"
            )));
        }
        if let Persist::Until(second) = before {
            self.deadlines.remove(&(second, generation));
        }
        if let Persist::Until(second) = persist {
            self.deadlines.insert((second, generation));
        }
        if let Some(item) = self.change(generation) {
            item.persist = persist;
        }
        self.settle(generation);
        Ok(())
    }

    /// Hides a name now; its memory goes with the last holder.
    pub fn delete(&mut self, name: &Name, only: Option<Generation>) -> Result<(), Refusal> {
        let item = self.find(name).ok_or_else(|| Refusal::not_found(name))?;
        let generation = item.generation;
        if only.is_some_and(|only| only != generation) {
            return Err(Refusal::not_found(name));
        }
        self.hide(generation);
        self.settle(generation);
        Ok(())
    }

    /// When the next name expires, in seconds of the Unix epoch.
    pub fn next_expiry_s(&self) -> Option<u64> {
        self.deadlines.first().map(|&(second, _)| second)
    }

    /// The clock was set by so many seconds, and so is when names expire.
    pub fn move_expiries(&mut self, seconds: i64) {
        for (second, generation) in std::mem::take(&mut self.deadlines) {
            let second = second.saturating_add_signed(seconds);
            self.deadlines.insert((second, generation));
            if let Some(item) = self.change(generation) {
                item.persist = Persist::Until(second);
            }
        }
    }

    /// Names whose time is over live on with their holders only.
    pub fn expire(&mut self) {
        let now_s = self.now_us / 1_000_000;
        while let Some(&(second, generation)) = self.deadlines.first()
            && second <= now_s
        {
            self.deadlines.pop_first();
            if let Some(item) = self.change(generation) {
                item.persist = Persist::No;
            }
            self.settle(generation);
        }
    }

    /// Frees persisted names that nobody holds, where `kept`; only counts them
    /// where `dry`. What nothing keeps is gone without this. The answer: how
    /// many, and their physical bytes.
    pub fn collect(&mut self, dry: bool, kept: bool) -> (u64, u64) {
        self.expire();
        let idle = self
            .items
            .values()
            .filter(|item| item.holders.is_empty() && kept);
        let idle: Vec<_> = idle.map(|item| (item.generation, item.mapped)).collect();
        if !dry {
            for &(generation, _) in &idle {
                self.hide(generation);
                self.settle(generation);
            }
        }
        (
            idle.len() as u64,
            idle.iter().map(|&(_, bytes)| bytes).sum(),
        )
    }

    /// What this client makes, or has just made.
    fn being_made(&self, client: ClientId, generation: Generation) -> Result<&Item, Refusal> {
        let item = self.held(client, generation)?;
        match item.made_by == Some(client) && item.name.is_some() {
            true => Ok(item),
            false => Err(Refusal::not_found(generation)),
        }
    }
}

/// An item without memory.
pub(super) fn begun(
    name: Option<Name>,
    spec: Spec,
    generation: Generation,
    maker: Process,
    client: ClientId,
    now_us: u64,
) -> Item {
    Item {
        name,
        generation,
        spec,
        mapped: 0,
        offset: 0,
        state: State::Creating,
        persist: Persist::No,
        hidden: false,
        legacy: Vec::new(),
        maker,
        made_by: Some(client),
        parts: Vec::new(),
        total: 0,
        given_up: BTreeSet::new(),
        stand_ins: BTreeMap::new(),
        created_us: now_us,
        changed_us: now_us,
        page_for: None,
        holders: BTreeMap::new(),
    }
}

/// Is this something that memory can hold?
pub(super) fn check(spec: &Spec) -> Result<(), Refusal> {
    let wrong = |message: String| Err(Refusal::invalid(message));
    if spec.bytes == 0 || spec.bytes > MOST_BYTES {
        return wrong(format!(
            "{} bytes cannot be made; accepted: 1 to 2^48",
            spec.bytes
        ));
    }
    if spec.shape.len() > MOST_EXTENTS {
        return wrong(format!(
            "a shape of {} extents; accepted: up to {MOST_EXTENTS}",
            spec.shape.len()
        ));
    }
    if let Some(dtype) = spec.dtype
        && !spec.shape.is_empty()
    {
        let bytes = bytes_of(dtype, &spec.shape).map_err(|e| Refusal::invalid(e.to_string()))?;
        if bytes != spec.bytes {
            return wrong(format!(
                "the shape {:?} of {dtype} has {bytes} bytes, not {}",
                spec.shape, spec.bytes
            ));
        }
    }
    Ok(())
}

/// May what is there be had in this way?
fn fits(item: &Item, wish: &Wish) -> Result<(), Refusal> {
    let (name, wanted) = (&wish.name, &wish.spec);
    if item.state == State::Creating {
        let message = format!(
            "{name} is being made by process {}; ask again",
            item.maker.pid
        );
        return Err(Refusal::new(Code::InProgress, message));
    }
    let differs = item.spec.differs(wanted.bytes, wanted.dtype, &wanted.shape);
    if let Some(differs) = differs {
        return Err(Refusal::new(Code::Mismatch, format!("{name} {differs}")));
    }
    if wish.write && item.state == State::Sealed {
        let message = format!("{name} is sealed: it can only be opened for reading");
        return Err(Refusal::new(Code::Sealed, message));
    }
    Ok(())
}
