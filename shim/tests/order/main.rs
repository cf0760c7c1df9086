//! What a program may rely on between its streams while memory goes from one to
//! another, bare and on the pool over the simulated GPU: the legacy default stream's
//! barriers, and that nothing waits for work that it need not wait for. Such a wait
//! shows as a program that waits for itself, and is ended.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A program that is through takes a moment.
const PATIENCE: Duration = Duration::from_secs(30);

fn program() -> &'static Path {
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::program("order.c", "order"))
}

/// Its output and log, or that it had to be ended.
fn ends(mut command: Command) -> String {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program starts");
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().expect("it runs");
            child.wait().expect("a child");
            return "it waits for itself".to_owned();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = child.wait_with_output().expect("what it said");
    let text = [said.stdout, said.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Runs a case without the library, and with it.
fn is_whole(case: &str) {
    is_whole_where(case, "");
}

/// The same where calls fail (`MEMCUDA_SIM_FAIL`).
fn is_whole_where(case: &str, fail: &str) {
    for bare in [true, false] {
        let mut command = support::preloaded(program(), &[support::shim()]);
        command.arg(case).env("MEMCUDA_SIM_MEMORY", "1GiB");
        if !fail.is_empty() {
            command.env("MEMCUDA_SIM_FAIL", fail);
        }
        if bare {
            command.env_remove("LD_PRELOAD");
        }
        assert_eq!(ends(command), "whole\n", "{case}, bare: {bare}");
    }
}

#[test]
fn a_free_on_the_legacy_default_stream_is_a_barrier() {
    is_whole("barrier");
    is_whole("taken_again");
    is_whole("of_a_capture");
    is_whole("joined");
}

#[test]
fn it_is_one_beside_threads_that_look_for_memory_or_get_it() {
    is_whole("watched");
    is_whole("taken_at_once");
}

#[test]
fn memory_that_its_own_frees_left_is_joined_without_a_wait_on_the_host() {
    is_whole("joined_later");
}

#[test]
fn an_allocation_waits_for_nothing_that_came_after_the_free() {
    is_whole("held_after");
    is_whole("held_after_small");
    is_whole("held_after_large");
    is_whole("held_between");
}

#[test]
fn streams_are_not_ordered_behind_others_where_that_is_forbidden() {
    is_whole("forbidden");
}

#[test]
fn what_is_over_is_lent_on_a_full_device_whatever_came_after_it() {
    is_whole("full");
}

#[test]
fn what_the_program_has_waited_for_is_lent_on_a_full_device() {
    is_whole("waited_for_stream");
    is_whole("waited_for_stream_plain");
    is_whole("waited_for_context");
    is_whole("waited_for_named");
    is_whole("waited_for_current");
    is_whole("freed_since");
    is_whole_where("waited_for_in_vain", "cuStreamSynchronize@1=999");
}

#[test]
fn an_allocation_puts_no_barrier_between_blocking_streams() {
    is_whole("nothing_added");
    is_whole("nothing_waited_for");
}
