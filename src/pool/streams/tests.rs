//! What is taken for passed, and by which events, where calls fail, streams and contexts
//! end, and threads wait beside others that free.

use std::time::Duration;

use super::*;
use crate::driver::{Code, model::Model};
use crate::pool::tests::{CONTEXT, key, on, pool, request, watch};
use crate::pool::{Order, Pool, Release, Request, Settings};
use crate::units::MIB;

const OWN: StreamKey = StreamKey {
    context: CONTEXT,
    stream: Stream::PER_THREAD,
    thread: 7,
};

fn streams() -> (Model, Streams) {
    (Model::new(0), Streams::default())
}

fn pool_that_waits() -> Pool<Model> {
    let pool = pool(Settings::default());
    pool.driver().hold_truly();
    pool
}

/// Until a wait for the context has begun.
fn until_awaited(pool: &Pool<Model>) {
    while !pool.lock().streams.health.is_awaited(CONTEXT) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
}

/// Which event covers it is seen by how many there are.
#[test]
fn a_stream_is_ordered_behind_the_event_that_followed_the_use() {
    let (driver, mut streams) = streams();
    driver.hold(CONTEXT, Stream(10), true);
    let [user, waiter] = [10, 11].map(|stream| streams.id(key(stream)));
    for events in 1..4 {
        let last = streams.tag(&driver, user, 0).unwrap();
        streams.mark_free(&driver, last);
        for _ in 0..2 {
            streams.order_behind(&driver, waiter, last, false).unwrap();
            assert_eq!(driver.events(), events);
        }
    }
}

/// By then the program may have given the stream what waits for the other one.
#[test]
fn nobody_is_ordered_behind_an_event_that_was_recorded_later() {
    let (driver, mut streams) = streams();
    driver.hold(CONTEXT, Stream(10), true);
    let [user, waiter] = [10, 11].map(|stream| streams.id(key(stream)));
    let last = streams.tag(&driver, user, 0).unwrap();
    let ordered = streams.order_behind(&driver, waiter, last, false);
    assert_eq!(ordered, Err(Code::NOT_READY));
    // Nor behind one that followed another use, be it the next one.
    let last = streams.tag(&driver, user, 0).unwrap();
    streams.part(user);
    let next = streams.tag(&driver, user, 0).unwrap();
    streams.mark_free(&driver, next);
    let ordered = streams.order_behind(&driver, waiter, last, false);
    assert_eq!(ordered, Err(Code::NOT_READY));
    assert!(driver.waits().is_empty());
    streams.order_behind(&driver, waiter, next, false).unwrap();
    // Where there is no other memory it must be.
    streams.order_behind(&driver, waiter, last, true).unwrap();
    assert_eq!(driver.waits().len(), 2);
    driver.hold(CONTEXT, Stream(10), false);
    streams.order_behind(&driver, waiter, last, false).unwrap();
    assert_eq!(driver.waits().len(), 2, "it is over");
}

/// Its events are barriers: what may be recorded there later is none in the stream.
#[test]
fn on_the_legacy_default_stream_an_edge_is_an_event_that_followed_a_free() {
    let (driver, mut streams) = streams();
    driver.hold(CONTEXT, Stream::LEGACY, true);
    let legacy = streams.id(key(1));
    let freed = streams.tag(&driver, legacy, 0).unwrap();
    streams.mark_free(&driver, freed);
    let later = streams.tag(&driver, legacy, 0).unwrap();
    streams.poll(&driver).unwrap();
    assert_eq!(driver.events(), 2);
    let edge = streams.make_edge(&driver, legacy, later.seq, false);
    assert_eq!(edge, Err(Code::NOT_READY));
    streams
        .make_edge(&driver, legacy, freed.seq, false)
        .unwrap();
    assert!(!streams.needs_edge(freed, 1) && streams.needs_edge(later, 1));
    // What it is given next needs no event either.
    let given = streams.tag_given(&driver, legacy, 1, false).unwrap();
    assert_eq!(given.seq, later.seq);
    assert!(driver.waits().is_empty());
    streams.make_edge(&driver, legacy, later.seq, true).unwrap();
    assert_eq!(driver.waits().len(), 1, "nothing else is left");
}

