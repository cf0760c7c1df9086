//! Instructions of one malloc and its free, counted by callgrind: in the pool
//! over the driver model, and of what the preloaded library adds to a program.
//! Compared with the numbers in `benches/count/x86_64.txt`, which say how much
//! they may grow; a count does not depend on how fast or busy a machine is.
//!
//! Run: `make bench-count`, or `cargo bench --bench count -- [--update] [--json]`
//! after `make build`; `--json` only prints. Exit status: 0 as expected, 1 one
//! has grown (or shrunk: then `--update` writes it down), 2 nothing was counted.

mod callgrind;
mod guard;
mod pairs;

use guard::{Counts, Verdict};
use std::path::Path;
use std::process::ExitCode;

/// Where the expected counts are.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/count/x86_64.txt");

/// How much work is added to a pair to see that the guard finds it, in percent.
const BALLAST: u64 = 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // What callgrind runs.
    if let ["pairs", name, count, ballast] = words[..] {
        let number = |text: &str| text.parse().expect("written below");
        pairs::run(name, number(count), number(ballast));
        return ExitCode::SUCCESS;
    }
    let (mut update, mut json) = (false, false);
    for word in words {
        match word {
            "--update" => update = true,
            "--json" => json = true,
            // Cargo's own.
            "--bench" => {}
            _ => {
                eprintln!("count: unknown argument {word:?}; accepted: --update, --json");
                return ExitCode::from(2);
            }
        }
    }
    match count_all(update, json) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("count: {why}");
            ExitCode::from(2)
        }
    }
}

/// Counts, compares, proves that the comparison can fail. `Ok(false)` where
/// something is not as expected.
fn count_all(update: bool, json: bool) -> Result<bool, String> {
    if !cfg!(target_arch = "x86_64") || cfg!(target_feature = "sse3") {
        return Err("the counts are of plain x86-64 code; this was built for another processor (RUSTFLAGS?)".into());
    }
    let tool = callgrind::Callgrind::find(Path::new(env!("CARGO_MANIFEST_DIR")))?;
    let mut found = Counts::default();
    for name in pairs::NAMES {
        found.add(name, tool.pool(name, 0)?);
    }
    for (name, calls, bytes) in callgrind::HOOKED {
        found.add(name, tool.hooked(calls, bytes)?);
    }
    if json {
        for (name, count) in found.iter() {
            println!(
                "{{\"schema\":\"memcuda.bench/1\",\"kind\":\"count\",\"what\":\"{name}\",\"instructions\":{count}}}"
            );
        }
        return Ok(true);
    }
    if update {
        std::fs::write(FILE, found.to_string()).map_err(|error| format!("{FILE}: {error}"))?;
        println!("{FILE} is written");
        return Ok(true);
    }
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    let expected: Counts = text.parse()?;
    let verdict = Verdict::new(&expected, &found);
    print!("{verdict}");

    // A pair with a little more work must not pass.
    let name = pairs::NAMES[0];
    let counted = found.of(name).expect("counted above");
    let mut slower = found.clone();
    slower.add(name, tool.pool(name, counted * BALLAST / 100)?);
    if Verdict::new(&found, &slower).passes() {
        return Err(format!("{BALLAST} % more work in {name:?} was not noticed"));
    }
    if !verdict.passes() {
        eprintln!("count: FAIL: {}", verdict.failures().join("; "));
    }
    Ok(verdict.passes())
}
