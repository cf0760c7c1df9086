//! What a process asks for is recorded, nothing of it is lost that was written,
//! and nothing that goes wrong with the recording is the program's.

mod cancelled;
mod closing;
#[path = "../support/crowd.rs"]
mod crowd;
mod fit;
mod graph;
mod interrupted;
#[path = "../support/keeper.rs"]
mod keeper;
mod python;
mod run;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use keeper::memcuda;

fn program() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| support::program("record.c", "record"))
}

/// The program, preloaded, recording to a file.
fn recorded(trace: &Path, arguments: &[&str]) -> Command {
    let mut command = support::preloaded(program(), &[support::shim()]);
    command.args(arguments).env("MEMCUDA_TRACE", trace);
    command
}

/// A recording as text, and what is said of it.
fn read(trace: &Path) -> (Vec<String>, String) {
    let mut command = Command::new(memcuda());
    let output = support::run(command.arg("trace").arg(trace).args(["-o", "-"]));
    let text = String::from_utf8(output.stdout).unwrap();
    // Version, process, columns.
    let lines = text.lines().skip(3).map(str::to_owned);
    (lines.collect(), String::from_utf8(output.stderr).unwrap())
}

/// What the program with these arguments records under these settings, and what is said
/// of it.
fn recording_of(arguments: &[&str], settings: &[(&str, &str)]) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let mut command = recorded(&trace, arguments);
    support::said(command.envs(settings.iter().copied()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    read(&trace)
}

/// A line's columns by the order in which they are written.
fn columns(line: &str) -> Vec<&str> {
    line.split(',').collect()
}

fn of(lines: &[String], op: &str) -> usize {
    lines.iter().filter(|line| columns(line)[1] == op).count()
}

#[test]
fn each_call_is_an_event_with_who_made_it() {
    let (lines, said) = recording_of(&["each"], &[]);
    assert_eq!(said, "");
    let events: Vec<Vec<&str>> = lines.iter().map(|line| columns(line)).collect();
    let brief: Vec<String> = events
        .iter()
        .map(|e| [e[1], e[3], e[4], e[6], e[7], e[9]].join(" "))
        .collect();
    // Stream 1 is the first that was made; the last free is on the second. Who
    // calls the driver itself is told by the stack.
    let expected = [
        "alloc 3145728 0 any context record",
        "alloc 100 1 stream pool record",
        "free 3145728 0 complete context record",
        "free_done 3145728 0 complete context record",
        "alloc 5242880 0 any context record",
        "alloc 7340032 1 stream pool record",
        "free 7340032 1 stream pool record",
        "free_done 7340032 1 stream pool record",
        "free 100 2 stream pool record",
        "free_done 100 2 stream pool record",
        "refused 35184372088832 0 any  record",
        "free 5242880 0 complete context ",
        "free_done 5242880 0 complete context ",
    ];
    assert_eq!(brief, expected);
    let threads: Vec<&str> = events.iter().map(|e| e[8]).collect();
    assert!(threads[0].starts_with("record (") && threads[0] == threads[1]);
    assert_ne!(threads[4], threads[0]);
    assert_eq!(threads[4], threads[5]);
    assert!(events.iter().all(|e| e.last() == Some(&"")));
    let times: Vec<u64> = events.iter().map(|e| e[0].parse().unwrap()).collect();
    assert!(times.is_sorted());
}

/// Who asked, line by line, of a program in which two libraries do so in turns:
/// `None` where it is not known.
fn askers(deepest: usize) -> Vec<Option<String>> {
    let library = |name: &str| {
        let made = support::compile("asker.c", name, &["-shared", "-fPIC"]);
        made.to_str().unwrap().to_owned()
    };
    let (one, other) = (library("libone.so"), library("libother.so"));
    let arguments = ["askers", &one, &other, "500", &deepest.to_string()];
    let (lines, said) = recording_of(&arguments, &[]);
    // Two pairs of each, and an allocation and two events of a free.
    assert_eq!((said.as_str(), lines.len()), ("", 500 * 2 * 2 * 3));
    let caller = |line: &String| Some(columns(line)[9].to_owned()).filter(|c| !c.is_empty());
    lines.iter().map(caller).collect()
}

#[test]
fn libraries_that_ask_in_turns_are_told_apart_without_stacks() {
    for (at, caller) in askers(0).iter().enumerate() {
        let expected = ["libone.so", "libother.so"][at / 6 % 2];
        assert_eq!(caller.as_deref(), Some(expected), "{at}");
    }
    // Whoever comes by ever new ways is known at times, and never mistaken.
    let callers = askers(300);
    let mut known = 0;
    for (at, caller) in callers.iter().enumerate() {
        if let Some(caller) = caller {
            assert_eq!(caller, ["libone.so", "libother.so"][at / 6 % 2], "{at}");
            known += 1;
        }
    }
    assert!(
        (callers.len() / 40..callers.len()).contains(&known),
        "{known}"
    );
}

/// No number is left for the two libraries, where so many others asked for functions before.
#[test]
fn in_a_crowd_of_libraries_nobody_is_taken_for_another_one() {
    let library = |name: &str| support::compile("asker.c", name, &["-shared", "-fPIC"]);
    let asking = ["one", "other"].map(|name| library(&format!("lib{name}-in-a-crowd.so")));
    let (first, others) = crowd::crowd(&support::scratch().join("crowd"), 40);
    let folder = tempfile::tempdir().unwrap();
    for stacks in [None, Some("c")] {
        let trace = folder.path().join("t");
        let mut command = support::preloaded(program(), &[support::shim(), first.clone()]);
        command.env("MEMCUDA_TRACE", &trace).env("CROWD", &others);
        command.envs(stacks.map(|how| ("MEMCUDA_TRACE_STACKS", how)));
        command.arg("askers").args(&asking).args(["20", "0"]);
        support::run(&mut command);
        let (lines, _) = read(&trace);
        assert_eq!(lines.len(), 20 * 2 * 2 * 3);
        for (at, line) in lines.iter().enumerate() {
            let event = columns(line);
            assert_eq!(event[9], "", "{line}");
            let own = asking[at / 6 % 2].file_name().unwrap().to_string_lossy();
            let told = event[11].contains(&format!("{own}!pair"));
            assert_eq!(told, stacks.is_some(), "{line}");
        }
    }
}

#[test]
fn stacks_tell_who_calls_the_driver_itself() {
    let (lines, said) = recording_of(&["pairs", "100"], &[("MEMCUDA_TRACE_STACKS", "c")]);
    assert_eq!((said.as_str(), lines.len()), ("", 300));
    for line in &lines {
        let event = columns(line);
        assert_eq!(event[9], "record", "{line}");
        assert!(event[11].starts_with("the program"), "{line}");
        assert!(!event[11].contains("libmemcuda"), "{line}");
    }
}

#[test]
fn a_bare_program_is_recorded_by_its_bookkeeping() {
    let (lines, said) = recording_of(&["each"], &[("MEMCUDA_POLICY", "track")]);
    assert_eq!(said, "");
    assert_eq!((of(&lines, "alloc"), of(&lines, "free")), (4, 4));
}

/// On the pool as beside it.
#[test]
fn a_recording_without_a_pool_grows_as_well() {
    let pairs = 70_000;
    let settings = [("MEMCUDA_POLICY", "track")];
    let (lines, said) = recording_of(&["pairs", &pairs.to_string()], &settings);
    assert_eq!((said.as_str(), of(&lines, "alloc")), ("", pairs));
}

#[test]
fn what_a_stream_gets_is_on_its_device_whichever_is_current() {
    for policy in ["stitch", "track"] {
        let settings = [("MEMCUDA_SIM_DEVICES", "2"), ("MEMCUDA_POLICY", policy)];
        let (lines, said) = recording_of(&["elsewhere"], &settings);
        assert_eq!((said.as_str(), of(&lines, "alloc")), ("", 1), "{policy}");
        assert!(
            lines.iter().all(|line| columns(line)[5] == "0"),
            "{lines:?}"
        );
    }
}

/// On the pool as beside it.
#[test]
fn rows_are_recorded_with_the_bytes_that_they_take() {
    for policy in ["stitch", "track"] {
        let (lines, said) = recording_of(&["rows"], &[("MEMCUDA_POLICY", policy)]);
        assert_eq!(said, "", "{policy}");
        let bytes = (1024 * 300).to_string();
        assert!(
            lines.iter().all(|line| columns(line)[3] == bytes),
            "{lines:?}"
        );
        assert_eq!(
            (of(&lines, "alloc"), of(&lines, "free")),
            (1, 1),
            "{policy}"
        );
    }
}

#[test]
fn what_was_written_before_a_kill_is_there() {
    let folder = tempfile::tempdir().unwrap();
    for milliseconds in [1, 5, 20, 80, 200] {
        let (trace, page) = (folder.path().join("t"), folder.path().join("page"));
        fs::write(&page, [0; 4096]).unwrap();
        let done = || i64::from_ne_bytes(fs::read(&page).unwrap()[..8].try_into().unwrap());
        let mut command = recorded(&trace, &["endless", page.to_str().unwrap()]);
        let mut child = command.spawn().unwrap();
        keeper::until("the program works", || done() > 0);
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        let (done, (lines, said)) = (done(), read(&trace));
        let freed = of(&lines, "free") as i64;
        assert!((done..=done + 1).contains(&freed), "{done} pairs, {freed}");
        // At most the one that was being written.
        assert!(
            said.is_empty() || said.contains(" 1 event is missing"),
            "{said}"
        );
        assert!(!said.contains("not follow"), "{said}");
    }
}

#[test]
fn a_forked_child_records_nothing_into_its_parents_file() {
    let (lines, said) = recording_of(&["forks"], &[]);
    assert_eq!((of(&lines, "alloc"), lines.len()), (20, 60));
    assert_eq!(said, "");
}

#[test]
fn where_there_is_no_room_events_are_lost_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let mut command = recorded(&trace, &["limited", "400000"]);
    let (_, stderr) = support::said(&mut command);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("no more room"), "{stderr}");
    let (lines, said) = read(&trace);
    let last = columns(lines.last().unwrap());
    assert_eq!(last[1], "lost");
    let lost: u64 = last[3].parse().unwrap();
    let kept = of(&lines, "alloc") as u64 + of(&lines, "free") as u64;
    assert_eq!(kept + lost, 800_002);
    assert!(kept > 131_000 && lost > 131_000, "{kept}");
    assert!(
        said.contains(&format!("{lost} events are missing")),
        "{said}"
    );
}

