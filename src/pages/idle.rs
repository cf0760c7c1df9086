//! The pages that nobody uses, by kind, in the order in which they became idle, and
//! how many of them are promised to leases that are bound to no page yet.

use std::collections::{BTreeMap, BTreeSet};

use super::books::{Kind, PageId};

/// When a page became idle, and which: 0 for one that is mapped nowhere.
pub type Rank = (u64, PageId);

#[derive(Default)]
pub struct Idle {
    kinds: BTreeMap<Kind, Ranks>,
}

#[derive(Default)]
struct Ranks {
    pages: BTreeSet<Rank>,
    /// Leases to which one of them is promised.
    promised: usize,
}

impl Idle {
    /// Bytes that are promised to nobody.
    pub fn bytes(&self) -> u64 {
        let free = |(kind, ranks): (&Kind, &Ranks)| kind.bytes * ranks.free() as u64;
        self.kinds.iter().map(free).sum()
    }

    /// Bytes that are promised, and mapped for nobody yet.
    pub fn promised_bytes(&self) -> u64 {
        let promised = |(kind, ranks): (&Kind, &Ranks)| kind.bytes * ranks.promised as u64;
        self.kinds.iter().map(promised).sum()
    }

    /// Is there one of this kind that is promised to nobody?
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|ranks| ranks.free() > 0)
    }

    /// Promises one to a lease.
    pub fn promise(&mut self, kind: Kind) {
        self.kinds.entry(kind).or_default().promised += 1;
    }

    /// A lease has its page, or is over.
    pub fn settle(&mut self, kind: Kind) {
        let ranks = self.kinds.get_mut(&kind).expect("a promise");
        ranks.promised -= 1;
    }

    /// How many are promised.
    pub fn promised(&self, kind: Kind) -> usize {
        self.kinds.get(&kind).map_or(0, |ranks| ranks.promised)
    }

    /// A page is idle from now on.
    pub fn insert(&mut self, kind: Kind, rank: Rank) {
        self.kinds.entry(kind).or_default().pages.insert(rank);
    }

    /// A page is not idle any more.
    pub fn remove(&mut self, kind: Kind, rank: Rank) {
        let ranks = self.kinds.get_mut(&kind).expect("an idle page");
        assert!(ranks.pages.remove(&rank), "the page was idle");
    }

    /// The one to use where none is there already: a page that is mapped nowhere, else
    /// the one that became idle last, those that `stay` only where there is no other.
    /// Torch gives pages back in the order in which it maps them again, so that one
    /// is missed last; the first would be missed at once, and its place taken by the
    /// next (docs/research.md).
    pub fn choose(&self, kind: Kind, stay: impl Fn(PageId) -> bool) -> PageId {
        let pages = &self.kinds[&kind].pages;
        let fresh = pages.first().filter(|(since, _)| *since == 0);
        let last = || pages.iter().rev().find(|(_, page)| !stay(*page));
        let found = fresh.or_else(last).or(pages.last());
        found.expect("one was promised").1
    }

    /// The one to give back first: mapped nowhere, or idle longest.
    pub fn least_wanted(&self) -> Option<PageId> {
        let free = self.kinds.values().filter(|ranks| ranks.free() > 0);
        let firsts = free.filter_map(|ranks| ranks.pages.first());
        firsts.min().map(|(_, page)| *page)
    }
}

impl Ranks {
    fn free(&self) -> usize {
        self.pages.len() - self.promised.min(self.pages.len())
    }
}
