//! Pages over the model driver: what is kept, what goes back, and a storm of
//! everything with failing calls, against books of its own.

use super::*;
use crate::driver::Context;
use crate::driver::model::Model;
use crate::random::Random;
use crate::units::{GIB, MIB};
use std::collections::BTreeMap;
use std::time::Duration;

pub const LARGE: Kind = kind(12 * MIB);
pub const SMALL: Kind = kind(2 * MIB);

pub const HOME: Home = Home {
    reservation: 0,
    context: Context(1),
};

const fn kind(bytes: u64) -> Kind {
    Kind {
        bytes,
        properties: 1,
    }
}

pub struct Device {
    pub pages: Pages<Model>,
    pub base: Address,
}

impl Device {
    pub fn new(total: u64) -> Self {
        let model = Model::new(total);
        let base = model.reserve(64 * GIB).unwrap();
        let pages = Pages::new(model, 0, Arc::default(), None);
        Self { pages, base }
    }

    pub fn model(&self) -> &Model {
        self.pages.driver()
    }

    /// The process has contexts of another one, too.
    pub fn comes_beside_another(&self) {
        for ordinal in [0, 1] {
            self.pages.contexts.begins_on(ordinal);
        }
    }

    pub fn create(&self, kind: Kind) -> Result<Lease> {
        let make = || self.model().create(0, kind.bytes);
        self.pages
            .lend(kind)
            .map_or_else(|| self.pages.add(kind, make), Ok)
    }

    /// The address of a place for pages of this kind.
    pub fn at(&self, kind: Kind, place: u64) -> Address {
        let half = if kind == SMALL { 0 } else { 32 * GIB };
        self.base + half + place * kind.bytes
    }

    /// Creates, maps and opens a page, as torch does.
    pub fn map(&self, kind: Kind, place: u64) -> Lease {
        let lease = self.create(kind).unwrap();
        let at = self.at(kind, place);
        self.pages.map(at, kind.bytes, lease, HOME).unwrap();
        let opened = self.pages.set_access(at, kind.bytes, 0, Access::Write);
        assert_eq!(opened, Some(Ok(())));
        assert_eq!(self.model().access(at, 0), Access::Write);
        lease
    }

    pub fn unmap(&self, kind: Kind, place: u64, lease: Lease) {
        let unmapped = self.pages.unmap(self.at(kind, place), kind.bytes, None);
        assert_eq!(unmapped, Some(Ok(())));
        assert!(self.pages.release(lease));
    }
}

#[test]
fn a_page_that_was_released_is_there_again_without_a_call() {
    let device = Device::new(GIB);
    let lease = device.map(LARGE, 3);
    device.unmap(LARGE, 3, lease);
    assert_eq!(device.pages.idle(), 12 * MIB);
    let calls = device.model().calls();
    let again = device.map(LARGE, 3);
    assert_ne!(lease, again, "no number is given out twice");
    assert_eq!(device.model().calls(), calls);
    assert!(!device.pages.release(lease), "of the past");
}

#[test]
fn a_page_goes_to_another_address_and_leaves_the_first_when_that_is_wanted() {
    let device = Device::new(GIB);
    let lease = device.map(LARGE, 0);
    device.unmap(LARGE, 0, lease);
    let first = device.map(LARGE, 1);
    assert_eq!(
        (device.pages.physical(), device.model().held()),
        (12 * MIB, 12 * MIB)
    );
    let one = device.model().mapped(device.at(LARGE, 1));
    assert_eq!(
        device.model().mapped(device.at(LARGE, 0)),
        one,
        "still there"
    );
    let second = device.map(LARGE, 0);
    assert_ne!(device.model().mapped(device.at(LARGE, 0)), one);
    device.unmap(LARGE, 0, second);
    device.unmap(LARGE, 1, first);
    let totals = device.pages.totals();
    assert_eq!((totals.idle_bytes, totals.used_bytes), (24 * MIB, 0));
    assert_eq!((totals.peak_used_bytes, totals.pages), (24 * MIB, 2));
}

