//! A page, a page among the idle ones, and a page at an address, as the books know them.
//! Knows no other page.

use std::collections::BTreeSet;

use super::order::{Last, Mark};
use crate::driver::{Address, Context, Handle};

/// What a page must be to stand for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Bytes.
    pub bytes: u64,
    /// The properties that it was made with, in a word of the caller's.
    pub properties: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageId(pub(super) u64);

pub struct Page {
    pub kind: Kind,
    pub(super) handle: Handle,
    /// Has a lease that is bound to it.
    pub(super) leased: bool,
    /// Addresses at which the program has it mapped (a number).
    pub(super) used: usize,
    /// Where it is mapped, used or not.
    pub(super) mapped: BTreeSet<Address>,
    /// Others may have it open: it is not kept.
    pub shared: bool,
    /// When it became idle; 0 if it was never used.
    pub(super) since: u64,
    /// The last use that nobody has waited for.
    pub(super) last: Option<Last>,
}

impl Page {
    /// One that nobody has, mapped nowhere.
    pub fn new(kind: Kind, handle: Handle) -> Self {
        Self {
            kind,
            handle,
            leased: false,
            used: 0,
            mapped: BTreeSet::new(),
            shared: false,
            since: 0,
            last: None,
        }
    }

    pub fn is_idle(&self) -> bool {
        !self.leased && self.used == 0
    }

    /// What it is among the idle pages of its kind.
    pub fn rank(&self, page: PageId) -> (Kind, Rank) {
        let (since, at) = (self.since, self.mapped.first().copied().unwrap_or(0));
        (self.kind, Rank { since, at, page })
    }
}

/// An idle page among those of its kind.
#[derive(Debug, Clone, Copy)]
pub struct Rank {
    /// When it became idle; 0 if it is mapped nowhere.
    pub since: u64,
    /// The lowest address at which it is mapped; 0 if it is nowhere.
    pub at: Address,
    pub page: PageId,
}

/// A page at an address.
pub struct Mapping {
    pub page: PageId,
    pub bytes: u64,
    pub used: bool,
    /// The contexts in which it may be used in an order that no stream tells.
    pub on_any_stream: BTreeSet<Context>,
    /// The number of the run that it was in when it was used last.
    pub run: u64,
    /// Which of the program's requests it was last mapped for, from 1.
    pub number: u64,
    /// The last use by this address that nobody has waited for.
    pub last: Option<Mark>,
    /// The devices that can write there, a bit each.
    pub writers: u128,
}
