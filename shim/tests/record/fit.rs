//! What `explain --would-fit` says of a program is what a run of it under that
//! limit does.

use std::path::Path;
use std::process::Command;

use crate::keeper::memcuda;
use crate::support;
use crate::{code, program, recorded};

const MIB: u64 = 1 << 20;

/// Does the program have enough under this limit?
fn succeeds(job: &[&str], limit: u64) -> bool {
    let mut command = support::preloaded(program(), &[support::shim()]);
    command.args(job).env("MEMCUDA_LIMIT", limit.to_string());
    match code(&command.output().unwrap()) {
        0 => true,
        2 => false,
        other => panic!("{job:?} ended with {other}"),
    }
}

/// The least limit under which it does, to 2 MiB, where that is within a tenth
/// of what is expected.
fn least(job: &[&str], expected: u64) -> u64 {
    let up = |bytes: u64| bytes.next_multiple_of(2 * MIB);
    let (mut under, mut enough) = (up(expected * 9 / 10), up(expected * 11 / 10));
    assert!(
        !succeeds(job, under) && succeeds(job, enough),
        "{job:?}: {expected}"
    );
    while enough - under > 2 * MIB {
        let middle = up(under + (enough - under) / 2).min(enough - 2 * MIB);
        match succeeds(job, middle) {
            true => enough = middle,
            false => under = middle,
        }
    }
    enough
}

fn explained(trace: &Path, size: u64) -> serde_json::Value {
    let mut command = Command::new(memcuda());
    command.args(["explain", "--json", "--would-fit", &size.to_string()]);
    let (said, _) = support::said(command.arg(trace));
    let all: serde_json::Value = serde_json::from_str(&said).unwrap();
    all["would_fit"].clone()
}

#[test]
fn the_least_limit_is_within_three_percent_of_the_real_one() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, kind) in [("1", "a"), ("2", "m"), ("3", "b")] {
        let trace = folder.path().join("t");
        let job = ["job", seed, "4000", kind];
        support::said(&mut recorded(&trace, &job));
        let estimate = explained(&trace, 1 << 40)["least_limit_bytes"]
            .as_u64()
            .unwrap();
        let real = least(&job, estimate);
        let off = (estimate as f64 - real as f64) / real as f64;
        println!(
            "job {seed} {kind}: really {real}, by estimate {estimate}: {:+.2} %",
            100.0 * off
        );
        assert!(off.abs() <= 0.03, "{job:?}: {estimate} for {real}");
        // And the answer is that of a run, on both sides of it.
        for (limit, fits) in [(real * 97 / 100, false), (real * 103 / 100, true)] {
            assert_eq!(succeeds(&job, limit), fits);
            assert_eq!(explained(&trace, limit)["fits"], fits, "{job:?}, {limit}");
        }
    }
}
