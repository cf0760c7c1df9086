//! Giving back over the model driver: how much, what stays, how long it takes.

use super::super::*;
use crate::driver::{Stream, model::Model};
use crate::pool::tests::{CONTEXT, free, on, request};
use crate::units::MIB;
use std::sync::Arc;
use std::time::Duration;

const STREAM: Stream = Stream(10);

fn pool(total: u64, settings: Settings) -> Pool<Model> {
    Pool::new(Model::new(total), 0, settings).unwrap()
}

/// A pool with this many idle windows of 32 MiB.
fn idle(windows: usize) -> Pool<Model> {
    let pool = pool(64 << 30, Settings::default());
    let lent: Vec<_> = (0..windows)
        .map(|_| pool.alloc(&on(10, 32 * MIB)).unwrap())
        .collect();
    for at in lent {
        free(&pool, at);
    }
    pool
}

#[test]
fn about_as_much_as_asked_for_goes_back() {
    let pool = idle(8);
    let released = pool.give_back(40 * MIB, Duration::ZERO);
    assert!((40 * MIB..=80 * MIB).contains(&released), "{released}");
    assert_eq!(pool.physical(), 256 * MIB - released);
    assert_eq!(
        pool.give_back(u64::MAX, Duration::ZERO),
        256 * MIB - released
    );
    assert_eq!((pool.physical(), pool.whole_idle()), (0, 0));
    let began = Instant::now();
    assert_eq!(pool.give_back(MIB, Duration::from_secs(60)), 0);
    assert!(began.elapsed() < Duration::from_secs(30), "at once");
    // A slab of which nothing is lent can go, too.
    let small = pool.alloc(&on(10, 1000)).unwrap();
    assert_eq!(pool.whole_idle(), pool.physical() - 2 * MIB);
    free(&pool, small);
    assert_eq!(pool.whole_idle(), pool.physical());
}

#[test]
fn running_uses_are_waited_for_but_not_for_ever() {
    let pool = Arc::new(idle(2));
    let at = pool.alloc(&on(10, 64 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, STREAM, true);
    free(&pool, at);
    let began = Instant::now();
    assert_eq!(pool.give_back(u64::MAX, Duration::from_millis(20)), 0);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(pool.whole_idle(), 64 * MIB, "it comes with its completion");
    let other = Arc::clone(&pool);
    let waiting = std::thread::spawn(move || other.give_back(u64::MAX, Duration::from_secs(20)));
    std::thread::sleep(Duration::from_millis(20));
    pool.driver().hold(CONTEXT, STREAM, false);
    assert_eq!(waiting.join().unwrap(), 64 * MIB);
}

#[test]
fn whoever_builds_is_not_waited_for_either() {
    let pool = idle(2);
    let _builder = pool.growth.lock().unwrap();
    assert_eq!(pool.give_back(u64::MAX, Duration::from_millis(5)), 0);
}

#[test]
fn what_was_used_since_the_last_look_does_not_count_as_idle() {
    let pool = idle(4);
    pool.least_idle();
    assert_eq!(pool.least_idle(), 128 * MIB, "nothing happened");
    let at = pool.alloc(&on(10, 96 * MIB)).unwrap();
    free(&pool, at);
    assert_eq!(pool.idle(), 128 * MIB);
    assert_eq!(pool.least_idle(), 32 * MIB);
    assert_eq!(pool.least_idle(), 128 * MIB);
    // What comes with a growth, and is not lent at once, was not there before.
    for at in [32, 32, 32, 32, 1].map(|mib| pool.alloc(&on(10, mib * MIB)).unwrap()) {
        free(&pool, at);
    }
    assert_eq!(pool.least_idle(), 0);
}

#[test]
fn a_pool_that_starves_tries_again_while_others_make_room() {
    let [tries, of_others] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let settings = |limit| {
        let [counted, of_others] = [&tries, &of_others].map(Arc::clone);
        Settings {
            limit,
            starving: Some(Box::new(move |bytes, _, lack| {
                assert_eq!(bytes, 96 * MIB);
                of_others.fetch_add(u64::from(lack != Lack::Limit), Ordering::Relaxed);
                counted.fetch_add(1, Ordering::Relaxed) < 3
            })),
            ..Settings::default()
        }
    };
    let short = Err(Refusal::Driver(Code::OUT_OF_MEMORY));
    let starving = pool(64 * MIB, settings(None));
    assert_eq!(starving.alloc(&on(10, 96 * MIB)), short);
    assert_eq!(tries.load(Ordering::Relaxed), 4);
    assert_eq!(starving.stats().out_of_memory, 1, "one request failed");
    // Nobody can help a pool over its own limit.
    let limited = pool(1 << 30, settings(Some(64 * MIB)));
    assert_eq!(limited.alloc(&on(10, 96 * MIB)), short);
    assert_eq!(tries.load(Ordering::Relaxed), 4);
    // What it holds itself and nobody uses counts for nothing.
    let full = pool(64 * MIB, settings(Some(96 * MIB)));
    let at = full.alloc(&on(10, 32 * MIB)).unwrap();
    free(&full, at);
    assert_eq!(full.alloc(&on(10, 96 * MIB)), short);
    assert_eq!(tries.load(Ordering::Relaxed), 5);
    // But what lies idle beside it may go; for that others need not give anything.
    let beside = Settings {
        beside: Some(Box::new(|| (64 * MIB, 64 * MIB))),
        ..settings(Some(128 * MIB))
    };
    assert_eq!(pool(1 << 30, beside).alloc(&on(10, 96 * MIB)), short);
    assert_eq!(tries.load(Ordering::Relaxed), 6);
    assert_eq!(of_others.load(Ordering::Relaxed), 5);
}

/// What is beside the pool may grow at the same time.
#[test]
fn below_a_limit_a_pool_says_what_it_will_hold_until_that_is_there() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let claims = Arc::clone(&said);
    let settings = Settings {
        limit: Some(64 * MIB),
        claim: Some(Box::new(move |bytes| {
            claims.lock().unwrap().push(bytes);
            bytes < 60 * MIB
        })),
        ..Settings::default()
    };
    let pool = pool(1 << 30, settings);
    let short = Err(Refusal::Driver(Code::OUT_OF_MEMORY));
    pool.alloc(&on(10, 32 * MIB)).unwrap();
    assert_eq!(*said.lock().unwrap(), [32 * MIB, 0]);
    assert_eq!(pool.alloc(&on(10, 30 * MIB)), short, "others are growing");
    let said = said.lock().unwrap();
    assert!(
        said.contains(&(62 * MIB)) && said.ends_with(&[0]),
        "{said:?}"
    );
}

