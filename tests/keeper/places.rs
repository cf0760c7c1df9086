//! Where a keeper is: at which of its user's places, and what it does once that is taken away.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memcuda::share::client::Client;
use memcuda::share::protocol::{Persist, Reply, Request};
use rustix::process::Signal;

use crate::requests::*;
use crate::rights::READER;
use crate::start::{run, text};
use crate::support::*;

/// Users of this process's tests, so many behind those of others: several may run at once.
const FIRST: u32 = 200_000_000;
const EACH: u32 = 4;

/// A user of one test, with a runtime directory that only root makes, and no other place.
struct User {
    uid: u32,
    directory: tempfile::TempDir,
}

impl User {
    fn new(number: u32) -> Option<Self> {
        let uid = FIRST + EACH * std::process::id() + number;
        let is_root = rustix::process::geteuid().is_root();
        if !is_possible_or_left_out(is_root, "to be another user") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        // By a process of its own: none of this one's may have it open for writing.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_memcuda"))
            .arg(directory.path());
        assert!(copy.status().unwrap().success());
        let user = Self { uid, directory };
        user.leave_temporary();
        user.log_in();
        Some(user)
    }

    fn runtime(&self) -> PathBuf {
        self.directory.path().join("user")
    }

    fn temporary(&self, end: &str) -> PathBuf {
        PathBuf::from(format!("/tmp/memcuda-{}{end}", self.uid))
    }

    fn log_in(&self) {
        fs::create_dir(self.runtime()).unwrap();
        chown(self.runtime(), Some(self.uid), Some(self.uid)).unwrap();
    }

    fn log_out(&self) {
        take_away(&self.runtime());
    }

    fn keeper(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.directory.path().join("memcuda"));
        command.arg("keeper").args(arguments);
        command.uid(self.uid).gid(self.uid).env_clear();
        command.env("XDG_RUNTIME_DIR", self.runtime());
        command.output().unwrap()
    }

    /// Starts one, which keeps a name; its process.
    fn start(&self, socket: &Path) -> u32 {
        let started = self.keeper(&["--idle", "60"]);
        assert_eq!(text(&started.stderr), "");
        let mut client = client(socket);
        make(&mut client, "kept", b"kept").unwrap();
        persist(&mut client, "kept", Persist::Yes);
        pid(&mut client)
    }

    /// Is this the only keeper that the user has, wherever they look?
    #[track_caller]
    fn has_only(&self, socket: &Path) {
        let said = text(&self.keeper(&["status"]).stdout);
        assert!(said.contains(socket.to_str().unwrap()), "{said}");
        let another = self.keeper(&[]);
        let said = text(&another.stderr);
        assert!(
            said.contains("serves") && said.contains("already"),
            "{said}"
        );
    }

    fn leave_temporary(&self) {
        for end in ["", ".1", ".2", ".3"] {
            let _ = fs::remove_dir_all(self.temporary(end));
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        leftovers::kill(self.directory.path());
        self.leave_temporary();
    }
}

/// Takes a directory away, all of it at once: a keeper that looks meanwhile finds no half of it,
/// in which it would be again.
fn take_away(directory: &Path) {
    let away = directory.with_extension("away");
    fs::rename(directory, &away).unwrap();
    fs::remove_dir_all(away).unwrap();
}

/// A client of a keeper that comes there.
fn awaited(socket: &Path) -> Client {
    wait_for("the keeper at its user's place", || connect(socket, &[])).0
}

fn pid(client: &mut Client) -> u32 {
    match client.call(Request::Status, &[]).unwrap().0 {
        Reply::Status(status) => status.pid,
        reply => panic!("{reply:?}"),
    }
}

/// Processes go on, and others of theirs begin, without the user's directory.
#[test]
fn after_a_logout_the_keeper_is_where_clients_look() {
    let Some(user) = User::new(0) else {
        return;
    };
    let first = user.start(&user.runtime().join("memcuda/keeper.sock"));
    user.log_out();
    let socket = user.temporary("").join("keeper.sock");
    let mut client = awaited(&socket);
    has(&mut client, "kept", b"kept");
    assert_eq!(pid(&mut client), first);
    user.has_only(&socket);
    // Who comes after it knows where it went.
    signal(first, Signal::KILL);
    until("the end of the first", || !is_alive(first));
    let successor = wait_for("its successor", || {
        let (mut client, _) = connect(&socket, &[])?;
        Some(pid(&mut client)).filter(|&pid| pid != first)
    });
    has(&mut awaited(&socket), "kept", b"kept");
    // As who comes with the next session does.
    user.log_in();
    user.has_only(&socket);
    signal(successor, Signal::HUP);
    user.has_only(&socket);
    assert_eq!(user.keeper(&["stop", "--force"]).status.code(), Some(0));
    until("the end", || !is_alive(successor));
}

