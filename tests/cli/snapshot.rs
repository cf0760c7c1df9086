//! `memcuda snapshot` and `memcuda explain`: of a preloaded program on the
//! simulated GPU, of its reports, and of all that is neither.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Signal, kill_process};

use crate::processes::is_stopped;
use crate::stat::Shown;
use crate::{code, done, failed, memcuda, objects, run, stderr, stdout, unread, until};

const MIB: u64 = 1 << 20;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn built() -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_memcuda"));
    command.parent().unwrap().to_owned()
}

/// The shim's own test program, built once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-holder");
        let search = format!("-L{}", built().join("sim").display());
        let made = Command::new("gcc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-o"])
            .args([&program, &root().join("shim/tests/pictures/holder.c")])
            .args([&search, "-l:libcuda.so.1", "-ldl", "-lpthread"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        program
    })
}

/// A program that holds memory, preloaded, on a device of 1 GiB.
pub struct Holder {
    child: Child,
    input: ChildStdin,
}

impl Holder {
    pub fn start(settings: &[(&str, &str)], lines: &[String]) -> Self {
        let mut command = Command::new(program());
        command
            .env("LD_PRELOAD", built().join("libmemcuda.so"))
            .env("LD_LIBRARY_PATH", built().join("sim"))
            .envs(settings.iter().copied());
        Self::of(command, lines)
    }

