//! Pictures of a pool over the model driver.

use crate::driver::{Context, Stream};
use crate::picture::layout::{Kind, Layout};
use crate::picture::{Owner as Whose, Pool as Picture, State};
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{Attachment, Effort, Order, Refusal, Release, Request, Settings};
use crate::units::{KIB, MIB};

/// Every physical byte stands once, and what is live is what was asked for.
fn check(picture: &Picture) {
    let layout = Layout::of(picture);
    let shown: u64 = layout.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(shown, picture.counter("physical_bytes"));
    let sums = layout.sums(picture);
    let idle = picture.counter("idle_bytes");
    assert_eq!(sums.idle + sums.pending, idle);
    assert_eq!(sums.pending, picture.counter("pending_bytes"));
    let live = |state| {
        let all = picture.blocks.iter().filter(|block| block.state == state);
        all.map(|block| block.asked_bytes).sum::<u64>()
    };
    assert_eq!(live(State::Live), picture.counter("live_bytes"));
    assert_eq!(live(State::Parked), picture.counter("parked_bytes"));
}

#[test]
fn what_is_lent_stands_at_its_address() {
    let pool = pool(Settings::default());
    assert_eq!(pool.picture().chunks, []);
    let large = pool.alloc(&on(10, 5 * MIB + 1)).unwrap();
    let small = pool.alloc(&request(1000, Order::Unknown)).unwrap();
    let picture = pool.picture();
    check(&picture);
    let ids = [large, small].map(|at| pool.find(at).unwrap().id);
    let find = |at| picture.blocks.iter().find(|block| block.address == at);
    let (large, small) = (find(large).unwrap(), find(small).unwrap());
    assert_eq!(
        (large.asked_bytes, large.bytes),
        (5 * MIB + 1, 5 * MIB + 512)
    );
    assert_eq!(
        (large.small, large.owner, large.id),
        (false, Whose::Context, ids[0])
    );
    let stream = picture.stream(large).unwrap();
    assert_eq!((stream.context, stream.stream), (CONTEXT.0, 10));
    assert_eq!(
        (small.asked_bytes, small.bytes, small.small),
        (1000, 1024, true)
    );
    assert_eq!((small.id, small.stream), (ids[1], None));
    assert_eq!(picture.counter("requests"), 2);
}

/// A job that torch's allocator works for is refused a few requests a step, for weeks.
#[test]
fn what_was_refused_takes_no_room() {
    let pool = pool(Settings::default());
    let unasked = Request {
        effort: Effort::Window,
        ..on(10, 5 * MIB)
    };
    for _ in 0..20_000 {
        assert_eq!(pool.alloc(&unasked), Err(Refusal::NoWindow));
    }
    assert!(pool.picture().blocks.capacity() < 4096);
}

#[test]
fn a_stitch_of_others_parts_shows_every_byte_once() {
    let pool = pool(Settings::default());
    let teeth: Vec<_> = (0..16)
        .map(|_| pool.alloc(&on(10, 8 * MIB)).unwrap())
        .collect();
    for at in teeth.iter().step_by(2) {
        pool.free(*at, Release::Stream(key(10))).unwrap();
    }
    check(&pool.picture());
    let whole = pool.alloc(&on(10, 60 * MIB)).unwrap();
    let picture = pool.picture();
    check(&picture);
    assert!(picture.stitches.len() > 1);
    assert_eq!(picture.counter("physical_bytes"), 128 * MIB);
    let layout = Layout::of(&picture);
    let stitched = layout.segments.iter().find(|s| s.address == whole).unwrap();
    assert_eq!(stitched.ranges[0].bytes, 60 * MIB);
    assert!(matches!(stitched.ranges[0].kind, Kind::Block(_)));
}

#[test]
fn what_was_freed_is_pending_until_its_stream_has_passed_it() {
    let pool = pool(Settings::default());
    pool.driver().hold(CONTEXT, Stream(10), true);
    let at = pool.alloc(&on(10, 8 * MIB)).unwrap();
    let small = pool.alloc(&on(10, 3 * KIB)).unwrap();
    let other = pool.alloc(&on(11, 8 * MIB)).unwrap();
    for (at, stream) in [(at, 10), (small, 10), (other, 11)] {
        pool.free(at, Release::Stream(key(stream))).unwrap();
    }
    let picture = pool.picture();
    check(&picture);
    let state = |at| {
        picture
            .blocks
            .iter()
            .find(|b| b.address == at)
            .unwrap()
            .state
    };
    assert_eq!((state(at), state(small)), (State::Pending, State::Pending));
    pool.driver().hold(CONTEXT, Stream(10), false);
    // A search settles what was warm, and asks what is over.
    pool.alloc(&on(12, 30 * MIB)).unwrap();
    let picture = pool.picture();
    check(&picture);
    assert_eq!(picture.counter("pending_bytes"), 0);
}