#[test]
fn who_asks_first_while_there_is_no_room_is_known_once_there_is() {
    let library = support::compile("asker.c", "liblate.so", &["-shared", "-fPIC"]);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    support::said(&mut recorded(
        &trace,
        &["room_again", library.to_str().unwrap()],
    ));
    let (lines, _) = read(&trace);
    let mut events = lines.iter().map(|line| columns(line));
    let last = events.rfind(|line| line[1] == "alloc").unwrap();
    assert!(last[8].starts_with("late ("), "{last:?}");
    assert_eq!(last[9], "liblate.so");
}

#[test]
fn a_file_that_cannot_be_had_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("notes");
    fs::write(&other, "of mine, and no recording").unwrap();
    let cases = [
        (
            folder.path().join("none/t"),
            "cannot be opened: No such file",
        ),
        (folder.path().to_owned(), "Is a directory"),
        (PathBuf::from("/dev/null"), "is no file"),
        (other.clone(), "is no recording: it stays as it is"),
    ];
    for (path, why) in cases {
        let (_, stderr) = support::said(&mut recorded(&path, &["pairs", "10"]));
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains(why) && stderr.contains(path.to_str().unwrap()));
    }
    assert_eq!(fs::read(&other).unwrap(), b"of mine, and no recording");
}

