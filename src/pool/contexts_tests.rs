//! What ends or breaks with contexts and streams, over the model driver.

use crate::driver::model::Model;
use crate::driver::{Code, Context, Stream};
use crate::pool::front::Fronts;
use crate::pool::tests::{CONTEXT, key, on, pool, request, watch};
use crate::pool::{NotOurs, Order, Owner, Pool, Refusal, Release, Request, Settings, StreamKey};
use crate::units::MIB;
use std::time::Duration;

#[test]
fn a_broken_context_gets_its_error_and_still_frees_and_stops_no_other() {
    let pool = pool(Settings::default());
    let [at, one, two] = [(); 3].map(|()| pool.alloc(&on(10, MIB)).unwrap());
    pool.freeze(CONTEXT, Code::ILLEGAL_ADDRESS);
    for at in [one, two] {
        let freed = pool.free(at, Release::Stream(key(10))).unwrap();
        assert_eq!(freed.error, Some(Code::ILLEGAL_ADDRESS));
    }
    for bytes in [MIB, 1 << 60, u64::MAX] {
        let asked = pool.alloc(&on(10, bytes));
        assert_eq!(
            asked,
            Err(Refusal::Driver(Code::ILLEGAL_ADDRESS)),
            "{bytes}"
        );
    }
    let other = Request {
        context: Context(2),
        ..request(MIB, Order::Unknown)
    };
    assert!(pool.alloc(&other).is_ok());
    let huge = Request {
        bytes: u64::MAX,
        ..other
    };
    assert_eq!(pool.alloc(&huge), Err(Code::OUT_OF_MEMORY.into()));
    assert!(pool.free(at, Release::Complete).is_ok());
}

#[test]
fn a_context_ends_with_its_memory_and_no_other() {
    let pool = pool(Settings::default());
    let other = Context(2);
    let of = |context, owner, bytes| Request {
        context,
        owner,
        ..request(bytes, Order::Unknown)
    };
    for bytes in [1000, 40 * MIB] {
        let lend = |context, owner| pool.alloc(&of(context, owner, bytes)).unwrap();
        let gone = lend(CONTEXT, Owner::Context);
        let pooled = lend(CONTEXT, Owner::MemoryPool);
        let others = lend(other, Owner::Context);
        pool.context_ends(CONTEXT);
        assert_eq!(pool.find(gone), None);
        assert_eq!(pool.find(pooled).unwrap().context, Context::default());
        assert_eq!(pool.find(others).unwrap().context, other);
        assert_eq!(pool.free(gone, Release::Complete), Err(NotOurs::Unknown));
        pool.adopt(pooled, other);
        assert_eq!(pool.find(pooled).unwrap().context, other);
        assert!(pool.free(pooled, Release::Complete).is_ok());
        pool.context_ends(other);
        assert_eq!((pool.physical(), pool.stats().live_bytes), (0, 0));
        assert_eq!(pool.driver().leftovers().1, 0, "handles");
    }
}

#[test]
fn a_context_that_broke_and_ended_is_whole_when_its_handle_returns() {
    let pool = pool(Settings::default());
    pool.alloc(&on(10, MIB)).unwrap();
    pool.freeze(CONTEXT, Code::ILLEGAL_ADDRESS);
    assert!(pool.alloc(&on(10, MIB)).is_err());
    pool.context_ends(CONTEXT);
    assert_eq!(pool.physical(), 0);
    assert!(pool.alloc(&on(10, MIB)).is_ok());
}

#[test]
fn streams_that_ended_leave_nothing_behind() {
    let pool = pool(Settings::default());
    for bytes in [1000, MIB] {
        for stream in 10..2010 {
            let at = pool.alloc(&on(stream, bytes)).unwrap();
            pool.free(at, Release::Stream(key(stream))).unwrap();
            pool.stream_ends(CONTEXT, Stream(stream));
        }
    }
    let streams = pool.lock().streams.places(CONTEXT).len();
    assert!(streams < 10, "{streams}");
}

#[test]
fn a_stream_that_ended_orders_nothing_of_what_was_asked_for_on_it() {
    let pool = pool(Settings::default());
    let small = pool.alloc(&on(10, 1000)).unwrap();
    assert_eq!(pool.find(small).unwrap().order, Order::Stream(key(10)));
    pool.stream_ends(CONTEXT, Stream(10));
    assert_eq!(pool.find(small).unwrap().order, Order::Unknown);
    for stream in 11..20 {
        pool.alloc(&on(stream, 1000)).unwrap();
        assert_eq!(pool.find(small).unwrap().order, Order::Unknown);
    }
}

