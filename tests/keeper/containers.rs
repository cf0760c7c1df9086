//! Clients that share the socket's directory with the keeper and nothing else:
//! it cannot see their processes. Needs root, who makes the namespace.

use std::path::Path;
use std::process::{Child, Command};

use memcuda::share::client::Client;
use memcuda::share::protocol::Request;

use crate::requests::*;
use crate::support::*;

/// A process namespace; everything in it ends with it.
struct Namespace(Child);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A keeper in one, at this socket; `None` where a person wants such tests left out.
fn keeper_that_sees_nobody(socket: &Path) -> Option<Namespace> {
    let probe = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .status();
    let possible = probe.is_ok_and(|status| status.success());
    if !is_possible_or_left_out(possible, "to make a namespace of processes") {
        return None;
    }
    let script = "\"$@\" & while :; do sleep 1; done";
    let keeper = command(socket);
    let namespace = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(keeper.get_program())
        .args(keeper.get_args())
        .arg("--foreground")
        .spawn()
        .unwrap();
    Some(Namespace(namespace))
}

/// Of all names, as another process asks.
fn references(socket: &Path) -> u64 {
    let number = std::process::id() + 1;
    let connected = || Client::connect(socket, number, "other", &[]).ok();
    let (mut client, _) = wait_for("the keeper", connected);
    let all = list(&mut client, true);
    all.iter().map(|entry| entry.references).sum()
}

#[test]
fn who_cannot_be_seen_is_served_and_has_its_time_to_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let Some(_namespace) = keeper_that_sees_nobody(&socket) else {
        return;
    };
    let (mut client, _) = wait_for("the keeper", || connect(&socket, &[]));
    let generation = make(&mut client, "a", b"seen").unwrap();
    let maker = list(&mut client, true).remove(0).maker;
    // As it says itself; the kernel says nothing.
    assert_eq!((maker.pid, maker.started), (std::process::id(), 0));
    let (mut other, _) = connect(&socket, &[]).unwrap();
    attach(&mut other, "a").unwrap();
    let references = || references(&socket);
    assert_eq!(references(), 2);
    client.call(Request::Restart, &[]).unwrap();
    let lease = lease(generation, 1);
    let (mut client, lost) = wait_for("the keeper", || connect(&socket, &[lease]));
    assert!(lost.is_empty());
    // The other one does not come back.
    assert_eq!(references(), 2);
    until("the end of its time", || references() == 1);
    has(&mut client, "a", b"seen");
    drop((client, other));
    until("the end of the name", || references() == 0);
}

/// It may be heard over its next connection before the end of the former one is.
#[test]
fn who_cannot_be_seen_and_is_back_already_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let Some(_namespace) = keeper_that_sees_nobody(&socket) else {
        return;
    };
    let (mut client, _) = wait_for("the keeper", || connect(&socket, &[]));
    let generation = make(&mut client, "a", b"seen").unwrap();
    client.call(Request::ComeBack, &[]).unwrap();
    let (mut next, lost) = connect(&socket, &[lease(generation, 1)]).unwrap();
    assert!(lost.is_empty());
    drop(client);
    assert_eq!(references(&socket), 2);
    until("the end of its time", || references(&socket) == 1);
    has(&mut next, "a", b"seen");
    release(&mut next, generation);
    release(&mut next, generation);
    assert_eq!(references(&socket), 0);
}
