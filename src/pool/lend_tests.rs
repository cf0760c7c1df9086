//! Who comes after whom on one stream, by which address, and what is pending.

use super::*;
use crate::driver::Stream;
use crate::driver::model::Model;
use crate::pool::serve::need;
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{Order, Pool, Settings};
use crate::units::MIB;
use std::time::Duration;

#[test]
fn another_address_on_the_same_stream_gets_an_edge_and_the_same_address_none() {
    let pool = pool(Settings::default());
    pool.driver().hold(CONTEXT, Stream(10), true);
    let a = pool.alloc(&on(10, 32 * MIB)).unwrap();
    let b = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.free(a, Release::Stream(key(10))).unwrap();
    assert_eq!(pool.alloc(&on(10, 32 * MIB)), Ok(a));
    assert!(pool.driver().waits().is_empty(), "the address is the same");
    pool.free(a, Release::Stream(key(10))).unwrap();
    pool.free(b, Release::Stream(key(10))).unwrap();
    let both = pool.alloc(&on(10, 64 * MIB)).unwrap();
    assert_eq!(pool.driver().waits(), [(Stream(10), Stream(10))]);
    assert_eq!(pool.stats().edges, 1);
    // What is used behind an edge needs the next one.
    pool.free(both, Release::Stream(key(10))).unwrap();
    assert_ne!(pool.alloc(&on(10, 32 * MIB)), Ok(both));
    assert_eq!(pool.stats().edges, 2);
}

#[test]
fn what_lies_before_an_edge_needs_no_other_one() {
    let pool = pool(Settings::default());
    let lent = [(); 4].map(|()| pool.alloc(&on(10, 32 * MIB)).unwrap());
    pool.driver().hold(CONTEXT, Stream(10), true);
    for at in lent {
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    for _ in 0..2 {
        pool.alloc(&on(10, 64 * MIB)).unwrap();
        assert_eq!(pool.stats().edges, 1);
    }
}

/// Of bytes by another address and of some by the same one, the first must be waited for.
#[test]
fn one_use_through_another_address_is_enough_for_an_edge() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    let mut state = pool.lock();
    let stream = state.streams.id(key(10));
    let through = |alias| Use {
        stream,
        alias,
        seq: 1,
    };
    let uses = [through(1), through(0)];
    let need = need(&on(10, MIB), Some(stream));
    state.order(pool.driver(), need, &uses, 0).unwrap();
    assert_eq!(state.stats.edges, 1);
}

#[test]
fn what_lies_on_shelves_and_in_slabs_is_pending_while_its_uses_run() {
    let pool = pool(Settings::default());
    let lent = [1000, 32 * MIB, 1000].map(|bytes| pool.alloc(&on(10, bytes)).unwrap());
    pool.give_back(u64::MAX, Duration::ZERO);
    pool.driver().hold(CONTEXT, Stream(10), true);
    assert_eq!(pool.stats().pending_bytes, 0);
    for (at, pending) in [(lent[0], 1024), (lent[1], 32 * MIB + 1024)] {
        pool.free(at, Release::Stream(key(10))).unwrap();
        assert_eq!(pool.stats().pending_bytes, pending);
    }
    pool.lock().settle_small();
    assert_eq!(pool.stats().pending_bytes, 32 * MIB + 1024);
}

/// Of several uses by one other stream.
#[test]
fn a_stream_comes_after_the_last_of_another_ones_uses() {
    let pool = pool(Settings::default());
    pool.driver().hold(CONTEXT, Stream(10), true);
    let mut state = pool.lock();
    let [user, waiter] = [10, 11].map(|stream| state.streams.id(key(stream)));
    let uses = [0, 1, 2].map(|_| {
        let last = state.streams.tag(pool.driver(), user, 0).unwrap();
        state.streams.mark_free(pool.driver(), last);
        last
    });
    let need = need(&on(11, MIB), Some(waiter));
    state.order(pool.driver(), need, &uses, 0).unwrap();
    assert_eq!(pool.driver().events(), 3);
    assert_eq!(state.stats.waits, 1);
}

/// All are of one length, and those that were freed last are looked at first.
#[test]
fn a_small_request_is_served_by_what_is_over_however_much_still_runs_before_it() {
    let pool = Pool::new(Model::new(2 * MIB), 0, Settings::default()).unwrap();
    let lent = [(); 4096].map(|()| pool.alloc(&on(10, 512)).unwrap());
    // None of them touches another one, with which it would be one block.
    let mut apart = lent.iter().step_by(2);
    for at in apart.by_ref().take(20) {
        pool.free(*at, Release::Complete).unwrap();
    }
    pool.lock().settle_small();
    pool.driver().hold(CONTEXT, Stream(10), true);
    for at in apart.take(17) {
        pool.free(*at, Release::Stream(key(10))).unwrap();
    }
    pool.lock().settle_small();
    let again = pool.alloc(&request(512, Order::Unknown)).unwrap();
    assert!(lent[..40].contains(&again));
    assert_eq!(pool.stats().host_waits, 0);
}

/// Half of what the pool may hold is idle, between blocks: no slab has room there.
#[test]
fn a_small_request_that_no_slab_has_room_for_has_a_window_of_its_own() {
    let pool = pool(Settings {
        limit: Some(64 * MIB),
        ..Settings::default()
    });
    let teeth = [(); 64].map(|()| pool.alloc(&on(10, MIB)).unwrap());
    for at in teeth.iter().step_by(2) {
        pool.free(*at, Release::Stream(key(10))).unwrap();
    }
    let small = pool.alloc(&on(10, 512)).unwrap();
    assert!(pool.alloc(&request(512, Order::Unknown)).is_ok());
    pool.free(small, Release::Stream(key(10))).unwrap();
    assert_eq!(pool.stats().live_bytes, 32 * MIB + 512);
}
