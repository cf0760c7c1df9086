//! What counts as free beside what is lent, on shelves and settled.

use super::super::tests::{CONTEXT, free, key, on, pool, request};
use super::super::{Order, Release, Settings};
use super::*;
use crate::driver::Stream;
use crate::driver::model::Model;
use crate::units::MIB;

/// Lends so many blocks and frees all but every `keep`th of them.
fn comb(pool: &Pool<Model>, blocks: usize, bytes: u64, keep: usize) -> Vec<Address> {
    let lend = |_| pool.alloc(&request(bytes, Order::Unknown)).unwrap();
    let all: Vec<_> = (0..blocks).map(lend).collect();
    for (_, at) in all.iter().enumerate().filter(|(i, _)| i % keep > 0) {
        pool.free(*at, Release::Complete).unwrap();
    }
    all.into_iter().step_by(keep).collect()
}

/// Tells chunks and slabs what is free.
fn settle(pool: &Pool<Model>) {
    let mut state = pool.lock();
    state.settle_windows();
    state.settle_small();
    state.reap_slabs(0, usize::MAX);
}

#[test]
fn beside_what_is_lent_whole_pages_count_on_shelves_and_settled() {
    // Bytes and number of blocks, every which is kept, and the pages that are free then.
    for (bytes, blocks, keep, pages) in [
        (100 << 10, 400, 8, 0),
        (100 << 10, 400, 40, 10),
        (300 << 10, 60, 12, 5),
        (3 * MIB / 2, 64, 2, 32),
        (2 * MIB, 64, 2, 32),
    ] {
        let pool = pool(Settings::default());
        let kept = comb(&pool, blocks, bytes, keep);
        let free = pages * HANDLE;
        assert_eq!(pool.to_have(), free, "{bytes} bytes, on shelves");
        assert_eq!(pool.to_give(), free);
        let calls = pool.driver().calls();
        settle(&pool);
        assert_eq!(pool.to_have(), free, "{bytes} bytes, settled");
        assert_eq!((pool.to_give(), pool.whole_idle()), (free, free));
        assert!(pool.idle() >= free);
        for at in kept {
            pool.free(at, Release::Complete).unwrap();
        }
        assert_eq!(pool.to_have(), pool.physical());
        assert_eq!((pool.to_have(), pool.to_give()), (pool.idle(), pool.idle()));
        assert_eq!(pool.driver().calls(), calls);
    }
}

/// Frameworks ask right after a free.
#[test]
fn what_is_freed_and_may_still_be_in_use_counts_at_once_and_stays_on_its_shelf() {
    let pool = pool(Settings::default());
    let (at, small) = [64 * MIB, 1000]
        .map(|bytes| pool.alloc(&on(10, bytes)).unwrap())
        .into();
    pool.driver().hold(CONTEXT, Stream(10), true);
    free(&pool, at);
    assert_eq!((pool.to_have(), pool.to_give()), (64 * MIB, 64 * MIB));
    free(&pool, small);
    assert_eq!(pool.to_have(), pool.physical());
    let searches = pool.stats().searches;
    assert_eq!(pool.alloc(&on(10, 1000)), Ok(small));
    assert_eq!(pool.alloc(&on(10, 64 * MIB)), Ok(at));
    assert_eq!(pool.stats().searches, searches);
}

#[test]
fn of_a_handle_in_use_the_rest_can_be_had_and_not_given() {
    let pool = pool(Settings {
        chunk: Some(64 * MIB),
        ..Settings::default()
    });
    pool.alloc(&on(10, 3 * MIB)).unwrap();
    assert_eq!(
        (pool.idle(), pool.to_have(), pool.to_give()),
        (61 * MIB, 60 * MIB, 0)
    );
    // Freed beside another stream's use, it joins what is beside it.
    let one = pool.alloc(&request(MIB, Order::Stream(key(11)))).unwrap();
    assert_eq!(pool.to_have(), 60 * MIB);
    pool.free(one, Release::Stream(key(11))).unwrap();
    assert_eq!(pool.to_have(), 60 * MIB);
}
