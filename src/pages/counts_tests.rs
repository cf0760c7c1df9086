//! What is counted of pages, and what is timed as one request.

use super::order_tests::{CONTEXT, ONE};
use super::tests::{Device, HOME, LARGE, SMALL};
use super::*;
use crate::driver::model::Model;
use crate::proc_stat::sleeps;
use crate::units::{GIB, MIB};
use rustix::thread::gettid;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn counts(device: &Device) -> Counts {
    device.pages.totals().counts
}

/// A page by a driver that takes this long for it.
fn create_in(device: &Device, time: Duration) -> Lease {
    let make = || {
        std::thread::sleep(time);
        device.model().create(0, LARGE.bytes)
    };
    assert_eq!(device.pages.lend(LARGE), None);
    device.pages.add(LARGE, make).unwrap()
}

/// Maps pages from a place on and opens them, as torch does once it has them all.
fn map_all(device: &Device, leases: &[Lease]) {
    for (place, lease) in (0..).zip(leases) {
        let at = device.at(LARGE, place);
        device.pages.map(at, LARGE.bytes, *lease, HOME).unwrap();
    }
    let bytes = leases.len() as u64 * LARGE.bytes;
    let opened = device
        .pages
        .set_access(device.at(LARGE, 0), bytes, 0, Access::Write);
    assert_eq!(opened, Some(Ok(())));
}

#[test]
fn pages_are_requests_and_what_is_there_again_is_a_hit() {
    let device = Device::new(GIB);
    let leases = [0, 1, 2].map(|place| device.map(LARGE, place));
    let made = counts(&device);
    assert_eq!((made.requests, made.hits, made.frees), (3, 0, 0));
    assert_eq!((made.growths, made.mapped), (3, 3));
    assert!(made.driver_ns > 0);
    for (place, lease) in (0..).zip(leases) {
        device.unmap(LARGE, place, lease);
    }
    device.map(LARGE, 0);
    let hit = counts(&device);
    assert_eq!((hit.requests, hit.hits, hit.frees), (4, 1, 3));
    assert_eq!((hit.growths, hit.mapped), (3, 3));
    assert_eq!(hit.driver_ns, made.driver_ns, "no call, no time");
    device.map(LARGE, 9);
    let moved = counts(&device);
    assert_eq!((moved.requests, moved.hits), (5, 1), "mapped elsewhere");
    assert_eq!((moved.growths, moved.mapped), (3, 4));
    // One that is made and never mapped is no request.
    let probe = device.create(LARGE).unwrap();
    assert!(device.pages.release(probe));
    assert_eq!(counts(&device).requests, 5);
}

#[test]
fn calls_that_are_quick_each_are_one_request_that_is_not() {
    let device = Device::new(GIB);
    let time = Duration::from_micros(400);
    let leases = [(); 4].map(|()| create_in(&device, time));
    assert_eq!(counts(&device).stalls, 0, "it is under way");
    map_all(&device, &leases);
    let stalled = counts(&device);
    assert_eq!(stalled.stalls, 1);
    assert!(stalled.stall_ns >= 4 * time.as_nanos() as u64);
    assert!(stalled.driver_ns >= 4 * time.as_nanos() as u64);
    assert!(stalled.driver_ns <= stalled.stall_ns, "{stalled:?}");
}

#[test]
fn a_page_refused_on_purpose_is_waited_for_until_it_is_there() {
    let device = Device::new(GIB);
    let idle = device.map(LARGE, 5);
    let before = counts(&device);
    assert_eq!(device.pages.lend(LARGE), None);
    device.pages.ask();
    // What is given up now, and the waits for that, are for its sake.
    let wait = Duration::from_millis(3);
    std::thread::sleep(wait);
    device.unmap(LARGE, 5, idle);
    assert_eq!(counts(&device).stalls, before.stalls);
    device.map(LARGE, 0);
    let served = counts(&device);
    assert_eq!(served.stalls, before.stalls + 1);
    assert!(served.stall_ns >= before.stall_ns + wait.as_nanos() as u64);
    assert_eq!(served.out_of_memory, 0);
}

#[test]
fn a_page_refused_for_good_is_a_request_that_took_its_time() {
    let device = Device::new(GIB);
    let slow = || {
        std::thread::sleep(Duration::from_millis(2));
        Err(Code::OUT_OF_MEMORY)
    };
    assert_eq!(device.pages.lend(LARGE), None);
    let refused = device.pages.add(LARGE, slow).unwrap_err();
    device.pages.refuse(refused);
    let refused = counts(&device);
    assert_eq!((refused.requests, refused.out_of_memory), (1, 1));
    assert_eq!((refused.stalls, refused.growths), (1, 0));
    // What the driver does not know how to make is no lack of memory.
    device.pages.refuse(Code::NOT_SUPPORTED);
    assert_eq!(counts(&device), refused);
}

#[test]
fn pages_made_in_vain_take_their_time_too() {
    let device = Device::new(GIB);
    let probe = create_in(&device, Duration::from_millis(2));
    assert!(device.pages.release(probe));
    let probed = counts(&device);
    assert_eq!((probed.requests, probed.stalls), (0, 1));
    // It is over: what comes later is not part of it.
    let later = Duration::from_millis(200);
    std::thread::sleep(later);
    map_all(&device, &[device.create(LARGE).unwrap()]);
    let more = counts(&device).stall_ns - probed.stall_ns;
    assert!(more < later.as_nanos() as u64, "{more}");
}

