//! The pool over the model driver: what is lent, to whom, and after which waits.

use super::*;
use crate::driver::Context;
use crate::driver::{Stream, model::Model};
use crate::random::Random;
use crate::units::MIB;

pub(super) const CONTEXT: Context = Context(1);

pub(super) fn pool(settings: Settings) -> Pool<Model> {
    Pool::new(Model::new(64 << 30), 0, settings).unwrap()
}

pub(super) fn key(stream: u64) -> StreamKey {
    StreamKey::new(CONTEXT, Stream(stream), 0)
}

pub(super) fn request(bytes: u64, order: Order) -> Request {
    Request {
        bytes,
        align: 512,
        order,
        context: CONTEXT,
        owner: Owner::Context,
        effort: Effort::Growth,
        graph: false,
    }
}

pub(super) fn on(stream: u64, bytes: u64) -> Request {
    request(bytes, Order::Stream(key(stream)))
}

/// Frees on stream 10.
pub(super) fn free(pool: &Pool<Model>, at: Address) {
    pool.free(at, Release::Stream(key(10))).unwrap();
}

/// Another stream wanted what was freed on this one.
pub fn watch(pool: &Pool<Model>, key: StreamKey) {
    let mut state = pool.lock();
    let id = state.streams.id(key);
    state.streams.watch(id);
}

#[test]
fn a_freed_window_is_lent_again_on_its_stream_without_a_driver_call() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 64 * MIB)).unwrap();
    let calls = pool.driver().calls();
    pool.free(at, Release::Stream(key(10))).unwrap();
    assert_eq!(pool.alloc(&on(10, 64 * MIB)), Ok(at));
    assert_eq!(pool.driver().calls(), calls);
    assert!(pool.driver().waits().is_empty());
}

#[test]
fn a_comb_is_stitched_instead_of_grown() {
    let pool = pool(Settings::default());
    let teeth: Vec<_> = (0..32)
        .map(|_| pool.alloc(&on(10, 32 * MIB)).unwrap())
        .collect();
    let physical = pool.physical();
    for at in teeth.iter().step_by(2) {
        pool.free(*at, Release::Stream(key(10))).unwrap();
    }
    pool.alloc(&on(10, 16 * 32 * MIB)).unwrap();
    assert_eq!(pool.physical(), physical, "only stitching serves this");
    assert_eq!(pool.idle(), 0);
}

#[test]
fn a_window_is_taken_where_it_breaks_no_whole_handle() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let at = |mib| pool.alloc(&on(10, mib * MIB)).unwrap();
    // 32 MiB, of which 8 stay in use, behind 32 that are wholly free.
    let (whole, rest, _kept) = (at(32), at(24), at(8));
    pool.free(whole, Release::Stream(key(10))).unwrap();
    pool.free(rest, Release::Stream(key(10))).unwrap();
    // The older stitch fits closely, too, but would be broken.
    assert_eq!(at(23), rest);
    assert_eq!(at(32), whole);
    assert_eq!(pool.physical(), 64 * MIB);
}

#[test]
fn a_remembered_window_that_would_break_a_whole_handle_is_no_hit() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let at = |mib| pool.alloc(&on(10, mib * MIB)).unwrap();
    let free = |at| pool.free(at, Release::Stream(key(10))).unwrap();
    let first = at(16);
    free(first);
    // Its handle was whole again; now another one is in part use.
    let (whole, _kept) = (at(32), at(8));
    free(whole);
    assert_ne!(at(16), whole, "where 16 MiB were before");
    assert_eq!(at(32), whole);
    assert_eq!(pool.physical(), 64 * MIB);
}

#[test]
fn a_remembered_window_that_is_longer_than_needed_is_no_hit() {
    let pool = pool(Settings {
        chunk: Some(64 * MIB),
        ..Settings::default()
    });
    let at = |kib: u64| pool.alloc(&on(10, kib << 10)).unwrap();
    // 63.5 MiB that were two windows, in a handle in use, before 64 that were one.
    let (one, two, _kept, whole) = (at(31 << 10), at(65 << 9), at(512), at(64 << 10));
    for freed in [one, two, whole] {
        pool.free(freed, Release::Stream(key(10))).unwrap();
    }
    assert_eq!(at(253 << 8), one);
    assert_eq!(at(64 << 10), whole);
    assert_eq!(pool.physical(), 128 * MIB);
}

/// Of the limit, or of the device.
#[test]
fn what_is_left_is_lent_where_it_is_less_than_a_handle_of_the_set_size() {
    for (device, limit) in [(64 << 30, Some(700 * MIB)), (700 * MIB, None)] {
        let settings = Settings {
            chunk: Some(512 * MIB),
            limit,
            ..Settings::default()
        };
        let pool = Pool::new(Model::new(device), 0, settings).unwrap();
        for (mib, physical) in [(256, 512), (256, 512), (100, 612), (88, 700)] {
            pool.alloc(&on(10, mib * MIB)).unwrap();
            assert_eq!(pool.physical(), physical * MIB);
        }
        let out = pool.alloc(&on(10, 100 * MIB));
        assert_eq!(out, Err(Code::OUT_OF_MEMORY.into()));
    }
}

