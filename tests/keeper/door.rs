//! Whom a keeper lets to its socket after it was started anew with a mistake in what says
//! so, and once that is mended. Needs root, whose groups may be any.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::Code;
use rustix::process::Signal;

use crate::requests::*;
use crate::rights::{GROUP, READER, RULES, as_user, can_be_several, keeper, start_by};
use crate::support::*;

/// Mode and group, while it is there.
fn rights(path: &Path) -> Option<(u32, u32)> {
    let it = fs::metadata(path).ok()?;
    Some((it.mode() & 0o777, it.gid()))
}

#[test]
fn a_group_comes_to_a_new_socket_once_its_rules_are_mended() {
    let Some((keeper, rules)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let directory = socket.parent().unwrap();
    let own = [directory, &socket].map(rights);
    make(&mut keeper.client(), "weights/a", b"").unwrap();
    fs::write(&rules, "nonsense").unwrap();
    keeper.kill(keeper.status().pid);
    let pid = keeper.status().pid;
    fs::remove_dir_all(directory).unwrap();
    signal(pid, Signal::HUP);
    assert_eq!(keeper.status().pid, pid);
    // Nobody is served but the keeper's own user, for want of rules.
    let refused = as_user(READER, READER, || {
        match Client::connect(&socket, 1, "test", &[]) {
            Err(Error::Refused(code, _)) => code,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("let in without a rule"),
        }
    });
    assert_eq!(refused, Code::Denied);
    fs::write(&rules, RULES).unwrap();
    signal(pid, Signal::HUP);
    as_user(READER, READER, || {
        wait_for("the rules", || connect(&socket, &[]));
    });
    assert_eq!([directory, &socket].map(rights), own);
}

#[test]
fn a_new_socket_is_its_groups_once_that_is_known_again() {
    let probe = Command::new("unshare").args(["--mount", "true"]).status();
    let possible = probe.is_ok_and(|status| status.success());
    if !is_possible_or_left_out(possible, "to make a namespace of mounts") || !can_be_several() {
        return;
    }
    let named = format!("door:x:{GROUP}:\n");
    let keeper = Keeper::run(|command, directory| {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        let groups = directory.join("groups");
        fs::write(&groups, &named).unwrap();
        // It has a file of groups of its own.
        let bound = "mount --bind \"$0\" /etc/group && exec \"$@\"";
        let groups = groups.to_str().unwrap();
        command.args(["--group", "door"]);
        start_by(&["unshare", "--mount", "sh", "-c", bound, groups], command);
    });
    let socket = keeper.socket();
    let groups = keeper.directory.path().join("groups");
    assert_eq!(rights(&socket), Some((0o660, GROUP)));
    fs::write(&groups, "").unwrap();
    keeper.kill(keeper.status().pid);
    let pid = keeper.status().pid;
    fs::remove_file(&socket).unwrap();
    signal(pid, Signal::HUP);
    assert_eq!(keeper.status().pid, pid);
    assert_eq!(rights(&socket).unwrap().0, 0o600);
    fs::write(&groups, named).unwrap();
    signal(pid, Signal::HUP);
    until("the group's socket", || {
        rights(&socket) == Some((0o660, GROUP))
    });
    assert_eq!(keeper.status().pid, pid);
}