/// Who has a page there, but waits for a thread that gives others back, stands still;
/// that thread does not.
#[test]
fn a_request_that_waits_for_another_thread_is_a_stall_and_giving_back_is_none() {
    let slow = Arc::new(AtomicBool::new(false));
    let is_slow = Arc::clone(&slow);
    let model = Model::new(GIB);
    let base = model.reserve(64 * GIB).unwrap();
    let asker = gettid();
    let publish = move |_: &Totals| {
        if is_slow.swap(false, Relaxed) {
            // Until it is waited for, and then for some time.
            while !sleeps(asker) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    };
    let pages = Pages::new(model, 0, Arc::default(), Some(Box::new(publish)));
    let device = Device { pages, base };
    let leases = [0, 1].map(|place| device.map(LARGE, place));
    for (place, lease) in (0..).zip(leases) {
        device.unmap(LARGE, place, lease);
    }
    let before = counts(&device);
    slow.store(true, Relaxed);
    std::thread::scope(|scope| {
        let giving = scope.spawn(|| device.pages.give_back(1, Duration::ZERO));
        while slow.load(Relaxed) {
            std::thread::yield_now();
        }
        // The first one is gone, so this is the second one's place.
        device.map(LARGE, 1);
        assert_eq!(giving.join().unwrap(), LARGE.bytes);
    });
    let after = counts(&device);
    assert_eq!(
        (after.requests, after.hits),
        (before.requests + 1, before.hits + 1)
    );
    assert_eq!(after.stalls, before.stalls + 1, "{after:?}");
    assert!(after.driver_ns > before.driver_ns, "of giving back");
    // What it took is no part of what comes later.
    let later = Duration::from_millis(200);
    std::thread::sleep(later);
    device.pages.leave(device.at(LARGE, 0), 2 * MIB).unwrap();
    let more = counts(&device).stall_ns - after.stall_ns;
    assert!(more < later.as_nanos() as u64, "{more}");
}

/// For the page that it gets, or for those that make way.
#[test]
fn a_request_that_waits_for_work_on_the_device_is_a_stall() {
    let wait = Duration::from_millis(20);
    let next: [fn(&Device); 2] = [
        // Where it was: whose the reservation is now is not known.
        |device| {
            device.pages.unreserved(device.at(LARGE, 0), LARGE.bytes);
            device.put(0);
        },
        |device| {
            device.map(SMALL, 0);
        },
    ];
    let stall_of = |next: fn(&Device)| {
        let device = Device::new(LARGE.bytes);
        let lease = device.put(0);
        device.model().hold_truly();
        device.give_up(0, lease, ONE);
        let before = counts(&device).stall_ns;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(wait);
                device.model().hold(CONTEXT, ONE, false);
            });
            next(&device);
        });
        counts(&device).stall_ns - before
    };
    for next in next {
        // On a busy machine the work may be done before it is waited for.
        let took = [0; 5].map(|_| stall_of(next));
        let longest = *took.iter().max().unwrap();
        assert!(longest > wait.as_nanos() as u64 / 2, "{took:?}");
    }
}

/// Neither what goes back for others nor a device that is let in ends a request, or
/// begins one.
#[test]
fn what_is_done_beside_a_request_is_no_part_of_it() {
    let beside: [fn(&Device, u32); 2] = [
        |device, _| assert_eq!(device.pages.give_back(1, Duration::ZERO), SMALL.bytes),
        |device, reader| {
            let opened = device
                .pages
                .open_to(device.at(LARGE, 0), LARGE.bytes, reader);
            assert_eq!(opened, Some(Ok(())));
        },
    ];
    for beside in beside {
        let device = Device::new(GIB);
        let small: Vec<_> = (0..10).map(|place| device.map(SMALL, place)).collect();
        for (place, lease) in (0..).zip(small) {
            device.unmap(SMALL, place, lease);
        }
        device.pages.give_back(LARGE.bytes, Duration::ZERO);
        let before = counts(&device);
        let lease = create_in(&device, Duration::from_millis(2));
        let at = device.at(LARGE, 0);
        device.pages.map(at, LARGE.bytes, lease, HOME).unwrap();
        beside(&device, 1);
        assert_eq!(counts(&device).stalls, before.stalls, "it is under way");
        // Nor is a call that had no memory its end.
        device
            .model()
            .fail_at(device.model().calls(), Code::OUT_OF_MEMORY);
        let open = || device.pages.set_access(at, LARGE.bytes, 0, Access::Write);
        assert_eq!(open(), Some(Err(Code::OUT_OF_MEMORY)));
        assert_eq!(counts(&device).stalls, before.stalls);
        assert_eq!(open(), Some(Ok(())));
        assert_eq!(counts(&device).stalls, before.stalls + 1);
        beside(&device, 2);
        let (before, later) = (counts(&device), Duration::from_millis(200));
        std::thread::sleep(later);
        device.map(LARGE, 1);
        let more = counts(&device).stall_ns - before.stall_ns;
        assert!(more < later.as_nanos() as u64, "{more}");
    }
}
