//! `memcuda run --trace`: the program is as it would be without, and its trace is
//! there at its end.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::keeper::{self, memcuda};
use crate::support;
use crate::{code, of, program, read};

fn command(trace: &Path) -> Command {
    let mut command = support::preloaded(memcuda(), &[]);
    command.env_remove("LD_PRELOAD");
    command.args(["run", "--trace"]).arg(trace).arg("--");
    command
}

fn run(trace: &Path, arguments: &[&str]) -> Output {
    let mut command = command(trace);
    support::shim();
    command.arg(program()).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_trace_is_compressed_text_and_nothing_else_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.zst");
    // The second time over the first one's trace.
    for _ in 0..2 {
        let output = run(&trace, &["pairs", "1000"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(
            stderr(&output).contains("3000 events in "),
            "{}",
            stderr(&output)
        );
        let (lines, said) = read(&trace);
        assert_eq!((lines.len(), said.as_str()), (3000, ""));
        assert!(fs::metadata(&trace).unwrap().len() < 40_000);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    let mut replay = Command::new(memcuda());
    let (said, _) = support::said(replay.args(["replay", "--json"]).arg(&trace));
    assert!(said.contains("\"requests\":1000,"), "{said}");
}

/// Its trace and nothing else is in this folder; the name of the file.
fn only_trace_in(folder: &Path) -> OsString {
    let entries: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(of(&read(&entries[0].path()).0, "alloc"), 10);
    entries[0].file_name()
}

#[test]
fn names_of_files_need_not_be_text() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&odd).unwrap();
    let name = OsStr::from_bytes(b"\xe9.zst");
    let output = run(&odd.join(name), &["pairs", "10"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(only_trace_in(&odd), name);
    let mut explain = Command::new(memcuda());
    let (said, _) = support::said(explain.arg("explain").arg(odd.join(name)));
    assert!(said.contains("10 allocations asked for"), "{said}");
}

#[test]
fn the_process_id_stands_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder.path().join("a.%p.zst"), &["pairs", "10"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let name = only_trace_in(folder.path()).into_string().unwrap();
    let number = name
        .strip_prefix("a.")
        .and_then(|it| it.strip_suffix(".zst"));
    assert!(number.is_some_and(|it| it.parse::<u32>().is_ok()), "{name}");
}

#[test]
fn it_ends_as_the_program_does() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    assert_eq!(code(&run(&trace, &["exit", "7"])), 7);
    let killed = run(&trace, &["kill", "9"]);
    assert_eq!(killed.status.signal(), Some(9), "{}", stderr(&killed));
    let absent = command(&trace)
        .arg("no-such-program-here")
        .output()
        .unwrap();
    assert_eq!(code(&absent), 127, "{}", stderr(&absent));
    let nothing = command(&trace).arg("true").output().unwrap();
    assert_eq!(code(&nothing), 0);
    assert!(
        stderr(&nothing).contains("nothing was recorded"),
        "{}",
        stderr(&nothing)
    );
}

#[test]
fn several_processes_have_a_trace_each() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let one = format!("{} pairs 10", program().display());
    let both = format!("{one} & {one} & wait; true");
    let output = command(&trace).args(["sh", "-c", &both]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let entries = fs::read_dir(folder.path()).unwrap().flatten();
    let paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    for path in paths {
        let (lines, _) = read(&path);
        assert_eq!(of(&lines, "alloc"), 10);
    }
}

/// One after the other, in one process: as in another PID namespace its id comes again.
#[test]
fn what_a_process_was_before_an_exec_has_a_trace_too() {
    let folder = tempfile::tempdir().unwrap();
    // A folder may be called so.
    let folder = folder.path().join("by-%p");
    fs::create_dir(&folder).unwrap();
    for file in ["t", "%p.zst"] {
        let output = run(&folder.join(file), &["anew", "2"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let entries = fs::read_dir(&folder).unwrap().flatten();
        let paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        let mut allocs: Vec<_> = paths
            .iter()
            .map(|path| of(&read(path).0, "alloc"))
            .collect();
        allocs.sort();
        assert_eq!(allocs, [10, 11, 12], "{paths:?}");
        for path in paths {
            fs::remove_file(path).unwrap();
        }
    }
}

/// What cannot be read as a recording is not thrown away.
#[test]
fn what_cannot_be_written_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    // As of a later version.
    let script = format!(
        "{0} pairs 10; cd $MEMCUDA_TRACE && head -c 100000 $(ls) >5.2 && printf '\\7' | dd of=5.2 bs=1 seek=8 conv=notrunc",
        program().display()
    );
    let output = command(&trace)
        .args(["sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        folder.path().join("t.5.2.recording").is_file(),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("events in"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_signal_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, mark) = (folder.path().join("t"), folder.path().join("mark"));
    let script = format!(
        "trap 'exit 5' TERM; touch {}; while :; do sleep 0.05; done",
        mark.display()
    );
    let mut child = command(&trace).args(["sh", "-c", &script]).spawn().unwrap();
    keeper::until("the program runs", || mark.exists());
    keeper::signal(child.id() as i32, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn what_is_no_trace_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("train.py");
    fs::write(&file, "print()\n").unwrap();
    let output = run(&file, &["pairs", "1"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert_eq!(fs::read(&file).unwrap(), b"print()\n");
    let absent = folder.path().join("none/t.zst");
    let output = run(&absent, &["pairs", "1"]);
    let whole = format!(
        "memcuda: cannot write in {}: No such file or directory (os error 2)\n",
        absent.parent().unwrap().display()
    );
    assert_eq!((code(&output), stderr(&output)), (1, whole));
}
