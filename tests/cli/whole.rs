//! The whole product on the simulated GPU: the C example, preloaded, measured
//! from outside. Needs the simulated libraries in `sim` beside the command.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use crate::{UNLISTED, code, library, memcuda, objects, run, stderr, stdout};

const MIB: u64 = 1 << 20;
const LIVE_MIB: u64 = 128;

pub fn simulation() -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_memcuda"));
    let directory = command.parent().unwrap().join("sim");
    assert!(
        directory.join("libcuda.so.1").exists(),
        "no {}: make test-build",
        directory.display()
    );
    directory
}

/// The C example, built once.
fn fragment() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-fragment");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fragment.c");
        let built = Command::new("cc")
            .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(simulation())
            .arg("-l:libcudart.so.13")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", stderr(&built));
        program
    })
}

/// The command on a simulated GPU of 1 GiB, to end with the C example.
pub fn simulated(arguments: &[&str]) -> Command {
    let program = fragment();
    let mut command = memcuda();
    command
        .env("LD_LIBRARY_PATH", simulation())
        .env("MEMCUDA_SIM_MEMORY", "1GiB")
        .args(arguments)
        .arg(program)
        .arg(LIVE_MIB.to_string());
    command
}

#[test]
fn the_example_holds_what_is_live_and_its_data_is_right() {
    let output = simulated(&["run", "--"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let held =
        format!("live {LIVE_MIB} MiB, held {LIVE_MIB} MiB, 0 allocations failed, data right");
    assert!(stdout(&output).contains(&held), "{}", stdout(&output));
    assert!(stderr(&output).is_empty(), "{}", stderr(&output));
}

/// By the library, which tells what follows from it.
#[test]
fn what_is_wrong_with_the_log_is_said_once() {
    let trace = tempfile::tempdir().unwrap();
    let trace = trace.path().join("t.zst");
    let traced = ["run", "--trace", trace.to_str().unwrap(), "--"];
    for verb in [&["run", "--"][..], &traced] {
        for (name, value, what) in [
            ("MEMCUDA_LOG", "loud", "MEMCUDA_LOG=loud is not understood"),
            ("MEMCUDA_LOG_FILE", "/nowhere/log", "/nowhere/log"),
        ] {
            let output = simulated(verb).env(name, value).output().unwrap();
            let said = stderr(&output);
            assert_eq!(said.matches(what).count(), 1, "{said}");
        }
    }
}

#[test]
fn a_recording_that_can_be_put_nowhere_stays_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t").display().to_string();
    // Folders in the places of the trace, and of what is kept instead.
    let script = format!("mkdir {trace} {trace}.recording && \"$0\" $1");
    let verb = ["run", "--trace", &trace, "--", "sh", "-c", &script];
    let output = simulated(&verb).output().unwrap();
    let said = stderr(&output);
    assert_eq!(code(&output), 0, "{said}");
    let (_, kept) = said.trim_end().split_once("it is in ").expect(&said);
    let events = run(&["trace", kept, "-o", "-"]);
    assert!(stdout(&events).contains(",alloc,"), "{said}");
}

/// A node that is short of files for a moment, a network file system that fails.
#[test]
fn recordings_that_cannot_be_listed_stay() {
    let made = tempfile::tempdir().unwrap();
    let unlisted = library(made.path(), UNLISTED);
    for (names, error) in [("-1", "23"), ("1", "5")] {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t").display().to_string();
        let script = "\"$0\" $1; \"$0\" $1; exit 7";
        let mut command = simulated(&["run", "--trace", &trace, "--", "sh", "-c", script]);
        command.env("LD_PRELOAD", &unlisted).env("ERROR", error);
        command.env("UNLISTED", ".recording-").env("NAMES", names);
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert_eq!((code(&output), said.lines().count()), (7, 1), "{said}");
        assert!(said.contains(&format!("(os error {error})")), "{said}");
        let (_, kept) = said.trim_end().split_once("they are in ").expect(&said);
        let recordings: Vec<_> = std::fs::read_dir(kept).unwrap().collect();
        assert_eq!(recordings.len(), 2, "{said}");
        for recording in recordings {
            let path = recording.unwrap().path();
            let events = run(&["trace", path.to_str().unwrap(), "-o", "-"]);
            assert!(stdout(&events).contains(",alloc,"), "{said}");
        }
    }
}

/// A disk that is full, a terminal that is gone: the traces are worth more than what is said
/// of them.
#[test]
fn where_nothing_can_be_said_the_traces_and_the_status_are_as_ever() {
    let traced = |script: &str| {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t").display().to_string();
        let verb = ["run", "--trace", &trace, "--", "sh", "-c", script];
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = simulated(&verb).stderr(full.unwrap()).output().unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap();
        let files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        for file in &files {
            let events = run(&["trace", file.to_str().unwrap(), "-o", "-"]);
            assert!(stdout(&events).contains(",alloc,"), "{file:?}");
        }
        (code(&output), files.len(), stdout(&output))
    };
    let (status, traces, _) = traced("\"$0\" $1; \"$0\" $1; exit 7");
    assert_eq!((status, traces), (7, 2));
    // Somebody has the recording locked, as a process that goes on does.
    let lock = "exec 9<\"$(echo \"${MEMCUDA_TRACE%/*}\"/*)\"; flock 9";
    let script = format!("\"$0\" $1; {lock}; sleep 600 >/dev/null & echo $!; exit 7");
    let (status, traces, said) = traced(&script);
    let sleeper = said.lines().last().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).unwrap();
    assert_eq!((status, traces), (7, 1));
}