#[test]
fn one_whose_place_in_tmp_is_somebody_elses_is_beside_it() {
    let Some(user) = User::new(1) else {
        return;
    };
    user.log_out();
    fs::create_dir(user.temporary("")).unwrap();
    let socket = user.temporary(".1").join("keeper.sock");
    user.start(&socket);
    user.has_only(&socket);
    // Where that one goes, and all of them are gone.
    fs::remove_dir(user.temporary("")).unwrap();
    user.has_only(&socket);
    take_away(&user.temporary(".1"));
    let socket = user.temporary("").join("keeper.sock");
    has(&mut awaited(&socket), "kept", b"kept");
    user.has_only(&socket);
}

/// What is not among the user's own places is where it was told to be, and nowhere else.
#[test]
fn one_that_was_told_its_place_waits_for_that() {
    let keeper = Keeper::start(&[]);
    let (socket, pid) = (keeper.socket(), keeper.status().pid);
    let directory = socket.parent().unwrap();
    let above = directory.parent().unwrap();
    let away = above.with_extension("away");
    stop(pid);
    fs::rename(above, &away).unwrap();
    signal(pid, Signal::CONT);
    signal(pid, Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::rename(&away, above).unwrap();
    assert_eq!(keeper.status().pid, pid);
    assert_eq!(keeper.status().socket, socket.to_str().unwrap());
}

#[test]
fn a_place_that_was_taken_away_is_taken_again() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    let (socket, pid) = (keeper.socket(), keeper.status().pid);
    let take_away = || take_away(socket.parent().unwrap());
    take_away();
    // By itself, and soon.
    has(&mut keeper.client(), "kept", b"kept");
    assert_eq!(keeper.status().pid, pid);
    // Who was there notices nothing, and nobody else comes there.
    has(&mut client, "kept", b"kept");
    let said = text(&run(&socket, &["--foreground"]).stderr);
    assert!(said.contains("already"), "{said}");
    take_away();
    keeper.kill(pid);
    has(&mut keeper.client(), "kept", b"kept");
}

/// What cleans /tmp takes old files and leaves sockets at which somebody listens.
#[test]
fn the_place_of_one_whose_lock_was_taken_away_stays_its_own() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    let (socket, pid) = (keeper.socket(), keeper.status().pid);
    std::fs::remove_file(socket.with_extension("sock.lock")).unwrap();
    let said = text(&run(&socket, &["--foreground", "--idle", "1"]).stderr);
    assert!(said.contains("already"), "{said}");
    has(&mut keeper.client(), "kept", b"kept");
    // It has a lock again once it has looked.
    signal(pid, Signal::HUP);
    until("a lock", || {
        std::fs::File::open(socket.with_extension("sock.lock"))
            .is_ok_and(|it| it.try_lock().is_err())
    });
}

/// As it is where a keeper is killed before its standby has the socket.
#[test]
fn a_place_with_a_socket_at_which_nobody_listens_is_taken_again() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    let (socket, pid) = (keeper.socket(), keeper.status().pid);
    std::fs::remove_file(&socket).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    keeper.kill(pid);
    has(&mut keeper.client(), "kept", b"kept");
}

#[test]
fn a_place_that_another_keeper_has_taken_stays_that_ones() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("run/keeper.sock");
    assert_eq!(run(&socket, &["--idle", "5"]).status.code(), Some(0));
    let mut held = client(&socket);
    let first = pid(&mut held);
    // It would be back before the other one comes.
    stop(first);
    std::fs::remove_dir_all(socket.parent().unwrap()).unwrap();
    assert_eq!(run(&socket, &[]).status.code(), Some(0));
    signal(first, Signal::CONT);
    let second = pid(&mut client(&socket));
    assert_ne!(first, second);
    signal(first, Signal::HUP);
    assert_eq!(pid(&mut held), first);
    assert_eq!(pid(&mut client(&socket)), second);
    drop(held);
    until("the end", || !is_alive(first));
    assert_eq!(pid(&mut client(&socket)), second);
    assert_eq!(run(&socket, &["stop"]).status.code(), Some(0));
}

/// That of a user whose runtime directory nobody made yet, as where a variable alone names it.
#[test]
fn its_own_place_is_made_whole() {
    if !is_possible_or_left_out(rustix::process::geteuid().is_root(), "to be another user") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(&directory, Some(READER), None).unwrap();
    // By a process of its own: none of this one's may have it open for writing.
    let program = directory.path().join("memcuda");
    let mut copy = std::process::Command::new("cp");
    let copied = copy.args([env!("CARGO_BIN_EXE_memcuda").as_ref(), program.as_os_str()]);
    assert!(copied.status().unwrap().success());
    let runtime = directory.path().join("nobody/made");
    let mut command = std::process::Command::new(program);
    command.args(["keeper", "--idle", "0"]).uid(READER);
    let output = command
        .env_clear()
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(runtime.join("memcuda/keeper.sock.lock").exists());
}
