//! `memcuda stat`, on pages that this test process shows.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use memcuda::pool::Stats;
use memcuda::stats_page::{self, Counters, MEMFD_NAME, WORDS, Writer};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::snapshot::Holder;
use crate::{
    NO_FILES, UNLISTED, check_units, code, failed, library, memcuda, objects, open64, run, stderr,
    stdout, until,
};

/// What of a process's numbers has no unit.
pub const COUNTS: [&str; 16] = [
    "pid",
    "ordinal",
    "requests",
    "hits",
    "searches",
    "stitches",
    "growths",
    "handles_mapped",
    "frees",
    "waits",
    "host_waits",
    "edges",
    "out_of_memory",
    "chunks",
    "stalls",
    "foreign_frees",
];

/// A process with a page: `sleep`, whose input it is.
pub struct Shown {
    pub child: Child,
}

impl Shown {
    pub fn new(version: u64, counters: &[Counters]) -> Self {
        Self::of(&page(version, counters))
    }

    /// One of these bytes.
    fn of(page: &[u8]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "stat::shown_process"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(page).unwrap();
        drop(input);
        let name = format!("/proc/{}/comm", child.id());
        until("it shows it", || {
            fs::read_to_string(&name).unwrap() == "sleep\n"
        });
        Self { child }
    }

    /// One without a page. The process of the tests is none: when it writes a recording,
    /// it has that open itself.
    pub fn nothing() -> Self {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        Self { child }
    }

    /// Shows other counters from now on.
    pub fn change(&self, counters: &[Counters]) {
        // The first process that has a page open shows it: another one opens it.
        let mut writer = Command::new("dd")
            .args(["bs=1M", "iflag=fullblock", "conv=notrunc", "status=none"])
            .arg(format!("of=/proc/{}/fd/0", self.pid()))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = writer.stdin.take().unwrap();
        input
            .write_all(&page(stats_page::VERSION, counters))
            .unwrap();
        drop(input);
        assert!(writer.wait().unwrap().success());
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

/// Not a test: what [`Shown`] starts, this program again. Were the page made by the
/// process of the tests, it would be that one's, or that of a child that another test
/// starts at this moment, for as long as they have it open.
#[test]
#[ignore = "a process of other tests, not a test"]
fn shown_process() {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).unwrap();
    let file = File::from(memfd_create(MEMFD_NAME, MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(&bytes, 0).unwrap();
    if std::env::var_os("STAYS").is_some() {
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    panic!("{}", Command::new("sleep").arg("600").stdin(file).exec());
}

/// The bytes of a page with these counters.
pub fn page(version: u64, counters: &[Counters]) -> Vec<u8> {
    let page = words();
    let writer = Writer::new(page);
    for counters in counters {
        writer.publish(counters);
    }
    page[1].store(version, Ordering::Relaxed);
    bytes(page)
}

fn words() -> &'static [AtomicU64; WORDS] {
    Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS]))
}

