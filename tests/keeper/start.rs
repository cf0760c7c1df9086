//! How a keeper begins and ends, and who may come to its socket.

use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};
use std::time::Duration;

use memcuda::share::protocol::{Persist, Reply, Request};
use rustix::process::Signal;

use crate::requests::*;
use crate::support::*;

pub fn run(socket: &std::path::Path, arguments: &[&str]) -> Output {
    command(socket).args(arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn of_sixteen_that_start_at_once_one_serves() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("new/keeper.sock");
    let start = || {
        let mut command = command(&socket);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..16).map(|_| start()).collect();
    let ended: Vec<_> = started
        .into_iter()
        .map(|c| c.wait_with_output().unwrap())
        .collect();
    let served = ended
        .iter()
        .filter(|output| output.status.success())
        .count();
    assert_eq!(served, 1);
    for output in ended.iter().filter(|output| !output.status.success()) {
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains("already") && said.lines().count() == 1,
            "{said}"
        );
    }
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    assert_eq!(mode(&socket), 0o600);
    let status = run(&socket, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["schema"], "memcuda.keeper/1");
    let pids: Vec<u32> = ["pid", "standby_pid"]
        .map(|p| status[p].as_u64().unwrap() as u32)
        .into();
    assert_eq!(run(&socket, &["stop"]).status.code(), Some(0));
    for pid in pids {
        until("the end", || !is_alive(pid));
    }
    assert!(!socket.exists());
    let after = run(&socket, &["status"]);
    assert_eq!(after.status.code(), Some(1));
    assert!(text(&after.stderr).contains("no keeper answers"));
}

/// A keeper that ends takes its socket away, and then, with its standby, lets the lock go.
#[test]
fn one_that_is_started_while_another_one_ends_waits_for_that() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let path = directory.path().join("keeper.sock.lock");
    let lock = std::fs::File::create(&path).unwrap();
    lock.lock().unwrap();
    let mut next = command(&socket).arg("--foreground").spawn().unwrap();
    wait_for("it to come to the lock", || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", next.id())).ok()?;
        let mut open = open.flatten().flat_map(|fd| fd.path().read_link());
        open.any(|file| file == path).then_some(())
    });
    // One that gives up is gone by then.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(next.try_wait().unwrap(), None, "it gave up");
    drop(lock);
    let (mut client, _) = wait_for("it to serve", || connect(&socket, &[]));
    client.call(Request::Stop { force: false }, &[]).unwrap();
    assert!(next.wait().unwrap().success());
}

#[test]
fn the_socket_of_a_dead_keeper_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(connect(&socket, &[]).is_none());
    assert_eq!(run(&socket, &[]).status.code(), Some(0));
    assert!(connect(&socket, &[]).is_some());
    assert_eq!(run(&socket, &["stop"]).status.code(), Some(0));
}

/// Programs would take it for gone by then; who asks for its end has time.
#[test]
fn one_that_does_not_come_to_answer_for_a_while_is_stopped_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    assert_eq!(run(&socket, &[]).status.code(), Some(0));
    let status = run(&socket, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let keeper = status["pid"].as_u64().unwrap() as u32;
    signal(keeper, Signal::STOP);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| run(&socket, &["stop"]));
        std::thread::sleep(memcuda::share::client::PATIENCE + Duration::from_millis(500));
        signal(keeper, Signal::CONT);
        let stopped = stop.join().unwrap();
        let said = text(&stopped.stderr);
        assert_eq!((stopped.status.code(), &said[..]), (Some(0), ""));
    });
    until("the end", || !is_alive(keeper));
}

#[test]
fn one_to_whom_nobody_ever_comes_ends() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    assert_eq!(run(&socket, &["--idle", "1"]).status.code(), Some(0));
    until("the end", || !socket.exists());
}

#[test]
fn what_is_no_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("train.py");
    std::fs::write(&file, "print()\n").unwrap();
    let refused = run(&file, &["--foreground"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.contains("is no socket") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"print()\n");
    let beside = std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(beside, 1, "something was made beside it");
}

