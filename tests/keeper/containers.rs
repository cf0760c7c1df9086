//! Clients that share the socket's directory with the keeper and nothing else:
//! it cannot see their processes. Needs root, who makes the namespace.

use std::process::{Child, Command};

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

#[test]
fn who_cannot_be_seen_is_served_and_has_its_time_to_come_back() {
    let probe = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .status();
    let possible = probe.is_ok_and(|status| status.success());
    if !is_possible_or_left_out(possible, "to make a namespace of processes") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    let script = "\"$@\" & while :; do sleep 1; done";
    let keeper = command(&socket);
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
    let _namespace = Namespace(namespace);
    let (mut client, _) = wait_for("the keeper", || connect(&socket, &[]));
    let generation = make(&mut client, "a", b"seen").unwrap();
    let maker = list(&mut client, true).remove(0).maker;
    // As it says itself; the kernel says nothing.
    assert_eq!((maker.pid, maker.started), (std::process::id(), 0));
    let (mut other, _) = connect(&socket, &[]).unwrap();
    attach(&mut other, "a").unwrap();
    let references = || {
        let (mut client, _) = wait_for("the keeper", || connect(&socket, &[]));
        list(&mut client, true)
            .iter()
            .map(|entry| entry.references)
            .sum::<u64>()
    };
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
