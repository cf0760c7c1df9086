//! Which pages there are, who has them and where they are mapped, as pure state:
//! no driver call, no lock. A *lease* stands for a page in the eyes of the program;
//! which page it is, is chosen when it is mapped.

use std::collections::{BTreeMap, BTreeSet};

use super::counts::{Counts, Watch};
use super::idle::Idle;
use super::order::{Last, Mark, Orders};
use super::page::{Kind, Mapping, Page, PageId, Rank};
use super::runs::{Home, Runs};
use crate::driver::{Address, Handle};

/// A page that the program has, by a number that is never given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(pub u64);

/// Sums over all pages, in bytes but for the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Held from the driver.
    pub physical_bytes: u64,
    /// Of these, those that nobody uses.
    pub idle_bytes: u64,
    /// The others.
    pub used_bytes: u64,
    /// The most that was in use at once. What is made and never mapped does not count:
    /// a request that was too large.
    pub peak_used_bytes: u64,
    /// Pages held (a number).
    pub pages: u64,
    /// What was done so far.
    pub counts: Counts,
}

#[derive(Default)]
pub struct Books {
    /// What it takes, and how long.
    pub watch: Watch,
    pub pages: BTreeMap<PageId, Page>,
    idle: Idle,
    leases: BTreeMap<Lease, (Kind, Option<PageId>)>,
    pub mappings: BTreeMap<Address, Mapping>,
    /// Where the driver did not unmap a page that was given back: its bytes and handle.
    pub stuck: BTreeMap<Address, (u64, Handle)>,
    /// What is in use, by what is one to the program.
    pub(super) runs: Runs,
    /// What may still run on what is not in use.
    pub orders: Orders,
    physical: u64,
    peak_used: u64,
    least_idle: u64,
    used_mappings: usize,
    last: u64,
    clock: u64,
}

impl Books {
    pub fn totals(&self) -> Totals {
        let idle = self.idle.bytes();
        let used = self.physical - idle;
        Totals {
            physical_bytes: self.physical,
            idle_bytes: idle,
            used_bytes: used,
            peak_used_bytes: self
                .peak_used
                .max(used.saturating_sub(self.idle.promised_bytes())),
            pages: self.pages.len() as u64,
            counts: self.watch.counts,
        }
    }

    /// Notes what is highest and least, and when; after a change.
    pub fn note(&mut self) -> Totals {
        let totals = self.totals();
        self.watch.look(&totals);
        self.peak_used = totals.peak_used_bytes;
        self.least_idle = self.least_idle.min(totals.idle_bytes);
        totals
    }

    pub fn least_idle(&mut self) -> u64 {
        let totals = self.totals();
        self.watch.look(&totals);
        std::mem::replace(&mut self.least_idle, totals.idle_bytes)
    }

    /// How many idle pages of a kind are promised to leases.
    pub fn promised(&self, kind: Kind) -> usize {
        self.idle.promised(kind)
    }

    pub fn is_any_used(&self) -> bool {
        self.used_mappings > 0
    }

    /// A lease on an idle page that is nobody's, if there is one.
    pub fn lend(&mut self, kind: Kind) -> Option<Lease> {
        self.idle.has(kind).then(|| self.new_lease(kind))
    }

    /// A lease on a page that was made for it.
    pub fn add(&mut self, kind: Kind, handle: Handle) -> Lease {
        self.last += 1;
        let id = PageId(self.last);
        self.pages.insert(id, Page::new(kind, handle));
        self.physical += kind.bytes;
        self.watch.counts.growths += 1;
        self.rest(id);
        self.new_lease(kind)
    }

    fn new_lease(&mut self, kind: Kind) -> Lease {
        self.last += 1;
        let lease = Lease(self.last);
        self.leases.insert(lease, (kind, None));
        self.idle.promise(kind);
        lease
    }

    pub fn kind_of(&self, lease: Lease) -> Option<Kind> {
        self.leases.get(&lease).map(|(kind, _)| *kind)
    }