/// That of a graph, which the stream of its free may use, and its whole context.
#[test]
fn what_has_several_last_uses_is_idle_at_once_and_pending() {
    let pool = pool(Settings::default());
    pool.driver().hold(CONTEXT, Stream(10), true);
    for bytes in [3 * KIB, 8 * MIB] {
        let graph = Request {
            graph: true,
            ..on(10, bytes)
        };
        let at = pool.alloc(&graph).unwrap();
        pool.free(at, Release::Stream(key(10))).unwrap();
        assert_eq!(pool.idle(), pool.physical());
        let picture = pool.picture();
        check(&picture);
        let block = picture.blocks.iter().find(|b| b.address == at).unwrap();
        assert_eq!((block.state, block.bytes), (State::Pending, bytes));
    }
    pool.driver().hold(CONTEXT, Stream(10), false);
    pool.alloc(&on(12, 30 * MIB)).unwrap();
    check(&pool.picture());
    assert_eq!(pool.idle() + 30 * MIB, pool.physical());
    assert_eq!(pool.stats().pending_bytes, 0);
}

#[test]
fn exported_parked_and_attached_memory_is_told_apart() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 8 * MIB)).unwrap();
    pool.export(at).unwrap();
    let state = || {
        let picture = pool.picture();
        check(&picture);
        let block = picture.blocks.iter().find(|b| b.address == at).unwrap();
        (block.state, block.exported)
    };
    assert_eq!(state(), (State::Live, true));
    pool.free(at, Release::Stream(key(10))).unwrap();
    assert_eq!(state(), (State::Parked, true));
    let handle = crate::driver::Driver::create(pool.driver(), 0, 4 * MIB).unwrap();
    let attached = pool
        .attach(Attachment {
            handles: vec![(handle, 4 * MIB)],
            offset: MIB,
            bytes: MIB,
            context: Context(1),
            access: crate::driver::Access::Write,
            also: None,
            beside: None,
            opened: true,
        })
        .unwrap();
    let picture = pool.picture();
    check(&picture);
    let block = picture
        .blocks
        .iter()
        .find(|b| b.address == attached)
        .unwrap();
    assert_eq!((block.state, block.asked_bytes), (State::Attached, MIB));
    assert_eq!(Layout::of(&picture).sums(&picture).held, 3 * MIB);
}

#[test]
fn guard_words_are_not_the_program_s() {
    let pool = pool(Settings {
        debug: crate::config::Debug::Canary,
        ..Settings::default()
    });
    for bytes in [100, 8 * MIB] {
        pool.alloc(&on(10, bytes)).unwrap();
    }
    let asked = |small| {
        let blocks = pool.picture().blocks.into_iter();
        let live = blocks.filter(|b| b.state == State::Live && b.small == small);
        live.map(|b| b.asked_bytes).collect::<Vec<_>>()
    };
    assert_eq!((asked(true), asked(false)), (vec![100], vec![8 * MIB]));
}

/// Random requests and frees on several streams, some of which are held up.
#[test]
fn a_picture_of_a_busy_pool_adds_up() {
    let mut random = crate::random::Random(0x9E37_79B9);
    let pool = pool(Settings::default());
    let mut live = Vec::new();
    for turn in 0..2000 {
        let stream = 10 + random.below(4);
        if turn % 50 == 0 {
            pool.driver().hold(CONTEXT, Stream(stream), turn % 100 == 0);
        }
        if random.below(5) < 3 {
            let bytes = 1 + match random.below(3) {
                0 => random.below(256 * KIB),
                1 => random.below(4 * MIB),
                _ => random.below(40 * MIB),
            };
            live.push((pool.alloc(&on(stream, bytes)).unwrap(), stream));
        } else if !live.is_empty() {
            let (at, stream) = live.swap_remove(random.below(live.len() as u64) as usize);
            pool.free(at, Release::Stream(key(stream))).unwrap();
        }
        if turn % 20 == 0 {
            check(&pool.picture());
        }
    }
}