#[test]
fn the_peak_is_what_was_in_use_and_begins_with_what_is_mapped() {
    let device = Device::new(GIB);
    assert!(
        !device.pages.is_above_peak(12 * MIB),
        "nobody could bring anything"
    );
    let probe = device.create(LARGE).unwrap();
    assert!(!device.pages.is_above_peak(12 * MIB), "nothing is mapped");
    assert!(device.pages.release(probe));
    let one = device.map(LARGE, 0);
    assert!(device.pages.is_above_peak(12 * MIB));
    let two = device.map(LARGE, 1);
    device.unmap(LARGE, 1, two);
    assert!(!device.pages.is_above_peak(12 * MIB));
    assert!(device.pages.is_above_peak(12 * MIB + 1));
    device.unmap(LARGE, 0, one);
}

#[test]
fn a_lease_keeps_a_page_that_nobody_else_gets() {
    let device = Device::new(GIB);
    let lease = device.map(LARGE, 0);
    device.unmap(LARGE, 0, lease);
    let unbound = device.create(LARGE).unwrap();
    assert_eq!(device.pages.idle(), 0);
    assert_eq!(device.pages.give_back(u64::MAX, Duration::ZERO), 0);
    assert_eq!(device.pages.lend(LARGE), None);
    assert!(device.pages.release(unbound));
    assert_eq!(device.pages.idle(), 12 * MIB);
}

#[test]
fn what_others_may_have_open_is_not_kept() {
    let device = Device::new(GIB);
    let (one, two) = (device.map(LARGE, 0), device.map(LARGE, 1));
    let handle = device.pages.share(one).unwrap();
    assert_eq!(device.model().mapped(device.at(LARGE, 0)), Some(handle));
    device.pages.share_range(device.at(LARGE, 1), 1);
    device.unmap(LARGE, 0, one);
    device.unmap(LARGE, 1, two);
    assert_eq!(device.model().leftovers(), (1, 0, 0));
    assert_eq!(device.pages.totals().physical_bytes, 0);
    // Of a page that is mapped nowhere, too.
    let probe = device.create(LARGE).unwrap();
    assert!(device.pages.share(probe).is_some());
    assert!(device.pages.release(probe));
    assert_eq!(device.model().held(), 0);
    // Nor of one that is mapped though its lease is over.
    let lease = device.map(LARGE, 2);
    device.pages.share(lease).unwrap();
    assert!(device.pages.release(lease));
    let unmapped = device.pages.unmap(device.at(LARGE, 2), LARGE.bytes, None);
    assert_eq!((unmapped, device.model().held()), (Some(Ok(())), 0));
}

#[test]
fn what_is_mapped_at_an_address_is_not_taken_for_another_page() {
    let device = Device::new(GIB);
    let at = device.at(LARGE, 0);
    let [zero, one] = [0, 1].map(|place| device.map(LARGE, place));
    device.unmap(LARGE, 1, one);
    device.unmap(LARGE, 0, zero);
    let mapped = |kind: Kind, lease| {
        device.pages.map(at, kind.bytes, lease, HOME).unwrap();
        device.model().mapped(at).unwrap()
    };
    // One of another kind, though as long, for which that at the other place goes.
    let idle = device.model().mapped(at);
    let other = Kind {
        properties: 2,
        ..LARGE
    };
    let lease = device.create(other).unwrap();
    assert_ne!(Some(mapped(other, lease)), idle);
    device.unmap(LARGE, 0, lease);
    // One that others know already.
    let lease = device.create(LARGE).unwrap();
    let known = device.pages.share(lease).unwrap();
    assert_eq!(mapped(LARGE, lease), known);
    // One that somebody has, though it is in use nowhere.
    let unmapped = device.pages.unmap(at, LARGE.bytes, None);
    assert_eq!(unmapped, Some(Ok(())));
    let another = device.create(LARGE).unwrap();
    assert_ne!(mapped(LARGE, another), known);
    assert!(device.pages.release(lease));
}

