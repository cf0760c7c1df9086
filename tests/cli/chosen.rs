//! `memcuda ls`, `rm` and `show` with some names of many, and names of later.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use memcuda::share::protocol::{Entry, Persist, State};

use crate::list::some;
use crate::stand_in::{StandIn, entry};
use crate::{code, memcuda, objects, stderr, stdout, unread};

#[test]
fn patterns_choose_names_to_list_and_to_delete() {
    let keeper = some();
    let names = |arguments: &[&str]| {
        let mut command = keeper.memcuda();
        let output = command
            .args(["ls", "--json", "--all"])
            .args(arguments)
            .output();
        let listed = objects(&output.unwrap(), "ls");
        let names = listed
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&["?e*", "x"]), ["deleted", "held", "kept"]);
    assert_eq!(names(&["k?pt", "held"]), ["held", "kept"]);
    let table = stdout(&keeper.run(&["ls", "he*"]));
    assert!(table.contains("1 allocation, 256.0 MiB"), "{table}");
    assert_eq!(
        stdout(&keeper.run(&["ls", "nobody*"])),
        "no memory has such a name\n"
    );
    assert_eq!(code(&keeper.run(&["ls", ""])), 2);

    let output = keeper.run(&["rm", "nobody*", "held", "?e*"]);
    assert_eq!(code(&output), 1);
    assert_eq!(stderr(&output), "memcuda: nobody*: there is no such name\n");
    let said = stdout(&output);
    let deleted: Vec<_> = said.lines().map(|line| line.split(':').next()).collect();
    assert_eq!(deleted, [Some("held"), Some("kept")]);
    assert_eq!(keeper.entries.lock().unwrap().len(), 3);
}

#[test]
fn what_is_done_to_some_names_is_done_to_all_where_nobody_reads_of_it() {
    let kept = (1..=3).map(|n| {
        let mut kept = entry(n, &format!("b/{n}"), 5, Vec::new());
        kept.persist = Persist::Yes;
        kept
    });
    let keeper = StandIn::with(kept.collect());
    let ended = |arguments: &[&str]| {
        let mut command = keeper.memcuda();
        let output = command.args(arguments).stdout(unread()).output().unwrap();
        (code(&output), stderr(&output))
    };
    let nothing = String::new();
    assert_eq!(ended(&["persist", "--not", "b/*"]), (0, nothing.clone()));
    let is_kept = |it: &Entry| it.persist == Persist::Yes;
    assert!(!keeper.entries.lock().unwrap().iter().any(is_kept));
    let none = "memcuda: none: there is no such name\n".to_owned();
    assert_eq!(ended(&["rm", "b/1", "none", "b/2"]), (1, none));
    assert_eq!(ended(&["rm", "b/*"]), (0, nothing));
    assert!(keeper.entries.lock().unwrap().is_empty());
}

#[test]
fn show_waits_for_a_name_where_that_is_said() {
    let mut making = entry(1, "w", 5, Vec::new());
    making.state = State::Creating;
    let keeper = StandIn::with(vec![making]);
    let late = keeper.run(&["show", "w", "--wait", "0"]);
    assert_eq!(code(&late), 1);
    assert_eq!(stderr(&late), "memcuda: w is still being made\n");
    let mut waiting = keeper.memcuda();
    waiting.args(["show", "w", "--wait", "20"]);
    let waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    keeper.entries.lock().unwrap()[0].state = State::Ready;
    let shown = stdout(&waiting.wait_with_output().unwrap());
    assert!(shown.contains("ready"), "{shown}");

    // Nor need there be a keeper yet, or one that can be talked to.
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    let _listener = UnixListener::bind(&other).unwrap();
    let wait = |seconds, keeper: &Path| {
        let mut waiting = memcuda();
        waiting.args(["show", "w", "--wait", seconds]);
        let began = Instant::now();
        let output = waiting.env("MEMCUDA_KEEPER", keeper).output().unwrap();
        (code(&output), began.elapsed())
    };
    for keeper in [folder.path().join("none"), other] {
        let (code, waited) = wait("1", &keeper);
        assert_eq!(code, 1);
        assert!(waited >= Duration::from_secs(1), "{keeper:?}: {waited:?}");
    }
    // But no waiting helps where the path is wrong, or no keeper is wanted.
    for (keeper, expected) in [("no/path", 2), ("off", 1)] {
        let (code, waited) = wait("20", Path::new(keeper));
        assert_eq!(code, expected);
        assert!(waited < Duration::from_secs(10));
    }
}
