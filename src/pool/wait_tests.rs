//! Waits that go wrong, and what must not be taken for complete then.

use super::super::*;
use crate::driver::{Stream, model::Model};
use crate::pool::streams::Streams;
use crate::pool::tests::{self, CONTEXT, key};
use crate::units::MIB;
use std::time::Duration;

const OTHER: Context = Context(2);

fn request(context: Context, order: Order) -> Request {
    let request = tests::request(32 * MIB, order);
    Request { context, ..request }
}

fn pool() -> Pool<Model> {
    tests::pool(Settings::default())
}

#[test]
fn an_event_that_is_waited_for_is_not_recorded_anew() {
    let (driver, mut streams) = (Model::new(0), Streams::default());
    driver.hold(CONTEXT, Stream(10), true);
    let [slow, quick] = [10, 11].map(|stream| streams.id(key(stream)));
    streams.tag(&driver, slow, 0).unwrap();
    let (wait, awaited) = streams.outstanding(&driver);
    let [(_, _, event)] = awaited[..] else {
        panic!("one stream has uses: {awaited:?}");
    };
    // While the host waits, so many newer places are recorded that the event
    // is not needed any more, and another stream needs one.
    let record = |streams: &mut Streams| {
        for _ in 0..=256 {
            streams.make_edge(&driver, slow, 0, false).unwrap();
        }
        streams.make_edge(&driver, quick, 0, false).unwrap();
    };
    record(&mut streams);
    assert_eq!(driver.is_complete(event), Ok(false), "it waits for another");
    streams.end_wait(wait);
    record(&mut streams);
    assert_eq!(driver.is_complete(event), Ok(true), "it is lost for good");
}

#[test]
fn a_context_that_could_not_be_waited_for_is_not_complete() {
    let pool = pool();
    for context in [CONTEXT, OTHER] {
        pool.alloc(&request(context, Order::Unknown)).unwrap();
    }
    pool.driver().fail_waits(2, Code::UNKNOWN);
    assert_eq!(pool.synchronize_device(CONTEXT), Ok(false));
    pool.driver().fail_waits(1, Code::ILLEGAL_ADDRESS);
    assert_eq!(pool.synchronize_device(CONTEXT), Ok(true), "it is broken");
}

#[test]
fn the_last_record_of_a_stream_is_tried_twice() {
    let pool = pool();
    let at = pool.alloc(&request(CONTEXT, Order::Stream(key(10))));
    pool.free(at.unwrap(), Release::Stream(key(10))).unwrap();
    // Later, an event would stand behind all of the context.
    pool.driver().hold(CONTEXT, Stream(11), true);
    pool.driver().fail_waits(1, Code::UNKNOWN);
    pool.stream_ends(CONTEXT, Stream(10));
    assert_eq!(pool.alloc(&request(CONTEXT, Order::Unknown)), at);
}

/// A pool with 32 MiB that another stream still uses.
fn used_by_another() -> (Pool<Model>, Address) {
    let pool = pool();
    let at = pool
        .alloc(&request(CONTEXT, Order::Stream(key(10))))
        .unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    (pool, at)
}

