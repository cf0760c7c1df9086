//! Contexts that a call may be ending just now, over the model driver: what is asked of
//! them, and who waits for whom.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::driver::model::Model;
use crate::driver::{Code, Context, Stream};
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{Order, Owner, Pool, Refusal, Release, Request, Settings, StreamKey};
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
    let lend = |key: StreamKey| {
        let request = Request {
            context: key.context,
            owner: Owner::MemoryPool,
            ..request(64 * MIB, Order::Stream(key))
        };
        (key, pool.alloc(&request).unwrap())
    };
    for (key, at) in keys.map(lend) {
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

/// Until the pool knows of the end of a context that left.
fn until_ended(pool: &Pool<Model>, context: Context) {
    while pool.lock().streams.health.is_leaving(context) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Until a call waits for what becomes of a context that leaves; one that does not is over
/// by then.
fn until_watched<T>(pool: &Pool<Model>, context: Context, call: &ScopedJoinHandle<'_, T>) {
    while !pool.lock().streams.health.is_watched(context) && !call.is_finished() {
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
        until_ended(&pool, second.context);
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
    }
}

type Call<'a> = &'a (dyn Fn(&Pool<Model>) -> bool + Sync);

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
    let closes = |pool: &Pool<Model>| pool.synchronize_device(Context(3)) == Ok(true);
    let calls: [Call<'_>; 4] = [&joined, &anywhere, &frees, &closes];
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
            until_watched(&pool, CONTEXT, &calling);
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
        until_watched(&pool, CONTEXT, &frees);
        pool.driver().end_context(CONTEXT);
        pool.context_ends(CONTEXT);
        assert_eq!(frees.join().unwrap(), Ok(Release::Complete));
    });
}

/// Of two contexts the memory is used in, and what is asked for in a third needs all of it.
#[test]
fn who_needs_memory_of_a_context_that_may_be_ending_waits_until_that_is_known() {
    // It begins to leave before the host waits, and may be over it while the host waits for
    // another one.
    for (stays_meanwhile, ends) in [(true, false), (false, false), (false, true)] {
        let (pool, [first, second]) = used_in_two();
        let over = |key: StreamKey| pool.driver().hold(key.context, key.stream, false);
        let asked = Request {
            context: if stays_meanwhile {
                second.context
            } else {
                Context(3)
            },
            ..request(128 * MIB, Order::Unknown)
        };
        pool.context_leaves(second.context);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| pool.alloc(&asked));
            until_awaited(&pool, first.context);
            if stays_meanwhile {
                pool.context_stays(second.context);
            }
            over(first);
            soon();
            let early = served.is_finished();
            over(second);
            if ends {
                pool.driver().end_context(second.context);
                pool.context_ends(second.context);
            } else if !stays_meanwhile {
                pool.context_stays(second.context);
            }
            assert!(served.join().unwrap().is_ok() && !early);
        });
    }
}

#[test]
fn what_was_asked_for_in_a_context_that_ends_is_not_noted_of_the_next_one() {
    let (pool, [first, second]) = used_in_two();
    pool.driver().hold(second.context, second.stream, false);
    let asked = Request {
        context: first.context,
        ..request(128 * MIB, Order::Unknown)
    };
    pool.context_leaves(first.context);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| pool.alloc(&asked));
        until_watched(&pool, first.context, &served);
        pool.driver().end_context(first.context);
        pool.context_ends(first.context);
        let destroyed = Refusal::Driver(Code::CONTEXT_IS_DESTROYED);
        assert_eq!(served.join().unwrap(), Err(destroyed));
    });
    let known = pool.lock().streams.health.contexts();
    assert!(!known.contains(&first.context));
    assert_eq!(pool.lock().streams.health.error(first.context), None);
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
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 128 * MIB);
}

/// Nothing can be ordered behind what a context runs that may be ending: the pool grows,
/// and waits for nobody.
#[test]
fn what_cannot_be_ordered_now_is_left_alone() {
    let pool = pool(Settings::default());
    let theirs = StreamKey::new(Context(2), Stream(20), 0);
    let asked = Request {
        context: theirs.context,
        ..request(32 * MIB, Order::Stream(theirs))
    };
    let at = pool.alloc(&asked).unwrap();
    let mine = pool.alloc(&on(11, MIB)).unwrap();
    pool.driver().hold(theirs.context, Stream(20), true);
    pool.driver().hold(CONTEXT, Stream(11), true);
    pool.free(at, Release::Stream(theirs)).unwrap();
    pool.free(mine, Release::Stream(key(11))).unwrap();
    pool.context_leaves(theirs.context);
    assert_ne!(pool.alloc(&on(10, 32 * MIB)).unwrap(), at);
    assert_eq!(pool.stats().host_waits, 0);
}

/// Where a driver has only waits, another context may end during one: of what ran there
/// nobody will ever tell.
#[test]
fn what_ran_in_a_context_that_ended_during_a_wait_is_not_noted() {
    let pool = pool(Settings::default());
    pool.driver().lack_context_events();
    let [waits, ends] = [2, 3].map(Context);
    let in_context = |context| Request {
        context,
        ..request(32 * MIB, Order::Unknown)
    };
    for context in [waits, ends] {
        pool.alloc(&in_context(context)).unwrap();
    }
    let at = pool.alloc(&in_context(CONTEXT)).unwrap();
    pool.driver().hold(waits, Stream(10), true);
    pool.driver().hold_truly();
    let release = std::thread::scope(|scope| {
        let frees = scope.spawn(|| pool.synchronize_own(CONTEXT, false));
        until_awaited(&pool, waits);
        pool.driver().end_context(ends);
        // The first of what its end does; the rest would wait for the captures' lock.
        pool.lock().streams.forget_context(ends);
        pool.driver().hold(waits, Stream(10), false);
        frees.join().unwrap().unwrap()
    });
    pool.free(at, release).unwrap();
    let physical = pool.physical();
    pool.alloc(&in_context(CONTEXT)).unwrap();
    assert_eq!(pool.physical(), physical);
}

/// Nor asked anything: its handle may be another one's by then.
#[test]
fn a_context_that_ended_during_the_wait_for_another_one_is_not_waited_for() {
    let for_pending = |pool: &Pool<Model>| pool.trim() == 64 * MIB;
    let for_the_device = |pool: &Pool<Model>| pool.synchronize_device(Context(4)) == Ok(true);
    let calls: [Call<'_>; 2] = [&for_pending, &for_the_device];
    let [waits, ends] = [2, 3].map(Context);
    for (call, leaves_before) in [(0, true), (0, false), (1, true), (1, false)] {
        let pool = pool(Settings::default());
        pool.driver().lack_context_events();
        for context in [waits, ends] {
            let request = Request {
                context,
                ..request(32 * MIB, Order::Unknown)
            };
            let at = pool.alloc(&request).unwrap();
            pool.free(at, Release::Unknown).unwrap();
        }
        pool.driver().hold(waits, Stream(10), true);
        pool.driver().hold_truly();
        if leaves_before {
            pool.context_leaves(ends);
        }
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| calls[call](&pool));
            until_awaited(&pool, waits);
            pool.driver().end_context(ends);
            // The first of what its end does; the rest would wait for the captures' lock.
            pool.lock().streams.forget_context(ends);
            pool.driver().hold(waits, Stream(10), false);
            assert!(calling.join().unwrap(), "{call} {leaves_before}");
        });
        assert_eq!(pool.stats().host_waits, 2, "{call} {leaves_before}");
    }
}
