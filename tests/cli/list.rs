//! `memcuda ls`, `show`, `rm` and `gc`, on entries made up.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use memcuda::share::protocol::{Backend, Persist, State};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use crate::stand_in::{StandIn, entry, holders, process};
use crate::top::shown;
use crate::{check_units, code, done, memcuda, objects, stderr, stdout, until};

const COUNTS: &[&str] = &["version", "device", "references"];

pub fn some() -> StandIn {
    let mut kept = entry(2, "kept", 3 * 86_400, Vec::new());
    kept.persist = Persist::Yes;
    let mut sealed = entry(
        3,
        &format!("layers/{}/end", "n".repeat(180)),
        90,
        holders(3),
    );
    sealed.state = State::Sealed;
    let mut export = entry(4, "x", 5, holders(16));
    export.name = None;
    let mut deleted = entry(5, "deleted", 5, holders(1));
    deleted.spec.backend = Backend::CudaIpc;
    deleted.legacy = vec![0xff; 64];
    deleted.state = State::Dying;
    StandIn::with(vec![
        entry(1, "held", 7200, holders(1)),
        kept,
        sealed,
        export,
        deleted,
    ])
}

#[test]
fn a_table_fits_the_terminal_and_marks_what_nobody_holds() {
    let keeper = some();
    let ls = |arguments: &[&str]| {
        let mut command = keeper.memcuda();
        command.arg("ls").args(arguments);
        shown(command)
    };
    let table = ls(&["--all"]);
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    let table = ls(&[]);
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
    for word in ["256.0 MiB", "32768", "ready", "trainer 2000", "2h"] {
        assert!(row("held").contains(word), "{table}");
    }
    for word in ["nobody (", "4711)", "3d"] {
        assert!(row("kept").contains(word), "{table}");
    }
    for word in ["/..", "n/end", "sealed", "3 processes", "1m"] {
        assert!(row("layers/").contains(word), "{table}");
    }
    let last = table.lines().last().unwrap();
    assert_eq!(
        last,
        "3 allocations, 768.0 MiB; nobody holds 1 of them, 256.0 MiB"
    );
    // A program that reads it looks for whole names.
    let piped = done(keeper.run(&["ls"]));
    for word in [
        &format!("layers/{}/end", "n".repeat(180))[..],
        "python3 4711",
    ] {
        assert!(piped.contains(word), "{piped}");
    }
}

#[test]
fn all_has_exports_and_deleted_names_too() {
    let table = stdout(&some().run(&["ls", "--all"]));
    assert!(
        table.contains("(ipc 04040404)") && table.contains("16 or more"),
        "{table}"
    );
    let deleted = table
        .lines()
        .find(|line| line.starts_with("deleted"))
        .unwrap();
    assert!(deleted.contains("trainer 2000"), "{table}");
    assert!(table.contains("5 allocations"), "{table}");
}

#[test]
fn json_says_everything_with_units() {
    let output = some().run(&["ls", "--json", "--all"]);
    let listed = objects(&output, "ls");
    assert_eq!(listed.len(), 5);
    for object in &listed {
        check_units(object, COUNTS);
    }
    let of = |name: &str| listed.iter().find(|it| it["name"] == name).unwrap();
    let held = of("held");
    assert_eq!(held["requested_bytes"], 256 << 20);
    assert_eq!(held["dtype"], "bf16");
    assert_eq!(held["shape"], serde_json::json!([4096, 32768]));
    assert_eq!(
        held["device_uuid"],
        "GPU-61626364-6566-6768-696a-6b6c6d6e6f70"
    );
    assert_eq!(held["references"], 2);
    assert_eq!(held["holders"][0]["pid"], 2000);
    assert_eq!(held["holders"][0]["references"], 2);
    assert_eq!(held["persist"], false);
    assert_eq!(
        (&held["backend"], &held["ipc_handle"]),
        (&"vmm".into(), &Value::Null)
    );
    let handle = of("deleted")["ipc_handle"].as_str().unwrap();
    assert_eq!((handle.len(), &handle[..4]), (88, "////"));
    assert!((7200..7260).contains(&held["age_s"].as_u64().unwrap()));
    let kept = of("kept");
    assert_eq!(kept["persist"], true);
    assert_eq!(kept["maker"]["command"], "python3");
    assert!(listed.iter().any(|it| it["name"] == Value::Null));
}

