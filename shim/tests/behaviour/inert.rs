//! A program that never starts CUDA sees nothing of the library.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{compile, preloaded, run, said, shim};

/// The lines of a shell command's output, with and without the library.
fn both(script: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let lines = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let mut with = preloaded("/bin/bash", &[shim()]);
    let mut without = preloaded("/bin/bash", &[]);
    without.env_remove("LD_PRELOAD");
    let (with, log) = said(with.args(["-c", script]));
    let (without, _) = said(without.args(["-c", script]));
    assert_eq!(log, "");
    (lines(with), lines(without))
}

#[test]
fn common_programs_say_nothing() {
    for (program, arguments) in [
        ("true", vec![]),
        ("bash", vec!["-c", ":"]),
        ("python3", vec!["-c", "pass"]),
        ("git", vec!["--version"]),
    ] {
        let bare = run(Command::new(program).args(&arguments));
        let mut command = preloaded(program, &[shim()]);
        let output = run(command.env("MEMCUDA_LOG", "debug").args(&arguments));
        assert_eq!(output.stdout, bare.stdout, "{program}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{program}");
    }
}

#[test]
fn the_environment_is_the_same() {
    let (mut with, without) = both("env | grep -v '^_='");
    with.retain(|line| !line.starts_with("LD_PRELOAD="));
    assert_eq!(with, without);
}

#[test]
fn no_descriptor_and_no_thread_is_left() {
    let (with, without) = both("ls /proc/$$/fd; grep Threads /proc/$$/status");
    assert_eq!(with, without);
}

#[test]
fn a_wrong_setting_is_not_even_looked_at() {
    let mut command = preloaded("true", &[shim()]);
    let (out, log) = said(command.env("MEMCUDA_POLICY", "nonsense"));
    assert_eq!((out.as_str(), log.as_str()), ("", ""));
}

/// Thread-local memory comes out of each thread's stack, and a program may have made that small.
#[test]
fn threads_keep_their_stacks() {
    let program = compile("stacks.c", "stacks", &["-pthread"]);
    let left = |libraries: &[_]| -> i64 {
        let (out, _) = said(&mut preloaded(&program, libraries));
        out.trim_end().parse().unwrap()
    };
    let (with, without) = (left(&[shim()]), left(&[]));
    assert!(without - with < 2048, "{with} of {without} bytes are left");
}
