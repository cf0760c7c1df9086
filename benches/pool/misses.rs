//! Requests that need more: a search, a stitch, new memory. The driver's time
//! is not in it; the model's own books are.

use crate::random::Random;
use crate::report::{Case, Report, Run, Served};
use crate::work::{Clock, ModelPool, alloc, free, pool, random, timed};

/// Live blocks of the churn, and how often one of them is replaced in a run.
const LIVE: u64 = 1_000;
const REPLACED: u64 = 4_000;
/// Requests of a run that stitches or grows.
const BUILDS: u64 = 64;
/// Holes that a stitch is made of.
const HOLES: u64 = 16;

/// How the pool served one request.
const WAYS: [&str; 4] = [
    "churn, recalled",
    "churn, searched",
    "churn, stitched",
    "churn, grown",
];

/// Blocks of 1 to 32 MiB, no two of one size, are replaced at random. Each
/// request is timed by itself and counted by how it was served; what was too
/// rare to have a middle is left out.
pub fn churn(report: &mut Report) {
    let pool = pool();
    let mut random = random();
    let size = |random: &mut Random| (1 << 20) + random.below(31 << 20);
    let mut blocks: Vec<u64> = (0..LIVE)
        .map(|_| alloc(&pool, 10, size(&mut random)))
        .collect();
    let mut replace = |count: u64| -> [Vec<f64>; 4] {
        let mut spent = [const { Vec::new() }; 4];
        for _ in 0..count {
            let block = &mut blocks[random.below(LIVE) as usize];
            let bytes = size(&mut random);
            free(&pool, 10, *block);
            let before = Served::from(pool.stats());
            let clock = Clock::start();
            *block = alloc(&pool, 10, bytes);
            let ns = clock.ns();
            spent[way(Served::from(pool.stats()) - before)].push(ns);
        }
        spent
    };
    replace(2 * REPLACED);
    let mut runs: Vec<[Vec<f64>; 4]> = (0..report.runs).map(|_| replace(REPLACED)).collect();
    for (way, what) in WAYS.into_iter().enumerate() {
        if runs.iter().any(|run| run[way].len() < 5) {
            continue;
        }
        let case = Case {
            what,
            size: 33 << 19,
            threads: 1,
            live: LIVE,
        };
        let mut runs = runs.iter_mut();
        report.measure(case, || {
            let spent = &mut runs.next().expect("as many as asked for")[way];
            spent.sort_by(f64::total_cmp);
            Run {
                ns: spent[spent.len() / 2],
                share: spent.len() as f64 / REPLACED as f64,
            }
        });
    }
}

fn way(served: Served) -> usize {
    match served {
        Served { growths: 1.., .. } => 3,
        Served { stitches: 1.., .. } => 2,
        Served { searches: 1.., .. } => 1,
        _ => 0,
    }
}

/// Every second block of a comb is free; a request needs the bytes of several.
/// An allocation without its free.
pub fn stitch(report: &mut Report) {
    for size in [32 << 20, 256 << 20, 1 << 30] {
        let comb = || {
            let pool = pool();
            let teeth = (0..2 * BUILDS * HOLES).map(|_| alloc(&pool, 10, size / HOLES));
            let teeth: Vec<u64> = teeth.collect();
            for &at in teeth.iter().step_by(2) {
                free(&pool, 10, at);
            }
            pool
        };
        build(report, "stitch", size, BUILDS * HOLES, comb, |served| {
            served.stitches
        });
    }
}

/// Nothing is free, in an empty pool and beside full blocks. An allocation without its free.
pub fn growth(report: &mut Report) {
    for size in [2 << 20, 20 << 20, 64 << 20, 1 << 30] {
        build(report, "growth", size, 0, pool, |served| served.growths);
    }
    for live in [1_000, 10_000, 100_000] {
        let pool = pool();
        for _ in 0..live {
            alloc(&pool, 10, 2 << 20);
        }
        for size in [2 << 20, 20 << 20] {
            let case = Case {
                what: "growth, live",
                size,
                threads: 1,
                live,
            };
            report.measure(case, || builds(&pool, size, |served| served.growths));
        }
    }
}

fn build(
    report: &mut Report,
    what: &'static str,
    size: u64,
    live: u64,
    pool: impl Fn() -> ModelPool,
    count: impl Fn(Served) -> u64,
) {
    let case = Case {
        what,
        size,
        threads: 1,
        live,
    };
    report.measure(case, || builds(&pool(), size, &count));
}

/// Requests of one size, and how many of them were served as meant.
fn builds(pool: &ModelPool, size: u64, count: impl Fn(Served) -> u64) -> Run {
    let before = Served::from(pool.stats());
    let ns = timed(BUILDS, |_| {
        alloc(pool, 10, size);
    });
    let built = count(Served::from(pool.stats()) - before);
    Run {
        ns,
        share: built as f64 / BUILDS as f64,
    }
}