    fn of(mut command: Command, lines: &[String]) -> Self {
        command
            .env("MEMCUDA_SIM_MEMORY", "1GiB")
            .env("MEMCUDA_KEEPER", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        for line in lines {
            writeln!(input, "{line}").unwrap();
            assert!(output.next().is_some(), "{line}");
        }
        Self { child, input }
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.input.flush();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory of all kinds, some of it freed.
pub fn mixed() -> Vec<String> {
    let mut lines = Vec::new();
    for n in 0..120_u64 {
        let bytes = [700, 90_000, 3 * MIB, 11 * MIB][(n % 4) as usize] + n * 100;
        lines.push(match n % 3 {
            0 => format!("malloc {bytes}"),
            _ => format!("alloc {bytes} {}", n % 2),
        });
        if n % 5 == 4 {
            lines.push("free".to_owned());
        }
    }
    lines
}

/// What tests/support/memory_viz.py says of a file, number by name.
pub fn sums(file: &Path) -> impl Fn(&str) -> u64 {
    let script = root().join("tests/support/memory_viz.py");
    let checked = Command::new("python3").args([&script, file]).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", stderr(&checked));
    let said = stdout(&checked);
    move |name| {
        let mut words = said.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap().parse().unwrap()
    }
}

#[test]
fn a_snapshot_is_what_pytorch_s_viewer_needs_and_adds_up() {
    let holder = Holder::start(&[], &mixed());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot.pickle");
    let output = run(&["snapshot", &holder.pid(), "-o", file.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).is_empty() && stderr(&output).is_empty());
    let sum = sums(&file);
    let stat = objects(&run(&["stat", &holder.pid(), "--json"]), "stat");
    let counter = |name: &str| stat[0][name].as_u64().unwrap();
    let free = sum("pending") + sum("inactive");
    assert_eq!(sum("active") + free, counter("physical_bytes"));
    assert_eq!(sum("requested"), counter("live_bytes"));
    assert_eq!(free, counter("idle_bytes"));
    assert!(sum("blocks") > 96);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing else is left there");
}

#[test]
fn the_picture_itself_is_one_object() {
    let holder = Holder::start(&[], &["alloc 5000000 1".to_owned()]);
    let output = run(&["snapshot", &holder.pid(), "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let pictures = objects(&output, "snapshot");
    let device = &pictures[0]["devices"][0];
    assert_eq!(pictures[0]["process"]["pid"].to_string(), holder.pid());
    assert_eq!(device["name"], "memcuda simulated GPU");
    let live = &device["pool"]["blocks"][0];
    assert_eq!(live["asked_bytes"], 5_000_000);
    assert_eq!(live["state"], "live");
    assert_eq!(live["owner"], "memory_pool");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    run(&["snapshot", &holder.pid(), "--json", "-o", path]);
    let written = fs::read_to_string(path).unwrap();
    assert!(written.starts_with("{\"schema\":\"memcuda.snapshot/1\","));
    let page = run(&["snapshot", &holder.pid(), "--html", "-o", "-"]);
    assert!(done(page).starts_with("<!doctype html>"));
}

#[test]
fn the_page_has_everything_inside_and_asks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let holder = Holder::start(&[], &mixed());
    done(run(&[
        "snapshot",
        &holder.pid(),
        "--html",
        "-o",
        file.to_str().unwrap(),
    ]));
    let page = fs::read_to_string(&file).unwrap();
    for request in [
        "http:", "https:", "//cdn", " src=", "<link", "@import", "url(",
    ] {
        assert!(!page.contains(request), "{request}");
    }
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let device = &data["devices"][0];
    let ranges = device["segments"].as_array().unwrap().iter();
    let ranges = ranges.flat_map(|segment| segment["ranges"].as_array().unwrap());
    let bytes: u64 = ranges.map(|range| range[0].as_u64().unwrap()).sum();
    assert_eq!(bytes, device["counters"]["physical_bytes"]);
}

#[test]
fn what_a_report_says_is_explained_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let settings = [("MEMCUDA_OOM_REPORT", path), ("MEMCUDA_LIMIT", "256MiB")];
    let lines = [
        format!("alloc {} 1", 150 * MIB),
        format!("malloc {}", 60 * MIB),
        format!("alloc {} 1", 120 * MIB),
    ];
    let holder = Holder::start(&settings, &lines);
    let text = done(run(&["explain", path]));
    for part in [
        &format!("Process {}", holder.pid()),
        "Out of memory: 120.0 MiB could not be had on device 0",
        "The limit of 256.0 MiB (MEMCUDA_LIMIT) is in the way: the pool holds 210.0 MiB and needs 120.0 MiB more",
        "live 210.0 MiB",
        "This is the peak (210.0 MiB live)",
        "cudaMalloc       any stream",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let now = stdout(&run(&["explain", &holder.pid()]));
    assert!(now.contains("live 210.0 MiB") && !now.contains("Out of memory"));

    let mut reports = fs::read_dir(folder.path()).unwrap();
    let report = reports.next().unwrap().unwrap().path();
    let file = folder.path().join("report.pickle");
    let arguments = ["snapshot", report.to_str().unwrap(), "-o"];
    done(run(&[&arguments[..], &[file.to_str().unwrap()]].concat()));
    let sum = sums(&file);
    assert_eq!((sum("events"), sum("active")), (1, 210 * MIB));
}

#[test]
fn what_is_less_than_a_handle_needs_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let settings = [("MEMCUDA_OOM_REPORT", path), ("MEMCUDA_LIMIT", "65MiB")];
    let lines = [64 * MIB, 900 << 10].map(|bytes| format!("malloc {bytes}"));
    let _holder = Holder::start(&settings, &lines);
    let text = done(run(&["explain", path]));
    let limit = "The limit of 65.0 MiB (MEMCUDA_LIMIT) is in the way: the pool holds 64.0 MiB and needs 2.0 MiB more";
    assert!(text.contains(limit), "{text}");
}

#[test]
fn whoever_cannot_be_shown_is_a_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("never");
    let file = file.to_str().unwrap();
    let snapshot = |source: &str| run(&["snapshot", source, "-o", file]);
    failed(&snapshot("4000000"), 1, "there is no process 4000000");
    let bare = Shown::nothing();
    failed(&snapshot(&bare.pid()), 1, "has no statistics page");
    let idle = Holder::start(&[], &[]);
    failed(&snapshot(&idle.pid()), 1, "has no pool to show");
    let track = Holder::start(&[("MEMCUDA_POLICY", "track")], &["malloc 1000".to_owned()]);
    failed(&snapshot(&track.pid()), 1, "has no pool to show");
    failed(&snapshot("no such report"), 2, "no such report");
    failed(
        &run(&["explain", folder.path().to_str().unwrap()]),
        2,
        "no report",
    );
    let damaged = folder.path().join("oom-1-2-3.memcuda");
    fs::write(&damaged, "no report at all").unwrap();
    failed(
        &run(&["explain", folder.path().to_str().unwrap()]),
        2,
        "not a memcuda picture",
    );
    fs::write(&damaged, b"memcudaP\x63\0\0\0").unwrap();
    failed(&snapshot(damaged.to_str().unwrap()), 2, "of version 99");
    assert!(!Path::new(file).exists());
}

#[test]
fn a_file_that_cannot_be_written_is_one_line_and_leaves_nothing() {
    let holder = Holder::start(&[], &["malloc 1000".to_owned()]);
    let folder = tempfile::tempdir().unwrap();
    let before = folder.path().join("file");
    fs::write(&before, "as it was").unwrap();
    let inside = before.join("snapshot");
    for file in [inside.to_str().unwrap(), "/nonexistent/file", "/dev/full"] {
        let output = run(&["snapshot", &holder.pid(), "-o", file]);
        failed(&output, 1, "cannot write");
    }
    let here = folder.path().to_str().unwrap();
    failed(
        &run(&["snapshot", &holder.pid(), "-o", here]),
        1,
        "cannot write",
    );
    assert_eq!(fs::read_to_string(&before).unwrap(), "as it was");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_snapshot_that_nobody_reads_is_no_error() {
    let holder = Holder::start(&[], &mixed());
    for kind in [&["--html"][..], &["--json"], &[]] {
        let mut command = memcuda();
        command
            .args(["snapshot", &holder.pid(), "-o", "-"])
            .args(kind);
        let output = command.stdout(unread()).output().unwrap();
        assert_eq!(
            (code(&output), stderr(&output)),
            (0, String::new()),
            "{kind:?}"
        );
    }
}

#[test]
fn a_stopped_process_is_not_waited_for_without_end() {
    let holder = Holder::start(&[], &["malloc 1000".to_owned()]);
    let signal = |which| kill_process(Pid::from_child(&holder.child), which).unwrap();
    signal(Signal::STOP);
    until("it stops", || is_stopped(holder.child.id()));
    let output = memcuda().args(["explain", &holder.pid()]).output().unwrap();
    signal(Signal::CONT);
    failed(&output, 1, "it may be stopped");
}

#[test]
fn somebody_elses_crowded_door_with_its_number_is_passed_by() {
    let holder = Holder::start(&[], &["malloc 1000".to_owned()]);
    // Before its own door in the list, and with nobody who hears.
    let name = format!("memcuda/1/!/{}-", holder.pid());
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let _door = UnixListener::bind_addr(&name).unwrap();
    let _crowd: Vec<_> = std::iter::from_fn(|| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let at = SocketAddrUnix::new_abstract_name(name.as_abstract_name()?).ok()?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        connect(&socket, &at).ok().map(|()| socket)
    })
    .collect();
    done(memcuda().args(["explain", &holder.pid()]).output().unwrap());
}

/// A folder that other users come to, with the command, the program and what
/// they load.
pub fn for_all() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    for (file, name) in [
        (built().join("memcuda"), "memcuda"),
        (built().join("libmemcuda.so"), "libmemcuda.so"),
        (built().join("sim/libcuda.so.1"), "libcuda.so.1"),
        (program().to_owned(), "holder"),
    ] {
        // Not by this process: another thread's child could have the program open for
        // writing when it is run.
        let mut copy = Command::new("cp");
        copy.arg(file).arg(folder.path().join(name));
        assert!(copy.status().unwrap().success());
    }
    folder
}

#[test]
fn another_user_s_process_is_root_s_alone_to_look_at() {
    const STRANGER: u32 = 42_003;
    if !rustix::process::geteuid().is_root() {
        let left_out = std::env::var_os("MEMCUDA_TESTS_AS_ONE_USER").is_some();
        assert!(
            left_out,
            "to be two users is root's to do; MEMCUDA_TESTS_AS_ONE_USER=1 leaves it out"
        );
        eprintln!("left out: to be two users is root's to do");
        return;
    }
    let folder = for_all();
    let own = Holder::start(&[], &["malloc 5000".to_owned()]);
    let command = folder.path().join("memcuda");
    let pid = own.pid();
    let said = format!("process {pid} is another user's: only that user and root may ask it\n");
    for verb in [
        &["explain", &pid][..],
        &["explain", &pid, "--json"],
        &["stat", &pid],
        &["snapshot", &pid, "--json"],
    ] {
        let asked = Command::new(&command).args(verb).uid(STRANGER).output();
        failed(&asked.unwrap(), 1, &said);
    }

    let mut stranger = Command::new(folder.path().join("holder"));
    stranger
        .env("LD_PRELOAD", folder.path().join("libmemcuda.so"))
        .env("LD_LIBRARY_PATH", folder.path())
        .uid(STRANGER);
    let stranger = Holder::of(stranger, &["malloc 5000".to_owned()]);
    let output = run(&["explain", &stranger.pid()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("live 4.9 KiB"));
}