fn bytes(page: &[AtomicU64; WORDS]) -> Vec<u8> {
    let words = page
        .iter()
        .flat_map(|it| it.load(Ordering::Relaxed).to_ne_bytes());
    words.collect()
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn counters() -> Counters {
    let pool = Stats {
        live_bytes: 3 << 30,
        physical_bytes: 4 << 30,
        shared_bytes: 5 << 20,
        requests: 1000,
        hits: 995,
        ..Stats::default()
    };
    Counters {
        ordinal: 1,
        pool,
        ..Counters::default()
    }
}

#[test]
fn a_page_is_shown_with_every_counter() {
    let shown = Shown::new(stats_page::VERSION, &[Counters::default(), counters()]);
    let output = run(&["stat", &shown.pid(), "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let devices = objects(&output, "stat");
    assert_eq!(devices.len(), 2);
    for (name, _) in counters().fields() {
        assert!(devices[1][name].is_u64(), "{name}");
    }
    assert_eq!(devices[1]["ordinal"], 1);
    assert_eq!(devices[1]["live_bytes"], 3_u64 << 30);
    assert_eq!(devices[1]["command"], "sleep");
    assert_eq!(devices[1]["pid"].to_string(), shown.pid());
    check_units(&devices[1], &COUNTS);

    let table = stdout(&run(&["stat", &shown.pid()]));
    assert!(
        table.contains("3.0 GiB") && table.contains("99.50 %") && !table.contains("NaN"),
        "{table}"
    );
    assert!(
        table.contains("shared") && table.contains("5.0 MiB"),
        "{table}"
    );
}

/// The scripts of the GPU lane have a reader of their own, which outlives the process.
#[test]
fn the_scripts_read_what_the_command_does() {
    let page = words();
    let writer = Writer::new(page);
    writer.publish(&counters());
    for (number, line) in writer.lines(1).unwrap()[..2].iter().enumerate() {
        for (place, word) in line.iter().enumerate() {
            let word_of_its_own = ((number + 2) << (2 * place)) as u64;
            word.store(word_of_its_own, Ordering::Relaxed);
        }
    }
    let shown = Shown::of(&bytes(page));
    let said = &objects(&run(&["stat", &shown.pid(), "--json"]), "stat")[0];
    let script = "import json, sys, shim_run; page = shim_run.Page(sys.argv[1]); page.look(); \
        print(json.dumps(page.counters()))";
    let output = Command::new("python3")
        .args(["-B", "-c", script, &shown.pid()])
        .env(
            "PYTHONPATH",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu"),
        )
        .output()
        .unwrap();
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).expect("counters");
    for (name, _) in counters().fields() {
        assert_eq!(read[name], said[name], "{name}");
    }
}

#[test]
fn a_process_may_have_any_name_and_none_is_a_command_to_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(OsStr::from_bytes(b"o\xffd\x1b[2J"));
    symlink(std::env::current_exe().unwrap(), &odd).unwrap();
    let mut process = Command::new(&odd);
    process
        .arg0("cli")
        .args(["--ignored", "--exact", "stat::shown_process"]);
    process.env("STAYS", "1").stdout(Stdio::null());
    let mut child = process.stdin(Stdio::piped()).spawn().unwrap();
    let bytes = page(stats_page::VERSION, &[counters()]);
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let shown = Shown { child };
    until("it shows it", || code(&run(&["stat", &shown.pid()])) == 0);
    let table = stdout(&run(&["stat", &shown.pid()]));
    assert!(table.contains("o\u{fffd}d?[2J"), "{table:?}");
}

#[test]
fn all_finds_it_among_the_processes() {
    let shown = Shown::new(stats_page::VERSION, &[counters()]);
    let output = run(&["stat", "--all", "--json"]);
    assert_eq!(code(&output), 0);
    let found = objects(&output, "stat");
    assert!(found.iter().any(|d| d["pid"] == shown.child.id()));
}

#[test]
fn another_version_is_refused_with_a_clear_line() {
    let shown = Shown::new(99, &[counters()]);
    let output = run(&["stat", &shown.pid()]);
    failed(&output, 1, "version 99");
}

#[test]
fn a_process_without_a_page_is_an_error() {
    let bare = Shown::nothing();
    let said = format!("process {} has no statistics page", bare.pid());
    failed(&run(&["stat", &bare.pid()]), 1, &said);
    failed(&run(&["stat", "4000000000"]), 1, "process 4000000000");
}

#[test]
fn a_process_that_is_not_there_is_said_to_be_none() {
    let none = i32::MAX.to_string();
    for verb in [
        &["stat", &none][..],
        &["explain", &none],
        &["explain", &none, "--json"],
        &["snapshot", &none, "--json"],
    ] {
        let said = format!("memcuda: there is no process {none}\n");
        failed(&run(verb), 1, &said);
    }
}

/// What would be said of nobody, were it not for an error.
const ALL: [&[&str]; 4] = [
    &["stat", "--all"],
    &["stat", "--all", "--json"],
    &["top", "--once", "--delay", "0.1"],
    &["web", "--metrics"],
];

#[test]
fn who_cannot_be_looked_for_is_not_said_to_be_nobody() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (none, unlisted) = (
        library(first.path(), NO_FILES),
        library(second.path(), UNLISTED),
    );
    for verb in ALL {
        let output = memcuda().args(verb).env("LD_PRELOAD", &none).output();
        let said = "the processes of this machine cannot be listed: Too many open files";
        failed(&output.unwrap(), 1, said);
        let mut command = memcuda();
        command.args(verb).env("LD_PRELOAD", &unlisted);
        command.env("UNLISTED", "/proc").env("NAMES", "3");
        let said = "cannot be listed: Input/output error";
        failed(&command.env("ERROR", "5").output().unwrap(), 1, said);
    }
}

#[test]
fn who_cannot_be_looked_into_for_once_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let unlisted = library(folder.path(), UNLISTED);
    let shown = Shown::new(stats_page::VERSION, &[counters()]);
    let what = format!("/proc/{}/fd", shown.pid());
    let said = |verb: &[&str], names: &str, error: &str| {
        let mut command = memcuda();
        command.args(verb).env("LD_PRELOAD", &unlisted);
        command.env("UNLISTED", &what).env("NAMES", names);
        let output = command.env("ERROR", error).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let line = format!("memcuda: process {}: ", shown.pid());
    for names in ["-1", "0"] {
        for verb in &ALL[..3] {
            let (_, told) = said(verb, names, "23");
            let why = format!("{line}Too many open files in system");
            assert!(told.contains(&why), "{verb:?} {names}: {told}");
            // It is another user's, or has ended meanwhile.
            for error in ["1", "2", "3", "13"] {
                let (_, told) = said(verb, names, error);
                assert!(!told.contains(&line), "{verb:?} {names} {error}: {told}");
            }
        }
    }
    let (metrics, _) = said(ALL[3], "-1", "23");
    assert!(
        !metrics.contains("\nmemcuda_unread_processes 0\n"),
        "{metrics}"
    );
}

/// A command that may open no other file, from the list of sockets on or behind it, until it
/// lists a folder.
fn short_of_files() -> String {
    open64(
        "#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
static void may_open(rlim_t files) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = files < limit.rlim_max ? files : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}
DIR *opendir(const char *path) {
    may_open(1000);
    return ((DIR *(*)(const char *))dlsym(RTLD_NEXT, \"opendir\"))(path);
}",
        "if (strcmp(path, \"/proc/self/net/unix\") != 0) return next(path, flags, mode);
    if (getenv(\"LISTS\") == NULL) may_open(3);
    int list = next(path, flags, mode);
    may_open(3);
    return list;",
    )
}

#[test]
fn a_command_that_is_short_of_files_says_nothing_of_the_process() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let short = library(first.path(), &short_of_files());
    let unlisted = library(second.path(), UNLISTED);
    let holder = Holder::start(&[], &["malloc 5000".to_owned()]);
    for name in ["LISTS", "CANNOT_LIST"] {
        let mut command = memcuda();
        command.args(["snapshot", &holder.pid(), "--json"]);
        command.env("LD_PRELOAD", &short).env(name, "1");
        let said = "cannot be asked: Too many open files";
        failed(&command.output().unwrap(), 1, said);
    }
    let mut command = memcuda();
    command.args(["stat", &holder.pid()]).env("NAMES", "0");
    command.env("LD_PRELOAD", &unlisted).env("ERROR", "23");
    command.env("UNLISTED", format!("/proc/{}/fd", holder.pid()));
    failed(&command.output().unwrap(), 1, "Too many open files");
}
