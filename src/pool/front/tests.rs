//! Several threads on one pool: what they lend, free and end at once.

use crate::driver::model::Model;
use crate::driver::{Address, Code, Context, Stream};
use crate::pool::front::Fronts;
use crate::pool::tests::{CONTEXT, key, on, pool, request, watch};
use crate::pool::{NotOurs, Order, Owner, Pool, Refusal, Release, Request, Settings};
use crate::random::Random;
use crate::units::MIB;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Everything that is lent, by address: whoever lends checks that nothing of it
/// is another's.
#[derive(Default)]
struct Claims(Mutex<BTreeMap<Address, u64>>);

impl Claims {
    fn lent(&self, at: Address, bytes: u64) {
        let mut all = self.0.lock().unwrap();
        let before = all.range(..at + bytes).next_back();
        let apart = before.is_none_or(|(other, size)| other + size <= at);
        assert!(apart, "{bytes} bytes at {at:#x}: lent already");
        all.insert(at, bytes);
    }

    /// Before the free: after it the bytes may be another's at once.
    fn ends(&self, at: Address) -> u64 {
        self.0.lock().unwrap().remove(&at).unwrap()
    }
}

fn sizes(random: &mut Random) -> u64 {
    match random.below(8) {
        0..4 => 512 * (1 + random.below(6)),
        4 => 64 << 10,
        5 => MIB,
        6 => 3 * MIB,
        _ => (1 + random.below(4)) * 20 * MIB,
    }
}

/// What a thread does: lends on its own stream or on none, and frees what it or
/// another thread was lent, on a stream or with all work over.
fn at_work(pool: &Pool<Model>, claims: &Claims, shared: &Mutex<Vec<Address>>, thread: u64) {
    let mut random = Random::new(thread);
    let mut own = Vec::new();
    for _ in 0..1000 {
        if random.below(5) < 3 {
            let bytes = sizes(&mut random);
            let asked = match random.below(8) {
                0 => request(bytes, Order::Unknown),
                _ => on(10 + thread, bytes),
            };
            let at = pool.alloc(&asked).unwrap();
            claims.lent(at, bytes);
            let info = pool.find(at + bytes - 1).unwrap();
            assert_eq!((info.base, info.bytes), (at, bytes));
            own.push(at);
        }
        if random.below(4) == 0
            && let Some(at) = own.pop()
        {
            shared.lock().unwrap().push(at);
        }
        let mut take = own.pop();
        if random.below(3) == 0 {
            own.extend(take);
            take = shared.lock().unwrap().pop();
        }
        let Some(at) = take else { continue };
        let bytes = claims.ends(at);
        let release = match random.below(8) {
            0 => Release::Complete,
            1 => Release::Unknown,
            2 => Release::Stream(key(10 + random.below(16))),
            _ => Release::Stream(key(10 + thread)),
        };
        assert_eq!(pool.free(at, release).unwrap().bytes, bytes);
    }
    shared.lock().unwrap().extend(own);
}

fn together(settings: Settings, beside: impl Fn(&Pool<Model>) + Sync) -> Pool<Model> {
    let pool = pool(settings);
    let (claims, shared) = (Claims::default(), Mutex::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pool, claims, shared, over, beside) = (&pool, &claims, &shared, &over, &beside);
        let all: Vec<_> = (0..6)
            .map(|thread| scope.spawn(move || at_work(pool, claims, shared, thread)))
            .collect();
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                beside(pool);
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = all.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
    });
    let left = shared.into_inner().unwrap();
    let live: u64 = left.iter().map(|at| claims.ends(*at)).sum();
    assert_eq!(pool.stats().live_bytes, live);
    for at in left {
        pool.free(at, Release::Complete).unwrap();
        assert_eq!(pool.free(at, Release::Complete), Err(NotOurs::Unknown));
    }
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.granted_bytes), (0, 0));
    assert_eq!(stats.idle_bytes, stats.physical_bytes);
    assert_eq!(stats.requests, stats.frees);
    assert!(stats.hits < stats.requests && stats.hits > 0);
    pool
}

#[test]
fn threads_that_lend_and_free_at_once_are_never_given_the_same_bytes() {
    let pool = together(Settings::default(), |_| {});
    pool.trim();
    assert_eq!(pool.driver().leftovers().1, 0, "handles");
}