#[test]
fn contexts_come_and_go_without_end() {
    let pool = pool(Settings::default());
    let keep = pool.alloc(&on(10, 1000)).unwrap();
    for number in 2..1000 {
        let context = Context(number);
        let request = |owner| Request {
            context,
            owner,
            ..request(1000, Order::Unknown)
        };
        let at = pool.alloc(&request(Owner::Context)).unwrap();
        assert_eq!(pool.find(at).unwrap().context, context);
        pool.context_ends(context);
        assert_eq!(pool.find(at), None);
    }
    assert_eq!(pool.find(keep).unwrap().context, CONTEXT);
}

#[test]
fn what_is_heard_of_a_context_after_its_end_is_not_of_the_next_one() {
    let pool = pool(Settings::default());
    pool.alloc(&on(10, MIB)).unwrap();
    pool.context_ends(CONTEXT);
    // Another thread's wait for it, which its end has cut short.
    pool.freeze(CONTEXT, Code::CONTEXT_IS_DESTROYED);
    assert!(pool.alloc(&on(10, MIB)).is_ok(), "its handle came back");
}

#[test]
fn work_for_the_device_runs_in_a_context_that_is_not_broken() {
    let pool = pool(Settings::default());
    let other = Context(2);
    pool.alloc(&on(10, MIB)).unwrap();
    let request = Request {
        context: other,
        ..request(MIB, Order::Unknown)
    };
    pool.alloc(&request).unwrap();
    pool.freeze(CONTEXT, Code::ILLEGAL_ADDRESS);
    assert_eq!(pool.context(), Some(other));
}

/// Where nobody waited for it, as where a capture keeps who frees from waiting.
#[test]
fn what_was_a_views_is_lent_behind_the_context_behind_it() {
    let pool = pool(Settings::default());
    let [view, whole] = [Context(2), CONTEXT];
    pool.primary_joins(whole);
    let of = |context| Request {
        context,
        ..request(32 * MIB, Order::Unknown)
    };
    for (user, owner) in [(whole, view), (view, view), (whole, whole)] {
        let at = pool.alloc(&of(owner)).unwrap();
        pool.driver().hold(user, Stream(10), true);
        pool.free(at, Release::Unknown).unwrap();
        let next = pool.alloc(&of(owner)).unwrap();
        assert_ne!(next, at, "{user:?} uses what was made in {owner:?}");
        pool.driver().hold(user, Stream(10), false);
        pool.free(next, Release::Complete).unwrap();
        pool.trim();
    }
}

#[test]
fn what_was_a_views_ends_with_the_context_behind_it() {
    let pool = pool(Settings::default());
    let [view, whole] = [Context(2), CONTEXT];
    let of = |owner| Request {
        context: view,
        owner,
        ..request(32 * MIB, Order::Unknown)
    };
    let [its, pooled] = [Owner::Context, Owner::MemoryPool].map(|o| pool.alloc(&of(o)).unwrap());
    pool.view_leaves(view);
    pool.driver().end_context(view);
    pool.view_ends(view, whole);
    assert_eq!(pool.find(its).unwrap().context, whole);
    pool.context_leaves(whole);
    pool.driver().end_context(whole);
    pool.context_ends(whole);
    assert_eq!(pool.find(its), None);
    assert_eq!(pool.find(pooled).unwrap().context, Context::default());
}

#[test]
fn a_context_is_known_from_its_first_request_until_it_leaves() {
    let pool = pool(Settings::default());
    pool.alloc(&request(MIB, Order::Unknown)).unwrap();
    assert_eq!(pool.context(), Some(CONTEXT));
    pool.context_leaves(CONTEXT);
    assert_eq!(pool.context(), None, "it is about to end");
    pool.context_stays(CONTEXT);
    assert_eq!(pool.context(), Some(CONTEXT));
    pool.context_ends(CONTEXT);
    assert_eq!(pool.context(), None);
}

#[test]
fn a_handle_that_returns_is_a_context_to_be_asked_about() {
    let pool = pool(Settings::default());
    let of = |context| Request {
        context,
        ..request(32 * MIB, Order::Unknown)
    };
    let [others, _] = [Context(2), CONTEXT].map(|context| pool.alloc(&of(context)).unwrap());
    pool.context_ends(CONTEXT);
    pool.free(others, Release::Complete).unwrap();
    assert_eq!(pool.alloc(&of(CONTEXT)), Ok(others), "from the shelf");
    // Whoever waits for the device waits for it, too.
    let known = pool.lock().streams.health.contexts();
    assert_eq!(known, [Context(2), CONTEXT]);
}

