//! The pages that nobody uses, by kind, by age and by place, and how many of them are
//! promised to leases that are bound to no page yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::page::{Kind, PageId, Rank};
use crate::driver::Address;

#[derive(Default)]
pub struct Idle {
    kinds: BTreeMap<Kind, Ranks>,
}

#[derive(Default)]
struct Ranks {
    by_age: BTreeSet<(u64, PageId)>,
    by_place: BTreeSet<(Address, PageId)>,
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
        let ranks = self.kinds.entry(kind).or_default();
        ranks.by_age.insert((rank.since, rank.page));
        ranks.by_place.insert((rank.at, rank.page));
    }

    /// A page is not idle any more.
    pub fn remove(&mut self, kind: Kind, rank: Rank) {
        let ranks = self.kinds.get_mut(&kind).expect("an idle page");
        let aged = ranks.by_age.remove(&(rank.since, rank.page));
        let placed = ranks.by_place.remove(&(rank.at, rank.page));
        assert!(aged && placed, "the page was idle");
    }

    /// The one to use where none is there already: a page that is mapped nowhere, else
    /// the one that lies highest, those that `stay` in this range only where there is no
    /// other. Torch fills its stretches of addresses from below, so that one is missed
    /// last (docs/research.md).
    pub fn choose(
        &self,
        kind: Kind,
        soon: Range<Address>,
        stay: impl Fn(PageId) -> bool,
    ) -> PageId {
        let pages = &self.kinds[&kind].by_place;
        let fresh = pages.first().filter(|(at, _)| *at == 0);
        // Where one lies lowest: behind the range it is not in it, within it stays. There
        // may be thousands of these.
        let [start, end] = [soon.start, soon.end].map(|at| (at, PageId(0)));
        let behind = || pages.range(end..).next_back();
        let before = || pages.range(..start).rev().find(|(_, page)| !stay(*page));
        let found = fresh.or_else(behind).or_else(before).or(pages.last());
        found.expect("one was promised").1
    }

    /// The one to give back first of those that may be: mapped nowhere, or idle longest.
    pub fn least_wanted(&self, may_go: impl Fn(PageId) -> bool) -> Option<PageId> {
        let free = self.kinds.values().filter(|ranks| ranks.free() > 0);
        let may_go = |(_, page): &&(u64, PageId)| may_go(*page);
        let firsts = free.filter_map(|ranks| ranks.by_age.iter().find(may_go));
        firsts.min().map(|(_, page)| *page)
    }
}

impl Ranks {
    fn free(&self) -> usize {
        self.by_age.len() - self.promised.min(self.by_age.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn pages_that_stay_are_not_looked_through() {
        let kind = Kind {
            bytes: 10,
            properties: 0,
        };
        let mut idle = Idle::default();
        for number in 1..=100 {
            let (since, at, page) = (number, number * 10, PageId(number));
            idle.insert(kind, Rank { since, at, page });
        }
        let looks = Cell::new(0);
        let choose = |soon| {
            let stay = |_| looks.replace(looks.get() + 1) > 9;
            idle.choose(kind, soon, stay).0
        };
        assert_eq!((choose(500..990), looks.get()), (100, 0), "behind them");
        assert_eq!((choose(500..2000), looks.get()), (49, 1), "below them");
        assert_eq!((choose(10..2000), looks.get()), (100, 1), "no other");
    }
}