#[test]
fn shelves_are_drained_while_they_are_filled() {
    let settings = Settings {
        chunk: Some(20 * MIB),
        ..Settings::default()
    };
    let pool = together(settings, |pool| {
        pool.give_back(8 * MIB, std::time::Duration::ZERO);
        pool.whole_idle();
        pool.least_idle();
        assert!(pool.stats().pending_bytes <= pool.physical());
    });
    pool.trim();
    assert_eq!(pool.physical(), 0);
}

#[test]
fn streams_and_contexts_end_beside_threads_at_work() {
    let number = AtomicU64::new(100);
    let pool = together(Settings::default(), |pool| {
        let context = Context(number.fetch_add(1, Ordering::Relaxed));
        let order = Order::Stream(crate::pool::StreamKey::new(context, Stream(7), 0));
        for owner in [Owner::Context, Owner::MemoryPool] {
            for bytes in [1000, MIB] {
                let asked = Request {
                    context,
                    owner,
                    ..request(bytes, order)
                };
                let at = pool.alloc(&asked).unwrap();
                if owner == Owner::MemoryPool {
                    pool.free(at, Release::Complete).unwrap();
                } else if bytes == MIB {
                    pool.stream_ends(context, Stream(7));
                }
            }
        }
        pool.context_ends(context);
        // What the context left is freed with it: counted as a free.
    });
    assert_eq!(pool.stats().live_bytes, 0);
}

/// The peak of what is live is that of the sum, whatever stream lends and frees.
#[test]
fn the_peak_is_exact_over_streams_in_turn() {
    let pool = pool(Settings::default());
    let (mut live, mut peak, mut random) = (0, 0, Random::new(9));
    let mut lent: Vec<(Address, u64)> = Vec::new();
    for _ in 0..4000 {
        let bytes = sizes(&mut random);
        if random.below(2) == 0 || lent.is_empty() {
            let asked = on(10 + random.below(5), bytes);
            lent.push((pool.alloc(&asked).unwrap(), bytes));
            live += bytes;
            peak = live.max(peak);
        } else {
            let (at, bytes) = lent.swap_remove(random.below(lent.len() as u64) as usize);
            let release = Release::Stream(key(10 + random.below(5)));
            pool.free(at, release).unwrap();
            live -= bytes;
        }
        let stats = pool.stats();
        assert_eq!((stats.live_bytes, stats.peak_live_bytes), (live, peak));
    }
}

#[test]
fn the_least_that_was_idle_is_told_once() {
    let pool = pool(Settings::default());
    let idle = |streams: std::ops::Range<u64>| {
        let all: Vec<_> = streams
            .map(|stream| pool.alloc(&on(stream, 20 * MIB)).unwrap())
            .collect();
        for (at, stream) in all.into_iter().zip(10..) {
            pool.free(at, Release::Stream(key(stream))).unwrap();
        }
    };
    idle(10..14);
    pool.least_idle();
    assert_eq!(pool.least_idle(), 80 * MIB, "nothing was lent since");
    idle(10..13);
    idle(10..11);
    assert_eq!(pool.least_idle(), 20 * MIB);
    assert_eq!(pool.least_idle(), 80 * MIB);
}

#[test]
fn live_bytes_of_the_memory_pool_have_a_peak_of_their_own() {
    let pool = pool(Settings::default());
    let pooled = |stream| Request {
        owner: Owner::MemoryPool,
        ..on(stream, MIB)
    };
    let keep = pool.alloc(&pooled(10)).unwrap();
    let other = pool.alloc(&pooled(11)).unwrap();
    pool.alloc(&on(10, 5 * MIB)).unwrap();
    pool.free(other, Release::Stream(key(11))).unwrap();
    assert_eq!(pool.pooled(), (MIB, 2 * MIB));
    assert_eq!(pool.restart_pooled(), 2 * MIB);
    assert_eq!(pool.pooled(), (MIB, MIB));
    pool.free(keep, Release::Stream(key(11))).unwrap();
    pool.alloc(&pooled(12)).unwrap();
    assert_eq!(pool.pooled(), (MIB, MIB));
}