#[test]
fn growth_is_the_shortfall_only() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 64 * MIB)).unwrap();
    pool.free(at, Release::Stream(key(10))).unwrap();
    pool.alloc(&on(10, 80 * MIB)).unwrap();
    assert_eq!(pool.physical(), 80 * MIB);
}

#[test]
fn another_stream_waits_for_the_last_user_or_gets_other_memory() {
    let pool = pool(Settings {
        limit: Some(32 * MIB),
        ..Settings::default()
    });
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    pool.alloc(&on(11, 32 * MIB)).unwrap();
    assert_eq!(pool.driver().waits(), [(Stream(11), Stream(10))]);
    assert_eq!(pool.stats().waits, 1);
}

#[test]
fn a_request_without_a_stream_never_gets_pending_bytes() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    let other = pool.alloc(&request(32 * MIB, Order::Unknown)).unwrap();
    assert_eq!(pool.physical(), 64 * MIB, "it grew instead");
    assert_eq!(pool.stats().pending_bytes, 32 * MIB);
    pool.free(other, Release::Complete).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), false);
    pool.alloc(&request(64 * MIB, Order::Unknown)).unwrap();
    assert_eq!(pool.physical(), 64 * MIB, "both were known complete");
}

#[test]
fn at_the_limit_a_request_without_a_stream_waits_on_the_host() {
    let pool = pool(Settings {
        limit: Some(32 * MIB),
        ..Settings::default()
    });
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    pool.alloc(&request(32 * MIB, Order::Unknown)).unwrap();
    assert!(pool.stats().host_waits > 0);
    assert_eq!(
        pool.alloc(&request(32 * MIB, Order::Unknown)),
        Err(Refusal::Driver(Code::OUT_OF_MEMORY))
    );
}

#[test]
fn a_window_only_request_is_refused_where_there_is_none() {
    let pool = pool(Settings::default());
    let mut asked = on(10, 32 * MIB);
    asked.effort = Effort::Window;
    assert_eq!(pool.alloc(&asked), Err(Refusal::NoWindow));
    assert_eq!(pool.physical(), 0);
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    let kept = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.free(at, Release::Stream(key(10))).unwrap();
    assert_eq!(pool.alloc(&asked), Ok(at));
    // Of what is free on both sides of another block a stitch could be made.
    let behind = pool.alloc(&on(10, 32 * MIB)).unwrap();
    for freed in [at, behind] {
        pool.free(freed, Release::Stream(key(10))).unwrap();
    }
    asked.bytes = 64 * MIB;
    assert_eq!(pool.alloc(&asked), Err(Refusal::NoWindow));
    assert!(pool.alloc(&on(10, 64 * MIB)).is_ok() && pool.find(kept).is_some());
    assert_eq!(pool.physical(), 96 * MIB);
}

