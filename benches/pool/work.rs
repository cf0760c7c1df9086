//! What the cases have in common: a pool, requests, timed loops.

use crate::random::Random;
use crate::report::{Run, Served};
use memcuda::driver::model::Model;
use memcuda::driver::{Address, Context, Stream};
use memcuda::pool::{Effort, Order, Owner, Pool, Release, Request, Settings, StreamKey};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The pool of a device over the model.
pub type ModelPool = Pool<Model>;

/// Pairs of a run that hits.
pub const PAIRS: u64 = 200_000;

/// An empty pool.
pub fn pool() -> ModelPool {
    Pool::new(Model::new(1 << 44), 0, Settings::default()).expect("a model has what a pool needs")
}

/// A stream of the one context.
pub fn key(stream: u64) -> StreamKey {
    StreamKey::new(Context(1), Stream(stream), 0)
}

/// Allocates in the order of a stream.
pub fn alloc(pool: &ModelPool, stream: u64, bytes: u64) -> Address {
    let request = Request {
        bytes,
        align: 512,
        order: Order::Stream(key(stream)),
        context: Context(1),
        owner: Owner::MemoryPool,
        effort: Effort::Growth,
        graph: false,
    };
    pool.alloc(&request).expect("the model has room")
}

/// Frees in the order of a stream.
pub fn free(pool: &ModelPool, stream: u64, at: Address) {
    let release = Release::Stream(key(stream));
    pool.free(at, release).expect("just allocated");
}

/// Nanoseconds of this thread on a processor: another program that has it
/// meanwhile does not count.
pub struct Clock(Timespec);

impl Clock {
    /// Begins.
    pub fn start() -> Self {
        Self(clock_gettime(ClockId::ThreadCPUTime))
    }

    /// Since then.
    pub fn ns(&self) -> f64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        (now.tv_sec - self.0.tv_sec) as f64 * 1e9 + (now.tv_nsec - self.0.tv_nsec) as f64
    }
}

/// Nanoseconds of one of `count` calls.
pub fn timed(count: u64, call: impl FnMut(u64)) -> f64 {
    let clock = Clock::start();
    (0..count).for_each(call);
    clock.ns() / count as f64
}

/// The same of [`PAIRS`] calls, with the share of the requests that the quick path served.
pub fn timed_hits(pool: &ModelPool, call: impl FnMut(u64)) -> Run {
    let before = Served::from(pool.stats());
    let ns = timed(PAIRS, call);
    let share = (Served::from(pool.stats()) - before).quick();
    Run { ns, share }
}

/// Numbers that look random and are the same in each run.
pub fn random() -> Random {
    Random(88_172_645_463_325_252)
}

/// About the mean of [`fill`]'s sizes, in bytes.
pub const MEAN: u64 = 66_000;

/// Live blocks of sizes as a training job has them, most of them small.
pub fn fill(pool: &ModelPool, blocks: u64) -> Vec<(Address, u64)> {
    (0..blocks)
        .map(|i| {
            let bytes = match i % 100 {
                0 => 3 << 20,
                1..=9 => 300_000 + i % 7 * 1000,
                _ => 512 + i * 37 % 16_000,
            };
            (alloc(pool, 10, bytes), bytes)
        })
        .collect()
}