#[test]
fn a_stream_in_the_place_of_one_that_ended_is_a_stream_of_its_own() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 4 * MIB)).unwrap();
    pool.free(at, Release::Stream(key(10))).unwrap();
    let before = pool.lock().streams.id(key(10));
    pool.stream_ends(CONTEXT, Stream(10));
    pool.trim();
    let front = |stream: &u64| Fronts::of_stream(&key(*stream));
    let next = (11..).find(|other| front(other) == front(&10)).unwrap();
    let at = pool.alloc(&on(next, 4 * MIB)).unwrap();
    assert_eq!(pool.lock().streams.id(key(next)), before);
    pool.driver().hold(CONTEXT, Stream(next), true);
    watch(&pool, key(next));
    pool.free(at, Release::Stream(key(next))).unwrap();
    assert_eq!(pool.alloc(&on(9, 4 * MIB)), Ok(at));
    // Not for the whole context, as where the stream is gone.
    assert_eq!(pool.driver().waits(), [(Stream(9), Stream(next))]);
}

#[test]
fn events_end_with_their_context() {
    let pool = pool(Settings::default());
    for _ in 0..2 {
        let at = pool.alloc(&on(10, 4 * MIB)).unwrap();
        pool.free(at, Release::Stream(key(10))).unwrap();
        // Asked whether that use is over, by an event that can be used again.
        assert_eq!(pool.trim(), 4 * MIB);
        pool.driver().end_context(CONTEXT);
        pool.context_ends(CONTEXT);
    }
}

/// Nothing tells when such uses end but the end of their context, whoever has the place of
/// their stream by then.
#[test]
fn uses_that_no_event_can_stand_for_are_over_with_their_context() {
    let pool = pool(Settings::default());
    let own = StreamKey::new(CONTEXT, Stream::PER_THREAD, 7);
    let at = pool.alloc(&request(32 * MIB, Order::Stream(own)));
    pool.driver().fail_waits(1, Code::ILLEGAL_ADDRESS);
    let freed = pool.free(at.unwrap(), Release::Stream(own)).unwrap();
    assert_eq!(freed.error, Some(Code::ILLEGAL_ADDRESS));
    pool.threads_end(&[7]);

    let other = |stream| StreamKey::new(Context(2), Stream(stream), 0);
    let front = Fronts::of_stream(&own);
    let mut others = (100..).map(other);
    let other = others.find(|key| Fronts::of_stream(key) == front).unwrap();
    let asked = Request {
        context: Context(2),
        ..request(32 * MIB, Order::Stream(other))
    };
    assert_ne!(pool.alloc(&asked), at);
    pool.context_ends(CONTEXT);
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 32 * MIB);
}

/// As long as others use the device: programs make contexts for a moment, and end them.
#[test]
fn a_context_that_ends_takes_as_much_with_it_as_it_had() {
    let pool = pool(Settings::default());
    let idle = pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.free(idle, Release::Complete).unwrap();
    let brief = Context(2);
    for bytes in [0, 8 * MIB] {
        if bytes > 0 {
            let asked = Request {
                context: brief,
                ..request(bytes, Order::Unknown)
            };
            pool.alloc(&asked).unwrap();
        }
        let before = pool.physical();
        pool.context_ends(brief);
        assert!(before - pool.physical() <= bytes.next_multiple_of(2 * MIB));
    }
    pool.context_ends(CONTEXT);
    assert_eq!(pool.physical(), 0);
}

/// They never end: what is ordered behind others is.
#[test]
fn uses_in_a_broken_context_keep_nobody_from_what_another_one_still_uses() {
    let pool = Pool::new(Model::new(128 * MIB), 0, Settings::default()).unwrap();
    let of = |context, stream| {
        let key = StreamKey::new(context, Stream(stream), 0);
        let request = Request {
            context,
            ..request(64 * MIB, Order::Stream(key))
        };
        (key, request)
    };
    let users = [(CONTEXT, 10), (Context(2), 20)].map(|(context, stream)| {
        let (key, request) = of(context, stream);
        (key, pool.alloc(&request).unwrap())
    });
    for (key, at) in users {
        watch(&pool, key);
        pool.driver().hold(key.context, key.stream, true);
        pool.free(at, Release::Stream(key)).unwrap();
    }
    pool.freeze(CONTEXT, Code::ILLEGAL_ADDRESS);
    let (_, of_another) = of(Context(2), 21);
    assert_eq!(pool.alloc(&of_another), Ok(users[1].1));
    assert_eq!(pool.driver().waits(), [(Stream(21), Stream(20))]);
}
