//! Memory lent again on one stream through another address, over the simulated
//! GPU, which ends a program whose kernel could have been resident before the
//! write through the first address ("stale alias"): the edge of the pool stands
//! between the two. On a GPU no such stale read was seen, so only here can the
//! edge be missed.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::OnceLock;

/// The program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::program("alias.c", "alias"))
}

/// Runs the program under the library with these settings; how often bytes
/// came back through an address that was new.
fn moved(how: &str, settings: &[(&str, &str)]) -> u64 {
    let mut command = support::preloaded(program(), &[support::shim()]);
    command.envs(settings.iter().copied());
    let (out, log) = support::said(command.arg(how));
    assert_eq!(log, "", "{how}");
    out.trim().parse().expect("a number")
}

#[test]
fn two_blocks_come_back_as_one() {
    assert!(moved("join", &[]) > 0);
}

#[test]
fn one_block_comes_back_as_two() {
    assert!(moved("split", &[("MEMCUDA_CHUNK", "16MiB")]) > 0);
}

#[test]
fn small_blocks_take_the_place_of_a_large_one() {
    assert!(moved("small", &[]) > 0);
}

#[test]
fn at_random() {
    for seed in 1..=12 {
        for chunk in ["auto", "2MiB", "16MiB"] {
            let moved = moved(&seed.to_string(), &[("MEMCUDA_CHUNK", chunk)]);
            assert!(moved > 0, "seed {seed}, handles {chunk}: nothing moved");
        }
    }
}
