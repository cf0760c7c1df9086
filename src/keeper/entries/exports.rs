//! Memory that is opened by handle: exported, imported, withdrawn.

use super::names::{MOST_BYTES, begun, check};
use super::{ClientId, Effect, Entries, Item, Refusal};
use crate::share::protocol::{Backend, Code, Generation, Reply, Spec, State};

/// Most physical handles of one export.
const MOST_TOTAL: u32 = 1 << 16;

/// What became of a withdrawal.
#[derive(Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// Nobody else holds it: it is gone.
    Gone,
    /// Others hold it, so often.
    Held(u64),
}

impl Entries {
    /// Begins an export with its first parts.
    pub fn export(
        &mut self,
        client: ClientId,
        generation: Generation,
        spec: Spec,
        offset: u64,
        parts: Vec<u64>,
        total: u32,
    ) -> Result<(), Refusal> {
        check(&spec)?;
        if spec.backend != Backend::Vmm {
            return Err(Refusal::invalid(
                "only memory with descriptors is exported".to_owned(),
            ));
        }
        if let Some(item) = self.items.get(&generation) {
            // Said again, after an answer was lost.
            let same = item.made_by == Some(client) && item.parts == parts && item.spec == spec;
            return match same {
                true => Ok(()),
                false => Err(Refusal::new(
                    Code::Exists,
                    "this generation is taken".to_owned(),
                )),
            };
        }
        if total == 0 || total > MOST_TOTAL {
            return Err(Refusal::invalid(format!(
                "an export of {total} parts; accepted: 1 to {MOST_TOTAL}"
            )));
        }
        let maker = self.process(client)?;
        let mut item = Item {
            offset,
            total,
            ..begun(None, spec, generation, maker, client, self.now_us)
        };
        add(&mut item, parts)?;
        self.insert(item)?;
        self.grant(client, generation, 1)
    }

    /// The next parts of an export.
    pub fn export_more(
        &mut self,
        client: ClientId,
        generation: Generation,
        parts: Vec<u64>,
    ) -> Result<(), Refusal> {
        let item = self.held(client, generation)?;
        if item.name.is_some() || item.made_by != Some(client) || item.state != State::Creating {
            return Err(Refusal::not_found(generation));
        }
        let mut item = item.clone();
        let more = parts.len();
        add(&mut item, parts)?;
        self.note_made(item.maker.uid, 0, more);
        if let Some(there) = self.change(generation) {
            *there = item;
        }
        Ok(())
    }

    /// Opens memory by its handle.
    pub fn import(&mut self, client: ClientId, generation: Generation) -> Result<(), Refusal> {
        let item = self.items.get(&generation);
        let item = item.ok_or_else(|| Refusal::not_found(generation))?;
        match item.state {
            State::Ready | State::Sealed => self.grant(client, generation, 1),
            State::Creating | State::Dying => Err(Refusal::not_found(generation)),
        }
    }

    /// The exporter's program gave up a part of what it exported. Of one that is not
    /// there, or not this client's, nothing is.
    pub fn give_up(&mut self, client: ClientId, generation: Generation, part: u32) {
        let item = self.items.get_mut(&generation);
        let own = |item: &&mut Item| {
            item.name.is_none() && item.made_by == Some(client) && item.state == State::Ready
        };
        let Some(item) = item.filter(own) else {
            return;
        };
        if item.give_up(part) {
            let uid = item.maker.uid;
            self.note_given_up(uid);
            self.effects.push(Effect::GaveUp(generation, part));
        }
    }

    /// The exporter's program freed the memory. One that is not there, or not
    /// this client's, is gone as far as it is concerned.
    pub fn withdraw(&mut self, client: ClientId, generation: Generation) -> Withdrawn {
        let own = |item: &&Item| item.name.is_none() && item.made_by == Some(client);
        if self.items.get(&generation).filter(own).is_none() {
            return Withdrawn::Gone;
        }
        self.hide(generation);
        self.drop_lease(client, generation, u32::MAX);
        // The answer says it now; nobody needs to be told.
        let told = Effect::LetGo(client, generation);
        self.effects.retain(|effect| *effect != told);
        match self.items.get(&generation) {
            None => Withdrawn::Gone,
            Some(item) => Withdrawn::Held(super::references(item)),
        }
    }
}

impl From<Withdrawn> for Reply {
    fn from(withdrawn: Withdrawn) -> Self {
        match withdrawn {
            Withdrawn::Gone => Self::Done,
            Withdrawn::Held(references) => Self::Held { references },
        }
    }
}

/// Adds parts, if they are what the rest of the export can be.
fn add(item: &mut Item, parts: Vec<u64>) -> Result<(), Refusal> {
    let arrived = item.parts.len() + parts.len();
    let sum = parts.iter().try_fold(item.mapped, |sum, &part| {
        sum.checked_add(part)
            .filter(|&sum| part > 0 && sum <= MOST_BYTES)
    });
    let needed = item.offset.checked_add(item.spec.bytes);
    let complete = arrived == item.total as usize;
    match (sum, needed) {
        (Some(sum), Some(needed))
            if !parts.is_empty()
                && arrived <= item.total as usize
                && (!complete || sum >= needed) =>
        {
            item.mapped = sum;
            item.parts.extend(parts);
            if complete {
                item.state = State::Ready;
            }
            Ok(())
        }
        _ => Err(Refusal::invalid(format!(
            "the parts of an export of {} bytes from byte {} do not hold it",
            item.spec.bytes, item.offset
        ))),
    }
}
