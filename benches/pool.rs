//! Cost of the pool by itself, over the driver model: the hit path by size and
//! by the number of live blocks, a search, and streams in turn. Prints medians
//! of several runs; never asserts a time.
//!
//! Run: `cargo bench --bench pool`.

use memcuda::driver::model::Model;
use memcuda::driver::{Address, Context, Stream};
use memcuda::pool::{Effort, Order, Owner, Pool, Release, Request, Settings, StreamKey};
use std::time::Instant;

const RUNS: usize = 9;
const PAIRS: u32 = 200_000;

fn key(stream: u64) -> StreamKey {
    StreamKey::new(Context(1), Stream(stream), 0)
}

fn request(stream: u64, bytes: u64) -> Request {
    Request {
        bytes,
        align: 512,
        order: Order::Stream(key(stream)),
        context: Context(1),
        owner: Owner::MemoryPool,
        effort: Effort::Growth,
        graph: false,
    }
}

fn pool() -> Pool<Model> {
    Pool::new(Model::new(1 << 44), 0, Settings::default()).expect("a model has what a pool needs")
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Nanoseconds of one allocation and its free, median of several runs.
fn pair_ns(pool: &Pool<Model>, mut request_of: impl FnMut(u32) -> Request) -> f64 {
    let mut run = || {
        let began = Instant::now();
        for i in 0..PAIRS {
            let request = request_of(i);
            let at = pool.alloc(&request).expect("the model has room");
            let Order::Stream(key) = request.order else {
                unreachable!("every request here has a stream")
            };
            pool.free(at, Release::Stream(key)).expect("just allocated");
        }
        began.elapsed().as_nanos() as f64 / f64::from(PAIRS)
    };
    median((0..RUNS).map(|_| run()).collect())
}

/// Live blocks of sizes as a training job has them, most of them small.
fn fill(pool: &Pool<Model>, blocks: u64) -> Vec<Address> {
    (0..blocks)
        .map(|i| {
            let bytes = match i % 100 {
                0 => 3 << 20,
                1..=9 => 300_000 + i % 7 * 1000,
                _ => 512 + i * 37 % 16_000,
            };
            pool.alloc(&request(10, bytes)).expect("the model has room")
        })
        .collect()
}

fn main() {
    println!("malloc + free pair that hits, same stream, {RUNS} runs of {PAIRS}");
    for (name, bytes) in [
        ("512 B", 512),
        ("64 KiB", 64 << 10),
        ("1 MiB", 1 << 20),
        ("20 MiB", 20 << 20),
        ("64 MiB", 64 << 20),
        ("1 GiB", 1 << 30),
    ] {
        let pool = pool();
        println!(
            "  {name:>8} {:8.1} ns",
            pair_ns(&pool, |_| request(10, bytes))
        );
    }

    println!("the same with live blocks (512 B, 1 MiB, 64 MiB in turn)");
    let mut first = None;
    for blocks in [1_000, 10_000, 100_000, 1_000_000] {
        let pool = pool();
        let live = fill(&pool, blocks);
        let sizes = [512, 1 << 20, 64 << 20];
        let ns = pair_ns(&pool, |i| request(10, sizes[i as usize % 3]));
        let base = *first.get_or_insert(ns);
        println!("  {blocks:>8} live {ns:8.1} ns  {:5.2}x", ns / base);
        drop(live);
    }

    println!("streams in turn, 4 streams, 64 MiB");
    let pool = pool();
    println!(
        "  {:>8} {:8.1} ns",
        "",
        pair_ns(&pool, |i| request(10 + u64::from(i) % 4, 64 << 20))
    );

    println!("sizes that do not repeat (a search each), 1 to 32 MiB, 1,000 live blocks");
    let pool = self::pool();
    let _live = fill(&pool, 1_000);
    let ns = pair_ns(&pool, |i| {
        request(
            10,
            (1 << 20) + u64::from(i.wrapping_mul(2_654_435_761) >> 7) % (31 << 20),
        )
    });
    println!("  {:>8} {ns:8.1} ns", "");
}