#[test]
fn for_a_segment_the_host_waits_for_another_stream_and_for_its_own_nobody() {
    let (pool, at) = used_by_another();
    let segment = |stream| request(CONTEXT, Order::Segment(key(stream)));
    assert_eq!(pool.alloc(&segment(10)), Ok(at));
    assert_eq!(pool.stats().host_waits, 0);
    pool.free(at, Release::Stream(key(10))).unwrap();
    for effort in [Effort::Window, Effort::Growth] {
        pool.driver().hold(CONTEXT, Stream(10), true);
        let waits = pool.stats().host_waits;
        let asked = Request {
            effort,
            ..segment(11)
        };
        assert_eq!(pool.alloc(&asked), Ok(at));
        assert_eq!(pool.stats().host_waits, waits + 1);
        assert_eq!(pool.driver().waits(), [], "by no event on the device");
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    // What has room only with new memory takes as little of it as after a wait.
    pool.driver().hold(CONTEXT, Stream(10), true);
    let longer = Request {
        bytes: 48 * MIB,
        ..segment(11)
    };
    pool.alloc(&longer).unwrap();
    assert_eq!(pool.physical(), 48 * MIB);
}

#[test]
fn a_segment_grows_where_a_wait_fails_and_waits_for_nothing_that_is_no_use() {
    let segment = request(CONTEXT, Order::Segment(key(11)));
    let (pool, at) = used_by_another();
    pool.driver().fail_waits(u32::MAX, Code::UNKNOWN);
    assert_ne!(pool.alloc(&segment), Ok(at));
    assert_eq!(pool.physical(), 64 * MIB);
    // Where one wait fails, one for the context tells.
    for failures in [1, 2] {
        let (pool, at) = used_by_another();
        pool.driver().fail_waits(failures, Code::UNKNOWN);
        assert_eq!(pool.alloc(&segment), Ok(at));
    }
    let (pool, _) = used_by_another();
    let waits = pool.stats().host_waits;
    let window = Request {
        bytes: 48 * MIB,
        effort: Effort::Window,
        ..segment
    };
    assert_eq!(pool.alloc(&window), Err(Refusal::NoWindow));
    assert_eq!(pool.stats().host_waits, waits);
}

/// A free in a stream's order, which asks nobody, tells of it.
#[test]
fn a_context_that_breaks_during_a_wait_is_known_to_be_broken() {
    const BROKEN: Code = Code::LAUNCH_FAILED;
    let for_a_context = |pool: &Pool<Model>| {
        assert_eq!(pool.synchronize(CONTEXT), Err(BROKEN));
    };
    let for_each_use = |pool: &Pool<Model>| {
        assert_eq!(pool.trim(), 0);
    };
    for wait in [&for_a_context as &dyn Fn(&Pool<Model>), &for_each_use] {
        let pool = pool();
        let of = |stream| request(CONTEXT, Order::Stream(key(stream)));
        let [kept, freed] = [(); 2].map(|()| pool.alloc(&of(10)).unwrap());
        pool.driver().hold(CONTEXT, Stream(10), true);
        pool.free(freed, Release::Stream(key(10))).unwrap();
        // An event covers that use: only waits are left to fail.
        pool.capture_begins(CONTEXT, Stream(10));
        pool.driver().fail_waits(1, BROKEN);
        wait(&pool);
        let told = pool.free(kept, Release::Stream(key(10))).unwrap().error;
        assert_eq!(told, Some(BROKEN));
    }
}

/// A fill may be under way when it is known that nobody can wait for it.
#[test]
fn memory_whose_fill_could_not_be_waited_for_is_not_complete() {
    let settings = Settings {
        debug: Debug::Poison,
        ..Settings::default()
    };
    let pool = Pool::new(Model::new(64 << 30), 0, settings).unwrap();
    let asked = request(CONTEXT, Order::Unknown);
    pool.driver().hold(CONTEXT, Stream::LEGACY, true);
    pool.driver().fail_waits(1, Code::UNKNOWN);
    assert_eq!(pool.alloc(&asked), Err(Code::UNKNOWN.into()));
    let other = pool.alloc(&asked).unwrap();
    assert_eq!(pool.physical(), 64 * MIB, "the first 32 are not lent");
    // Nobody has them: once the context was waited for they are lent again.
    assert_eq!(pool.synchronize(CONTEXT), Ok(true));
    let again = pool.alloc(&asked).unwrap();
    assert!(again != other && pool.physical() == 64 * MIB);
}

#[test]
fn memory_of_a_slab_that_came_to_nothing_goes_with_its_context() {
    let pool = pool();
    let own = StreamKey::new(CONTEXT, Stream::PER_THREAD, 1);
    let small = Request {
        bytes: 512,
        ..request(CONTEXT, Order::Stream(own))
    };
    pool.driver().fail_waits(1, Code::ILLEGAL_ADDRESS);
    assert_eq!(pool.alloc(&small), Err(Code::ILLEGAL_ADDRESS.into()));
    assert!(pool.physical() > 0);
    pool.context_ends(CONTEXT);
    assert_eq!(pool.physical(), 0);
}

#[test]
fn a_stream_of_which_nothing_can_be_learned_stops_no_other_one() {
    let pool = pool();
    let of = |stream| request(CONTEXT, Order::Stream(key(stream)));
    let lent = [10, 11].map(|stream| (pool.alloc(&of(stream)).unwrap(), key(stream)));
    for (at, stream) in lent {
        // No event follows it.
        pool.driver().fail_waits(1, Code::UNKNOWN);
        pool.free(at, Release::Stream(stream)).unwrap();
    }
    pool.driver().fail_waits(1, Code::UNKNOWN);
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 32 * MIB);
    assert_eq!(pool.physical(), 32 * MIB);
    pool.driver().fail_waits(1, Code::UNKNOWN);
    assert_eq!(pool.trim(), 32 * MIB, "a wait for the context tells");
}

