//! Runs and tensors over the model driver: a tensor lies in one run, and a large one that is
//! new is one by itself; and a storm of tensors, of which that holds as long as they live.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{Found, Home, Kind, Lease, Pages, Run};
use crate::driver::model::Model;
use crate::driver::{Access, Address, Context, Driver};
use crate::random::Random;
use crate::units::{GIB, MIB};

const PAGE: Kind = Kind {
    bytes: 12 * MIB,
    properties: 1,
};

/// A device with torch's pages from one address on; tensors lie at so many MiB from there.
struct Device {
    pages: Pages<Model>,
    base: Address,
    used: BTreeMap<u64, Lease>,
}

impl Device {
    fn new() -> Self {
        let model = Model::new(8 * GIB);
        let base = model.reserve(64 * GIB).unwrap();
        let pages = Pages::new(model, 0, Arc::default(), None);
        let used = BTreeMap::new();
        Self { pages, base, used }
    }

    fn at(&self, mib: u64) -> Address {
        self.base + mib * MIB
    }

    fn map(&mut self, page: u64) {
        let make = || self.pages.driver().create(0, PAGE.bytes);
        let lease = self.pages.lend(PAGE);
        let lease = lease.map_or_else(|| self.pages.add(PAGE, make), Ok);
        let (at, lease) = (self.at(page * 12), lease.unwrap());
        let home = Home {
            reservation: self.base,
            context: Context(7),
        };
        self.pages.map(at, PAGE.bytes, lease, home).unwrap();
        self.used.insert(page, lease);
    }

    fn unmap(&mut self, page: u64) {
        let unmapped = self.pages.unmap(self.at(page * 12), PAGE.bytes, None);
        assert_eq!(unmapped, Some(Ok(())));
        assert!(self.pages.release(self.used.remove(&page).unwrap()));
    }

    /// A tensor of so many MiB, as torch makes it: pages that lack are mapped.
    fn tensor(&mut self, at: u64, mib: u64) -> bool {
        let lacking = (at / 12..(at + mib).div_ceil(12)).filter(|it| !self.used.contains_key(it));
        let lacking: Vec<u64> = lacking.collect();
        lacking.iter().for_each(|page| self.map(*page));
        let new = !lacking.is_empty();
        self.pages.lent(self.at(at), mib * MIB, new);
        new
    }

    #[track_caller]
    fn run(&self, mib: u64) -> Run {
        match self.pages.find(self.at(mib)) {
            Found::Run(run) => run,
            found => panic!("{found:?}"),
        }
    }

    /// Where the run around a place begins, and how many MiB it has.
    #[track_caller]
    fn span(&self, mib: u64) -> (u64, u64) {
        let run = self.run(mib);
        ((run.base - self.base) / MIB, run.bytes / MIB)
    }
}

#[test]
fn a_large_new_tensor_is_a_run_by_itself_and_what_comes_beside_it_changes_nothing() {
    let mut device = Device::new();
    device.tensor(0, 200);
    assert_eq!(device.span(0), (0, 200));
    assert_eq!(device.span(200), (200, 4), "the rest of its last page");
    let weights = device.run(0);
    device.tensor(200, 304);
    assert_eq!(
        (device.span(200), device.span(503)),
        ((200, 304), (200, 304))
    );
    let cache = device.run(200);
    // Small ones share what they have, and a large one that begins among them does not.
    device.tensor(504, 5);
    device.tensor(509, 9);
    assert_eq!((device.span(504), device.span(509)), ((504, 24), (504, 24)));
    device.tensor(520, 100);
    let spans = [device.span(504), device.span(520), device.span(620)];
    assert_eq!(spans, [(504, 16), (520, 100), (620, 4)]);
    assert_eq!((device.run(3), device.run(300)), (weights, cache));
    assert!(device.pages.has_all_of(&weights) && device.pages.has_all_of(&cache));
}

