//! Growths that fail, and what is left of them.

use crate::driver::model::Model;
use crate::driver::{Code, Stream};
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{Order, Pool, Release, Settings};
use crate::units::MIB;

/// Their own uses stay theirs: nobody was lent them.
#[test]
fn idle_bytes_of_a_growth_that_failed_wait_for_no_stream() {
    let pool = Pool::new(Model::new(64 * MIB), 0, Settings::default()).unwrap();
    let anywhere = request(32 * MIB, Order::Unknown);
    let (idle, used) = (pool.alloc(&anywhere), pool.alloc(&on(10, 32 * MIB)));
    pool.free(idle.unwrap(), Release::Complete).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    let out = pool.alloc(&on(10, 48 * MIB));
    assert_eq!(out, Err(Code::OUT_OF_MEMORY.into()));
    assert_eq!(pool.stats().pending_bytes, 0);
    assert_eq!(pool.alloc(&anywhere), idle);
    assert!(!pool.is_over(CONTEXT), "nobody waited for it");
    assert!(pool.free(used.unwrap(), Release::Stream(key(10))).is_ok());
}

/// What runs on them still is waited for as before.
#[test]
fn pending_bytes_of_a_growth_that_failed_are_pending_behind_what_they_were() {
    let pool = Pool::new(Model::new(64 * MIB), 0, Settings::default()).unwrap();
    let [used, _kept] = [(); 2].map(|()| pool.alloc(&on(10, 32 * MIB)).unwrap());
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(used, Release::Stream(key(10))).unwrap();
    pool.driver().fail_waits(u32::MAX, Code::UNKNOWN);
    assert!(pool.alloc(&on(11, 48 * MIB)).is_err());
    assert_eq!(pool.stats().pending_bytes, 32 * MIB);
    pool.driver().fail_waits(0, Code::UNKNOWN);
    assert_eq!(pool.alloc(&request(32 * MIB, Order::Unknown)), Ok(used));
    assert!(pool.is_over(CONTEXT), "it waited for that stream");
}

/// It is an address that the stream has not used them through.
#[test]
fn a_new_stitch_of_what_its_stream_uses_still_has_an_edge() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let whole = pool.alloc(&on(10, 64 * MIB)).unwrap();
    pool.free(whole, Release::Stream(key(10))).unwrap();
    let mut halves = [0; 2].map(|_| pool.alloc(&on(10, 32 * MIB)).unwrap());
    halves.sort_unstable();
    assert_eq!(halves, [whole, whole + 32 * MIB]);
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(whole, Release::Stream(key(10))).unwrap();
    pool.alloc(&on(10, 64 * MIB)).unwrap();
    assert_eq!(pool.physical(), 96 * MIB, "one half is used again");
    assert_eq!(pool.driver().waits(), [(Stream(10), Stream(10))]);
}