#[test]
fn an_address_in_use_takes_no_page_not_even_its_own() {
    let device = Device::new(GIB);
    let [lease, other] = [0, 1].map(|place| device.map(LARGE, place));
    let at = device.at(LARGE, 0);
    for lease in [lease, other] {
        let again = device.pages.map(at, LARGE.bytes, lease, HOME);
        assert_eq!(again, Err(Code::INVALID_VALUE));
    }
    device.unmap(LARGE, 0, lease);
    assert_eq!(device.pages.used_in(at, LARGE.bytes), None);
}

#[test]
fn the_page_that_goes_elsewhere_is_the_one_that_is_missed_last() {
    let device = Device::new(GIB);
    let leases: Vec<_> = (0..4).map(|place| device.map(LARGE, place)).collect();
    let handle = |place| device.model().mapped(device.at(LARGE, place));
    let (first, last) = (handle(0), handle(3));
    for (place, lease) in leases.into_iter().enumerate().rev() {
        device.unmap(LARGE, place as u64, lease);
    }
    device.map(LARGE, 9);
    assert_eq!(
        handle(9),
        last,
        "the lowest addresses are mapped first again"
    );
    // But for one that is mapped nowhere: nobody misses it at all.
    assert_eq!(device.pages.leave(device.at(LARGE, 0), LARGE.bytes), Ok(()));
    device.map(LARGE, 10);
    assert_eq!(handle(10), first);
}

#[test]
fn a_request_takes_no_page_from_where_it_will_map_the_next_one() {
    let device = Device::new(GIB);
    let [one, three, four] = [1, 3, 4].map(|place| device.map(LARGE, place));
    let handle = |place| device.model().mapped(device.at(LARGE, place));
    let (of_one, of_four) = (handle(1), handle(4));
    device.unmap(LARGE, 3, three);
    device.map(LARGE, 9);
    device.unmap(LARGE, 1, one);
    device.unmap(LARGE, 4, four);
    let leases = [3, 4].map(|_| device.create(LARGE).unwrap());
    for (place, lease) in (3..).zip(leases) {
        let at = device.at(LARGE, place);
        device.pages.map(at, LARGE.bytes, lease, HOME).unwrap();
    }
    assert_eq!((handle(3), handle(4)), (of_one, of_four));
}

#[test]
fn ranges_that_are_not_of_whole_pages_are_refused_or_left_to_the_driver() {
    let device = Device::new(GIB);
    let lease = device.map(LARGE, 0);
    let at = device.at(LARGE, 0);
    let free = device.create(LARGE).unwrap();
    assert_eq!(
        device.pages.map(at, LARGE.bytes, free, HOME),
        Err(Code::INVALID_VALUE)
    );
    assert_eq!(
        device.pages.map(at + GIB, 2 * MIB, free, HOME),
        Err(Code::INVALID_VALUE)
    );
    for bytes in [2 * MIB, u64::MAX] {
        let unmapped = device.pages.unmap(at, bytes, None);
        assert_eq!(unmapped, Some(Err(Code::INVALID_VALUE)));
    }
    assert_eq!(device.pages.unmap(at + GIB, LARGE.bytes, None), None);
    assert_eq!(device.pages.set_access(at, 2 * MIB, 0, Access::Write), None);
    device.unmap(LARGE, 0, lease);
    assert_eq!(
        device.pages.unmap(at, LARGE.bytes, None),
        None,
        "torch has nothing there"
    );
}

#[test]
fn a_range_that_begins_within_a_page_is_refused() {
    let device = Device::new(GIB);
    device.map(SMALL, 0);
    let within = device.at(SMALL, 0) + MIB;
    let unmapped = device.pages.unmap(within, SMALL.bytes, None);
    assert_eq!(unmapped, Some(Err(Code::INVALID_VALUE)));
    assert!(device.pages.is_any_used());
}