#[test]
fn what_fails_for_one_stream_is_no_answer_to_another_ones_request() {
    // No event can be had of the stream whose bytes it could have: it has others.
    let (pool, at) = used_by_another();
    pool.driver().fail_waits(2, Code::UNKNOWN);
    let asked = request(CONTEXT, Order::Stream(key(11)));
    assert!(pool.alloc(&asked).is_ok_and(|other| other != at));
    assert_eq!(pool.stats().host_waits, 0);
    // Nor can its context be waited for, where there is no more memory.
    let pool = Pool::new(Model::new(64 * MIB), 0, Settings::default()).unwrap();
    let of_other = StreamKey::new(OTHER, Stream(20), 0);
    let lent = [key(10), of_other].map(|stream| {
        let asked = request(stream.context, Order::Stream(stream));
        (pool.alloc(&asked).unwrap(), stream)
    });
    pool.driver().hold(CONTEXT, Stream(10), true);
    for (at, stream) in lent {
        pool.free(at, Release::Stream(stream)).unwrap();
    }
    let asked = request(OTHER, Order::Unknown);
    pool.driver().fail_waits(6, Code::UNKNOWN);
    let [_, (at, _)] = lent;
    assert_eq!(pool.alloc(&asked), Ok(at));
    // Nobody knows that there is none.
    pool.driver().fail_waits(u32::MAX, Code::UNKNOWN);
    assert_eq!(pool.alloc(&asked), Err(Code::UNKNOWN.into()));
}

#[test]
fn a_wait_that_ends_late_takes_nothing_back() {
    let (driver, mut streams) = (Model::new(0), Streams::default());
    driver.hold(CONTEXT, Stream(10), true);
    let stream = streams.id(key(10));
    let early = streams.tag(&driver, stream, 0).unwrap();
    streams.outstanding(&driver);
    let late = streams.tag(&driver, stream, 0).unwrap();
    for last in [late, early] {
        streams.passed(stream, last.seq);
        assert!(streams.is_done(late));
    }
}

#[test]
fn events_that_cannot_be_recorded_are_kept_for_the_next_try() {
    for (release, code) in [
        (Release::Stream(key(10)), Code::UNKNOWN),
        (Release::Unknown, Code::NOT_FOUND),
    ] {
        let pool = pool();
        let at = pool
            .alloc(&request(CONTEXT, Order::Stream(key(10))))
            .unwrap();
        pool.driver().hold(CONTEXT, Stream(10), true);
        pool.free(at, release).unwrap();
        pool.driver().fail_waits(u32::MAX, code);
        for _ in 0..3 {
            let _ = pool.make_ready(&mut pool.lock());
        }
        assert_eq!(pool.driver().events(), 1, "{code:?}");
    }
}

