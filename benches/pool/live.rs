//! Does a pair cost more where many blocks live?

use crate::report::{Case, Report};
use crate::work::{MEAN, alloc, fill, free, pool, random, timed_hits};

/// The same pair, and a pair on any of the blocks, beside 1,000 to 1,000,000.
pub fn live(report: &mut Report) {
    for live in [1_000, 10_000, 100_000, 1_000_000] {
        let pool = pool();
        let mut blocks = fill(&pool, live);
        for size in [512, 1 << 20, 64 << 20] {
            let case = Case {
                what: "hit, live",
                size,
                threads: 1,
                live,
            };
            report.measure(case, || {
                timed_hits(&pool, |_| {
                    let at = alloc(&pool, 10, size);
                    free(&pool, 10, at);
                })
            });
        }
        // What a busy program's caches see: a block anywhere is freed and made
        // again.
        let mut random = random();
        let case = Case {
            what: "any block, live",
            size: MEAN,
            threads: 1,
            live,
        };
        report.measure(case, || {
            timed_hits(&pool, |_| {
                let (at, bytes) = &mut blocks[random.below(live) as usize];
                free(&pool, 10, *at);
                *at = alloc(&pool, 10, *bytes);
            })
        });
    }
}