#[test]
fn what_other_streams_have_on_their_shelves_is_found_before_the_pool_grows() {
    for bytes in [1000, 8 * MIB] {
        let pool = pool(Settings::default());
        let all: Vec<_> = (0..4096)
            .map_while(|i| {
                (i * bytes < 32 * MIB).then(|| pool.alloc(&on(10 + i % 4, bytes)).unwrap())
            })
            .collect();
        let physical = pool.physical();
        for (at, i) in all.into_iter().zip(0..) {
            pool.free(at, Release::Stream(key(10 + i % 4))).unwrap();
        }
        pool.alloc(&request(physical, Order::Unknown)).unwrap();
        assert_eq!(pool.physical(), physical, "{bytes}");
    }
}

#[test]
fn a_hit_makes_no_call_but_the_question_and_a_broken_context_gets_none() {
    use crate::driver::Code;
    use crate::pool::Refusal;
    let pool = pool(Settings::default());
    for bytes in [1000, MIB] {
        let at = pool.alloc(&on(10, bytes)).unwrap();
        pool.free(at, Release::Stream(key(10))).unwrap();
    }
    pool.freeze(CONTEXT, Code::ILLEGAL_ADDRESS);
    for bytes in [1000, MIB] {
        let refused = pool.alloc(&on(10, bytes));
        assert_eq!(refused, Err(Refusal::Driver(Code::ILLEGAL_ADDRESS)));
    }
}

#[test]
fn what_waits_for_a_whole_context_lies_on_no_shelf() {
    let pool = pool(Settings::default());
    let all: Vec<_> = (0..8)
        .map(|_| pool.alloc(&request(1000, Order::Unknown)).unwrap())
        .collect();
    pool.free(all[2], Release::Unknown).unwrap();
    pool.synchronize(CONTEXT).unwrap();
    assert_eq!(pool.alloc(&request(1000, Order::Unknown)), Ok(all[2]));
}

#[test]
fn a_new_peak_is_no_reason_to_leave_a_shelf_alone() {
    for bytes in [1000, 8 * MIB] {
        let pool = pool(Settings::default());
        let ask = || pool.alloc(&request(bytes, Order::Unknown)).unwrap();
        let at = ask();
        let id = pool.export(at).unwrap().block.id;
        pool.free(at, Release::Complete).unwrap();
        // Live as much as ever, and one that is freed without having been live.
        ask();
        pool.export_ends(id);
        assert_eq!(ask(), at, "{bytes}");
        assert_eq!(pool.stats().peak_live_bytes, 2 * bytes);
    }
}

#[test]
fn a_whole_context_says_nothing_of_another_one() {
    let pool = pool(Settings::default());
    let broken = Context(2);
    let of = |context| Request {
        context,
        ..request(4 * MIB, Order::Unknown)
    };
    let at = pool.alloc(&of(broken)).unwrap();
    pool.freeze(broken, Code::LAUNCH_FAILED);
    pool.free(at, Release::Complete).unwrap();
    // This one is asked about, and found whole.
    let at = pool.alloc(&of(CONTEXT)).unwrap();
    pool.free(at, Release::Complete).unwrap();
    let refused = Refusal::Driver(Code::LAUNCH_FAILED);
    assert_eq!(pool.alloc(&of(broken)), Err(refused));
    assert_eq!(pool.alloc(&of(CONTEXT)), Ok(at));
}

#[test]
fn a_shelf_takes_so_many_small_blocks_and_no_more() {
    let pool = pool(Settings::default());
    let all: Vec<_> = (0..3000)
        .map(|_| pool.alloc(&on(10, 512)).unwrap())
        .collect();
    for at in all {
        pool.free(at, Release::Stream(key(10))).unwrap();
        let state = pool.lock();
        let front = state.fronts().lock(Fronts::of_stream(&key(10)));
        assert!(front.each_shelved().count() <= 1025);
    }
}

#[test]
fn a_handle_that_comes_back_is_another_stream() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 4 * MIB)).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    watch(&pool, key(10));
    pool.free(at, Release::Stream(key(10))).unwrap();
    let before = pool.lock().streams.id(key(10));
    pool.stream_ends(CONTEXT, Stream(10));
    assert_ne!(pool.lock().streams.id(key(10)), before);
    assert_eq!(pool.alloc(&on(10, 4 * MIB)), Ok(at));
    assert_eq!(pool.driver().waits().len(), 1, "that one's work still runs");
}
