//! What counts as a stall.

use super::tests::{key, on, pool};
use super::*;
use crate::driver::{Stream, model::Model};
use crate::proc_stat::sleeps;
use crate::units::MIB;
use rustix::thread::gettid;
use std::time::Duration;

const WAIT: Duration = Duration::from_millis(3);

#[test]
fn a_request_that_waited_is_a_stall_though_it_was_refused() {
    let settings = Settings {
        starving: Some(Box::new(|_, _, _| {
            std::thread::sleep(WAIT);
            false
        })),
        ..Settings::default()
    };
    let pool = Pool::new(Model::new(4 * MIB), 0, settings).unwrap();
    let before = pool.stats();
    assert_eq!((before.stalls, before.stall_ns), (0, 0));
    let refused = pool.alloc(&on(10, 8 * MIB));
    assert_eq!(refused, Err(Code::OUT_OF_MEMORY.into()));
    let after = pool.stats();
    assert_eq!(after.stalls, 1);
    assert!(after.stall_ns >= WAIT.as_nanos() as u64);
    // A second one adds to it.
    let _ = pool.alloc(&on(10, 8 * MIB));
    assert_eq!(pool.stats().stalls, 2);
    assert!(pool.stats().stall_ns >= 2 * WAIT.as_nanos() as u64);
}

#[test]
fn what_the_quick_path_serves_is_none() {
    let pool = pool(Settings::default());
    let lend = |bytes: u64| {
        let at = pool.alloc(&on(10, bytes)).unwrap();
        pool.free(at, Release::Stream(key(10))).unwrap();
    };
    // Keeps the slab, whose bytes the large one would have otherwise.
    pool.alloc(&on(10, 512)).unwrap();
    lend(512);
    lend(64 * MIB);
    // Growth may have been slow on a busy machine; hits are not even timed.
    let grown = pool.stats();
    for _ in 0..10_000 {
        lend(512);
        lend(64 * MIB);
    }
    let stats = pool.stats();
    assert_eq!(stats.searches, grown.searches);
    assert_eq!(stats.hits, grown.hits + 20_000);
    assert_eq!(
        (stats.stalls, stats.stall_ns),
        (grown.stalls, grown.stall_ns)
    );
}

#[test]
fn a_free_that_waits_for_the_driver_is_one() {
    let settings = Settings {
        policy: Policy::Direct,
        ..Settings::default()
    };
    let pool = pool(settings);
    let at = pool.alloc(&on(10, 64 * MIB)).unwrap();
    let before = pool.stats();
    // Somebody builds for a while: the trim behind this free has to wait.
    let builder = pool.growth.lock().unwrap();
    std::thread::scope(|scope| {
        let (told, hears) = std::sync::mpsc::channel();
        let pool = &pool;
        scope.spawn(move || {
            told.send(gettid()).unwrap();
            pool.free(at, Release::Stream(key(10))).unwrap();
        });
        let frees = hears.recv().unwrap();
        while pool.stats().live_bytes > 0 || !sleeps(frees) {
            std::thread::yield_now();
        }
        std::thread::sleep(WAIT);
        drop(builder);
    });
    assert_eq!(pool.stats().stalls, before.stalls + 1);
    assert!(pool.stats().stall_ns >= before.stall_ns + 1_000_000);
}

/// Nor is all that is left of it taken for a moment, to be given back.
#[test]
fn what_is_longer_than_the_device_is_not_tried() {
    let pool = pool(Settings {
        total: Some(64 << 30),
        ..Settings::default()
    });
    pool.alloc(&on(10, MIB)).unwrap();
    let calls = pool.driver().calls();
    let short = Err(Refusal::Driver(Code::OUT_OF_MEMORY));
    assert_eq!(pool.alloc(&on(10, (64 << 30) + 1)), short);
    assert_eq!(
        (pool.driver().calls(), pool.stats().out_of_memory),
        (calls, 1)
    );
    let asked = Request {
        effort: Effort::Window,
        ..on(10, 65 << 30)
    };
    assert_eq!(
        pool.alloc(&asked),
        Err(Refusal::NoWindow),
        "for torch to free first"
    );
}

/// Nor is anything waited for, or asked of others, for what the limit forbids by itself.
#[test]
fn what_is_longer_than_the_limit_is_not_tried() {
    let pool = pool(Settings {
        limit: Some(8 * MIB),
        starving: Some(Box::new(|_, _, _| panic!("nobody is asked"))),
        ..Settings::default()
    });
    let at = pool.alloc(&on(10, MIB)).unwrap();
    pool.driver().hold(tests::CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    let waits = pool.stats().host_waits;
    let short = Err(Refusal::Driver(Code::OUT_OF_MEMORY));
    assert_eq!(pool.alloc(&on(10, 8 * MIB + 1)), short);
    assert_eq!(pool.stats().host_waits, waits);
}