#[test]
fn a_tensor_that_reaches_into_another_ones_run_is_in_one_with_all_of_it() {
    let mut device = Device::new();
    device.tensor(0, 200);
    device.tensor(200, 304);
    // Both are free: a large one has a run by itself, once.
    assert!(!device.tensor(0, 400));
    assert_eq!((device.span(0), device.span(400)), ((0, 400), (400, 104)));
    device.tensor(200, 304);
    assert_eq!((device.span(0), device.span(503)), ((0, 504), (0, 504)));
    let whole = device.run(0);
    device.tensor(0, 400);
    device.tensor(200, 304);
    assert_eq!(device.run(200), whole, "it comes to rest");
    // A small one makes one of two.
    device.tensor(504, 24);
    device.tensor(528, 24);
    assert_eq!((device.span(504), device.span(528)), ((504, 24), (528, 24)));
    device.tensor(526, 4);
    assert_eq!((device.span(504), device.span(551)), ((504, 48), (504, 48)));
    // Inside one nothing changes.
    let joined = device.run(526);
    device.tensor(510, 20);
    assert_eq!(device.run(526), joined);
}

#[test]
fn a_run_that_loses_a_page_is_what_is_left_on_both_sides() {
    let mut device = Device::new();
    device.tensor(0, 29);
    device.tensor(29, 43);
    let (first, second) = (device.run(0), device.run(30));
    device.unmap(2);
    assert_eq!((device.span(0), device.span(36)), ((0, 24), (36, 36)));
    assert!(!device.pages.has_all_of(&first) && !device.pages.has_all_of(&second));
    assert_eq!(device.pages.find(device.at(30)), Found::Unused);
    assert!(device.pages.covers(device.at(1), 23 * MIB));
    assert!(!device.pages.covers(device.at(1), 24 * MIB));
    // Who maps there again joins neither.
    device.map(2);
    assert_eq!(device.span(24), (24, 12));
    assert!(device.pages.covers(device.at(1), 71 * MIB));
}

#[test]
fn a_run_within_pages_is_exported_and_opened_with_the_pages_below_it() {
    let mut device = Device::new();
    device.tensor(0, 29);
    device.tensor(29, 20);
    let exported = device.pages.export(device.at(40)).unwrap();
    assert_eq!((exported.run, exported.at), (device.run(29), device.at(24)));
    let below = |page: u64| device.pages.driver().mapped(device.at(page * 12)).unwrap();
    let handles = [2, 3, 4].map(|page| (below(page), PAGE.bytes));
    assert_eq!(exported.handles, handles);
    let run = exported.run;
    device.pages.open_around(run.base, run.bytes, 1).unwrap();
    let access = |page: u64| device.pages.driver().access(device.at(page * 12), 1);
    let (open, closed) = (Access::Write, Access::None);
    assert_eq!(
        [0, 1, 2, 3, 4].map(access),
        [closed, closed, open, open, open]
    );
}

#[test]
fn tensors_that_come_and_go_lie_in_one_run_each_and_those_by_themselves_stay_so() {
    let mut random = Random::new(5);
    let mut next = |below: u64| random.below(below);
    let mut device = Device::new();
    // By their place: their length, and the run that they are.
    let mut live: BTreeMap<u64, (u64, Option<Run>)> = BTreeMap::new();
    let is_free = |live: &BTreeMap<u64, (u64, Option<Run>)>, from: u64, to: u64| {
        live.iter()
            .all(|(at, (mib, _))| to <= *at || at + mib <= from)
    };
    let mut alone = 0;
    for _ in 0..1500 {
        let (at, mib) = (next(480), 1 + next(60));
        match next(4) {
            0 | 1 if is_free(&live, at, at + mib) => {
                let new = device.tensor(at, mib);
                let itself = (new && mib >= 10).then(|| device.run(at));
                if itself.is_some() {
                    assert_eq!(device.span(at), (at, mib));
                    alone += 1;
                }
                live.insert(at, (mib, itself));
            }
            2 => {
                let at = live.range(at..).next().map(|(at, _)| *at);
                at.map(|at| live.remove(&at));
            }
            3 => {
                let page = at / 12;
                if device.used.contains_key(&page) && is_free(&live, page * 12, page * 12 + 12) {
                    device.unmap(page);
                }
            }
            _ => {}
        }
        for (&at, (mib, itself)) in &live {
            let run = device.run(at);
            assert_eq!(device.run(at + mib - 1), run);
            assert!(itself.is_none_or(|it| it == run));
        }
        let mut ends = BTreeMap::new();
        for page in device.used.keys() {
            for mib in (page * 12..page * 12 + 12).step_by(3) {
                let run = device.run(mib);
                assert_eq!(*ends.entry(run.id).or_insert(run), run);
                assert!(device.pages.has_all_of(&run));
            }
        }
    }
    assert!(alone > 50, "{alone}");
}
