//! A pool with few addresses, or few mappings: what gives way, and after which waits.

use crate::driver::model::Model;
use crate::driver::{Address, Code, Stream};
use crate::pool::tests::{CONTEXT, free, key, on, pool, request};
use crate::pool::{Order, Pool, Refusal, Release, Settings};
use crate::random::Random;
use crate::units::HANDLE;
use crate::units::{GIB, MIB};
use std::time::Duration;

/// With so many bytes of addresses and no more.
fn with_addresses(bytes: u64) -> Pool<Model> {
    let pool = pool(Settings::default());
    pool.reserve_ahead();
    pool.bounds.fill();
    let mut state = pool.lock();
    let more = state.arena.free_bytes() - bytes;
    state.arena.take(more).unwrap();
    drop(state);
    pool
}

fn alloc(pool: &Pool<Model>, mib: u64) -> Address {
    pool.alloc(&on(10, mib * MIB)).unwrap()
}

/// Lengths that never come again, on two streams; asks `check` after each.
fn with_ever_new_lengths(pool: &Pool<Model>, check: impl Fn()) {
    let mut random = Random::new(7);
    let mut live: Vec<(Address, u64)> = Vec::new();
    for step in 0..4000 {
        let seed = random.next();
        let bytes = (1 + (seed >> 40) % (1 << (1 + (seed >> 33) % 9))) * MIB + (seed >> 44);
        let at = pool.alloc(&on(10 + step % 2, bytes)).unwrap();
        let apart = |&(other, length): &(u64, u64)| at + bytes <= other || other + length <= at;
        assert!(live.iter().all(apart));
        live.push((at, bytes));
        check();
        if live.len() > 12 {
            let (at, _) = live.swap_remove((seed >> 50) as usize % live.len());
            pool.free(at, Release::Stream(key(10 + step % 2))).unwrap();
        }
    }
    let stitches = pool.lock().stitches.iter().count() as u64;
    assert!(pool.stats().stitches > 2 * stitches, "many went");
    for (at, _) in live {
        pool.free(at, Release::Complete).unwrap();
    }
    pool.trim();
    let (_, handles, mappings) = pool.driver().leftovers();
    assert_eq!((handles, mappings), (0, 0));
}

/// A device of 8 GiB.
fn small(few_addresses: bool) -> Pool<Model> {
    let settings = Settings {
        total: Some(8 * GIB),
        few_addresses,
        ..Settings::default()
    };
    Pool::new(Model::new(8 * GIB), 0, settings).unwrap()
}

#[test]
fn where_addresses_are_limited_the_program_keeps_its_own() {
    let [limited, refused] = [true, false].map(small);
    refused.driver().allow_addresses(20 * GIB);
    for pool in [limited, refused] {
        alloc(&pool, 8);
        assert_eq!(pool.driver().reserved(), 4 * GIB);
        alloc(&pool, 6000);
        assert!(pool.driver().reserved() <= 4 * GIB + 12_002 * MIB);
    }
}

#[test]
fn what_is_left_of_them_serves_what_fits_in() {
    let pool = small(true);
    pool.driver().allow_addresses(10 * GIB);
    alloc(&pool, 8);
    assert_eq!(pool.driver().reserved(), 4 * GIB);
    alloc(&pool, 6000);
    alloc(&pool, 2000);
}

#[test]
fn lengths_that_never_come_again_take_no_more_than_a_few_times_the_device() {
    let pool = small(true);
    with_ever_new_lengths(&pool, || {});
    let most = pool.driver().reserved();
    assert!(most <= 16 * GIB, "{most}");
}

#[test]
fn lengths_that_never_come_again_leave_addresses_for_others() {
    let pool = with_addresses(24 << 30);
    with_ever_new_lengths(&pool, || {});
    assert_eq!(pool.driver().leftovers().0, 1);
}

#[test]
fn they_leave_mappings_for_others() {
    let pool = pool(Settings::default());
    pool.driver().allow_mappings(512);
    with_ever_new_lengths(&pool, || assert!(pool.driver().leftovers().2 <= 512));
    assert!(!pool.lock().was_full, "it was not memory that lacked");
}

/// Of a stitch of four handles the last is lent; there may be one more mapping.
fn with_idle_chunks() -> Pool<Model> {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let whole = alloc(&pool, 128);
    free(&pool, whole);
    assert_eq!(alloc(&pool, 96), whole);
    assert_eq!(alloc(&pool, 32), whole + 96 * MIB);
    free(&pool, whole);
    pool.driver().allow_mappings(5);
    pool
}

