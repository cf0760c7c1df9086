//! Contexts that a call may be ending just now, over the model driver: what is asked of
//! them, and who waits for whom.

use std::time::Duration;

use crate::driver::model::Model;
use crate::driver::{Context, Stream};
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{Order, Owner, Pool, Release, Request, Settings, StreamKey};
use crate::units::MIB;

#[test]
fn nothing_of_a_context_is_touched_while_it_is_being_ended() {
    let pool = pool(Settings::default());
    pool.driver().hold(CONTEXT, Stream(10), true);
    let at = pool.alloc(&on(10, 64 * MIB)).unwrap();
    pool.free(at, Release::Stream(key(10))).unwrap();
    // The free is covered by an event by now.
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 0);
    pool.context_leaves(CONTEXT);
    let calls = pool.driver().calls();
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 0);
    assert_eq!(pool.driver().calls(), calls);
    let other = Request {
        context: Context(2),
        ..request(64 * MIB, Order::Unknown)
    };
    assert_ne!(pool.alloc(&other).unwrap(), at, "it may still be in use");
    pool.context_stays(CONTEXT);
    pool.driver().hold(CONTEXT, Stream(10), false);
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 64 * MIB);
}

/// A pool with memory that is freed on a stream each of two contexts and still used
/// there, and the streams in the order in which the host waits for them.
fn used_in_two() -> (Pool<Model>, [StreamKey; 2]) {
    let settings = Settings {
        limit: Some(128 * MIB),
        ..Settings::default()
    };
    let pool = pool(settings);
    let mut keys = [1, 2].map(|number| StreamKey::new(Context(number), Stream(10), 0));
    for key in keys {
        let request = Request {
            context: key.context,
            owner: Owner::MemoryPool,
            ..request(64 * MIB, Order::Stream(key))
        };
        let at = pool.alloc(&request).unwrap();
        pool.driver().hold(key.context, key.stream, true);
        pool.free(at, Release::Stream(key)).unwrap();
    }
    pool.driver().hold_truly();
    keys.sort_by_key(|key| pool.lock().streams.id(*key));
    (pool, keys)
}

/// Until a wait for a context has begun.
fn until_awaited(pool: &Pool<Model>, context: Context) {
    while !pool.lock().streams.health.is_awaited(context) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn soon() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_wait_goes_on_though_a_context_that_it_was_for_ends_meanwhile() {
    let (pool, [first, second]) = used_in_two();
    // By a third one, who must wait for both.
    let asked = Request {
        context: Context(3),
        ..request(128 * MIB, Order::Unknown)
    };
    std::thread::scope(|scope| {
        let served = scope.spawn(|| pool.alloc(&asked));
        until_awaited(&pool, first.context);
        pool.context_leaves(second.context);
        pool.driver().end_context(second.context);
        scope.spawn(|| pool.context_ends(second.context));
        soon();
        pool.driver().hold(first.context, first.stream, false);
        assert!(served.join().unwrap().is_ok());
    });
}

/// The driver wants nothing to be asked of a context that ends, or of a view of one.
#[test]
fn a_context_leaves_behind_the_waits_for_it() {
    for leave in [Pool::<Model>::context_leaves, Pool::view_leaves] {
        let (pool, [first, second]) = used_in_two();
        pool.driver().hold(second.context, second.stream, false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.synchronize(first.context));
            until_awaited(&pool, first.context);
            let leaves = scope.spawn(|| leave(&pool, first.context));
            soon();
            let early = leaves.is_finished();
            pool.driver().hold(first.context, first.stream, false);
            assert_eq!(waits.join().unwrap(), Ok(true));
            leaves.join().unwrap();
            assert!(!early);
        });
        // By then its work may still run, for all that is known.
        assert_eq!(pool.synchronize(first.context), Ok(false));
        assert_eq!(pool.synchronize_device(Context(3)), Ok(false));
    }
}

/// A release of the primary context that is not the last one lets others go on as before.
#[test]
fn who_asks_or_frees_beside_a_call_that_may_end_the_context_waits_for_it() {
    let joined = on(10, 64 * MIB);
    let anywhere = Request {
        order: Order::Unknown,
        ..on(10, 64 * MIB)
    };
    let asks = |pool: &Pool<Model>, request| pool.alloc(request).is_ok();
    let joined = |pool: &_| asks(pool, &joined);
    let anywhere = |pool: &_| asks(pool, &anywhere);
    let frees = |pool: &Pool<Model>| pool.synchronize_own(CONTEXT, false) == Ok(Release::Complete);
    let calls: [&(dyn Fn(&Pool<Model>) -> bool + Sync); 3] = [&joined, &anywhere, &frees];
    for call in calls {
        let pool = pool(Settings {
            limit: Some(64 * MIB),
            ..Settings::default()
        });
        let halves = [(); 2].map(|()| pool.alloc(&on(10, 32 * MIB)).unwrap());
        pool.driver().hold(CONTEXT, Stream(10), true);
        pool.driver().hold_truly();
        for half in halves {
            pool.free(half, Release::Stream(key(10))).unwrap();
        }
        pool.context_leaves(CONTEXT);
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| call(&pool));
            soon();
            let early = calling.is_finished();
            pool.context_stays(CONTEXT);
            pool.driver().hold(CONTEXT, Stream(10), false);
            assert!(calling.join().unwrap() && !early);
        });
    }
}

#[test]
fn who_frees_beside_a_call_that_ends_the_context_waits_for_nothing_more() {
    let pool = pool(Settings::default());
    pool.alloc(&on(10, MIB)).unwrap();
    pool.context_leaves(CONTEXT);
    std::thread::scope(|scope| {
        let frees = scope.spawn(|| pool.synchronize_own(CONTEXT, false));
        soon();
        pool.driver().end_context(CONTEXT);
        pool.context_ends(CONTEXT);
        assert_eq!(frees.join().unwrap(), Ok(Release::Complete));
    });
}

#[test]
fn what_runs_in_a_view_is_waited_for_before_it_ends() {
    let (pool, [view, other]) = used_in_two();
    pool.driver().hold(other.context, other.stream, false);
    std::thread::scope(|scope| {
        let leaves = scope.spawn(|| pool.view_leaves(view.context));
        until_awaited(&pool, view.context);
        soon();
        assert!(!leaves.is_finished());
        pool.driver().hold(view.context, view.stream, false);
    });
    pool.driver().end_context(view.context);
    pool.view_ends(view.context, Context::default());
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 64 * MIB);
}
