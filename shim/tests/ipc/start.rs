//! How a process finds a keeper, or starts one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use crate::actor::{Actor, Place, program};
use crate::keeper::{kill, memcuda, soon};
use crate::{INVALID_VALUE, MIB, support};

#[test]
fn without_a_keeper_the_driver_refuses_and_one_line_says_why() {
    for (keeper, why) in [
        ("off", "MEMCUDA_KEEPER=off"),
        ("/nowhere/keeper.sock", "no keeper answers"),
    ] {
        let place = Place::empty();
        let mut command = place.command(program(), &[support::shim()]);
        let mut actor = Actor::start(command.env("MEMCUDA_KEEPER", keeper));
        let at = actor.filled(4 * MIB, 1);
        for _ in 0..3 {
            assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
        }
        actor.must(&format!("free {at}"));
        let log = actor.end();
        let said = log
            .lines()
            .filter(|line| line.contains("cannot be exported"));
        assert_eq!(said.count(), 1, "{log}");
        assert!(log.contains(why), "{log}");
    }
}

/// A keeper that the library starts is nobody's child, has nothing of the job's,
/// and is used by the next process.
#[test]
fn a_keeper_is_started_when_it_is_first_needed() {
    let place = Place::empty();
    let runtime = place.path("runtime");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(runtime.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    // Root has a place of the whole host, which is not the test's.
    // SAFETY: has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let nobody = 65534;
    let start = || {
        let mut command = place.command(program(), &[support::shim()]);
        command
            .env("MEMCUDA_KEEPER", "auto")
            .env("XDG_RUNTIME_DIR", &runtime);
        if root {
            command.uid(nobody).gid(nobody);
        }
        Actor::start(&mut command)
    };
    memcuda();
    if root {
        chown(&runtime, Some(nobody), Some(nobody)).unwrap();
        let shared = place.path("devices");
        fs::write(&shared, "").unwrap();
        chown(&shared, Some(nobody), Some(nobody)).unwrap();
    }
    let (mut exporter, mut importer) = (start(), start());
    let at = exporter.filled(4 * MIB, 1);
    let handle = exporter.must(&format!("get {at}"));
    let here = importer.must(&format!("open {handle}"));
    assert!(importer.has(&here, 4 * MIB, 1));
    assert_eq!(exporter.must("reap"), "-1", "it has no child");

    let keepers = processes_with(&runtime.display().to_string());
    let keepers: Vec<i32> = keepers
        .into_iter()
        .filter(|(_, name)| name == "memcuda")
        .map(|(pid, _)| pid)
        .collect();
    assert!(!keepers.is_empty());
    for &pid in &keepers {
        let of = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap();
        let text = |what: &str| String::from_utf8_lossy(&of(what)).into_owned();
        assert!(!text("environ").contains("LD_PRELOAD"), "its environment");
        let session = text("stat")
            .rsplit_once(") ")
            .unwrap()
            .1
            .split(' ')
            .nth(3)
            .unwrap()
            .to_owned();
        assert_ne!(session, session_of(exporter.pid()), "its session");
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let open = fs::read_link(entry.unwrap().path()).unwrap_or_default();
            let open = open.display().to_string();
            assert!(
                !open.starts_with("pipe:"),
                "a pipe of the test's is open: {open}"
            );
        }
    }
    importer.must(&format!("close {here}"));
    let log = exporter.end();
    assert!(log.contains("keeper started: "), "{log}");
    assert!(!importer.end().contains("keeper started: "));
    keepers.into_iter().for_each(kill);
    soon("nothing of it runs", || {
        let left = processes_with(&runtime.display().to_string());
        left.into_iter().for_each(|(pid, _)| kill(pid));
        processes_with(&runtime.display().to_string()).is_empty()
    });
}

fn session_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ")
        .unwrap()
        .1
        .split(' ')
        .nth(3)
        .unwrap()
        .to_owned()
}

/// The processes in whose environment a text stands, and their commands.
fn processes_with(text: &str) -> Vec<(i32, String)> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let named = pids.filter_map(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let has = environment
            .windows(text.len())
            .any(|window| window == text.as_bytes());
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        has.then(|| (pid, name.trim().to_owned()))
    });
    named.collect()
}
