//! The `memcuda` command from outside: what it prints, what it ends with.
//! Needs libmemcuda.so beside the command; `make test` builds both.

mod browser;
mod chosen;
mod compare;
mod doctor;
mod env;
mod history;
mod ignored;
mod kept;
mod list;
mod log;
mod replay;
mod run;
mod server;
mod signals;
mod snapshot;
mod stand_in;
mod stat;
mod top;
mod traces;
mod web;
mod web_access;
mod whole;
mod written;

#[path = "../support/chromium.rs"]
mod chromium;
#[path = "../support/processes.rs"]
mod processes;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/redis.rs"]
#[allow(dead_code, reason = "shared with the tests of the registry")]
mod redis;
#[path = "../support/settings.rs"]
mod settings;
#[path = "../support/waiting.rs"]
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use waiting::until;

/// The command, in an environment without any setting of its own.
fn memcuda() -> Command {
    settings::command(env!("CARGO_BIN_EXE_memcuda"))
}

/// Runs the command with these arguments.
fn run(arguments: &[&str]) -> Output {
    memcuda().args(arguments).output().unwrap()
}

/// A trace of this repository.
fn bundled(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join(format!("tests/traces/{name}.csv.zst"))
}

/// A library of this source, to be preloaded into the command itself.
fn library(folder: &Path, source: &str) -> PathBuf {
    let (text, library) = (folder.join("library.c"), folder.join("library.so"));
    std::fs::write(&text, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    assert!(compiler.arg(&text).arg("-ldl").status().unwrap().success());
    library
}

/// The source of a library whose `open64` is so, with the `path`, `flags` and `mode` of the caller
/// and `next`, the real one; behind what comes `before` it.
fn open64(before: &str, body: &str) -> String {
    format!(
        "#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
{before}
int open64(const char *path, int flags, ...) {{
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, \"open64\");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    {body}
}}
"
    )
}

/// Of a folder with `UNLISTED` in its path no more than `NAMES` names can be had: then comes the
/// `ERROR` of this number. With -1 of them it cannot be opened.
const UNLISTED: &str = "#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
static DIR *that;
static int left;
DIR *opendir(const char *path) {
    DIR *(*next)(const char *) = dlsym(RTLD_NEXT, \"opendir\");
    that = NULL;
    if (strstr(path, getenv(\"UNLISTED\")) == NULL) return next(path);
    left = atoi(getenv(\"NAMES\"));
    return left < 0 ? (errno = atoi(getenv(\"ERROR\")), NULL) : (that = next(path));
}
struct dirent64 *readdir64(DIR *folder) {
    struct dirent64 *(*next)(DIR *) = dlsym(RTLD_NEXT, \"readdir64\");
    struct dirent64 *entry = next(folder);
    if (folder != that || entry == NULL || entry->d_name[0] == '.') return entry;
    return left-- > 0 ? entry : (errno = atoi(getenv(\"ERROR\")), NULL);
}
";

/// A process that may open no file.
const NO_FILES: &str = "#include <sys/resource.h>
__attribute__((constructor)) static void none(void) {
    struct rlimit limit = {3, 3};
    setrlimit(RLIMIT_NOFILE, &limit);
}
";

/// A system that has no room for another thread.
const NO_THREADS: &str = "#include <errno.h>
int pthread_create(void *thread, void *how, void *run, void *with) { return EAGAIN; }
";

/// What a run that must succeed printed.
#[track_caller]
fn done(output: Output) -> String {
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

/// A run that must fail, with this status and one line that says this.
#[track_caller]
fn failed(output: &Output, status: i32, said: &str) {
    let error = stderr(output);
    assert_eq!(code(output), status, "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(said), "{error}");
    assert!(stdout(output).is_empty());
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The JSON objects of an output; each begins with the verb's schema.
fn objects(output: &Output, verb: &str) -> Vec<Value> {
    let start = format!("{{\"schema\":\"memcuda.{verb}/1\",");
    let text = stdout(output);
    for line in text.lines() {
        assert!(line.starts_with(&start), "{line}");
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Every number's name says its unit, but for counts, ids and ordinals.
fn check_units(object: &Value, counts: &[&str]) {
    let units = ["_bytes", "_ns", "_us", "_s", "_rate"];
    for (name, value) in object.as_object().unwrap() {
        let has_unit = units.iter().any(|unit| name.ends_with(unit));
        assert!(
            !value.is_number() || has_unit || counts.contains(&name.as_str()),
            "{name}"
        );
    }
}

#[test]
fn bad_usage_is_2_and_names_the_value() {
    for (arguments, value) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["stat"], "<PID|--all>"),
        (
            &["stat", "self"],
            "'self' for '[PID]': accepted: a whole number",
        ),
        (
            &["stat", "99999999999999"],
            "accepted: a whole number from 0 to 4294967295",
        ),
        (&["keeper", "--idle", "ever"], "accepted: a whole number"),
        (
            &["persist", "a", "--for", "ever"],
            "accepted: a whole number from 1",
        ),
        (&["show", "a", "--wait", "0.5"], "accepted: a whole number"),
        (&["stat", "1", "--all"], "--all"),
        (&["run"], "<CMD>"),
        (
            &["compare", "--repeat", "0", "--", "true"],
            "'0' for '--repeat <REPEAT>': accepted: a whole number from 1 to 1000",
        ),
        (
            &["compare", "--profiles", "bare,fast", "--", "true"],
            "fast",
        ),
        (&["compare"], "<CMD>"),
        (&["replay"], "<TRACE>"),
        (&["replay", "--profile", "keep", "x"], "keep"),
        (&["env", "--jsno"], "--jsno"),
        (&["snapshot"], "<PID|REPORT>"),
        (&["snapshot", "1"], "--output"),
        (&["snapshot", "1", "--json", "--html", "-o", "x"], "--html"),
        (&["explain"], "<PID|REPORT|TRACE>"),
        (
            &["explain", "x", "--limit", "1"],
            "accepted: a size of 2MiB or more",
        ),
        (
            &["replay", "x", "--chunk", "2GiB"],
            "accepted: a multiple of 2MiB, at most 1GiB",
        ),
        (
            &["explain", concat!(env!("CARGO_MANIFEST_DIR"), "/src")],
            "no report of out of memory in it",
        ),
        (
            &["keeper", "status", "--socket", &"/a".repeat(54)],
            "is too long; accepted: a path of up to 107 bytes",
        ),
        (
            &[
                "keeper",
                "--group",
                "no-such-group",
                "--socket",
                "/nowhere/socket",
            ],
            "there is no group \"no-such-group\"",
        ),
        (&["show"], "<NAME>"),
        (&["show", "two words"], "two words"),
        (&["rm"], "<NAME>"),
        (&["rm", "fine", "cmd"], "cmd"),
        (&["gc", "--dry"], "--dry"),
        (&["ls", "--all-nodes", "--watch"], "--watch"),
        (&["top", "--sort", "saved"], "saved"),
        (&["top", "--delay", "0"], "0"),
        (&["top", "--json"], "--once"),
        (
            &["web", "--listen", "8080"],
            "'8080' for '--listen <ADDRESS:PORT>': accepted: an address in numbers and a port, such as 127.0.0.1:9477",
        ),
        (&["web", "--listen", "0.0.0.0:0"], "0.0.0.0:0"),
    ] {
        let output = run(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(
            stderr(&output).contains(value),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(stdout(&output).is_empty());
    }
}

#[test]
fn a_closed_output_is_no_error() {
    let mut child = memcuda()
        .args(["doctor", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}

/// What alone says "no space left on device" could speak of a GPU.
#[test]
fn an_output_that_is_full_is_said_to_be_that() {
    let folder = tempfile::tempdir().unwrap();
    let trace = traces::small(folder.path()).display().to_string();
    for verb in [
        &["--help"][..],
        &["--version"],
        &["stat", "-h"],
        &["env"],
        &["env", "--json"],
        &["completions", "bash"],
        &["doctor"],
        &["explain", &trace],
        &["explain", &trace, "--json"],
        &["replay", &trace],
        &["trace", &trace, "-o", "-"],
        &["web", "--metrics"],
        &["top", "--once"],
        &["gc"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = memcuda();
        let socket = folder.path().join("no keeper");
        command.args(verb).env("MEMCUDA_KEEPER", socket);
        let output = command.stdout(full.unwrap()).output().unwrap();
        let said = "memcuda: cannot write the output: No space left on device (os error 28)\n";
        let stderr = stderr(&output);
        assert_eq!(code(&output), 1, "{verb:?}: {stderr}");
        // Of processes of other tests there may be something to be said before.
        assert!(stderr.ends_with(said), "{verb:?}: {stderr}");
    }
}

/// The status is what a script goes by.
#[test]
fn what_cannot_be_said_changes_no_status() {
    for (verb, status) in [
        (&["run", "--", "no-such-program"][..], 127),
        (&["compare", "--", "no-such-program"], 1),
        (&["show", "two words"], 2),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = memcuda().args(verb).stderr(full.unwrap()).output();
        assert_eq!(code(&output.unwrap()), status, "{verb:?}");
    }
}

/// A pipe that nobody reads.
fn unread() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

#[test]
fn a_line_that_nobody_reads_is_no_error() {
    // Nobody has this in its name, so there is one line to be said.
    let nobody = ["top", "--once", "--delay", "0.1", "--filter", "\u{1}"];
    let output = memcuda().args(nobody).stdout(unread()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}