#[test]
fn a_device_that_comes_later_gets_access_to_pages_that_were_kept() {
    let device = Device::new(GIB);
    let lease = device.map(LARGE, 0);
    device.unmap(LARGE, 0, lease);
    device.map(LARGE, 0);
    let at = device.at(LARGE, 0);
    let open = |access| device.pages.set_access(at, LARGE.bytes, 1, access);
    assert_eq!(open(Access::Write), Some(Ok(())));
    assert_eq!(device.model().access(at, 1), Access::Write);
    assert_eq!(open(Access::Read), Some(Ok(())));
    assert_eq!(device.model().access(at, 1), Access::Read);
    assert_eq!(open(Access::Write), Some(Ok(())));
    assert_eq!(device.model().access(at, 1), Access::Write);
}

/// What torch believes: address -> (kind, lease).
type Believed = BTreeMap<Address, (Kind, u64, Lease)>;

/// Everything at random, with calls that fail: no two addresses in use have the
/// same memory, all of them can be written, and the sums are the driver's.
#[test]
fn a_storm_leaves_every_address_with_memory_of_its_own() {
    for seed in 1..=40_u64 {
        let mut random = Random::new(seed);
        let mut next = |below| random.below(below);
        let device = Device::new(160 * MIB);
        let beside = seed % 2 == 0;
        if beside {
            device.comes_beside_another();
        }
        let mut believed = Believed::new();
        for step in 0..600 {
            if next(12) == 0 {
                let (call, code) = (device.model().calls() + next(3), Code::OUT_OF_MEMORY);
                device.model().fail_at(call, code);
            }
            let kind = if next(3) == 0 { SMALL } else { LARGE };
            let place = next(12);
            let at = device.at(kind, place);
            match (next(8), believed.get(&at).copied()) {
                (0, _) => {
                    device.pages.give_back(next(64) * MIB, Duration::ZERO);
                }
                (1, _) => drop(device.pages.leave(at, 3 * kind.bytes)),
                (2, Some((.., lease))) => drop(device.pages.share(lease)),
                (_, None) => {
                    if let Ok(lease) = device.create(kind) {
                        let mapped = device.pages.map(at, kind.bytes, lease, HOME);
                        let open = || device.pages.set_access(at, kind.bytes, 0, Access::Write);
                        match mapped.map(|()| open()) {
                            Ok(Some(Ok(()))) => drop(believed.insert(at, (kind, place, lease))),
                            Ok(_) => device.unmap(kind, place, lease),
                            Err(_) => assert!(device.pages.release(lease)),
                        }
                    }
                }
                (_, Some((kind, place, lease))) => {
                    device.unmap(kind, place, lease);
                    believed.remove(&at);
                }
            }
            check(&device, &believed, (seed, step));
            assert!(!beside || device.model().torn() == 0);
        }
        for (kind, place, lease) in believed.into_values() {
            device.unmap(kind, place, lease);
        }
        device.pages.give_back(u64::MAX, Duration::ZERO);
        assert_eq!((device.pages.physical(), device.pages.idle()), (0, 0));
    }
}

fn check(device: &Device, believed: &Believed, when: (u64, u32)) {
    let mut handles: Vec<_> = believed
        .keys()
        .map(|at| device.model().mapped(*at).expect("memory is there"))
        .collect();
    handles.sort_unstable_by_key(|handle| handle.0);
    let count = handles.len();
    handles.dedup();
    assert_eq!(handles.len(), count, "{when:?}: two addresses, one page");
    for at in believed.keys() {
        assert_eq!(device.model().access(*at, 0), Access::Write, "{when:?}");
    }
    let used: u64 = believed.values().map(|(kind, ..)| kind.bytes).sum();
    let totals = device.pages.totals();
    assert_eq!(totals.used_bytes, used, "{when:?}");
    assert_eq!(totals.idle_bytes + used, totals.physical_bytes, "{when:?}");
    // What the driver would not unmap or release is lost, and counts no more.
    assert!(totals.physical_bytes <= device.model().held(), "{when:?}");
}