/// Nor, once it serves, for what is there instead when they are read again.
#[test]
fn rules_that_are_no_file_are_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, rules] = ["socket", "rules"].map(|name| directory.path().join(name));
    let pipe = || {
        let mut make = std::process::Command::new("mkfifo");
        assert!(make.arg(&rules).status().unwrap().success());
    };
    pipe();
    let mut refused = std::process::Command::new("timeout");
    refused.args([
        "20",
        env!("CARGO_BIN_EXE_memcuda"),
        "keeper",
        "--foreground",
    ]);
    refused
        .arg("--socket")
        .arg(&socket)
        .arg("--rules")
        .arg(&rules);
    let refused = refused.output().unwrap();
    let said = text(&refused.stderr);
    assert!(said.contains("is no file; accepted: a TOML file"), "{said}");
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1));
    std::fs::remove_file(&rules).unwrap();
    std::fs::write(&rules, "").unwrap();
    let started = run(&socket, &["--rules", rules.to_str().unwrap()]);
    assert_eq!(started.status.code(), Some(0));
    std::fs::remove_file(&rules).unwrap();
    pipe();
    let (mut client, _) = connect(&socket, &[]).unwrap();
    let Ok((Reply::Status(status), _)) = client.call(Request::Status, &[]) else {
        panic!("no status");
    };
    signal(status.pid, Signal::HUP);
    assert_eq!(run(&socket, &["stop"]).status.code(), Some(0));
    until("the end", || !is_alive(status.pid));
}

/// Nothing of a path that is wrong is made.
#[test]
fn a_place_where_no_socket_can_be_is_refused_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let (above, long) = (directory.path().join("above"), "n".repeat(100));
    for (socket, status, why) in [
        (above.join("run/keeper.sock"), 1, "above is not there"),
        (above.join(long), 2, "accepted: a path of up to 107 bytes"),
    ] {
        let refused = run(&socket, &[]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(status), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }
    // One of just that length is served.
    let room = 107 - directory.path().as_os_str().len() - 1;
    let longest = directory.path().join("n".repeat(room));
    assert_eq!(run(&longest, &[]).status.code(), Some(0));
    assert_eq!(run(&longest, &["stop"]).status.code(), Some(0));
}

#[test]
fn it_ends_when_it_is_idle_and_empty_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    assert_eq!(run(&socket, &["--idle", "3"]).status.code(), Some(0));
    let mut maker = client(&socket);
    make(&mut maker, "kept", b"").unwrap();
    persist(&mut maker, "kept", Persist::Yes);
    drop(maker);
    // Empty it is not.
    std::thread::sleep(Duration::from_millis(3500));
    let status = wait_for("the keeper", || connect(&socket, &[]));
    drop(status);
    let refused = run(&socket, &["stop"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("(names: 1, exports: 0, 4.0 KiB); --force"),
        "{}",
        text(&refused.stderr)
    );
    let mut client = client(&socket);
    let (dry, kept) = (false, true);
    client.call(Request::Collect { dry, kept }, &[]).unwrap();
    drop(client);
    until("the end", || !socket.exists());
}

#[test]
fn it_does_not_settle_in_an_unsafe_place_and_says_so_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let rules = directory.path().join("rules.toml");
    std::fs::write(
        &rules,
        "[[access]]\nnames = \"a\"\nusers = [5]\nallow = [\"fly\"]\n",
    )
    .unwrap();
    let good = directory.path().join("keeper.sock");
    for (socket, arguments, status, word) in [
        (&open.join("keeper.sock"), &[][..], 1, "777"),
        (&good, &["--group", "no such group"], 2, "no such group"),
        (&good, &["--rules", rules.to_str().unwrap()], 2, "fly"),
        (&good, &["--rules", "/does/not/exist"], 2, "/does/not/exist"),
    ] {
        let output = run(socket, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{said}");
        assert!(!socket.exists());
    }
}

/// It stays as it is: who made it has said whose it is.
#[test]
fn a_directory_that_the_group_does_not_enter_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let group = rustix::process::getegid().as_raw().to_string();
    for (mode, told) in [(0o700, true), (0o750, false)] {
        let rights = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), rights).unwrap();
        let arguments = ["--foreground", "--idle", "0", "--group", &group];
        let output = run(&socket, &arguments);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("do not reach the socket"), told, "{said}");
        let it = std::fs::metadata(directory.path()).unwrap();
        assert_eq!(it.permissions().mode() & 0o777, mode);
    }
}

#[test]
fn a_signal_ends_it_and_its_standby() {
    let mut keeper = Keeper::start(&[]);
    let status = keeper.status();
    signal(status.pid, Signal::TERM);
    assert_eq!(keeper.wait().code(), Some(0));
    until("the end", || !is_alive(status.standby));
    assert!(!keeper.socket().exists());
}
