//! Threads that ask, or wait, beside one that waits for what is pending.

use crate::driver::model::Model;
use crate::driver::{Code, Stream};
use crate::pool::streams::Streams;
use crate::pool::tests::{CONTEXT, key, on, request, watch};
use crate::pool::{Order, Pool, Release, Request, Settings};
use crate::units::MIB;
use std::time::Duration;

/// What one thread waits for is not what others need.
#[test]
fn others_get_memory_while_a_thread_waits_for_what_is_pending() {
    let pool = Pool::new(Model::new(256 * MIB), 0, Settings::default()).unwrap();
    pool.driver().hold_truly();
    let at = pool.alloc(&on(10, 32 * MIB));
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at.unwrap(), Release::Stream(key(10))).unwrap();
    let anywhere = request(32 * MIB, Order::Unknown);
    let all = Request {
        bytes: 256 * MIB,
        ..anywhere
    };
    let pool = &pool;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.alloc(&all));
        while !pool.lock().streams.health.is_awaited(CONTEXT) {
            std::thread::yield_now();
        }
        let (told, hears) = std::sync::mpsc::channel();
        let other = scope.spawn(move || {
            let at = pool.alloc(&anywhere).unwrap();
            pool.free(at, Release::Complete).unwrap();
            told.send(()).unwrap();
        });
        let served = hears.recv_timeout(Duration::from_secs(20));
        pool.driver().hold(CONTEXT, Stream(10), false);
        other.join().unwrap();
        waits.join().unwrap().unwrap();
        served.expect("it waited for what the other one needs");
    });
    assert_eq!(pool.physical(), 256 * MIB);
}

/// A driver answers at once, and what is waited for may wait for the answer.
#[test]
fn nobody_waits_for_what_would_not_be_enough() {
    for limit in [None, Some(64 * MIB)] {
        let settings = Settings {
            limit,
            ..Settings::default()
        };
        let total = if limit.is_some() { 256 } else { 64 };
        let pool = Pool::new(Model::new(total * MIB), 0, settings).unwrap();
        let kept = pool.alloc(&on(11, 40 * MIB)).unwrap();
        let freed = pool.alloc(&on(10, 8 * MIB)).unwrap();
        pool.driver().hold(CONTEXT, Stream(10), true);
        pool.free(freed, Release::Stream(key(10))).unwrap();
        let anywhere = |bytes| pool.alloc(&request(bytes, Order::Unknown));
        let short = Err(Code::OUT_OF_MEMORY.into());
        assert_eq!(anywhere(32 * MIB), short, "{limit:?}");
        assert!(!pool.is_over(CONTEXT), "nobody waited, {limit:?}");
        // It would be enough.
        anywhere(24 * MIB).unwrap();
        pool.free(kept, Release::Complete).unwrap();
    }
}

/// Of two waits for the same events each keeps them from being recorded anew.
#[test]
fn an_event_that_two_wait_for_is_kept_until_both_have() {
    let (driver, mut streams) = (Model::new(0), Streams::default());
    driver.hold(CONTEXT, Stream(10), true);
    let stream = streams.id(key(10));
    let last = streams.tag(&driver, stream, 0).unwrap();
    let [(first, events), (second, same)] = [(); 2].map(|()| streams.outstanding(&driver));
    assert_eq!(events, same);
    let (_, seq, event) = events[0];
    for wait in [first, second] {
        assert!(streams.begin_wait(wait, CONTEXT, event));
        streams.health.end_wait(CONTEXT);
    }
    streams.end_wait(first);
    assert!(!streams.begin_wait(first, CONTEXT, event));
    streams.passed(stream, seq);
    assert!(streams.is_done(last));
    streams.make_edge(&driver, stream, 0, false).unwrap();
    assert_eq!(
        driver.events(),
        2,
        "the second one still waits for the first"
    );
    streams.end_wait(second);
    streams.make_edge(&driver, stream, 0, false).unwrap();
    assert_eq!(driver.events(), 2);
}

/// Each wait uses the events of those before it.
#[test]
fn waits_for_what_is_pending_leave_no_events_behind() {
    let pool = Pool::new(Model::new(64 * MIB), 0, Settings::default()).unwrap();
    let round = || {
        pool.driver().hold(CONTEXT, Stream(10), true);
        let blocks = [0; 16].map(|_| pool.alloc(&on(10, 4 * MIB)).unwrap());
        watch(&pool, key(10));
        for at in blocks {
            pool.free(at, Release::Stream(key(10))).unwrap();
        }
        let at = pool.alloc(&request(64 * MIB, Order::Unknown)).unwrap();
        pool.driver().hold(CONTEXT, Stream(10), false);
        pool.free(at, Release::Complete).unwrap();
    };
    (0..5).for_each(|_| round());
    let (events, waits) = (pool.driver().events(), pool.stats().host_waits);
    (0..20).for_each(|_| round());
    assert_eq!(pool.driver().events(), events);
    assert_eq!(pool.stats().host_waits, waits + 20);
}

/// What it waited for first was somebody else's by then.
#[test]
fn a_request_waits_for_what_others_have_freed_while_it_waited() {
    let pool = Pool::new(Model::new(64 * MIB), 0, Settings::default()).unwrap();
    pool.driver().hold_truly();
    let [first, second] = [10, 11].map(|stream| pool.alloc(&on(stream, 32 * MIB)).unwrap());
    for stream in [10, 11] {
        pool.driver().hold(CONTEXT, Stream(stream), true);
    }
    pool.free(first, Release::Stream(key(10))).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.alloc(&request(32 * MIB, Order::Unknown)));
        while !pool.lock().streams.health.is_awaited(CONTEXT) {
            std::thread::yield_now();
        }
        assert_eq!(pool.alloc(&on(10, 32 * MIB)), Ok(first));
        pool.free(second, Release::Stream(key(11))).unwrap();
        pool.driver().hold(CONTEXT, Stream(10), false);
        while pool.stats().host_waits < 2 && !waits.is_finished() {
            std::thread::yield_now();
        }
        pool.driver().hold(CONTEXT, Stream(11), false);
        assert_eq!(waits.join().unwrap(), Ok(second));
    });
}

/// As with the driver's own, whose pages any allocation of up to 1 MiB shares.
#[test]
fn on_a_full_device_what_is_longer_than_small_has_a_hole_in_a_slab() {
    let pool = Pool::new(Model::new(2 * MIB), 0, Settings::default()).unwrap();
    let small: Vec<_> = (0..8)
        .map(|_| pool.alloc(&on(10, MIB / 4)).unwrap())
        .collect();
    for at in &small[2..5] {
        pool.free(*at, Release::Stream(key(10))).unwrap();
    }
    let short = Err(Code::OUT_OF_MEMORY.into());
    assert_eq!(pool.alloc(&on(10, MIB)), short);
    let long = 700 << 10;
    for _ in 0..2 {
        let at = pool.alloc(&on(10, long)).unwrap();
        assert_eq!(at, small[2]);
        let export = pool.export(at).unwrap();
        assert_eq!((export.block.bytes, export.offset), (long, MIB / 2));
        pool.export_ends(export.block.id);
        assert_eq!(pool.alloc(&on(10, long)), short);
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    // It is whole again for what is shorter, and the slab for what is longer.
    for at in &small[2..5] {
        assert_eq!(pool.alloc(&on(10, MIB / 4)), Ok(*at));
    }
    for at in small {
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    pool.alloc(&on(10, 2 * MIB)).unwrap();
}