#[test]
fn addresses_where_something_is_still_mapped_are_not_used_again() {
    let pool = idle(1);
    let at = pool.alloc(&on(10, 32 * MIB)).unwrap();
    free(&pool, at);
    pool.driver().fail_at(pool.driver().calls(), Code::UNKNOWN);
    pool.give_back(MIB, Duration::ZERO);
    assert!(pool.physical() > 0, "a part went");
    // The rest of the range goes later, when the failure is long forgotten.
    pool.give_back(u64::MAX, Duration::ZERO);
    assert_eq!((pool.physical(), pool.driver().leftovers().2), (0, 1));
    let mut state = pool.lock();
    while let Some(range) = state.arena.take(32 * MIB) {
        assert_ne!(range, at);
    }
}

/// Nor does it go with a part of it on which nothing runs.
#[test]
fn a_handle_stays_while_work_runs_on_any_part_of_it() {
    let pool = pool(
        64 << 30,
        Settings {
            chunk: Some(64 * MIB),
            ..Settings::default()
        },
    );
    let other = StreamKey::new(CONTEXT, Stream(11), 0);
    for held in [STREAM, other.stream] {
        let [first, second] = [(); 2].map(|()| pool.alloc(&on(10, 32 * MIB)).unwrap());
        pool.driver().hold(CONTEXT, held, true);
        free(&pool, first);
        pool.free(second, Release::Stream(other)).unwrap();
        assert_eq!(pool.physical(), 64 * MIB);
        assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 0);
        pool.driver().hold(CONTEXT, held, false);
        assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 64 * MIB);
    }
}

/// Beside memory that stays, memory is made for what comes and goes, and given back each time:
/// of what that leaves mapped there must not be more and more.
#[test]
fn memory_that_is_given_back_and_made_again_leaves_nothing_behind() {
    let cases: [(&[u64], &[u64], u64); 4] = [
        (&[100_000_000], &[10_000_000], u64::MAX),
        (&[7 << 19], &[40 * MIB, 24 * MIB], u64::MAX),
        (&[], &[40 * MIB, 24 * MIB], 48 * MIB),
        (&[33_000_000, 7_777_777], &[50_000_000, 3_000_000], 45 * MIB),
    ];
    for (stays, comes, most) in cases {
        let pool = pool(64 << 30, Settings::default());
        let lend = |bytes: &u64| pool.alloc(&on(10, *bytes)).unwrap();
        stays.iter().for_each(|bytes| {
            lend(bytes);
        });
        for round in 0..2000 {
            let lent: Vec<_> = comes.iter().map(lend).collect();
            lent.iter().for_each(|at| free(&pool, *at));
            pool.give_back(most, Duration::ZERO);
            let stitches = pool.lock().stitches.iter().count();
            let mappings = pool.driver().leftovers().2;
            let few = stitches <= 4 && mappings <= 32;
            assert!(few, "{stays:?} {round}: {stitches}, {mappings}");
        }
    }
}

#[test]
fn contexts_that_end_with_live_memory_leave_nothing_behind() {
    let pool = pool(64 << 30, Settings::default());
    pool.alloc(&on(10, 7 << 19)).unwrap();
    for round in 0..2000 {
        for bytes in [3 * MIB, 1000] {
            let request = Request {
                context: Context(2),
                ..request(bytes, Order::Unknown)
            };
            pool.alloc(&request).unwrap();
        }
        pool.context_ends(Context(2));
        let mappings = pool.driver().leftovers().2;
        assert!(mappings <= 16, "{round}: {mappings}");
    }
}

/// What lay behind it may not be unmapped yet.
#[test]
fn a_stitch_that_lost_its_end_goes_on_from_there_but_where_something_is_still_mapped() {
    for fails in [false, true] {
        let pool = pool(64 << 30, Settings::default());
        // Its last handle has free bytes.
        pool.alloc(&on(10, 31 * MIB)).unwrap();
        let [first, second] = [(); 2].map(|()| {
            let longer = pool.alloc(&on(10, 12 * MIB)).unwrap();
            free(&pool, longer);
            if fails {
                let calls = pool.driver().calls();
                pool.driver().fail_at(calls, Code::UNKNOWN);
            }
            pool.give_back(u64::MAX, Duration::ZERO);
            longer
        });
        assert_eq!(first == second, !fails);
    }
}