/// A pool with a free block of 32 MiB that was lent in the first of several contexts, work of
/// whose others was not waited for.
fn freed_beside(others: &[Context]) -> (Pool<Model>, Address) {
    let pool = pool();
    for &other in others {
        let beside = pool.alloc(&request(other, Order::Unknown)).unwrap();
        pool.free(beside, Release::Complete).unwrap();
        pool.driver().hold(other, Stream(10), true);
    }
    pool.trim();
    for &other in others {
        pool.driver().hold(other, Stream(10), true);
    }
    let at = pool.alloc(&request(CONTEXT, Order::Unknown)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    let waits = pool.stats().host_waits;
    let release = pool.synchronize_own(CONTEXT, false).unwrap();
    assert_eq!(
        (release, pool.stats().host_waits),
        (Release::Own, waits + 1)
    );
    pool.free(at, release).unwrap();
    assert_eq!(pool.stats().pending_bytes, 32 * MIB);
    (pool, at)
}

#[test]
fn what_was_freed_beside_another_context_is_used_behind_its_work() {
    let (pool, at) = freed_beside(&[OTHER]);
    let unordered = request(CONTEXT, Order::Unknown);
    let window = Request {
        effort: Effort::Window,
        ..unordered
    };
    assert_eq!(pool.alloc(&window), Err(Refusal::NoWindow));
    let ordered = request(CONTEXT, Order::Stream(key(11)));
    assert_eq!(pool.alloc(&ordered), Ok(at));
    assert_eq!(pool.driver().waits().len(), 1, "for the other context");
    pool.free(at, Release::Own).unwrap();
    pool.driver().hold(OTHER, Stream(10), false);
    assert_eq!(pool.alloc(&unordered), Ok(at));
}

#[test]
fn what_was_freed_beside_several_contexts_is_used_behind_all_their_work() {
    let others = [OTHER, Context(3)];
    for last in [0, 1] {
        let (pool, at) = freed_beside(&others);
        let ordered = request(CONTEXT, Order::Stream(key(11)));
        let window = Request {
            effort: Effort::Window,
            ..ordered
        };
        assert_eq!(pool.alloc(&window), Err(Refusal::NoWindow));
        pool.driver().hold(others[1 - last], Stream(10), false);
        assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 0);
        assert_eq!(pool.alloc(&window), Ok(at));
        assert_eq!(pool.driver().waits().len(), 1, "for the one that runs");
        assert_eq!(pool.trim(), 0, "it is lent");
    }
    // Whoever waits for all that is pending has it as well.
    let (pool, _) = freed_beside(&others);
    assert_eq!(pool.trim(), 32 * MIB);
    // So has whoever ends both contexts.
    let (pool, _) = freed_beside(&others);
    others.iter().for_each(|other| pool.context_ends(*other));
    assert_eq!(pool.give_back(u64::MAX, Duration::ZERO), 32 * MIB);
}

#[test]
fn what_is_exported_stays_parked_beside_other_contexts_and_is_used_behind_their_work() {
    let pool = pool();
    let others = [OTHER, Context(3)];
    let of = |context| pool.alloc(&request(context, Order::Unknown)).unwrap();
    let at = of(CONTEXT);
    let id = pool.export(at).unwrap().block.id;
    for other in others {
        of(other);
        pool.driver().hold(other, Stream(10), true);
    }
    let release = pool.synchronize_own(CONTEXT, false).unwrap();
    assert!(pool.free(at, release).unwrap().parked);
    pool.export_ends(id);
    let ordered = request(CONTEXT, Order::Stream(key(11)));
    assert_ne!(pool.alloc(&ordered), Ok(at));
    for other in others {
        pool.driver().hold(other, Stream(10), false);
    }
    assert_eq!(pool.alloc(&ordered), Ok(at));
}

#[test]
fn beside_contexts_that_do_nothing_memory_is_free_at_once() {
    let pool = pool();
    for context in [CONTEXT, OTHER, Context(3)] {
        pool.alloc(&request(context, Order::Unknown)).unwrap();
    }
    let release = |is_view| pool.synchronize_own(CONTEXT, is_view);
    assert_eq!(release(false), Ok(Release::Complete));
    // In a broken context nothing runs any more.
    pool.driver().hold(OTHER, Stream(10), true);
    pool.freeze(OTHER, Code::ILLEGAL_ADDRESS);
    assert_eq!(release(false), Ok(Release::Complete));
    // A view of the primary context is waited for with that.
    pool.driver().hold(Context(3), Stream(10), true);
    assert_eq!(release(false), Ok(Release::Own));
    pool.primary_joins(Context(3));
    assert_eq!(release(false), Ok(Release::Own));
    assert_eq!(release(true), Ok(Release::Complete));
    // Of one that is being ended nothing is asked.
    pool.driver().hold(Context(3), Stream(10), true);
    pool.context_leaves(Context(3));
    assert_eq!(release(false), Ok(Release::Own));
}
