//! Streams and contexts that end, or may be ending, over the model driver: what is waited
//! for before, and what becomes of the events.

use std::time::Duration;

use super::order_tests::{CONTEXT, ONE, OTHER, TWO, key};
use super::tests::{Device, LARGE};
use super::*;
use crate::units::GIB;

#[test]
fn a_stream_that_ended_is_not_the_one_that_has_its_handle() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.pages.stream_ends(key(ONE));
    device.put(0);
    assert!(!device.runs(ONE), "which stream comes next is not known");
}

/// Nor does one of that handle make the pages of the other its own.
#[test]
fn who_has_its_handle_next_comes_after_it() {
    let device = Device::new(GIB);
    let (zero, one) = (device.put(0), device.put(1));
    device.give_up(0, zero, ONE);
    device.pages.stream_ends(key(ONE));
    device.give_up(1, one, ONE);
    device.put(0);
    assert_eq!(
        device.orders(),
        [0, 1],
        "another stream, as far as order goes"
    );

    let device = Device::new(GIB);
    let (zero, other) = (device.put(0), device.put(OTHER));
    device.give_up(0, zero, ONE);
    device.pages.stream_ends(key(ONE));
    device.give_up(OTHER, other, ONE);
    device.put(1);
    assert_eq!(device.orders(), [0, 1], "the reservation is not its own");
}

/// Whom the program waits for by the handle, if there is one of it, is another stream.
#[test]
fn what_a_stream_had_when_it_ended_is_waited_for_before_what_it_used_is_given_up() {
    let device = Device::new(GIB);
    let [zero, one] = [0, 1].map(|place| device.put(place));
    device.model().hold(CONTEXT, ONE, true);
    assert!(device.pages.stream_ends(key(ONE)));
    device.give_up(0, zero, TWO);
    assert!(!device.runs(ONE) && device.runs(TWO));
    assert_eq!(device.orders(), [0, 1]);
    device.model().hold(CONTEXT, ONE, true);
    device.give_up(1, one, TWO);
    assert!(device.runs(ONE), "the one that has the handle");
}

#[test]
fn where_no_event_tells_of_a_stream_that_ended_its_context_is_waited_for() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.model().hold(CONTEXT, ONE, true);
    device.model().fail_waits(1, Code(999));
    assert!(!device.pages.stream_ends(key(ONE)));
    device.pages.all_on_any_stream(&[CONTEXT]);
    device.unmap(LARGE, 0, lease);
    assert!(!device.runs(ONE));
}

#[test]
fn a_stream_that_ends_while_no_page_is_in_use_costs_no_event() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.unmap(LARGE, 0, lease);
    assert!(device.pages.stream_ends(key(ONE)));
    assert_eq!(device.model().events(), 0);
}

#[test]
fn of_a_context_that_ended_nothing_runs_and_none_of_its_events_is_used_again() {
    let device = Device::new(GIB);
    let give = || device.pages.give_back(u64::MAX, Duration::ZERO);
    let lease = device.put(0);
    let spare = device.pages.instead_of_waiting(key(ONE)).unwrap();
    device.give_up(0, lease, ONE);
    device.pages.wait(spare);
    device.model().hold(CONTEXT, ONE, true);
    device.pages.context_leaves(CONTEXT);
    device.model().end_context(CONTEXT);
    device.pages.context_ends(CONTEXT);
    assert_eq!(give(), LARGE.bytes);
    // Another one may have its handle, and a stream of that the handle of its stream,
    // whose the reservation is not.
    let lease = device.put(OTHER);
    device.give_up(OTHER, lease, ONE);
    device.put(0);
    assert!(!device.runs(ONE));
    assert!(device.model().waits().is_empty());
}

#[test]
fn a_broken_context_has_nothing_to_wait_for_and_marks_nothing() {
    let device = Device::new(GIB);
    device.model().fail_waits(1, Code(700));
    assert!(device.pages.instead_of_waiting(key(ONE)).is_none());
}

/// Nor does a mark that cannot be made, or a wait for a whole context, leave one behind.
#[test]
fn events_are_used_again() {
    let device = Device::new(GIB);
    for round in 0..8 {
        let lease = device.put(0);
        device.model().fail_waits(round % 2, Code(999));
        let fails = device.pages.instead_of_waiting(key(ONE)).is_none();
        assert_eq!(fails, round % 2 == 1);
        if round % 3 == 0 {
            device.pages.on_any_stream(device.at(LARGE, 0), CONTEXT);
        }
        let mark = device.give_up(0, lease, ONE);
        match round < 4 {
            true => device.pages.wait(mark),
            false => device.model().hold(CONTEXT, ONE, false),
        }
    }
    let events = device.model().events();
    assert!(events <= 2, "{events}");
    // But for those of another context.
    let other = StreamKey::new(Context(2), ONE, 0);
    assert!(device.pages.instead_of_waiting(other).is_some());
    assert_eq!(device.model().events(), events + 1);
}

#[test]
fn of_a_context_that_may_be_ending_nothing_is_asked() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.pages.context_leaves(CONTEXT);
    device.model().hold(CONTEXT, ONE, false);
    let give = || device.pages.give_back(u64::MAX, Duration::ZERO);
    // A mark elsewhere asks what was passed.
    let elsewhere = StreamKey::new(Context(2), TWO, 0);
    assert!(device.pages.instead_of_waiting(elsewhere).is_some());
    assert_eq!(give(), 0, "its work counts as running");
    assert!(device.pages.instead_of_waiting(key(ONE)).is_none());
    device.pages.context_stays(CONTEXT);
    // Who uses it by another address next, which would be an edge; who unmaps it in
    // truth; who gives up what graphs may replay on.
    let at = device.at(LARGE, 1);
    // It is mapped there, and how that comes after the last use is decided, under one lock.
    let is_mapped = || device.pages.used_in(at, LARGE.bytes).is_some();
    let lease = waits_until_it_stays(&device, is_mapped, || device.put(1));
    assert!(device.model().waits().is_empty());
    device.give_up(1, lease, ONE);
    let leave = || device.pages.leave(at, LARGE.bytes).unwrap();
    waits_until_it_stays(&device, || true, leave);
    assert_eq!(give(), LARGE.bytes);
    let lease = device.put(1);
    device.pages.on_any_stream(at, CONTEXT);
    waits_until_it_stays(&device, || true, || device.unmap(LARGE, 1, lease));
}