#[test]
fn where_no_stitch_is_idle_chunks_go_for_their_mappings() {
    let pool = with_idle_chunks();
    alloc(&pool, 128);
    assert_eq!(pool.driver().leftovers().2, 5);
    assert_eq!(pool.physical(), (32 + 128) * MIB);
    let short = Err(Refusal::Driver(Code::OUT_OF_MEMORY));
    assert_eq!(pool.alloc(&on(10, 128 * MIB)), short);
    assert_eq!(pool.physical(), (32 + 128) * MIB, "there is nothing idle");
}

#[test]
fn no_more_chunks_go_than_are_needed() {
    let pool = with_idle_chunks();
    pool.driver().allow_mappings(7);
    alloc(&pool, 128);
    assert_eq!(pool.driver().leftovers().2, 3 + 4);
}

/// A stitch of 8 MiB of which something is lent; one of 128 MiB of which nothing is, and
/// work on it; no addresses for another one of 260 MiB.
fn with_idle_stitch() -> (Pool<Model>, Address) {
    let pool = with_addresses(512 * MIB);
    let (lent, idle) = (alloc(&pool, 8), alloc(&pool, 128));
    pool.driver().hold(CONTEXT, Stream(10), true);
    free(&pool, idle);
    (pool, lent)
}

#[test]
fn a_stitch_ends_once_nothing_runs_on_it() {
    let (pool, lent) = with_idle_stitch();
    let waits = pool.stats().host_waits;
    let longer = alloc(&pool, 260);
    assert_eq!(pool.stats().host_waits, waits + 1);
    assert_eq!(pool.physical(), (260 + 8) * MIB, "of the same handles");
    assert_eq!(pool.lock().stitches.iter().count(), 2);
    assert_eq!(pool.find(lent).unwrap().bytes, 8 * MIB);
    assert!(pool.driver().mapped(lent).is_some() && pool.driver().mapped(longer).is_some());
}

#[test]
fn it_stays_where_that_cannot_be_waited_for() {
    let (pool, _) = with_idle_stitch();
    let mapped = pool.driver().leftovers().2;
    pool.driver().fail_waits(100, Code::UNKNOWN);
    // It takes nothing on which anything runs.
    let failed = pool.alloc(&request(260 * MIB, Order::Unknown));
    assert_eq!(failed, Err(Refusal::Driver(Code::UNKNOWN)));
    assert_eq!(pool.driver().leftovers().2, mapped);
    pool.driver().fail_waits(0, Code::UNKNOWN);
    pool.driver().hold(CONTEXT, Stream(10), false);
    let again = alloc(&pool, 128);
    assert_eq!(pool.physical(), (128 + 8) * MIB);
    assert_eq!(pool.lock().stitches.iter().count(), 2, "as before");
    free(&pool, again);
    alloc(&pool, 260);
}

#[test]
fn where_a_part_is_not_unmapped_its_addresses_are_not_used_again() {
    let (pool, _) = with_idle_stitch();
    let free_before = pool.lock().arena.free_bytes();
    pool.driver().fail_at(pool.driver().calls(), Code::UNKNOWN);
    let short = Err(Refusal::Driver(Code::OUT_OF_MEMORY));
    assert_eq!(pool.alloc(&on(10, 260 * MIB)), short);
    assert_eq!(pool.lock().arena.free_bytes(), free_before);
    let one = pool.alloc(&on(10, HANDLE)).unwrap();
    assert!(pool.driver().mapped(one).is_some());
}

#[test]
fn addresses_of_a_growth_that_failed_are_the_next_ones() {
    let pool = Pool::new(Model::new(64 * MIB), 0, Settings::default()).unwrap();
    for _ in 0..2000 {
        let refused = pool.alloc(&on(10, GIB)).unwrap_err();
        assert_eq!(refused, Code::OUT_OF_MEMORY.into());
    }
    let (reservations, ..) = pool.driver().leftovers();
    assert_eq!(reservations, 1);
}

/// Their addresses could not be used again.
#[test]
fn stitches_where_something_is_still_mapped_are_not_ended_for_addresses() {
    let pool = with_addresses(256 * MIB);
    let whole = alloc(&pool, 128);
    free(&pool, whole);
    let next = pool.driver().calls();
    pool.driver().fail_at(next, Code::UNKNOWN);
    let gone = pool.give_back(1, Duration::ZERO);
    let left = (128 * MIB - gone) / MIB;
    let refused = pool.alloc(&on(10, 160 * MIB));
    assert_eq!(refused, Err(Code::OUT_OF_MEMORY.into()));
    assert_eq!(alloc(&pool, left), whole + gone);
}