    pub fn handle_of(&self, page: PageId) -> Handle {
        self.pages[&page].handle
    }

    /// The page of a lease; chosen now if it was not, for this address where there is
    /// one. A request makes all its pages before it maps the first: those that lie
    /// where it will map the others stay.
    pub fn bind(&mut self, lease: Lease, at: Option<Address>) -> PageId {
        let page = self.choice(lease, at);
        if self.leases[&lease].1.is_none() {
            self.bind_to(lease, page);
        }
        page
    }

    /// The page that a lease has, or would be bound to.
    pub fn choice(&self, lease: Lease, at: Option<Address>) -> PageId {
        let (kind, page) = self.leases[&lease];
        page.unwrap_or_else(|| {
            let bytes = self.idle.promised(kind) as u64 * kind.bytes;
            let soon = at.map_or(0..0, |at| at..at.saturating_add(bytes));
            let mapped = |id: PageId| &self.pages[&id].mapped;
            let stay = |id| mapped(id).range(soon.clone()).next().is_some();
            self.idle.choose(kind, soon.clone(), stay)
        })
    }

    /// Where a page is mapped and not in use.
    pub fn unused_places(&self, page: PageId) -> Vec<Address> {
        let mapped = self.pages[&page].mapped.iter().copied();
        mapped.filter(|at| !self.mappings[at].used).collect()
    }

    fn bind_to(&mut self, lease: Lease, page: PageId) {
        self.wake(page);
        let kind = self.page(page).kind;
        self.page(page).leased = true;
        self.leases.insert(lease, (kind, Some(page)));
        self.idle.settle(kind);
    }

    /// The page that is mapped at an address, unused there, where it may be the lease's.
    pub fn fits(&self, at: Address, lease: Lease) -> Option<PageId> {
        let (kind, bound) = *self.leases.get(&lease)?;
        let page = self.mappings.get(&at).filter(|mapping| !mapping.used)?.page;
        let found = &self.pages[&page];
        let fits = match bound {
            Some(bound) => bound == page,
            None => found.kind == kind && found.is_idle(),
        };
        fits.then_some(page)
    }

    /// Uses the page that [fits](Books::fits) at an address, if one does.
    pub fn take_what_is_mapped(&mut self, at: Address, lease: Lease, home: Home) -> bool {
        let Some(page) = self.fits(at, lease) else {
            return false;
        };
        if self.leases[&lease].1.is_none() {
            self.bind_to(lease, page);
        }
        self.use_at(at, home);
        self.watch.counts.hits += 1;
        true
    }

    /// A page was mapped at an address, for use.
    pub fn mapped(&mut self, at: Address, page: PageId, home: Home) {
        let bytes = self.pages[&page].kind.bytes;
        let mapping = Mapping {
            page,
            bytes,
            used: false,
            on_any_stream: BTreeSet::new(),
            run: 0,
            number: 0,
            last: None,
            writers: 0,
        };
        self.mappings.insert(at, mapping);
        self.page(page).mapped.insert(at);
        self.watch.counts.mapped += 1;
        self.use_at(at, home);
    }

    fn use_at(&mut self, at: Address, home: Home) {
        let mapping = self.mappings.get_mut(&at).expect("a mapping");
        self.watch.counts.requests += 1;
        (mapping.used, mapping.number) = (true, self.watch.counts.requests);
        mapping.on_any_stream.clear();
        mapping.run = self.runs.add(at, mapping.bytes, home);
        let page = mapping.page;
        self.page(page).used += 1;
        self.used_mappings += 1;
    }

    /// The program has unmapped an address; the page stays mapped there. What it did
    /// there is complete, or is `last`.
    pub fn unused(&mut self, at: Address, last: Option<Mark>) -> PageId {
        let mapping = self.mappings.get_mut(&at).expect("a mapping");
        mapping.used = false;
        mapping.last = last;
        let page = mapping.page;
        if let Some(mark) = last {
            self.orders.learn(self.runs.home_of(at), mark);
        }
        let bytes = mapping.bytes;
        self.runs.remove(at, bytes);
        self.page(page).last = last.map(|mark| Last { mark, at });
        self.used_mappings -= 1;
        self.watch.counts.frees += 1;
        self.page(page).used -= 1;
        self.may_rest(page);
        page
    }