/// Its handle may be another's.
#[test]
fn a_context_that_ended_is_not_waited_for_though_graphs_replayed_in_it() {
    const WHOLE: Context = Context(2);
    for ends_meanwhile in [false, true] {
        let device = Device::new(GIB);
        let lease = device.put(0);
        device.pages.on_any_stream(device.at(LARGE, 0), WHOLE);
        device.model().hold(WHOLE, TWO, true);
        let end = || {
            device.pages.context_ends(CONTEXT);
            device.model().hold(CONTEXT, ONE, true);
        };
        device.pages.context_leaves(CONTEXT);
        if !ends_meanwhile {
            end();
        }
        std::thread::scope(|scope| {
            let unmaps = scope.spawn(|| device.unmap(LARGE, 0, lease));
            if ends_meanwhile {
                std::thread::sleep(Duration::from_millis(5));
                assert!(!unmaps.is_finished());
                end();
            }
        });
        assert!(!device.runs_in(WHOLE, TWO));
        assert!(device.runs(ONE), "{ends_meanwhile}");
    }
}

/// Nor asked anything.
#[test]
fn a_context_that_ended_during_the_wait_for_another_one_is_not_waited_for() {
    const WHOLE: Context = Context(2);
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.pages.on_any_stream(device.at(LARGE, 0), WHOLE);
    device.model().hold_truly();
    device.model().hold(CONTEXT, ONE, true);
    let is_awaited = |context| device.pages.lock().orders.is_awaited(context);
    std::thread::scope(|scope| {
        let unmaps = scope.spawn(|| device.unmap(LARGE, 0, lease));
        while !is_awaited(CONTEXT) {
            std::thread::sleep(Duration::from_millis(1));
        }
        device.pages.context_leaves(WHOLE);
        device.pages.context_ends(WHOLE);
        // Another one has its handle.
        device.model().hold(WHOLE, TWO, true);
        device.model().hold(CONTEXT, ONE, false);
        while !unmaps.is_finished() && !is_awaited(WHOLE) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = !unmaps.is_finished();
        device.model().hold(WHOLE, TWO, false);
        assert!(!waits, "for another one");
    });
}

/// Runs what waits for a context that may be ending, which does not end. It stays once
/// `has_begun` says so, however late that is.
fn waits_until_it_stays<T: Send>(
    device: &Device,
    has_begun: impl Fn() -> bool,
    run: impl FnOnce() -> T + Send,
) -> T {
    device.pages.context_leaves(CONTEXT);
    std::thread::scope(|scope| {
        let waits = scope.spawn(run);
        while !has_begun() && !waits.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(!waits.is_finished());
        device.pages.context_stays(CONTEXT);
        waits.join().unwrap()
    })
}

/// The driver wants nothing to be asked of it then.
#[test]
fn a_context_leaves_behind_the_waits_for_it() {
    let wait_for_a_mark = |device: &Device, lease| {
        let mark = device.give_up(0, lease, ONE);
        device.pages.wait(mark);
    };
    let wait_for_graphs = |device: &Device, lease| {
        device.pages.on_any_stream(device.at(LARGE, 0), CONTEXT);
        device.unmap(LARGE, 0, lease);
    };
    for wait in [
        &wait_for_a_mark as &(dyn Fn(&Device, Lease) + Sync),
        &wait_for_graphs,
    ] {
        let device = Device::new(GIB);
        let lease = device.put(0);
        device.model().hold_truly();
        device.model().hold(CONTEXT, ONE, true);
        std::thread::scope(|scope| {
            scope.spawn(|| wait(&device, lease));
            while !device.pages.lock().orders.is_awaited(CONTEXT) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let leaves = scope.spawn(|| device.pages.context_leaves(CONTEXT));
            std::thread::sleep(Duration::from_millis(20));
            let early = leaves.is_finished();
            device.model().hold(CONTEXT, ONE, false);
            leaves.join().unwrap();
            assert!(!early);
        });
    }
}

/// Its streams answer nothing once it is gone.
#[test]
fn what_was_given_up_in_a_view_of_a_context_is_waited_for_before_it_ends() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.pages.view_leaves(Context(2));
    assert!(device.runs(ONE), "another one");
    device.pages.view_leaves(CONTEXT);
    assert!(!device.runs(ONE));
    assert!(device.pages.instead_of_waiting(key(ONE)).is_none());
    device.pages.context_stays(CONTEXT);
    assert!(device.pages.instead_of_waiting(key(ONE)).is_some());
}

#[test]
fn who_has_the_handle_of_a_stream_comes_after_it_though_nothing_was_in_use_as_it_ended() {
    let device = Device::new(GIB);
    device.pages.contexts.begins(CONTEXT);
    let [zero, one] = [0, 1].map(|place| device.put(place));
    device.give_up(0, zero, ONE);
    device.give_up(1, one, ONE);
    assert!(device.pages.stream_ends(key(ONE)));
    let zero = device.put(0);
    assert_eq!(device.orders(), [1, 0]);
    device.give_up(0, zero, ONE);
    device.put(1);
    assert_eq!(device.orders(), [2, 0], "another stream has its handle");
}
