//! Contexts come and go, and what was used in one is used in others.

use super::{number, support};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = format!("-L{}", support::simulator().display());
        let libraries = [
            &directory,
            "-l:libcuda.so.1",
            "-l:libcudart.so.13",
            "-pthread",
        ];
        support::compile("contexts.c", "random-contexts", &libraries)
    })
}

/// Of one device and of two, alone and with several threads.
fn under(preload: bool, variables: &[(&str, &str)]) {
    let operations = number("MEMCUDA_RANDOM_OPS", 4000);
    for seed in 1..=number("MEMCUDA_RANDOM_SEEDS", 2) {
        for (devices, threads) in [("1", 1), ("2", 1), ("2", 4)] {
            let mut command = support::preloaded(program(), &[support::shim()]);
            command
                .args([seed, operations, threads].map(|n| n.to_string()))
                .env("MEMCUDA_SIM_DEVICES", devices)
                .envs(variables.iter().copied());
            if !preload {
                command.env_remove("LD_PRELOAD");
            }
            let (out, log) = support::said(&mut command);
            assert_eq!(log, "", "{command:?}");
            let ended = out.split_whitespace().last().map(str::parse);
            assert!(matches!(ended, Some(Ok(1_u64..))), "{command:?}: {out}");
        }
    }
}

#[test]
fn bare_the_contexts_are_legal() {
    under(false, &[]);
}

#[test]
fn contexts_come_and_go() {
    under(true, &[]);
}

#[test]
fn contexts_come_and_go_and_nobody_waits_for_a_free() {
    under(true, &[("MEMCUDA_FREE", "ordered")]);
}

#[test]
fn contexts_come_and_go_where_memory_is_short() {
    for limits in [
        ("MEMCUDA_LIMIT", "150MiB"),
        ("MEMCUDA_SIM_MEMORY", "300MiB"),
    ] {
        under(true, &[limits, ("RANDOM_SHORT", "1")]);
    }
}
