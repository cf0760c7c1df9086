//! One generation, by itself: what it is, and which of its physical handles are held.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ClientId;
use crate::names::Name;
use crate::share::protocol::{Backend, Generation, Persist, Process, Spec, State};

/// One generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its name; `None` for an export.
    pub name: Option<Name>,
    /// Which.
    pub generation: Generation,
    /// What it holds.
    pub spec: Spec,
    /// Bytes of its physical handles; 0 before there are any.
    pub mapped: u64,
    /// First byte in the first of them.
    pub offset: u64,
    /// Where in its life.
    pub state: State,
    /// What becomes of it when nobody holds it.
    pub persist: Persist,
    /// Stays hidden until it is sealed.
    pub hidden: bool,
    /// The driver's legacy handle.
    pub legacy: Vec<u8>,
    /// Who made it.
    pub maker: Process,
    /// The connection of the maker, while there is one.
    pub made_by: Option<ClientId>,
    /// Bytes of each physical handle that arrived.
    pub parts: Vec<u64>,
    /// How many there are in all.
    pub total: u32,
    /// Those that its exporter gave up, and that are not held any more.
    pub given_up: BTreeSet<u32>,
    /// The first that is held, by the size of those.
    pub stand_ins: BTreeMap<u64, u32>,
    /// Microseconds of the Unix epoch.
    pub created_us: u64,
    /// Microseconds of the Unix epoch.
    pub changed_us: u64,
    /// The user for whom its page of versions was made; not known of a predecessor's.
    #[serde(skip)]
    pub(super) page_for: Option<u32>,
    /// Who has it open, and how often.
    #[serde(skip)]
    pub(super) holders: BTreeMap<ClientId, u32>,
}

impl Item {
    /// Has all of its memory arrived?
    pub fn is_whole(&self) -> bool {
        match self.spec.backend {
            Backend::Vmm => self.total > 0 && self.parts.len() == self.total as usize,
            Backend::CudaIpc => !self.legacy.is_empty(),
        }
    }

    /// How many of its physical handles are held.
    pub(super) fn held_parts(&self) -> usize {
        self.parts.len() - self.given_up.len()
    }

    /// The part that is handed out for this one: itself, or one of the same size
    /// where it was given up.
    pub fn instead_of(&self, part: u32) -> u32 {
        match self.given_up.contains(&part) {
            true => self.stand_ins[&self.parts[part as usize]],
            false => part,
        }
    }

    /// Takes out what is not to be held any more. Where it is the last of its size it
    /// stays, to stand for the others: `false`.
    pub fn give_up(&mut self, part: u32) -> bool {
        let Some(&bytes) = self.parts.get(part as usize) else {
            return false;
        };
        if self.given_up.contains(&part) {
            return false;
        }
        let before = self.stand_ins.get(&bytes).copied();
        // It goes from one to the next only, so that looking for it costs little.
        let stand_in = match before.or_else(|| self.held(bytes, 0)) {
            Some(first) if first == part => self.held(bytes, part + 1),
            first => first,
        };
        let Some(stand_in) = stand_in else {
            return false;
        };
        self.stand_ins.insert(bytes, stand_in);
        self.given_up.insert(part);
        self.mapped -= bytes;
        true
    }

    /// The first part of a size that is held, from one on.
    fn held(&self, bytes: u64, from: u32) -> Option<u32> {
        let parts = (from..).zip(&self.parts[from as usize..]);
        let is_held = |part: &u32| !self.given_up.contains(part);
        let mut alike = parts.filter(|(_, size)| **size == bytes);
        alike.find_map(|(part, _)| Some(part).filter(is_held))
    }
}
