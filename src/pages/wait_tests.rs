//! Waits on the host for work on pages that were given up: whom they keep, when they
//! end, and that they are made whatever fails.

use std::time::Duration;

use super::order_tests::{CONTEXT, ONE, OTHER, TWO, key};
use super::tests::{Device, LARGE, SMALL};
use super::*;
use crate::units::{GIB, MIB};

/// Whenever the work ends: between two looks, too.
#[test]
fn who_is_patient_gets_pages_on_which_work_ends_meanwhile() {
    for patience in [Duration::from_secs(5), Duration::MAX] {
        for pause in 0..200 {
            let device = Device::new(16 * MIB);
            let lease = device.put(0);
            device.model().hold_truly();
            device.give_up(0, lease, ONE);
            let given = std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..pause * 20).for_each(|_| std::hint::spin_loop());
                    device.model().hold(CONTEXT, ONE, false);
                });
                device.pages.give_back(u64::MAX, patience)
            });
            assert_eq!(given, LARGE.bytes, "after {pause}");
        }
    }
}

#[test]
fn a_context_is_waited_for_though_calls_fail() {
    for failures in 0..4 {
        let device = Device::new(GIB);
        let lease = device.put(0);
        device.pages.on_any_stream(device.at(LARGE, 0), CONTEXT);
        device.model().hold(CONTEXT, TWO, true);
        device.model().fail_waits(failures, Code(999));
        device.unmap(LARGE, 0, lease);
        assert!(!device.runs(TWO), "{failures}");
    }
}

/// Nor by the events that stand for what was given up.
#[test]
fn a_place_is_waited_for_though_the_driver_does_not_wait_for_its_event() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.model().fail_waits(10, Code(999));
    assert_eq!(device.pages.leave(device.at(LARGE, 0), LARGE.bytes), Ok(()));
    assert!(!device.runs(ONE));
}

#[test]
fn an_event_that_is_waited_for_is_not_recorded_anew() {
    let device = Device::new(GIB);
    let mark = || device.pages.instead_of_waiting(key(ONE)).unwrap();
    let first = mark();
    let event = device.pages.lock().orders.await_event(first).unwrap();
    let second = mark();
    assert_eq!(device.model().events(), 2);
    device.pages.lock().orders.waited(first, event, true);
    device.pages.wait(second);
    mark();
    assert_eq!(device.model().events(), 2);
}

/// The work may need a thread that asks about pages.
#[test]
fn who_waits_on_the_host_keeps_nobody_from_the_pages() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.model().hold_truly();
    device.give_up(0, lease, ONE);
    std::thread::scope(|scope| {
        let pages = &device.pages;
        let (at, elsewhere) = (device.at(LARGE, 0), device.at(LARGE, OTHER));
        let waiting = [
            scope.spawn(move || pages.leave(at, LARGE.bytes).is_ok()),
            scope.spawn(move || pages.add(huge(), || Err(Code::OUT_OF_MEMORY)).is_err()),
        ];
        std::thread::sleep(Duration::from_millis(20));
        assert!(waiting.iter().all(|wait| !wait.is_finished()));
        assert_eq!(pages.find(at), Found::Unused);
        assert_eq!(pages.find(elsewhere), Found::Nothing);
        assert_eq!(pages.totals().used_bytes, 0);
        device.model().hold(CONTEXT, ONE, false);
        assert!(waiting.into_iter().all(|wait| wait.join().unwrap()));
    });
}

fn huge() -> Kind {
    Kind {
        bytes: GIB,
        properties: 1,
    }
}

/// Pages side by side may be those of several contexts.
#[test]
fn all_contexts_of_what_is_unmapped_are_waited_for() {
    let device = Device::new(GIB);
    let other = Home {
        context: Context(2),
        ..device.home(1)
    };
    let second = device.create(LARGE).unwrap();
    let (at, behind) = (device.at(LARGE, 0), device.at(LARGE, 1));
    device.put(0);
    device
        .pages
        .map(behind, LARGE.bytes, second, other)
        .unwrap();
    for (at, context, stream) in [(at, CONTEXT, ONE), (behind, Context(2), TWO)] {
        device.pages.on_any_stream(at, context);
        device.model().hold(context, stream, true);
    }
    let unmapped = device.pages.unmap(at, 2 * LARGE.bytes, None);
    assert_eq!(unmapped, Some(Ok(())));
    assert!(!device.runs_in(CONTEXT, ONE) && !device.runs_in(Context(2), TWO));
}

/// Of a view of a context (a green one) only that context has all streams.
#[test]
fn what_graphs_replay_on_is_waited_for_in_the_whole_context_too() {
    const WHOLE: Context = Context(2);
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.pages.on_any_stream(device.at(LARGE, 0), WHOLE);
    for context in [CONTEXT, WHOLE] {
        device.model().hold(context, TWO, true);
    }
    device.unmap(LARGE, 0, lease);
    assert!(!device.runs_in(CONTEXT, TWO) && !device.runs_in(WHOLE, TWO));
}

/// Whoever else uses those bytes now comes after it as well.
#[test]
fn what_the_driver_could_not_say_to_all_streams_each_waits_for() {
    let device = Device::new(GIB);
    device.pages.contexts.begins(CONTEXT);
    let leases = [0, 1].map(|place| device.put(place));
    device.model().hold(CONTEXT, ONE, true);
    let mark = device.pages.instead_of_waiting(key(ONE));
    for (place, lease) in (0..).zip(leases) {
        let at = device.at(LARGE, place);
        assert_eq!(device.pages.unmap(at, LARGE.bytes, mark), Some(Ok(())));
        assert!(device.pages.release(lease));
    }
    device.model().hold_truly();
    device.model().fail_waits(2, Code::NOT_FOUND);
    std::thread::scope(|scope| {
        let device = &device;
        let putting = [OTHER, 2 * OTHER].map(|place| {
            let putting = scope.spawn(move || device.put(place));
            std::thread::sleep(Duration::from_millis(20));
            putting
        });
        let early = putting.iter().any(|putting| putting.is_finished());
        device.model().hold(CONTEXT, ONE, false);
        assert!(!early);
    });
}

#[test]
fn of_all_uses_of_a_page_the_last_one_is_waited_for() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    let first = device.give_up(0, lease, ONE);
    device.pages.wait(first);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.put(OTHER);
    assert!(!device.runs(ONE));
}

#[test]
fn who_finds_the_device_full_has_the_memory_of_what_was_waited_for() {
    let device = Device::new(4 * LARGE.bytes);
    let [first, _, last] = [0, 1, 2].map(|place| device.put(place));
    device.unmap(LARGE, 2, last);
    let given = device.pages.give_back(u64::MAX, Duration::ZERO);
    assert_eq!(given, LARGE.bytes);
    // Somebody else has all that is left.
    device.model().create(0, 2 * LARGE.bytes).unwrap();
    device.give_up(0, first, ONE);
    let make = || device.model().create(0, SMALL.bytes);
    assert!(device.pages.add(SMALL, make).is_ok());
    assert!(!device.runs(ONE));
}
