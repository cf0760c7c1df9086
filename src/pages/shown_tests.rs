//! Runs over the model driver: what touches is one, what changes is another, and a
//! storm of both against runs that are counted anew.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Found, Home, Kind, Lease, Pages, Run};
use crate::driver::model::Model;
use crate::driver::{Access, Address, Context, Driver};
use crate::random::Random;
use crate::units::{GIB, MIB};
use std::collections::BTreeMap;

const PAGE: Kind = Kind {
    bytes: 12 * MIB,
    properties: 1,
};

struct Device {
    pages: Pages<Model>,
    base: Address,
}

impl Device {
    fn new() -> Self {
        let model = Model::new(8 * GIB);
        let base = model.reserve(64 * GIB).unwrap();
        let pages = Pages::new(model, 0, Arc::default(), None);
        Self { pages, base }
    }

    fn at(&self, place: u64) -> Address {
        self.base + place * PAGE.bytes
    }

    fn map_in(&self, place: u64, reservation: Address) -> Lease {
        let make = || self.pages.driver().create(0, PAGE.bytes);
        let lease = self.pages.lend(PAGE);
        let lease = lease
            .map_or_else(|| self.pages.add(PAGE, make), Ok)
            .unwrap();
        let home = Home {
            reservation,
            context: Context(7),
        };
        let at = self.at(place);
        self.pages.map(at, PAGE.bytes, lease, home).unwrap();
        let opened = self.pages.set_access(at, PAGE.bytes, 0, Access::Write);
        assert_eq!(opened, Some(Ok(())));
        lease
    }

    fn map(&self, place: u64) -> Lease {
        self.map_in(place, self.base)
    }

    fn unmap(&self, place: u64, lease: Lease) {
        let unmapped = self.pages.unmap(self.at(place), PAGE.bytes, None);
        assert_eq!(unmapped, Some(Ok(())));
        assert!(self.pages.release(lease));
    }

    #[track_caller]
    fn run(&self, place: u64) -> Run {
        match self.pages.find(self.at(place) + 5) {
            Found::Run(run) => run,
            found => panic!("{found:?}"),
        }
    }

    /// Its first place and its length in pages.
    fn span(&self, run: Run) -> (u64, u64) {
        ((run.base - self.base) / PAGE.bytes, run.bytes / PAGE.bytes)
    }
}

#[test]
fn pages_that_touch_are_one_run_which_is_another_when_it_changes() {
    let device = Device::new();
    let (zero, one) = (device.map(0), device.map(1));
    let two = device.run(1);
    assert_eq!((device.span(two), two.context), ((0, 2), Context(7)));
    assert_eq!(device.run(0), two, "the same from everywhere");
    device.map(3);
    assert_eq!(device.span(device.run(3)), (3, 1));
    assert_eq!(device.run(0), two, "nothing of it has changed");
    let middle = device.map(2);
    let four = device.run(3);
    assert_eq!(device.span(four), (0, 4));
    assert!(device.pages.has_all_of(&two) && device.pages.has_all_of(&four));
    device.unmap(2, middle);
    assert_eq!(device.pages.find(device.at(2)), Found::Unused);
    let again = device.run(0);
    assert_eq!(device.span(again), (0, 2));
    assert!(again.id != two.id && again.id != four.id && again.id != device.run(3).id);
    assert!(device.pages.has_all_of(&two) && !device.pages.has_all_of(&four));
    // The same page at the same address is not what it was.
    device.map(2);
    assert!(!device.pages.has_all_of(&four));
    assert_eq!(device.span(device.run(0)), (0, 4));
    device.unmap(0, zero);
    device.unmap(1, one);
    assert!(!device.pages.has_all_of(&two));
}

#[test]
fn what_is_nobodys_is_found_nowhere() {
    let device = Device::new();
    assert_eq!(device.pages.find(device.at(0)), Found::Nothing);
    device.map(2);
    for place in [0, 1, 3] {
        assert_eq!(device.pages.find(device.at(place)), Found::Nothing);
    }
    let lease = device.map(4);
    assert_eq!(device.pages.find(device.at(3)), Found::Nothing, "between");
    let last = device.pages.find(device.at(5) - 1);
    assert_eq!(last, Found::Run(device.run(4)), "its last byte");
    device.unmap(4, lease);
    device.pages.give_back(u64::MAX, Duration::ZERO);
    assert_eq!(device.pages.find(device.at(4)), Found::Nothing);
}

#[test]
fn a_run_ends_with_its_reservation() {
    let device = Device::new();
    device.map_in(0, device.at(0));
    device.map_in(1, device.at(1));
    device.map_in(2, device.at(1));
    assert_eq!(device.span(device.run(0)), (0, 1));
    assert_eq!(device.span(device.run(2)), (1, 2));
}

#[test]
fn a_run_that_is_exported_is_told_whole_and_not_kept() {
    let device = Device::new();
    let leases: Vec<_> = (0..3).map(|place| device.map(place)).collect();
    let exported = device.pages.export(device.at(1) + 9).unwrap();
    assert_eq!((exported.run, exported.at), (device.run(0), device.at(0)));
    let below: Vec<_> = (0..3)
        .map(|place| device.pages.driver().mapped(device.at(place)).unwrap())
        .map(|handle| (handle, PAGE.bytes))
        .collect();
    assert_eq!(exported.handles, below);
    for (place, lease) in (0..).zip(leases) {
        device.unmap(place, lease);
    }
    assert_eq!(device.pages.driver().held(), 0);
    assert_eq!(device.pages.export(device.at(1)), None);
}

#[test]
fn everything_in_use_is_opened_to_a_device_that_comes_later() {
    let device = Device::new();
    let kept = device.map(0);
    device.unmap(0, kept);
    let used = [2, 3, 4, 6];
    let _leases = used.map(|place| device.map(place));
    // One of them is open to it already.
    let open = |place| device.pages.open_to(device.at(place), PAGE.bytes, 1);
    assert_eq!(open(3), Some(Ok(())));
    device.pages.open_all(1).unwrap();
    let access = |place| device.pages.driver().access(device.at(place), 1);
    assert_eq!(used.map(access), [Access::Write; 4]);
    assert_eq!(access(0), Access::None, "nobody uses it");
}

#[test]
fn runs_are_what_one_would_count() {
    let mut random = Random::new(11);
    let mut next = |below| random.below(below);
    let device = Device::new();
    let mut used = BTreeMap::new();
    for _ in 0..4000 {
        let place = next(40);
        match used.remove(&place) {
            Some(lease) => device.unmap(place, lease),
            // Two reservations side by side.
            None => drop(used.insert(place, device.map_in(place, place / 20))),
        }
        let mut ids = BTreeMap::new();
        for &place in used.keys() {
            let joined = |one: u64, other: u64| used.contains_key(&other) && one / 20 == other / 20;
            let mut first = place;
            while first > 0 && joined(first, first - 1) {
                first -= 1;
            }
            let mut last = place;
            while joined(last, last + 1) {
                last += 1;
            }
            let run = device.run(place);
            assert_eq!(device.span(run), (first, last - first + 1));
            assert!(device.pages.has_all_of(&run));
            assert_eq!(*ids.entry(run.id).or_insert(first), first);
        }
    }
}