#[test]
fn what_is_saved_is_the_difference_of_two_measured_runs() {
    let compare = "compare --json --repeat 1 --profiles bare,keep --";
    let compare: Vec<&str> = compare.split(' ').collect();
    let output = simulated(&compare).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let rows = objects(&output, "compare");
    let bytes = |row: usize, field: &str| rows[row][field].as_u64().unwrap();
    assert_eq!(rows[0]["device_meter"], "simulated");
    assert!(
        rows[0]["peak_physical_bytes"].is_null(),
        "nobody counts in a bare run"
    );
    // The page and the simulated driver's account are two counts of one thing.
    let physical = bytes(1, "peak_physical_bytes");
    let expected = LIVE_MIB * MIB..(LIVE_MIB + 8) * MIB;
    assert!(expected.contains(&physical), "{physical}");
    assert!(bytes(1, "peak_live_bytes") <= physical);
    let (bare, pool) = (bytes(0, "peak_device_bytes"), bytes(1, "peak_device_bytes"));
    assert!(pool <= physical && bare > pool, "{bare} {pool} {physical}");
    assert_eq!(bytes(1, "saved_bytes"), bare - pool);
}

/// In a shell that has the library preloaded, as `memcuda env` says.
#[test]
fn a_verb_that_only_asks_the_driver_leaves_a_recording_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("job.rec");
    let mut job = simulated(&["run", "--"]);
    let job = job.env("MEMCUDA_TRACE", &recording).output().unwrap();
    assert_eq!(code(&job), 0, "{}", stderr(&job));
    let recorded = std::fs::read(&recording).unwrap();
    let library = simulation().join("../libmemcuda.so");
    for verb in [
        &["doctor"][..],
        &["doctor", "--", "true"],
        &[
            "compare",
            "--repeat",
            "1",
            "--profiles",
            "bare",
            "--",
            "true",
        ],
    ] {
        let mut command = memcuda();
        command.args(verb).env("LD_PRELOAD", &library);
        command.env("LD_LIBRARY_PATH", simulation());
        let output = command.env("MEMCUDA_TRACE", &recording).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(std::fs::read(&recording).unwrap() == recorded, "{verb:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "{verb:?}");
    }
}