#[test]
fn graph_memory_waits_for_its_whole_context() {
    let pool = pool(Settings::default());
    let asked = Request {
        graph: true,
        ..on(10, 32 * MIB)
    };
    let at = pool.alloc(&asked).unwrap();
    pool.driver().hold(CONTEXT, Stream(99), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    pool.alloc(&request(32 * MIB, Order::Unknown)).unwrap();
    assert_eq!(
        pool.physical(),
        64 * MIB,
        "a replay may still run on any stream"
    );
    pool.driver().hold(CONTEXT, Stream(99), false);
    pool.alloc(&request(32 * MIB, Order::Unknown)).unwrap();
    assert_eq!(pool.physical(), 64 * MIB);
}

#[test]
fn wrong_frees_are_told_apart() {
    let pool = pool(Settings::default());
    for bytes in [1000, 8 * MIB] {
        let at = pool.alloc(&on(10, bytes)).unwrap();
        assert_eq!(
            pool.free(at + 256, Release::Complete),
            Err(NotOurs::Interior)
        );
        assert_eq!(pool.find(at + bytes - 1).unwrap().base, at);
        assert_eq!(pool.find(at + bytes), None);
        let behind = pool.free(at + bytes, Release::Complete);
        assert_eq!(behind, Err(NotOurs::Unknown));
        pool.free(at, Release::Complete).unwrap();
        assert_eq!(pool.free(at, Release::Complete), Err(NotOurs::Unknown));
    }
}

#[test]
fn trimming_returns_every_idle_byte_and_keeps_what_is_lent() {
    let pool = pool(Settings::default());
    let keep = pool.alloc(&on(10, 40 * MIB)).unwrap();
    let teeth: Vec<_> = (0..8)
        .map(|_| pool.alloc(&on(10, 16 * MIB)).unwrap())
        .collect();
    for at in teeth {
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    assert_eq!(pool.trim(), 128 * MIB);
    assert_eq!((pool.physical(), pool.idle()), (40 * MIB, 0));
    assert_eq!(pool.find(keep).unwrap().bytes, 40 * MIB);
    pool.free(keep, Release::Stream(key(10))).unwrap();
    pool.trim();
    let (_, handles, mappings) = pool.driver().leftovers();
    assert_eq!((handles, mappings), (0, 0));
}

#[test]
fn the_direct_policy_holds_exactly_what_is_live() {
    let pool = pool(Settings {
        policy: Policy::Direct,
        ..Settings::default()
    });
    let at = pool.alloc(&on(10, 5 * MIB)).unwrap();
    assert_eq!(pool.physical(), 6 * MIB);
    pool.free(at, Release::Complete).unwrap();
    assert_eq!(pool.physical(), 0);
}

/// A long random program, with a failure put into each driver call of it in
/// turn: every allocation either succeeds or says out of memory, live windows
/// never overlap, and in the end everything goes back.
#[test]
fn a_failure_in_any_driver_call_leaves_the_state_whole() {
    let calls = run_program(None);
    for call in 0..calls {
        run_program(Some(call));
    }
}

fn run_program(failing: Option<u64>) -> u64 {
    let pool = pool(Settings::default());
    if let Some(call) = failing {
        pool.driver().fail_at(call, Code::OUT_OF_MEMORY);
    }
    let mut live: Vec<(Address, u64)> = Vec::new();
    let mut random = Random::new(7);
    for _ in 0..400 {
        let seed = random.next();
        if seed >> 62 == 0 && !live.is_empty() {
            let (at, _) = live.swap_remove((seed >> 40) as usize % live.len());
            let stream = 10 + (seed >> 33) % 2;
            pool.free(at, Release::Stream(key(stream))).unwrap();
            continue;
        }
        let bytes = 1 + (seed >> 30) % (1 << (8 + (seed >> 59) % 18));
        match pool.alloc(&on(10 + (seed >> 50) % 2, bytes)) {
            Ok(at) => {
                let apart = |&(a, b): &(u64, u64)| at + bytes <= a || at >= a + b;
                assert!(live.iter().all(apart));
                live.push((at, bytes));
            }
            Err(refusal) => assert_eq!(refusal, Refusal::Driver(Code::OUT_OF_MEMORY)),
        }
        if live.len() > 40 {
            for (at, _) in live.drain(..20) {
                pool.free(at, Release::Stream(key(10))).unwrap();
            }
        }
    }
    for (at, _) in live {
        pool.free(at, Release::Complete).unwrap();
    }
    assert_eq!(pool.stats().live_bytes, 0);
    assert_eq!(pool.idle(), pool.physical());
    pool.trim();
    // A failure inside the trim itself may keep one handle.
    let (_, handles, _) = pool.driver().leftovers();
    assert!(
        handles <= 1 && pool.physical() == 0,
        "{failing:?}: {handles}"
    );
    pool.driver().calls()
}

/// Lengths that come and go at random.
#[test]
fn addresses_are_used_again_whatever_the_lengths() {
    let pool = pool(Settings {
        policy: Policy::Direct,
        ..Settings::default()
    });
    let mut random = Random::new(7);
    let mut live = Vec::new();
    for _ in 0..12_000 {
        let seed = random.next();
        let bytes = (1 + (seed >> 40) % (1 << (1 + (seed >> 33) % 10))) * MIB;
        live.push(pool.alloc(&on(10, bytes)).unwrap());
        if live.len() > 20 {
            let at = live.swap_remove((seed >> 50) as usize % live.len());
            pool.free(at, Release::Complete).unwrap();
        }
    }
    let (reservations, ..) = pool.driver().leftovers();
    assert_eq!(reservations, 1);
}

#[test]
fn streams_of_threads_that_ended_leave_their_places_to_others() {
    let pool = pool(Settings::default());
    for thread in 1..=2000 {
        let key = StreamKey::new(CONTEXT, Stream::PER_THREAD, thread);
        let asked = request(4 * MIB, Order::Stream(key));
        let [kept, at] = [(); 2].map(|()| pool.alloc(&asked).unwrap());
        pool.free(at, Release::Stream(key)).unwrap();
        pool.threads_end(&[thread]);
        assert_eq!(pool.find(kept).unwrap().order, Order::Unknown);
        pool.free(kept, Release::Unknown).unwrap();
    }
    let streams = pool.lock().streams.count();
    assert!(streams <= 2 * FRONTS, "{streams}");
    assert_eq!(pool.physical(), 8 * MIB);
}

#[test]
fn a_device_of_another_granularity_has_no_pool() {
    for bytes in [0, 64 << 10, MIB, 4 * MIB] {
        let driver = Model::new(64 << 30);
        driver.set_granularity(bytes);
        let refused = Pool::new(driver, 0, Settings::default()).err();
        assert_eq!(refused, Some(Code::NOT_SUPPORTED));
    }
}