#[test]
fn what_a_process_calls_itself_cannot_reach_the_terminal() {
    let mut odd = entry(1, "odd", 0, Vec::new());
    odd.maker = process(1, "\u{1b}[2J\n");
    let keeper = StandIn::with(vec![odd]);
    for arguments in [&["ls"][..], &["show", "odd"]] {
        let text = stdout(&keeper.run(arguments));
        assert!(text.contains("?[2J?") && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn show_has_every_holder_and_the_whole_name() {
    let name = format!("layers/{}/end", "n".repeat(180));
    let mut shown = entry(3, &name, 90, holders(16));
    shown.state = State::Sealed;
    shown.references = 100;
    let keeper = StandIn::with(vec![shown]);
    let text = done(keeper.run(&["show", &name]));
    for word in [
        &name[..],
        "sealed: opened for reading only, version 3",
        "256.0 MiB (268435456 bytes)",
        "1 (GPU-61626364-",
        "while somebody holds it",
        "by python3 4711 (user 1000), 1m ago",
        "trainer 2015 (user 1000), 2 times",
        "others, 68 times",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let objects = objects(&keeper.run(&["show", &name, "--json"]), "show");
    assert_eq!(objects[0]["name"], name);
    assert_eq!(objects[0]["holders"].as_array().unwrap().len(), 16);
}

#[test]
fn a_name_that_is_not_there_is_1_and_the_others_are_deleted() {
    let keeper = some();
    let output = keeper.run(&["show", "nowhere"]);
    assert_eq!(code(&output), 1);
    assert_eq!(stderr(&output), "memcuda: nowhere: there is no such name\n");

    let output = keeper.run(&["rm", "held", "nowhere", "kept"]);
    assert_eq!(code(&output), 1);
    assert_eq!(stderr(&output), "memcuda: nowhere: there is no such name\n");
    let said = stdout(&output);
    assert_eq!(
        said,
        "held: deleted; its 256.0 MiB go with the last holder (trainer 2000)\n\
         kept: deleted, 256.0 MiB freed\n"
    );
    assert_eq!(keeper.entries.lock().unwrap().len(), 3);
}

#[test]
fn a_name_that_is_none_stops_rm_before_it_deletes() {
    let keeper = some();
    let output = keeper.run(&["rm", "held", "no name"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("accepted: 1 to 200 bytes"));
    assert_eq!(keeper.entries.lock().unwrap().len(), 5);
}

#[test]
fn gc_says_what_it_frees_and_what_it_leaves() {
    let mut expired = entry(7, "expired", 5, Vec::new());
    expired.persist = Persist::Until(1);
    let mut kept = entry(8, "kept", 5, Vec::new());
    kept.persist = Persist::Yes;
    let keeper = StandIn::with(vec![expired, kept]);
    let dry = stdout(&keeper.run(&["gc", "--dry-run"]));
    let left = "persisted and held by nobody: 1 allocation, 256.0 MiB (gc --kept frees them)\n";
    assert_eq!(dry, format!("would free 1 allocation, 256.0 MiB\n{left}"));
    assert_eq!(keeper.entries.lock().unwrap().len(), 2);
    let freed = stdout(&keeper.run(&["gc"]));
    assert_eq!(freed, format!("freed 1 allocation, 256.0 MiB\n{left}"));
    assert_eq!(
        stdout(&keeper.run(&["gc"])),
        format!("freed nothing\n{left}")
    );
    let all = stdout(&keeper.run(&["gc", "--kept"]));
    assert_eq!(all, "freed 1 allocation, 256.0 MiB\n");
    assert!(keeper.entries.lock().unwrap().is_empty());
}

#[test]
fn without_a_keeper_the_list_is_empty_and_a_name_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    let run = |arguments: &[&str]| {
        let mut command = memcuda();
        command.args(arguments).env("MEMCUDA_KEEPER", &socket);
        command.output().unwrap()
    };
    let nobody = format!(
        "no keeper runs at {}: no memory has a name",
        socket.display()
    );
    let listed = run(&["ls"]);
    assert_eq!((code(&listed), stdout(&listed)), (0, format!("{nobody}\n")));
    let listed = run(&["ls", "--json"]);
    assert_eq!((code(&listed), stdout(&listed)), (0, String::new()));
    assert_eq!(stderr(&listed), format!("memcuda: {nobody}\n"));
    let freed = run(&["gc"]);
    assert_eq!(code(&freed), 0);
    assert!(stdout(&freed).ends_with("nothing to free\n"));
    for arguments in [&["show", "held"][..], &["rm", "held"]] {
        let output = run(arguments);
        assert_eq!(code(&output), 1);
        assert_eq!(stderr(&output), format!("memcuda: {nobody}\n"));
    }
    // Nobody behind a socket that is still there is the same.
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    drop(listener);
    assert_ne!(code(&run(&["show", "held"])), 0);
    let mut off = memcuda();
    off.arg("ls").env("MEMCUDA_KEEPER", "off");
    let off = off.output().unwrap();
    assert_eq!(code(&off), 0);
    assert!(stdout(&off).starts_with("MEMCUDA_KEEPER is off"));
    let mut bad = memcuda();
    bad.arg("ls").env("MEMCUDA_KEEPER", "here");
    let bad = bad.output().unwrap();
    assert_eq!(code(&bad), 2);
    assert!(stderr(&bad).contains("MEMCUDA_KEEPER=here"));
}

/// What a process took up to its end, which it is waited for: of a processor, that
/// others may have had as well meanwhile.
fn processor_time(child: &Child) -> Duration {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), options).unwrap();
    crate::processes::processor_time(child.id())
}

#[test]
fn ten_thousand_names_are_listed_at_once() {
    let mut entries = Vec::new();
    for number in 0..10_000_u32 {
        let name = format!("model/layers.{number}/weights");
        let mut it = entry(0, &name, u64::from(number), holders(2));
        it.generation.0[..4].copy_from_slice(&number.to_be_bytes());
        entries.push(it);
    }
    let keeper = StandIn::with(entries);
    let mut command = keeper.memcuda();
    let command = command.args(["ls", "--json"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut stdout)
        .unwrap();
    let took = processor_time(&child);
    let output = Output {
        status: child.wait().unwrap(),
        stdout,
        stderr: Vec::new(),
    };
    assert_eq!(code(&output), 0);
    assert_eq!(objects(&output, "ls").len(), 10_000);
    // A tenth of a second by an optimised build. The others of a core have a part of it.
    println!("10,000 names in {took:?} of a processor");
    let most = if cfg!(debug_assertions) { 10 } else { 2 };
    assert!(took < Duration::from_secs(most), "{took:?}");
}

#[test]
fn watch_ends_with_who_reads_it() {
    let keeper = some();
    for arguments in [&["ls", "--watch", "--json"][..], &["ls", "--watch"]] {
        let mut command = keeper.memcuda();
        let mut child = command
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        drop(lines);
        until("it ends", || child.try_wait().unwrap().is_some());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn watch_with_json_prints_what_is_new_changed_or_gone() {
    let keeper = some();
    let mut child = keeper
        .memcuda()
        .args(["ls", "--watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let names = [next(), next(), next()].map(|it| it["name"].clone());
    assert_eq!(names[..2], ["held", "kept"]);
    {
        let mut entries = keeper.entries.lock().unwrap();
        entries[1].version = 4;
        entries.remove(2);
    }
    let changed = next();
    assert_eq!(
        (&changed["name"], &changed["version"]),
        (&"held".into(), &4.into())
    );
    let gone = next();
    assert_eq!(
        (&gone["name"], &gone["state"]),
        (&"kept".into(), &"gone".into())
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn watch_looks_again() {
    let keeper = some();
    let begin = Instant::now();
    let mut child = keeper
        .memcuda()
        .args(["ls", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let sums = lines
        .map(Result::unwrap)
        .filter(|line| line.contains("allocations,"));
    assert_eq!(sums.take(2).count(), 2);
    assert!(begin.elapsed() > Duration::from_millis(900));
    child.kill().unwrap();
    child.wait().unwrap();
}
