//! The same programs under every setting, and without the library: a program
//! that the bare device would punish proves nothing.

use super::{Done, bare, number, preloaded};
use std::process::Command;

/// Programs of one and of four threads, with these variables.
fn under(test: &str, make: fn(u64, u64, u64) -> Command, variables: &[(&str, &str)]) -> Done {
    let seeds = number("MEMCUDA_RANDOM_SEEDS", 5);
    let operations = number("MEMCUDA_RANDOM_OPS", 5000);
    let mut done = Done::default();
    for seed in 1..=seeds {
        for threads in [1, 4] {
            let mut command = make(seed, operations, threads);
            done.run(command.envs(variables.iter().copied()));
        }
    }
    done.say(test);
    done
}

#[test]
fn bare_the_programs_are_legal() {
    under("bare", bare, &[]);
}

#[test]
fn on_the_pool() {
    under("on the pool", preloaded, &[]);
}

/// Sizes of which the pool makes large handles, and breaks or exchanges them.
#[test]
fn with_large_blocks() {
    under("large blocks", preloaded, &[("RANDOM_LARGE", "1")]);
}

#[test]
fn with_every_way_to_free() {
    for how in ["sync", "ordered"] {
        under(&format!("free {how}"), preloaded, &[("MEMCUDA_FREE", how)]);
    }
}

#[test]
fn with_the_other_policies() {
    for policy in ["direct", "track"] {
        let variables = [("MEMCUDA_POLICY", policy)];
        under(&format!("policy {policy}"), preloaded, &variables);
    }
}

#[test]
fn with_small_and_large_handles() {
    for chunk in ["2MiB", "32MiB"] {
        let variables = [("MEMCUDA_CHUNK", chunk)];
        under(&format!("chunk {chunk}"), preloaded, &variables);
    }
}

#[test]
fn with_poison_and_with_canaries() {
    for debug in ["poison", "canary"] {
        let variables = [("MEMCUDA_DEBUG", debug)];
        under(&format!("debug {debug}"), preloaded, &variables);
    }
}

/// The program accepts out-of-memory from allocations, and nothing else.
#[test]
fn short_of_memory_is_out_of_memory_and_nothing_else() {
    for (name, value) in [("MEMCUDA_LIMIT", "96MiB"), ("MEMCUDA_SIM_MEMORY", "192MiB")] {
        let variables = [(name, value), ("RANDOM_SHORT", "1")];
        let done = under(&format!("{name} {value}"), preloaded, &variables);
        assert!(done.refused > 0, "{name}: nothing was short");
    }
}

#[test]
fn where_work_completes_at_once() {
    under("clock off", preloaded, &[("MEMCUDA_SIM_CLOCK", "off")]);
}