#[test]
fn nothing_is_lent_at_a_front_before_the_event_of_a_free_that_is_a_barrier() {
    let pool = pool(Settings::default());
    let legacy = key(1);
    let request = request(MIB, Order::Stream(legacy));
    let at = pool.alloc(&request).unwrap();
    pool.free(at, Release::Stream(legacy)).unwrap();
    assert_eq!(pool.driver().events(), 1);
    let close = |closed| {
        let mut front = pool.fronts.lock(Fronts::of_stream(&legacy));
        let lane = front.find(&legacy).unwrap();
        front.lane(lane).closed = closed;
    };
    close(true);
    assert!(pool.alloc_at_front(&request).is_err());
    close(false);
    assert_eq!(pool.alloc_at_front(&request).ok(), Some(at));
}

/// Only the thread can name its default stream.
#[test]
fn where_a_threads_own_stream_cannot_be_marked_the_whole_context_is() {
    let (driver, mut streams) = streams();
    let own = streams.id(OWN);
    driver.fail_waits(1, Code::UNKNOWN);
    let last = streams.tag(&driver, own, 0).unwrap();
    assert!(streams.is_whole_context(last.stream));
    driver.fail_waits(1, Code::ILLEGAL_ADDRESS);
    assert!(streams.tag(&driver, own, 0).is_err());
}

/// Its handle may be another stream's.
#[test]
fn of_a_stream_that_ended_the_whole_context_tells() {
    let (driver, mut streams) = streams();
    let stream = streams.id(key(10));
    let last = streams.tag(&driver, stream, 0).unwrap();
    driver.hold(CONTEXT, Stream(11), true);
    streams.forget(CONTEXT, Stream(10));
    for held in [true, false] {
        driver.hold(CONTEXT, Stream(11), held);
        streams.poll(&driver).unwrap();
        assert_eq!(streams.is_done(last), !held);
    }
}

#[test]
fn a_use_of_which_nothing_tells_is_among_the_last_ones() {
    let (_, mut streams) = streams();
    let stream = streams.id(key(10));
    assert!(streams.last_uses().is_empty());
    let lost = streams.lose(stream, 0);
    let uses = streams.last_uses();
    assert!(!uses.is_empty() && !uses.iter().any(|last| streams.is_done(*last)));
    assert!(!streams.is_done(lost));
}

/// Also where the stream had ended before its context.
#[test]
fn no_two_streams_get_the_place_of_one_that_ended() {
    let (driver, mut streams) = streams();
    let ended = streams.id(key(10));
    streams.forget(CONTEXT, Stream(10));
    streams.forget_context(CONTEXT);
    let front = |stream: &u64| Fronts::of_stream(&key(*stream)) == Fronts::of_stream(&key(10));
    let mut others = (11..).filter(front).map(|stream| streams.id(key(stream)));
    assert_eq!(others.next(), Some(ended));
    assert_ne!(others.next(), Some(ended));
    drop(others);
    streams.poll(&driver).unwrap();
}

#[test]
fn events_of_a_context_that_ended_are_not_used_again_nor_asked() {
    let (driver, mut streams) = streams();
    for _ in 0..2 {
        let [one, two] = [10, 11].map(|stream| streams.id(key(stream)));
        driver.hold(CONTEXT, Stream(11), true);
        // One that is to spare, and one that is not passed.
        for stream in [one, two] {
            streams.tag(&driver, stream, 0).unwrap();
        }
        streams.poll(&driver).unwrap();
        driver.end_context(CONTEXT);
        streams.forget_context(CONTEXT);
        streams.poll(&driver).unwrap();
    }
}

