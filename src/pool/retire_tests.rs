//! A pool that keeps few mappings: which stitches go, when, and what stays of them.

use super::Retired;
use crate::driver::model::Model;
use crate::driver::{Address, Code, Stream};
use crate::pool::tests::{CONTEXT, free, key, on, pool};
use crate::pool::{Pool, Release, Settings};
use crate::random::Random;
use crate::units::MIB;
use std::time::Duration;

/// Four mappings go at a time where there are more than 32.
fn few() -> Retired {
    Retired {
        most: 32,
        ..Retired::default()
    }
}

/// Of 20 stitches of two handles of 2 MiB, all lent, none may go yet.
fn with_stitches() -> (Pool<Model>, Vec<Address>) {
    let pool = pool(Settings::default());
    let lent = (0..20).map(|_| alloc(&pool, 4)).collect();
    assert_eq!(stitches(&pool), 20);
    pool.lock().retired = few();
    (pool, lent)
}

fn alloc(pool: &Pool<Model>, mib: u64) -> Address {
    pool.alloc(&on(10, mib * MIB)).unwrap()
}

fn stitches(pool: &Pool<Model>) -> usize {
    pool.lock().stitches.iter().count()
}

fn mapped(pool: &Pool<Model>, at: &Address) -> bool {
    pool.driver().mapped(*at).is_some()
}

/// A new stitch of six chunks that are free.
fn stitch(pool: &Pool<Model>) -> Address {
    let physical = pool.physical();
    let made = pool.stats().stitches;
    let at = alloc(pool, 12);
    assert_eq!(
        (pool.physical(), pool.stats().stitches),
        (physical, made + 1)
    );
    at
}

#[test]
fn what_was_wanted_longest_ago_goes_once_nothing_runs_on_it() {
    let (pool, lent) = with_stitches();
    pool.lock().retired.most = 100;
    // The later ones first.
    lent[6..12].iter().for_each(|at| free(&pool, *at));
    stitch(&pool);
    lent[..6].iter().for_each(|at| free(&pool, *at));
    pool.lock().retired = few();
    pool.driver().hold(CONTEXT, Stream(10), true);
    stitch(&pool);
    assert_eq!(stitches(&pool), 22, "something may still run on all");
    pool.driver().hold(CONTEXT, Stream(10), false);
    let last = stitch(&pool);
    assert_eq!(stitches(&pool), 21, "one more, and two less");
    let gone: Vec<_> = lent.iter().filter(|at| !mapped(&pool, at)).collect();
    assert_eq!(gone, [&lent[6], &lent[7]]);
    assert!(mapped(&pool, &last), "of the same handles");
}

#[test]
fn what_is_to_go_lends_nothing_any_more() {
    let (pool, lent) = with_stitches();
    lent[..8].iter().for_each(|at| free(&pool, *at));
    // A search looks into all of them, and knows what they have from then on.
    free(&pool, alloc(&pool, 3));
    pool.driver().hold(CONTEXT, Stream(10), true);
    stitch(&pool);
    // Each would be remembered, or found, for this very length.
    let again: Vec<_> = (0..5).map(|_| alloc(&pool, 4)).collect();
    assert!(!again.contains(&lent[0]) && !again.contains(&lent[1]));
    assert!(mapped(&pool, &lent[0]) && mapped(&pool, &lent[1]));
}

#[test]
fn what_is_lent_stays_however_many_there_are() {
    let (pool, lent) = with_stitches();
    for _ in 0..20 {
        alloc(&pool, 4);
    }
    assert_eq!(stitches(&pool), 40);
    assert!(lent.iter().all(|at| mapped(&pool, at)));
}

#[test]
fn what_came_in_the_place_of_one_that_went_by_itself_stays() {
    let (pool, lent) = with_stitches();
    pool.lock().retired.leaving = vec![1, 0];
    alloc(&pool, 4);
    assert!(pool.lock().retired.leaving.is_empty());
    assert!(lent.iter().all(|at| mapped(&pool, at)));
}

#[test]
fn addresses_where_something_else_is_mapped_stay_out_of_use() {
    let (pool, lent) = with_stitches();
    lent[..8].iter().for_each(|at| free(&pool, *at));
    pool.lock().stitch_mut(0).stuck = true;
    let room = pool.lock().arena.free_bytes();
    stitch(&pool);
    assert_eq!([0, 1].map(|i| mapped(&pool, &lent[i])), [false, false]);
    let (gone, made) = (2 * 4 * MIB, 2 * 12 * MIB);
    assert_eq!(pool.lock().arena.free_bytes(), room + gone - made);
}

