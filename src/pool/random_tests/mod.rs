//! Random programs on a device that knows in which order work runs: streams of several
//! contexts and threads that end and come again, captures, contexts that break and end, calls
//! that fail, drivers without events of a context. Whatever is lent is used as soon as its request
//! allows, and nobody may use it then who was there before; nothing is unmapped under work. What
//! the pool keeps so that it need not look at all that it holds is what a look at all says.

mod device;
mod program;
mod world;

use super::Settings;
use crate::units::{GIB, MIB};
use program::Program;
use std::process::Command;

fn run(seeds: std::ops::Range<u64>, settings: impl Fn() -> Settings, begin: impl Fn(&mut Program)) {
    for seed in seeds {
        let mut program = Program::new(seed, settings());
        begin(&mut program);
        for step in 0..1500 {
            program.step();
            if step % 8 == 0 {
                let state = program.pool.lock();
                state.chunks.check(&state.stitches);
            }
        }
        program.end();
    }
}

/// Captures are counted for the whole process, so each test has one of its own.
fn alone(test: &str, work: impl FnOnce()) {
    if std::env::args().any(|word| word == "--exact") {
        return work();
    }
    let (_, path) = module_path!().split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args([&format!("{path}::{test}"), "--exact"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
fn nobody_uses_what_others_still_use() {
    alone("nobody_uses_what_others_still_use", || {
        run(0..16, Settings::default, |_| {});
    });
}

#[test]
fn nor_where_memory_is_short() {
    alone("nor_where_memory_is_short", || {
        let limited = || Settings {
            limit: Some(96 * MIB),
            ..Settings::default()
        };
        run(100..116, limited, |_| {});
    });
}

#[test]
fn nor_where_the_driver_has_no_events_of_a_context() {
    alone("nor_where_the_driver_has_no_events_of_a_context", || {
        run(200..216, Settings::default, |program| {
            program.pool.driver().world().has_context_events = false;
        });
    });
}

#[test]
fn nor_where_addresses_are_short() {
    alone("nor_where_addresses_are_short", || {
        run(400..416, Settings::default, |it| it.addresses(512 * MIB));
    });
}

#[test]
fn nor_where_few_mappings_stay() {
    alone("nor_where_few_mappings_stay", || {
        run(500..516, Settings::default, |it| it.keep_few_mappings());
        run(600..616, Settings::default, |program| {
            program.may_fail = true;
            program.pool.driver().world().fails = 50;
            program.keep_few_mappings();
        });
    });
}

#[test]
fn nor_where_calls_fail() {
    alone("nor_where_calls_fail", || {
        for (one_of, addresses) in [(20, None), (100, None), (100, Some(2 * GIB))] {
            run(300..316, Settings::default, |program| {
                program.may_fail = true;
                program.pool.driver().world().fails = one_of;
                addresses.into_iter().for_each(|it| program.addresses(it));
            });
        }
    });
}
