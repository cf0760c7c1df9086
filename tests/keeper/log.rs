//! What the keeper logs goes where nobody reads it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use memcuda::share::protocol::{Persist, Reply, Request};
use rustix::process::Signal;

use crate::requests::*;
use crate::support::*;

#[test]
fn nobody_waits_for_who_reads_what_it_logs() {
    // On standard error, and in a pipe that has the name of a log.
    for file in [None, Some("/dev/stdout")] {
        let keeper = Keeper::run(|command, _| {
            command.stderr(Stdio::piped()).stdout(Stdio::piped());
            command.env("MEMCUDA_LOG", "info");
            command.envs(file.map(|file| ("MEMCUDA_LOG_FILE", file)));
        });
        log_much(&keeper);
    }
}

fn log_much(keeper: &Keeper) {
    let mut client = keeper.client();
    let pid = keeper.status().pid;
    // A line each; a pipe has room for less.
    for _ in 0..1500 {
        signal(pid, Signal::HUP);
        client.call(Request::Status, &[]).unwrap();
    }
}

/// In the background its directory is another one than that of who started it.
#[test]
fn all_processes_of_a_keeper_write_one_log() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let mut start = command(&socket);
    start.current_dir(&directory);
    start.envs([("MEMCUDA_LOG", "info"), ("MEMCUDA_LOG_FILE", "job.log")]);
    assert!(start.status().unwrap().success());
    let mut client = client(&socket);
    let Reply::Status(status) = client.call(Request::Status, &[]).unwrap().0 else {
        panic!("no status");
    };
    signal(status.pid, Signal::KILL);
    // The standby's line, and one of the keeper that it started.
    for said in ["started keeper", "took over 0 names"] {
        until(said, || {
            let log = fs::read_to_string(directory.path().join("job.log"));
            log.is_ok_and(|log| log.contains(said))
        });
    }
    let (mut client, _) = wait_for("the next keeper", || connect(&socket, &[]));
    client.call(Request::Stop { force: true }, &[]).unwrap();
}

#[test]
fn a_log_that_cannot_be_opened_any_more_ends_no_standby_and_no_keeper() {
    let keeper = Keeper::run(|command, directory| {
        let folder = directory.join("logs");
        fs::create_dir(&folder).unwrap();
        command.env("MEMCUDA_LOG_FILE", folder.join("log"));
    });
    let mut client = keeper.client();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    fs::remove_dir_all(keeper.directory.path().join("logs")).unwrap();
    let before = keeper.status();
    keeper.kill(before.standby);
    let is_new = |standby| ![before.standby, 0].contains(&standby);
    let now = keeper.settle("no new standby", |status| is_new(status.standby));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(keeper.status().standby, now.standby);
    keeper.kill(before.pid);
    has(&mut keeper.client(), "kept", b"kept");
}

/// By then its own program is there still.
#[test]
fn a_standby_that_does_not_live_is_not_started_all_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let [program, count, socket] =
        ["memcuda", "count", "k.sock"].map(|name| directory.path().join(name));
    // Not by this process: another thread's child could have it open for writing when it is run.
    let install = |what: &str| {
        let new = directory.path().join("new");
        assert!(
            Command::new("cp")
                .arg(what)
                .arg(&new)
                .status()
                .unwrap()
                .success()
        );
        fs::rename(&new, &program).unwrap();
    };
    install(env!("CARGO_BIN_EXE_memcuda"));
    let mut start = Command::new(&program);
    start.args(["keeper", "--socket"]).arg(&socket);
    assert!(start.status().unwrap().success());
    let mut client = client(&socket);
    let mut status = || match client.call(Request::Status, &[]) {
        Ok((Reply::Status(status), _)) => status,
        other => panic!("{other:?}"),
    };
    let before = status().standby;
    // For so long one has to have lived.
    std::thread::sleep(Duration::from_millis(1100));
    let bad = directory.path().join("bad");
    fs::write(&bad, format!("#!/bin/sh\necho >>{}\n", count.display())).unwrap();
    fs::set_permissions(&bad, PermissionsExt::from_mode(0o755)).unwrap();
    install(bad.to_str().unwrap());
    signal(before, Signal::KILL);
    // Of the program that the keeper is, whose place has another.
    let gone = PathBuf::from(format!("{} (deleted)", program.display()));
    until("a standby that lives", || {
        let now = status().standby;
        now != before && fs::read_link(format!("/proc/{now}/exe")).is_ok_and(|it| it == gone)
    });
    let started = fs::read_to_string(&count).unwrap().lines().count();
    assert!((1..4).contains(&started), "{started} were started");
    client.call(Request::Stop { force: true }, &[]).unwrap();
}