#[test]
fn where_a_part_is_not_unmapped_its_addresses_are_not_used_again() {
    let (pool, lent) = with_stitches();
    lent[..8].iter().for_each(|at| free(&pool, *at));
    let room = pool.lock().arena.free_bytes();
    // The first call: the other of the two is unmapped.
    pool.driver().fail_at(pool.driver().calls(), Code::UNKNOWN);
    stitch(&pool);
    assert_eq!(stitches(&pool), 19);
    assert_eq!([0, 1].map(|i| mapped(&pool, &lent[i])), [true, false]);
    // Twice as many as it shows; so has the one that was made.
    let (gone, made) = (2 * 4 * MIB, 2 * 12 * MIB);
    assert_eq!(pool.lock().arena.free_bytes(), room + gone - made);
}

#[test]
fn lengths_that_never_come_again_leave_few() {
    let pool = pool(Settings::default());
    pool.lock().retired.most = 512;
    let mut random = Random::new(11);
    let (mut live, mut most) = (Vec::new(), 0);
    for step in 0..4000 {
        let seed = random.next();
        let bytes = (1 + (seed >> 40) % (1 << (1 + (seed >> 33) % 9))) * MIB + (seed >> 44);
        live.push(pool.alloc(&on(10 + step % 2, bytes)).unwrap());
        if live.len() > 12 {
            let at = live.swap_remove((seed >> 50) as usize % live.len());
            pool.free(at, Release::Stream(key(10 + step % 2))).unwrap();
        }
        most = most.max(pool.driver().leftovers().2);
    }
    // And what was made until it was time to look, and until nothing ran on what goes.
    assert!(most < 2 * 512, "{most}");
    assert!(pool.stats().handles_mapped > 2 * 512);
    for at in live {
        pool.free(at, Release::Complete).unwrap();
    }
    pool.trim();
    assert_eq!(pool.driver().leftovers().1, 0);
    assert_eq!(pool.driver().leftovers().2, 0);
}

/// It would lend what lies around the gap, which others do.
#[test]
fn what_has_a_gap_and_shows_only_what_others_show_goes_once_nothing_runs_on_it() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    // Of one handle the end is free, and of another one the beginning.
    let [_kept, end, beginning, _too] = [(); 4].map(|()| alloc(&pool, 16));
    let apart = pool.alloc(&on(11, 32 * MIB)).unwrap();
    free(&pool, end);
    free(&pool, beginning);
    let across = || {
        let at = alloc(&pool, 64);
        free(&pool, at);
        at - 16 * MIB
    };
    let first = across();
    pool.driver().hold(CONTEXT, Stream(11), true);
    pool.free(apart, Release::Stream(key(11))).unwrap();
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 32 * MIB);
    assert_eq!((stitches(&pool), pool.driver().leftovers().2), (4, 5));
    let second = across();
    assert_ne!(second, first, "what is to go lends nothing");
    assert!(mapped(&pool, &first), "something may still run on it");
    pool.driver().hold(CONTEXT, Stream(11), false);
    alloc(&pool, 128);
    assert!(!mapped(&pool, &first));
    for _ in 0..100 {
        across();
        pool.give_back(u64::MAX, Duration::ZERO);
        assert!(stitches(&pool) <= 5);
    }
}

/// Else the driver would let no other device into those that stay.
#[test]
fn beside_other_devices_the_first_mapping_of_a_handle_goes_last() {
    let most_torn = |beside_devices| {
        let pool = pool(Settings {
            chunk: Some(32 * MIB),
            beside_devices,
            ..Settings::default()
        });
        pool.lock().retired.most = 64;
        let mut random = Random::new(7);
        let (mut live, mut torn, mut most) = (Vec::new(), 0, 0);
        for _ in 0..3000 {
            let seed = random.next();
            if live.len() > 6 || (seed & 1 == 1 && !live.is_empty()) {
                free(&pool, live.swap_remove((seed >> 8) as usize % live.len()));
            } else {
                live.push(alloc(&pool, 16 + (seed >> 8) % 160));
            }
            if seed % 16 == 3 {
                pool.give_back(u64::MAX, Duration::ZERO);
            }
            torn = torn.max(pool.driver().torn());
            most = most.max(pool.driver().leftovers().2);
        }
        assert!(pool.stats().handles_mapped > 1000 && most < 1000);
        torn
    };
    assert!(most_torn(false) > 0);
    assert_eq!(most_torn(true), 0);
}