#[test]
fn doctor_sees_what_the_example_loads_and_that_its_calls_arrive() {
    let output = simulated(&["doctor", "--json", "--"]).output().unwrap();
    let findings = objects(&output, "doctor");
    let has = |check: &str, status: &str, part: &str| {
        let fits = |f: &&serde_json::Value| {
            f["check"] == check && f["status"] == status && f["detail"].to_string().contains(part)
        };
        assert!(
            findings.iter().any(|f| fits(&f)),
            "no {check} {status} {part}: {findings:#?}"
        );
    };
    let device = "memcuda simulated GPU, 1.0 GiB, virtual memory management";
    has("device", "ok", device);
    has("program", "ok", "exit status: 0");
    has("loaded", "info", "libcuda.so.1");
    has("loaded", "info", "libcudart.so.13");
    has("loaded", "info", "libmemcuda.so");
    let route = "libcudart.so.13 by dlsym: cuGetProcAddress_v2";
    has("route", "info", route);
    has("route", "info", "cuMemAllocAsync");
    has("shim", "info", "started");
    has("bypass", "ok", "calls reach the shim");
    assert_eq!(code(&output), 0);
}

/// What doctor says last of a script in which `$0` is the example, after some other one.
fn last_of_doctor(script: &str, setting: (&str, &str)) -> (String, String) {
    let mut command = simulated(&["doctor", "--json", "--", "sh", "-c", script]);
    let output = command.env(setting.0, setting.1).output().unwrap();
    let findings = objects(&output, "doctor");
    let last = findings.last().expect("something is said");
    let text = |field: &str| last[field].as_str().unwrap().to_owned();
    (text("status"), text("detail"))
}

#[test]
fn doctor_says_of_one_process_what_others_do_not_do() {
    let cleaned = "env -i LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" \"$0\" $1";
    let nothing = ("MEMCUDA_LOG", "");
    for script in [
        format!("\"$0\" $1 && {cleaned}"),
        format!("{cleaned}; true"),
    ] {
        let (status, said) = last_of_doctor(&script, nothing);
        let what = "the driver was loaded but libmemcuda.so was not (process ";
        assert!(status == "warn" && said.starts_with(what), "{said}");
    }
    let (status, said) = last_of_doctor("\"$0\" $1", ("MEMCUDA_LIMIT", "24"));
    assert!(status == "warn", "{said}");
    assert!(
        said.contains(" is not on the pool: MEMCUDA_LIMIT=24 "),
        "{said}"
    );
    assert_eq!(
        last_of_doctor("\"$0\" $1", nothing).1,
        "calls reach the shim"
    );
    let (_, said) = last_of_doctor("\"$0\" $1", ("MEMCUDA_DISABLE", "1"));
    assert!(said.ends_with(": MEMCUDA_DISABLE is set"), "{said}");
}

/// A disk that is full: a file can be made, and nothing be written to it.
const FULL: &str = "#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int no_room(int to) {
    struct stat about;
    return fstat(to, &about) == 0 && S_ISREG(about.st_mode) ? (errno = ENOSPC) : 0;
}
ssize_t write(int to, const void *from, size_t bytes) {
    return no_room(to) ? -1 : syscall(SYS_write, to, from, bytes);
}
ssize_t pwrite64(int to, const void *from, size_t bytes, long at) {
    return no_room(to) ? -1 : syscall(SYS_pwrite64, to, from, bytes, at);
}
";

#[test]
fn doctor_takes_no_line_that_found_no_room_for_one_that_was_not_said() {
    let folder = tempfile::tempdir().unwrap();
    let full = library(folder.path(), FULL);
    let last = |setting: (&str, &str)| {
        let mut command = simulated(&["doctor", "--json", "--"]);
        command.env("LD_PRELOAD", &full).env(setting.0, setting.1);
        let findings = objects(&command.output().unwrap(), "doctor");
        let [.., log, last] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert!(log["check"] == "log" && log["status"] == "warn", "{log}");
        let why = "No space left on device (os error 28)";
        assert!(log["detail"].to_string().contains(why), "{log}");
        let text = |field: &str| last[field].as_str().unwrap().to_owned();
        (text("status"), text("detail"))
    };
    // The example may end before its counters are seen.
    let (_, said) = last(("MEMCUDA_LOG", ""));
    assert!(!said.contains("another user"), "{said}");
    for setting in [("MEMCUDA_STATS", "off"), ("MEMCUDA_POLICY", "x")] {
        let (status, said) = last(setting);
        let what = "whether calls reached the shim is not known";
        assert!(status == "warn" && said.contains(what), "{said}");
    }
}