#[test]
fn where_there_is_no_room_to_begin_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    // So much is less than the first segment.
    let full = support::compile("../behaviour/full.c", "libfull.so", &["-shared", "-fPIC"]);
    let mut command = recorded(&trace, &["exit", "0"]);
    let both = [support::shim(), full].map(|it| it.to_str().unwrap().to_owned());
    command.env("LD_PRELOAD", both.join(":"));
    command.env("MOST", "200000");
    let (_, stderr) = support::said(&mut command);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let why = format!("{} cannot be written: file too large", trace.display());
    assert!(stderr.contains(&why), "{stderr}");
    assert_eq!(fs::metadata(&trace).unwrap().len(), 0);
    // The next one has it.
    support::said(&mut recorded(&trace, &["pairs", "10"]));
    assert_eq!(of(&read(&trace).0, "alloc"), 10);
}

/// A process that has recorded something and waits; dropped, it ends.
struct Waiting(Child);

impl Waiting {
    fn start(trace: &Path) -> Self {
        let mut command = recorded(trace, &["wait"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        Self(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn processes_at_one_time_have_files_of_their_own_and_an_old_one_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let first = Waiting::start(&trace);
    let second = Waiting::start(&trace);
    let beside = folder.path().join(format!("t.{}", second.0.id()));
    assert_eq!((read(&trace).0.len(), read(&beside).0.len()), (3, 3));
    drop((first, second));
    support::said(&mut recorded(&trace, &["pairs", "2"]));
    assert_eq!((read(&trace).0.len(), read(&beside).0.len()), (6, 3));
    let pattern = folder.path().join("by-%p.recording");
    let named = Waiting::start(&pattern);
    let path = folder.path().join(format!("by-{}.recording", named.0.id()));
    assert_eq!(read(&path).0.len(), 3);
}

#[test]
fn a_process_that_records_is_explained_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let waiting = Waiting::start(&folder.path().join("t"));
    let mut command = Command::new(memcuda());
    command.args(["explain", &waiting.0.id().to_string(), "--json"]);
    let (said, _) = support::said(&mut command);
    assert!(
        said.contains("\"allocs\":1,\"peak_live_bytes\":4096"),
        "{said}"
    );
    let stat = |json: &[&str]| {
        let mut command = Command::new(memcuda());
        let pid = waiting.0.id().to_string();
        support::said(command.args(["stat", &pid]).args(json)).0
    };
    let (json, table) = (stat(&["--json"]), stat(&[]));
    assert!(json.contains("\"trace_lost_events\":0"), "{json}");
    assert!(table.contains(" frames, 0 events lost"), "{table}");
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}
