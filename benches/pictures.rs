//! How long a pool stands still for its picture, and what else one costs, by the
//! number of live blocks: the least of several times, and for the first also the
//! median. `cargo bench --bench pictures [-- MOST]`, where MOST is the highest
//! number.

use std::time::{Duration, Instant};

use memcuda::driver::model::Model;
use memcuda::driver::{Context, Stream};
use memcuda::picture::layout::Layout;
use memcuda::picture::{Device, Picture, bytes};
use memcuda::pool::{Effort, Order, Owner, Pool, Release, Request, Settings, StreamKey};

const CONTEXT: Context = Context(1);
/// Times that each is measured.
const TURNS: usize = 7;

fn main() {
    let most = std::env::args().filter_map(|a| a.parse().ok()).next();
    let most: usize = most.unwrap_or(100_000);
    println!(
        "blocks of    live blocks  held ms  median  whole ms  encoded ms      MB  in order ms"
    );
    for size in [2 << 10, 512 << 10] {
        let mut count = 1000;
        while count <= most {
            measure(size, count);
            count *= 10;
        }
    }
}

fn pool(size: u64, count: usize) -> Pool<Model> {
    let pool = Pool::new(Model::new(1 << 42), 0, Settings::default()).unwrap();
    let key = |n: usize| StreamKey::new(CONTEXT, Stream(10 + n as u64 % 8), 0);
    let request = |n: usize| Request {
        bytes: size - 512 * (n as u64 % 3),
        align: 512,
        order: Order::Stream(key(n)),
        context: CONTEXT,
        owner: Owner::MemoryPool,
        effort: Effort::Growth,
        graph: false,
    };
    // A tenth of what was lent lies free between the rest.
    let all: Vec<_> = (0..count + count / 10)
        .map(|n| pool.alloc(&request(n)).unwrap())
        .collect();
    for (n, at) in all.iter().enumerate().step_by(11) {
        pool.free(*at, Release::Stream(key(n))).unwrap();
    }
    pool
}

fn measure(size: u64, count: usize) {
    let pool = pool(size, count);
    let mut times = [const { Vec::new() }; 4];
    let mut length = 0;
    for _ in 0..TURNS {
        let began = Instant::now();
        let picture = pool.picture();
        times[1].push(began.elapsed());
        times[0].push(Duration::from_nanos(picture.held_ns));
        let picture = Picture {
            devices: vec![Device {
                pool: picture,
                ..Device::default()
            }],
            ..Picture::default()
        };
        let began = Instant::now();
        length = bytes::encode(&picture).unwrap().len();
        times[2].push(began.elapsed());
        let began = Instant::now();
        let layout = Layout::of(&picture.devices[0].pool);
        times[3].push(began.elapsed());
        assert!(!layout.segments.is_empty());
    }
    for times in &mut times {
        times.sort_unstable();
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let median = ms(times[0][TURNS / 2]);
    let [held, whole, encoded, ordered] = times.map(|times| ms(times[0]));
    println!(
        "{:>6} KiB   {count:>11}  {held:>7.2}  {median:>6.2}  {whole:>8.2}  {encoded:>10.2}  {:>6.2}  {ordered:>11.2}",
        size >> 10,
        length as f64 / 1e6
    );
}