/// The handle of one that ended is another one's.
#[test]
fn a_context_with_the_handle_of_one_that_ended_can_be_waited_for() {
    let pool = pool(Settings::default());
    pool.alloc(&on(10, MIB)).unwrap();
    pool.primary_joins(CONTEXT);
    pool.context_leaves(CONTEXT);
    assert_eq!(pool.synchronize(CONTEXT), Ok(false));
    pool.context_ends(CONTEXT);
    assert_eq!(pool.lock().streams.health.primary(), None);
    pool.alloc(&on(10, MIB)).unwrap();
    assert_eq!(pool.synchronize(CONTEXT), Ok(true));
}

#[test]
fn what_is_freed_while_the_host_waits_may_still_be_used_when_it_has_waited() {
    let pool = pool_that_waits();
    let [slow, freed] = [10, 11].map(|stream| pool.alloc(&on(stream, 32 * MIB)).unwrap());
    pool.free(slow, Release::Stream(key(10))).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.synchronize(CONTEXT));
        until_awaited(&pool);
        pool.free(freed, Release::Stream(key(11))).unwrap();
        pool.driver().hold(CONTEXT, Stream(10), false);
        assert_eq!(waits.join().unwrap(), Ok(true));
    });
    pool.driver().hold(CONTEXT, Stream(11), true);
    let asked = Request {
        order: Order::Unknown,
        ..on(11, 32 * MIB)
    };
    for _ in 0..2 {
        assert_ne!(pool.alloc(&asked), Ok(freed));
    }
}

/// Else a context that ends would wait for it for ever.
#[test]
fn a_wait_that_failed_is_over_too() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at, Release::Stream(key(10))).unwrap();
    pool.make_ready(&mut pool.lock()).unwrap();
    pool.driver().fail_waits(1, Code::UNKNOWN);
    pool.wait_for_pending().known.unwrap();
    assert!(!pool.lock().streams.health.is_awaited(CONTEXT));
}

#[test]
fn a_wait_for_a_context_leaves_no_event_behind() {
    let pool = pool_that_waits();
    pool.alloc(&on(10, MIB)).unwrap();
    // Where it cannot be recorded, and where it cannot be waited for.
    pool.driver().fail_waits(1, Code::UNKNOWN);
    assert_eq!(pool.synchronize(CONTEXT), Ok(true));
    assert_eq!(pool.driver().events(), 0);
    pool.driver().hold(CONTEXT, Stream(10), true);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.synchronize(CONTEXT));
        until_awaited(&pool);
        pool.driver().fail_waits(1, Code::UNKNOWN);
        pool.driver().hold(CONTEXT, Stream(10), false);
        assert_eq!(waits.join().unwrap(), Ok(true));
    });
    assert_eq!(pool.driver().events(), 0);
}

/// Its events may be none by now.
#[test]
fn of_a_context_that_may_be_ending_nothing_is_asked() {
    let (driver, mut streams) = streams();
    let user = streams.id(key(10));
    let waiter = streams.id(StreamKey::new(Context(2), Stream(11), 0));
    driver.hold(CONTEXT, Stream(10), true);
    let last = streams.tag(&driver, user, 0).unwrap();
    streams.poll(&driver).unwrap();
    streams.health.leaves(CONTEXT);
    driver.end_context(CONTEXT);
    streams.poll(&driver).unwrap();
    assert!(streams.mark(&driver, user, Moment::Free).unwrap().is_none());
    let ordered = streams.order_behind(&driver, waiter, last, true);
    assert_eq!(ordered, Err(Code::NOT_READY));
    assert!(driver.waits().is_empty());
}