    /// A mapping that was not in use is gone.
    pub fn unmapped(&mut self, at: Address) {
        let id = self.mappings.remove(&at).expect("a mapping").page;
        let idle = self.pages[&id].is_idle().then(|| self.wake(id));
        self.page(id).mapped.remove(&at);
        if let Some(rank) = idle {
            self.keep(id, rank.since);
        }
    }

    /// Bytes that are idle though never so many were in use.
    pub fn too_many(&self) -> u64 {
        let totals = self.totals();
        totals.physical_bytes.saturating_sub(totals.peak_used_bytes)
    }

    /// The lease is over; its page, if it had one. `None` if it was not known.
    pub fn release(&mut self, lease: Lease) -> Option<Option<PageId>> {
        let (kind, page) = self.leases.remove(&lease)?;
        match page {
            Some(page) => {
                self.page(page).leased = false;
                self.may_rest(page);
            }
            None => self.idle.settle(kind),
        }
        Some(page)
    }

    pub fn share(&mut self, page: PageId) {
        self.page(page).shared = true;
    }

    /// Must the page, which may be idle now, be given back?
    pub fn must_go(&self, page: PageId) -> bool {
        let page = &self.pages[&page];
        page.shared && page.is_idle()
    }

    /// What may run on a page, by any of its addresses.
    pub fn marks_of(&self, page: PageId) -> Vec<Mark> {
        let mapped = self.pages[&page].mapped.iter();
        mapped.filter_map(|at| self.mappings[at].last).collect()
    }

    /// The last use of the page at an address that nobody has waited for.
    pub fn last_use_at(&self, at: Address) -> Option<Last> {
        self.pages[&self.mappings.get(&at)?.page].last
    }

    /// The idle page to give back first, if one is nobody's.
    pub fn least_wanted(&self) -> Option<PageId> {
        self.idle.least_wanted(|_| true)
    }

    /// The same of those on which none of these places keeps work.
    pub fn least_wanted_beside(&self, running: &BTreeSet<u64>) -> Option<PageId> {
        let runs = |mark: &Mark| running.contains(&mark.number);
        self.idle
            .least_wanted(|page| !self.marks_of(page).iter().any(runs))
    }

    /// Takes an idle page out: its bytes, its handle, where it is mapped.
    pub fn remove(&mut self, id: PageId) -> (u64, Handle, BTreeSet<Address>) {
        self.wake(id);
        let page = self.pages.remove(&id).expect("a page");
        for at in &page.mapped {
            self.mappings.remove(at);
        }
        self.physical -= page.kind.bytes;
        (page.kind.bytes, page.handle, page.mapped)
    }

    /// Bytes of a page.
    pub fn bytes_of(&self, page: PageId) -> u64 {
        self.pages[&page].kind.bytes
    }

    fn page(&mut self, id: PageId) -> &mut Page {
        self.pages.get_mut(&id).expect("a page")
    }

    fn may_rest(&mut self, id: PageId) {
        if self.pages[&id].is_idle() {
            self.rest(id);
        }
    }

    /// The page is idle from now on.
    fn rest(&mut self, id: PageId) {
        self.clock += 1;
        self.keep(id, self.clock);
    }

    /// The page is idle, since then unless nobody misses it where it was.
    fn keep(&mut self, id: PageId, since: u64) {
        let page = self.page(id);
        page.since = if page.mapped.is_empty() { 0 } else { since };
        let (kind, rank) = page.rank(id);
        self.idle.insert(kind, rank);
    }

    /// The page is not idle any more, or leaves; what it was among the idle ones.
    fn wake(&mut self, id: PageId) -> Rank {
        let (kind, rank) = self.pages[&id].rank(id);
        self.idle.remove(kind, rank);
        rank
    }
}
