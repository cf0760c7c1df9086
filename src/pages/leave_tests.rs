//! Idle pages over the model driver: when they go back, and which goes first.

use std::time::Duration;

use super::order_tests::{CONTEXT, ONE, TWO};
use super::tests::{Device, LARGE, SMALL};
use super::*;
use crate::units::{GIB, MIB};

/// Torch makes all pages of a request before it maps the first, and gives them up
/// again where one is missing.
#[test]
fn a_request_that_was_too_large_leaves_nothing_behind() {
    let device = Device::new(100 * 12 * MIB);
    let lease = device.map(LARGE, 0);
    let made: Vec<_> = std::iter::from_fn(|| device.create(LARGE).ok()).collect();
    assert_eq!(made.len(), 99);
    assert_eq!(device.pages.totals().peak_used_bytes, 12 * MIB);
    assert!(made.into_iter().all(|lease| device.pages.release(lease)));
    assert_eq!(device.pages.physical(), 12 * MIB);
    assert!(device.pages.is_above_peak(12 * MIB));
    device.unmap(LARGE, 0, lease);
    assert_eq!(device.pages.idle(), 12 * MIB, "it was in use");
}

#[test]
fn idle_pages_of_another_kind_make_way_before_more_is_held_than_ever_was_in_use() {
    let device = Device::new(GIB);
    let small: Vec<_> = (0..12).map(|place| device.map(SMALL, place)).collect();
    for (place, lease) in small.into_iter().enumerate() {
        device.unmap(SMALL, place as u64, lease);
    }
    device.map(LARGE, 0);
    assert_eq!(device.model().held(), 24 * MIB);
    device.map(LARGE, 1);
    assert_eq!((device.model().held(), device.pages.idle()), (24 * MIB, 0));
}

#[test]
fn idle_pages_go_where_the_driver_has_no_memory_left() {
    let device = Device::new(16 * MIB);
    let large = device.map(LARGE, 0);
    device.unmap(LARGE, 0, large);
    let small: Vec<_> = (0..8).map(|place| device.map(SMALL, place)).collect();
    assert_eq!(device.create(SMALL), Err(Code::OUT_OF_MEMORY));
    assert_eq!(device.model().held(), 16 * MIB);
    assert_eq!(
        device.pages.give_back(u64::MAX, Duration::ZERO),
        0,
        "all are in use"
    );
    for (place, lease) in small.into_iter().enumerate() {
        device.unmap(SMALL, place as u64, lease);
    }
    assert_eq!(device.pages.give_back(3 * MIB, Duration::ZERO), 4 * MIB);
    assert_eq!(device.pages.give_back(u64::MAX, Duration::ZERO), 12 * MIB);
    assert_eq!(device.model().leftovers(), (1, 0, 0));
}

/// Somebody else has what they left to the driver.
#[test]
fn idle_pages_go_for_a_page_of_another_kind_that_the_driver_has_no_memory_for() {
    let device = Device::new(36 * MIB);
    let leases = [0, 1, 2].map(|place| device.map(LARGE, place));
    for (place, lease) in (0..).zip(leases) {
        device.unmap(LARGE, place, lease);
    }
    assert_eq!(device.pages.give_back(1, Duration::ZERO), LARGE.bytes);
    device.model().create(0, LARGE.bytes).unwrap();
    assert!(device.create(SMALL).is_ok());
    assert_eq!(device.pages.physical(), SMALL.bytes);
}

#[test]
fn first_goes_what_is_mapped_nowhere_then_what_is_idle_longest() {
    let device = Device::new(GIB);
    let [zero, one, two] = [0, 1, 2].map(|place| device.map(LARGE, place));
    let is_there = |place| device.model().mapped(device.at(LARGE, place)).is_some();
    let leave = |place| device.pages.leave(device.at(LARGE, place), LARGE.bytes);
    device.unmap(LARGE, 0, zero);
    let elsewhere = device.map(LARGE, 5);
    device.unmap(LARGE, 5, elsewhere);
    device.unmap(LARGE, 1, one);
    device.unmap(LARGE, 2, two);
    assert_eq!((leave(0), leave(2)), (Ok(()), Ok(())));
    for (there, gone) in [([5, 1], 2), ([1, 1], 5)] {
        assert_eq!(device.pages.give_back(1, Duration::ZERO), LARGE.bytes);
        assert!(there.into_iter().all(is_there) && !is_there(gone));
    }
}