/// Only that stream was ordered behind others' uses of them.
#[test]
fn bytes_of_a_slab_that_a_stream_did_not_get_are_used_behind_that_stream() {
    let pool = pool(Settings::default());
    let of = |context, stream, bytes| Request {
        context: Context(context),
        ..request(
            bytes,
            Order::Stream(StreamKey::new(Context(context), Stream(stream), 0)),
        )
    };
    let at = pool.alloc(&of(2, 10, 2 * MIB)).unwrap();
    pool.driver().hold(Context(2), Stream(10), true);
    let user = StreamKey::new(Context(2), Stream(10), 0);
    watch(&pool, user);
    pool.free(at, Release::Stream(user)).unwrap();
    pool.make_ready(&mut pool.lock()).unwrap();
    pool.driver().fail_waits(1, Code::ILLEGAL_ADDRESS);
    let broken = pool.alloc(&request(1000, Order::Stream(OWN)));
    assert_eq!(broken, Err(Code::ILLEGAL_ADDRESS.into()));
    // When its wait is over nobody can be told, so these are lent to nobody else.
    assert_ne!(pool.alloc(&of(3, 12, 2 * MIB)), Ok(at));
    assert_eq!(pool.driver().waits(), [(Stream::PER_THREAD, Stream(10))]);
}

/// A program of one stream pays for no event.
#[test]
fn the_first_of_several_streams_are_watched_and_a_single_one_is_not() {
    let lend = |pool: &Pool<Model>, stream, mib| pool.alloc(&on(stream, mib * MIB)).unwrap();
    let give = |pool: &Pool<Model>, stream, at| {
        pool.driver().hold(CONTEXT, Stream(stream), true);
        pool.free(at, Release::Stream(key(stream))).unwrap();
    };
    let alone = pool(Settings::default());
    let at = lend(&alone, 10, 8);
    give(&alone, 10, at);
    assert_eq!(alone.driver().events(), 0);
    // Whichever of the two frees, before the other one looks for memory.
    for (user, waiter) in [(10, 11), (11, 10)] {
        let pool = pool(Settings::default());
        let [first, second] = [10, 11].map(|stream| lend(&pool, stream, 8));
        let at = if user == 10 { first } else { second };
        give(&pool, user, at);
        assert_eq!(lend(&pool, waiter, 8), at);
        let waits = pool.driver().waits();
        assert_eq!(waits, [(Stream(waiter), Stream(user))]);
    }
}

/// The device is as good as empty: that no event can be had is no want of memory.
#[test]
fn what_cannot_be_put_in_order_is_left_alone() {
    let codes = [Code::OUT_OF_MEMORY, Code::UNKNOWN];
    for (code, records) in codes.into_iter().zip([u32::MAX, 0]) {
        let pool = pool(Settings {
            chunk: Some(4 * MIB),
            ..Settings::default()
        });
        let alloc = |stream, mib| pool.alloc(&on(stream, mib * MIB)).unwrap();
        let free = |at| assert!(pool.free(at, Release::Stream(key(10))).is_ok());
        [4, 4].map(|mib| alloc(10, mib)).into_iter().for_each(free);
        let whole = alloc(10, 8);
        assert_eq!(pool.physical(), 8 * MIB);
        pool.driver().hold(CONTEXT, Stream(10), true);
        watch(&pool, key(10));
        free(whole);
        pool.driver().fail_waits(records, code);
        pool.driver().fail_orders(Some(code));
        // What was freed last was used through another address; another stream waits for an event.
        alloc(10, 4);
        alloc(11, 4);
        assert_eq!(pool.physical(), 12 * MIB);
        pool.driver().fail_waits(0, code);
        pool.driver().fail_orders(None);
        alloc(11, 4);
        assert_eq!(pool.physical(), 12 * MIB);
        assert_eq!(pool.driver().waits(), [(Stream(11), Stream(10))]);
    }
}

/// As programs make them for a moment. Nobody looks for memory meanwhile.
#[test]
fn streams_that_come_and_go_leave_no_more_places_than_there_were_at_once() {
    for small in [512, 4 * MIB] {
        let pool = pool(Settings::default());
        for stream in (100..2100).map(key) {
            let at = pool.alloc(&request(small, Order::Stream(stream))).unwrap();
            pool.free(at, Release::Stream(stream)).unwrap();
            pool.stream_ends(CONTEXT, stream.stream);
        }
        // One for each front, by the handles.
        let places = pool.lock().streams.count();
        assert!(places <= 2 * 64, "{places}");
        assert!(pool.driver().events() <= 2 * 64);
    }
}
