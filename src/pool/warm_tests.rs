//! Windows that are remembered: which of them serve a request, and how many are kept.

use crate::driver::Stream;
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{Order, Owner, Release, Request, Settings};
use crate::units::MIB;

use super::{HINT_SIZES, HINTS};

#[test]
fn a_remembered_window_serves_only_what_may_begin_there() {
    let pool = pool(Settings {
        chunk: Some(64 * MIB),
        ..Settings::default()
    });
    let at = |bytes| pool.alloc(&on(10, bytes)).unwrap();
    let (_kept, odd) = (at(MIB), at(3 * MIB));
    assert!(!odd.is_multiple_of(2 * MIB));
    pool.free(odd, Release::Stream(key(10))).unwrap();
    let aligned = Request {
        align: 2 * MIB,
        owner: Owner::Context,
        ..request(3 * MIB, Order::Stream(key(10)))
    };
    pool.lock().settle_windows();
    let found = pool.alloc(&aligned).unwrap();
    assert!(found.is_multiple_of(2 * MIB), "{found:#x}, after {odd:#x}");
}

/// By the same address on the same stream, so that it needs no edge.
#[test]
fn a_remembered_window_is_known_by_the_address_that_it_was_used_through() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    pool.lock().settle_windows();
    assert_eq!(pool.alloc(&on(10, 32 * MIB)), Ok(at));
    assert_eq!(pool.stats().edges, 0);
}

#[test]
fn of_one_length_not_all_are_remembered() {
    let pool = pool(Settings::default());
    let lent = [(); 2 * HINTS].map(|()| pool.alloc(&on(10, 3 * MIB)).unwrap());
    for at in lent {
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    let mut state = pool.lock();
    state.settle_windows();
    assert_eq!(state.hints[&(3 * MIB)].len(), HINTS);
}

#[test]
fn of_ever_new_lengths_not_all_are_remembered() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 3 * MIB)).unwrap();
    pool.free(at, Release::Stream(key(10))).unwrap();
    let mut state = pool.lock();
    state.settle_windows();
    let window = state.hints[&(3 * MIB)][0];
    for bytes in 0..HINT_SIZES as u64 {
        state.hints.insert(bytes, vec![window]);
    }
    state.settle_windows();
    assert!(state.hints.is_empty());
}

#[test]
fn a_window_of_a_stitch_that_is_another_by_now_is_none() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let free = |at| pool.free(at, Release::Stream(key(10))).unwrap();
    free(pool.alloc(&on(10, 64 * MIB)).unwrap());
    pool.trim();
    assert_eq!(pool.physical(), 0);
    // The next one has its number, and half of its length.
    free(pool.alloc(&on(10, 32 * MIB)).unwrap());
    assert_eq!(pool.lock().stitches.end(), 1);
    pool.alloc(&on(10, 64 * MIB)).unwrap();
    assert_eq!(pool.physical(), 64 * MIB);
}
