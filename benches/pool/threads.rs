//! Many threads on one pool, by the clock on the wall: from the first pair of
//! any to the last of all, divided by the pairs of one. All of them together do
//! `threads / median_ns` pairs a nanosecond.

use crate::report::{Case, Report, Run, Served};
use crate::work::{ModelPool, PAIRS, alloc, free, pool};
use std::sync::Barrier;
use std::time::Instant;

/// Each thread on a stream of its own, and all of them on one.
pub fn threads(report: &mut Report) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (what, own) in [("threads, own", true), ("threads, one", false)] {
        for size in [512, 1 << 20, 64 << 20] {
            let mut alone = None;
            for threads in [1, 2, 4, 8, 16] {
                let pool = pool();
                let case = Case {
                    what,
                    size,
                    threads,
                    live: u64::from(threads),
                };
                let ns = report.measure(case, || run(&pool, size, threads, own));
                let alone = *alone.get_or_insert(ns);
                if threads == 1 {
                    continue;
                }
                let more = f64::from(threads) * alone / ns;
                report.remark(&format!("{more:.2} x one thread's rate, on {cores} cores"));
            }
        }
    }
}

fn run(pool: &ModelPool, size: u64, threads: u32, own: bool) -> Run {
    let before = Served::from(pool.stats());
    let pairs = PAIRS / 4;
    let start = Barrier::new(threads as usize);
    let work = |thread: u32| {
        let stream = 10 + if own { u64::from(thread) } else { 0 };
        // Everybody's memory is there before anybody is timed.
        let kept = alloc(pool, stream, 512);
        let first = alloc(pool, stream, size);
        start.wait();
        free(pool, stream, first);
        start.wait();
        let began = Instant::now();
        for _ in 0..pairs {
            let at = alloc(pool, stream, size);
            free(pool, stream, at);
        }
        let ended = Instant::now();
        start.wait();
        free(pool, stream, kept);
        (began, ended)
    };
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        all.into_iter()
            .map(|thread| thread.join().expect("a thread that measures"))
            .collect()
    });
    let began = times.iter().map(|(began, _)| *began).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let spent = ended.zip(began).map(|(ended, began)| ended - began);
    Run {
        ns: spent.unwrap_or_default().as_nanos() as f64 / pairs as f64,
        share: (Served::from(pool.stats()) - before).quick(),
    }
}
