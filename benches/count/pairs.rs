//! The pairs whose instructions are counted, over the driver model.

use memcuda::driver::model::Model;
use memcuda::driver::{Address, Context, Stream};
use memcuda::pool::{Effort, Order, Owner, Pool, Release, Request, Settings, StreamKey};
use std::hint::black_box;

/// What can be run.
pub const NAMES: [&str; 6] = [
    "pool: slab, 512 B",
    "pool: warm window, 64 MiB",
    "pool: warm window, 64 MiB, 10000 live",
    "pool: recalled window, 32 and 64 MiB",
    "pool: complete on another stream, 64 MiB",
    "pool: order unknown, free complete, 64 MiB",
];

const MIB: u64 = 1 << 20;

/// Runs so many pairs of this name, each with so many additional instructions.
pub fn run(name: &str, count: u64, ballast: u64) {
    let pool = Pool::new(Model::new(1 << 44), 0, Settings::default()).expect("a model");
    let key = |stream| StreamKey::new(Context(1), Stream(stream), 0);
    let alloc = |order: Order, bytes: u64| -> Address {
        let request = Request {
            bytes,
            align: 512,
            order,
            context: Context(1),
            owner: Owner::MemoryPool,
            effort: Effort::Growth,
            graph: false,
        };
        pool.alloc(&request).expect("the model has room")
    };
    let pair = |stream: u64, bytes: u64| {
        let at = alloc(Order::Stream(key(stream)), bytes);
        pool.free(at, Release::Stream(key(stream)))
            .expect("just allocated");
    };
    // Keeps the slab.
    alloc(Order::Stream(key(10)), 512);
    if name.ends_with("10000 live") {
        for i in 0..10_000 {
            let bytes = if i % 10 == 0 { MIB } else { 512 };
            alloc(Order::Stream(key(10)), bytes);
        }
    }
    // Half of a recalled window is in use where the other half is lent.
    for i in 0..count + 64 {
        match name {
            "pool: slab, 512 B" => pair(10, 512),
            "pool: recalled window, 32 and 64 MiB" => pair(10, (32 + i % 2 * 32) * MIB),
            "pool: complete on another stream, 64 MiB" => pair(10 + i % 2, 64 * MIB),
            "pool: order unknown, free complete, 64 MiB" => {
                let at = alloc(Order::Unknown, 64 * MIB);
                pool.free(at, Release::Complete).expect("just allocated");
            }
            _ => pair(10, 64 * MIB),
        }
        for _ in 0..ballast / 4 {
            black_box(i);
        }
    }
}