/// Work on one stream may last, or never end.
#[test]
fn what_runs_on_one_page_keeps_no_other() {
    let give = |device: &Device, patience| device.pages.give_back(LARGE.bytes, patience);
    let device = Device::new(GIB);
    let (zero, one) = (device.put(0), device.put(1));
    device.give_up(0, zero, ONE);
    device.unmap(LARGE, 1, one);
    assert_eq!(give(&device, Duration::ZERO), LARGE.bytes);
    assert_eq!(give(&device, Duration::ZERO), 0);
    assert!(device.runs(ONE) && device.pages.idle() == LARGE.bytes);

    // Nor where it ends while one waits for the other.
    let device = Device::new(GIB);
    let (zero, one) = (device.put(0), device.put(1));
    device.model().hold_truly();
    device.give_up(0, zero, ONE);
    device.give_up(1, one, TWO);
    let given = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            device.model().hold(CONTEXT, TWO, false);
        });
        give(&device, Duration::from_secs(5))
    });
    assert_eq!(given, LARGE.bytes);
    assert!(device.runs(ONE));
}

/// Nor does a page of another kind wait for it.
#[test]
fn room_for_a_page_is_made_without_a_wait_where_it_can_be() {
    let device = Device::new(24 * MIB);
    let (zero, one) = (device.put(0), device.put(1));
    device.give_up(0, zero, ONE);
    device.unmap(LARGE, 1, one);
    assert!(device.create(SMALL).is_ok());
    assert!(device.runs(ONE));
    assert_eq!(device.model().held(), LARGE.bytes + SMALL.bytes);

    // Nor where it is somebody else who has what lacks.
    let device = Device::new(36 * MIB);
    let [zero, one, two] = [0, 1, 2].map(|place| device.put(place));
    device.give_up(0, zero, ONE);
    device.unmap(LARGE, 1, one);
    device.unmap(LARGE, 2, two);
    assert_eq!(device.pages.give_back(1, Duration::ZERO), LARGE.bytes);
    device.model().create(0, LARGE.bytes).unwrap();
    assert!(device.create(SMALL).is_ok());
    assert!(device.runs(ONE));
    assert_eq!(device.pages.physical(), LARGE.bytes + SMALL.bytes);
}

#[test]
fn the_least_that_was_idle_is_told_of_the_time_since_it_was_asked() {
    let device = Device::new(GIB);
    let lease = device.map(LARGE, 0);
    device.unmap(LARGE, 0, lease);
    assert_eq!(device.pages.least_idle(), 0, "it was in use");
    assert_eq!(device.pages.least_idle(), LARGE.bytes);
    let lease = device.map(LARGE, 0);
    device.unmap(LARGE, 0, lease);
    assert_eq!(device.pages.least_idle(), 0, "and again meanwhile");
}

#[test]
fn addresses_that_are_given_up_have_nothing_mapped() {
    let device = Device::new(GIB);
    let (one, two) = (device.map(LARGE, 0), device.map(LARGE, 1));
    device.unmap(LARGE, 0, one);
    let all = (device.at(LARGE, 0), 24 * MIB);
    assert_eq!(device.pages.leave(all.0, all.1), Ok(()));
    assert_eq!(device.model().mapped(all.0), None);
    assert!(
        device.model().mapped(device.at(LARGE, 1)).is_some(),
        "in use"
    );
    device.unmap(LARGE, 1, two);
}

#[test]
fn a_page_that_the_driver_did_not_unmap_is_unmapped_before_its_place_is_used_again() {
    let device = Device::new(GIB);
    let kept = || {
        let lease = device.map(LARGE, 0);
        device.unmap(LARGE, 0, lease);
        device.model().fail_at(device.model().calls(), Code(999));
        let given = device.pages.give_back(u64::MAX, Duration::ZERO);
        assert_eq!(given, 0, "nobody has got it");
        assert_eq!(device.model().held(), LARGE.bytes);
    };
    kept();
    let lease = device.map(LARGE, 0);
    device.unmap(LARGE, 0, lease);
    device.pages.give_back(u64::MAX, Duration::ZERO);
    assert_eq!(device.model().held(), 0);
    // Or when memory is wanted the next time.
    kept();
    device.pages.give_back(u64::MAX, Duration::ZERO);
    assert_eq!(device.model().held(), 0);
}

/// Into what is left of several places, once the first went, the driver may let no other device.
#[test]
fn beside_other_devices_a_page_is_at_one_place_and_moves_once_nothing_runs_on_it() {
    for beside in [false, true] {
        let device = Device::new(GIB);
        if beside {
            device.comes_beside_another();
        }
        let lease = device.map(LARGE, 0);
        device.unmap(LARGE, 0, lease);
        device.map(LARGE, 1);
        assert_eq!(device.model().leftovers().2, if beside { 1 } else { 2 });
        device.map(LARGE, 0);
        assert_eq!(device.model().torn(), if beside { 0 } else { 1 });
    }
}
