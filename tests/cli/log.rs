//! The log of the command and the keeper: level, form, file.

use std::fs::{self, File};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{code, failed, memcuda, stderr, stdout, until};

/// What `run` says of itself with these settings.
fn said(settings: &[(&str, &str)]) -> String {
    let mut command = memcuda();
    command
        .args(["run", "--", "true"])
        .envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0);
    stderr(&output)
}

#[test]
fn the_level_decides_and_what_is_usual_is_silent() {
    let line = "memcuda: info: becomes true with LD_PRELOAD=/";
    assert!(said(&[("MEMCUDA_LOG", "info")]).starts_with(line));
    for level in ["off", "error", "warn"] {
        assert_eq!(said(&[("MEMCUDA_LOG", level)]), "");
    }
    assert_eq!(said(&[]), "");
}

#[test]
fn json_has_the_fields_of_the_preloaded_library() {
    let settings = [("MEMCUDA_LOG", "info"), ("MEMCUDA_LOG_FORMAT", "json")];
    let line: Value = serde_json::from_str(&said(&settings)).unwrap();
    let fields: Vec<&String> = line.as_object().unwrap().keys().collect();
    let mut known = ["schema", "level", "time_us", "pid", "part", "message"];
    known.sort();
    assert_eq!(fields, known);
    assert_eq!(
        (&line["level"], &line["part"]),
        (&"info".into(), &"command".into())
    );
}

#[test]
fn a_file_has_the_time_in_front() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let settings = [
        ("MEMCUDA_LOG", "info"),
        ("MEMCUDA_LOG_FILE", file.to_str().unwrap()),
    ];
    assert_eq!(said(&settings), "");
    let written = fs::read_to_string(&file).unwrap();
    let (time, rest) = written.split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{written}");
    assert!(rest.starts_with("memcuda: info: becomes true"), "{written}");
}

#[test]
fn a_pipe_that_is_read_has_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let mut make = std::process::Command::new("mkfifo");
    assert!(make.arg(&pipe).status().unwrap().success());
    let mut reader = std::process::Command::new("cat");
    let reader = reader.arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    // Open to write at the other end, so that the reader is there and stays.
    let held = File::options().append(true).open(&pipe).unwrap();
    let (file, level) = (pipe.to_str().unwrap(), ("MEMCUDA_LOG", "info"));
    assert_eq!(said(&[level, ("MEMCUDA_LOG_FILE", file)]), "");
    drop(held);
    let read = stdout(&reader.wait_with_output().unwrap());
    assert!(read.contains("memcuda: info: becomes true with"), "{read}");
}

#[test]
fn what_is_wrong_with_the_log_is_said_and_stops_no_verb() {
    let said = |name, value| {
        let output = memcuda().arg("env").env(name, value).output().unwrap();
        assert_eq!(code(&output), 0);
        stderr(&output)
    };
    let wrong = said("MEMCUDA_LOG", "loud");
    assert!(
        wrong.starts_with("memcuda: warning: MEMCUDA_LOG=loud is not understood"),
        "{wrong}"
    );
    let nowhere = said("MEMCUDA_LOG_FILE", "/nowhere/log");
    assert!(nowhere.contains("cannot open the log /nowhere/log") && nowhere.contains("here"));
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let mut make = std::process::Command::new("mkfifo");
    assert!(make.arg(&pipe).status().unwrap().success());
    let mut waiting = std::process::Command::new("timeout");
    waiting.args(["20", env!("CARGO_BIN_EXE_memcuda"), "env"]);
    let unread = waiting.env("MEMCUDA_LOG_FILE", &pipe).output().unwrap();
    let unread = stderr(&unread);
    assert!(
        unread.contains("cannot open the log") && unread.contains("logging here"),
        "{unread}"
    );
    let full = memcuda()
        .args(["compare", "--repeat", "1", "--profiles", "bare", "true"])
        .envs([("MEMCUDA_LOG_FILE", "/dev/full"), ("MEMCUDA_LOG", "info")])
        .output()
        .unwrap();
    assert_eq!((code(&full), stderr(&full).as_str()), (0, ""));
    let mut keeper = memcuda();
    keeper.args(["keeper", "--foreground", "--socket", "/nowhere/socket"]);
    let output = keeper
        .env("MEMCUDA_LOG_FILE", "/nowhere/log")
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("cannot open the log /nowhere/log"));
}

/// What serves needs it, not who asks.
#[test]
fn who_asks_needs_neither_the_log_nor_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("keeper.sock");
    let keeper = |words: &[&str], settings: &[(&str, &str)]| {
        let mut command = memcuda();
        command
            .arg("keeper")
            .args(words)
            .arg("--socket")
            .arg(&socket);
        command.envs(settings.iter().copied()).output().unwrap()
    };
    let loud = [("MEMCUDA_LOG", "loud")];
    failed(&keeper(&[], &loud), 2, "MEMCUDA_LOG=loud is not understood");
    assert_eq!(code(&keeper(&["--idle", "600"], &[])), 0);
    let wrong = [("MEMCUDA_LOG_FILE", "/nowhere/log"), ("MEMCUDA_LIMIT", "1")];
    let asked = keeper(&["status"], &loud);
    assert_eq!((code(&asked), stderr(&asked).lines().count()), (0, 1));
    assert_eq!(code(&keeper(&["status"], &wrong)), 0);
    assert_eq!(code(&keeper(&["stop"], &wrong)), 0);
    let mut metrics = memcuda();
    metrics.args(["web", "--metrics"]).envs(wrong);
    assert_eq!(code(&metrics.output().unwrap()), 0);
}

#[test]
fn the_keeper_says_the_same_fields() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let rules = directory.path().join("rules.toml");
    fs::write(&rules, "").unwrap();
    let log = directory.path().join("log");
    let keeper = |arguments: &[&str]| {
        let mut command = memcuda();
        command
            .args(["keeper", "--socket"])
            .arg(&socket)
            .args(arguments);
        command
            .env("MEMCUDA_LOG", "info")
            .env("MEMCUDA_LOG_FORMAT", "json");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut running = keeper(&["--foreground", "--rules", rules.to_str().unwrap()]);
    let mut running = running.stderr(File::create(&log).unwrap()).spawn().unwrap();
    let is_done = |arguments: &[&str]| keeper(arguments).status().unwrap().success();
    until("it serves", || is_done(&["status"]));
    // That it reads its rules again is a line.
    kill_process(Pid::from_child(&running), Signal::HUP).unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    until("it says so", || {
        said().contains("the rules were read again")
    });
    assert!(is_done(&["stop"]));
    running.wait().unwrap();
    for line in said().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["schema"], &line["part"]),
            (&"memcuda.log/1".into(), &"keeper".into())
        );
    }
}
