//! Requests that need no search: the same size again, on the same stream or on
//! another one.

use crate::report::{Case, Report, Run};
use crate::work::{PAIRS, alloc, free as give, key, pool, timed, timed_hits};

const SIZES: [u64; 6] = [512, 64 << 10, 1 << 20, 20 << 20, 64 << 20, 1 << 30];

/// Blocks of a batch: what a step frees before it allocates again.
const BATCH: u64 = 256;
const BATCHES: u64 = 200;

/// A pair that hits, on one stream: from a slab up to 256 KiB, else a window
/// that was freed a moment ago.
pub fn hit(report: &mut Report) {
    for size in SIZES {
        let pool = pool();
        // Something else that lives, so that the slab stays a slab.
        alloc(&pool, 10, 512);
        let case = Case {
            what: if size <= 256 << 10 { "slab" } else { "hit" },
            size,
            threads: 1,
            live: 1,
        };
        report.measure(case, || {
            timed_hits(&pool, |_| {
                let at = alloc(&pool, 10, size);
                give(&pool, 10, at);
            })
        });
    }
}

/// The two halves by themselves, in batches of blocks that live together.
pub fn free(report: &mut Report) {
    for size in [512, 64 << 10, 1 << 20, 20 << 20] {
        for what in ["malloc", "free"] {
            let pool = pool();
            let mut blocks: Vec<u64> = (0..BATCH).map(|_| alloc(&pool, 10, size)).collect();
            let case = Case {
                what,
                size,
                threads: 1,
                live: BATCH,
            };
            report.measure(case, || {
                let mut ns = 0.0;
                for _ in 0..BATCHES {
                    let freed = timed(BATCH, |i| give(&pool, 10, blocks[i as usize]));
                    let lent = timed(BATCH, |i| blocks[i as usize] = alloc(&pool, 10, size));
                    ns += if what == "free" { freed } else { lent } / BATCHES as f64;
                }
                Run { ns, share: 1.0 }
            });
        }
    }
}

/// A pair whose bytes were another stream's a moment ago: recorded and, where
/// that stream still works, waited for in the order of this one.
pub fn cross(report: &mut Report) {
    for (what, runs_on) in [("cross-stream, done", false), ("cross-stream, busy", true)] {
        for size in [512, 64 << 10, 1 << 20, 64 << 20] {
            let case = Case {
                what,
                size,
                threads: 1,
                live: 1,
            };
            report.measure(case, || {
                // The model keeps a list of all waits: each run begins without.
                let pool = pool();
                alloc(&pool, 9, 512);
                for stream in 10..14 {
                    let key = key(stream);
                    pool.driver().hold(key.context, key.stream, runs_on);
                }
                let pair = |i| {
                    let stream = 10 + i % 4;
                    let at = alloc(&pool, stream, size);
                    give(&pool, stream, at);
                };
                (0..100).for_each(pair);
                let before = pool.driver().waits().len();
                let ns = timed(PAIRS / 8, pair);
                let waits = pool.driver().waits().len() - before;
                let waited = waits as f64 / (PAIRS / 8) as f64;
                let share = if runs_on { waited } else { 1.0 - waited };
                Run { ns, share }
            });
        }
    }
}
