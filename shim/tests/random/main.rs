//! Random programs on libmemcuda.so over the simulated GPU, which ends a
//! program where memory was lent wrongly. Every test says how much was run;
//! `MEMCUDA_RANDOM_SEEDS` and `MEMCUDA_RANDOM_OPS` ask for more.

mod contexts;
mod faults;
mod processes;
mod settings;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The random program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = format!("-L{}", support::simulator().display());
        let parts =
            ["blocks.c", "capture.c"].map(|part| support::source(part).display().to_string());
        let libraries = ["-l:libcudart.so.13", "-l:libcuda.so.1", "-pthread"];
        let arguments = [&parts[0], &parts[1], directory.as_str()];
        support::compile(
            "random.c",
            "random",
            &[&arguments[..], &libraries[..]].concat(),
        )
    })
}

/// The program with the library under test preloaded, on two devices.
fn preloaded(seed: u64, operations: u64, threads: u64) -> Command {
    let mut command = support::preloaded(program(), &[support::shim()]);
    command
        .args([seed, operations, threads].map(|n| n.to_string()))
        .env("MEMCUDA_SIM_DEVICES", "2");
    command
}

/// The program on the simulated GPU alone.
fn bare(seed: u64, operations: u64, threads: u64) -> Command {
    let mut command = preloaded(seed, operations, threads);
    command.env_remove("LD_PRELOAD");
    command
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a number is accepted"))
    })
}

/// What programs did.
#[derive(Default)]
struct Done {
    runs: u64,
    operations: u64,
    allocations: u64,
    captures: u64,
    refused: u64,
    /// Injected.
    failures: u64,
}

impl Done {
    /// Runs a program that must end well and say nothing but its summary.
    fn run(&mut self, command: &mut Command) {
        let (out, log) = support::said(command);
        assert_eq!(log, "", "{command:?}");
        self.add(&out);
    }

    /// Adds a program's summary.
    fn add(&mut self, out: &str) {
        let words: Vec<&str> = out.split_whitespace().collect();
        let count = |name: &str| -> u64 {
            let at = words.iter().position(|word| *word == name);
            at.and_then(|at| words.get(at + 1)?.parse().ok())
                .unwrap_or_else(|| panic!("no {name} in {out:?}"))
        };
        self.runs += 1;
        self.operations += count("operations");
        self.allocations += count("allocations");
        self.captures += count("captures");
        self.refused += count("refused");
        self.failures += count("failures");
    }

    /// The line of a test.
    fn say(&self, test: &str) {
        println!(
            "{test}: {} programs, {} operations, {} allocations, {} captures, {} calls refused",
            self.runs, self.operations, self.allocations, self.captures, self.refused
        );
        assert!(self.allocations > 0 && self.captures > 0);
    }
}
