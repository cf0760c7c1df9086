//! Cost of the pool by itself, over the driver model: no CUDA, no hooks. A
//! `malloc` and its `free` where no half is named; processor time, but for
//! `threads`. Prints medians of several runs with the lowest and the highest;
//! never asserts a time.
//!
//! Run: `cargo bench --bench pool -- [--json] [--runs N] [SUBJECT ...]`, with
//! subjects `hit`, `free`, `cross`, `churn`, `stitch`, `growth`, `live` and
//! `threads`; all of them where none is named.

mod hits;
mod live;
mod misses;
#[path = "../../tests/support/random.rs"]
mod random;
mod report;
mod threads;
mod work;

use report::Report;
use std::process::ExitCode;

type Subject = (&'static str, fn(&mut Report));

const SUBJECTS: [Subject; 8] = [
    ("hit", hits::hit),
    ("free", hits::free),
    ("cross", hits::cross),
    ("churn", misses::churn),
    ("stitch", misses::stitch),
    ("growth", misses::growth),
    ("live", live::live),
    ("threads", threads::threads),
];

fn main() -> ExitCode {
    let mut report = Report {
        json: false,
        runs: 9,
        machine: report::machine(),
    };
    let mut wanted: Vec<String> = Vec::new();
    // Cargo adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--json" => report.json = true,
            "--runs" => match arguments.next().map(|n| n.parse()) {
                Some(Ok(runs @ 1..)) => report.runs = runs,
                other => return refuse(&format!("--runs {other:?}; accepted: a number from 1")),
            },
            name if SUBJECTS.iter().any(|(known, _)| *known == name) => wanted.push(word),
            _ => return refuse(&format!("unknown subject {word:?}")),
        }
    }
    report.begin();
    for (name, measure) in SUBJECTS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            measure(&mut report);
        }
    }
    ExitCode::SUCCESS
}

fn refuse(why: &str) -> ExitCode {
    let names = SUBJECTS.map(|(name, _)| name).join(", ");
    eprintln!("{why}; accepted: --json, --runs N, and the subjects {names}");
    ExitCode::from(2)
}
