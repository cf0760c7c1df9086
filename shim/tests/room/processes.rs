//! Several processes on one device of 1 GiB, each driven line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{preloaded, scratch, shim, simulator};

/// A device that only the processes of one test are on.
struct Device {
    ledger: PathBuf,
    managed: bool,
}

impl Device {
    /// With the management library.
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let ledger = scratch().join(format!("room-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&ledger);
        let managed = simulator().join("nvml/libnvidia-ml.so.1");
        assert!(managed.exists(), "{} is missing", managed.display());
        Self {
            ledger,
            managed: true,
        }
    }

    fn without_management() -> Self {
        let mut device = Self::new();
        device.managed = false;
        device
    }

    fn command(&self) -> Command {
        let mut command = preloaded(crate::program("resident.c"), &[shim()]);
        let managed = self.managed.then(|| simulator().join("nvml"));
        let search: Vec<_> = [simulator()].into_iter().chain(managed).collect();
        command
            .env("LD_LIBRARY_PATH", std::env::join_paths(search).unwrap())
            .env("MEMCUDA_SIM_SHARED", &self.ledger)
            .env("MEMCUDA_SIM_MEMORY", "1GiB");
        command
    }

    /// A process with the library preloaded.
    fn preloaded(&self) -> Process {
        Process::start(&mut self.command())
    }

    fn preloaded_with(&self, name: &str, value: &str) -> Process {
        Process::start(self.command().env(name, value))
    }

    /// A process on the plain driver.
    fn plain(&self) -> Process {
        Process::start(self.command().env_remove("LD_PRELOAD"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.ledger);
    }
}

struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        assert_eq!(process.hear(), "ready");
        process
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.input.as_mut().unwrap(), "{words}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    fn ask(&mut self, words: &str) -> String {
        self.tell(words);
        self.hear()
    }

    fn number(&mut self, words: &str) -> u64 {
        self.ask(words).parse().unwrap()
    }

    /// The code of an allocation, and its milliseconds.
    fn alloc(&mut self, words: &str) -> (u32, u64) {
        let answer = self.ask(words);
        let (code, time) = answer.split_once(' ').unwrap();
        (code.parse().unwrap(), time.parse().unwrap())
    }

    /// Holds so many MiB, all of them idle.
    fn idle(&mut self, mib: u64) {
        assert_eq!(self.alloc(&format!("alloc {mib}")).0, 0);
        assert_eq!(self.ask("free"), "0");
        assert_eq!(self.number("physical"), mib);
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    fn end(mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Longer than memory must lie idle before another process gets it.
const A_WHILE: u64 = 1600;

#[test]
fn a_starving_process_gets_what_another_holds_idle() {
    let device = Device::without_management();
    let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
    holder.idle(800);
    // At once: what was used a moment ago becomes idle while it waits.
    let (code, waited) = starving.alloc("alloc 500");
    assert_eq!(code, 0);
    assert!(waited < 4000, "{waited} ms");
    let left = holder.number("physical");
    assert!(left <= 512, "{left} MiB");
    // What it needs again it gets again, from the one that is idle now.
    assert_eq!(starving.ask("free"), "0");
    pause(A_WHILE);
    let (code, waited) = holder.alloc("alloc 900");
    assert_eq!(code, 0);
    assert!(waited < 1000, "{waited} ms, of memory long idle");
    holder.end();
    starving.end();
}

#[test]
fn memory_in_use_stays_where_it_is_and_the_answer_comes_soon() {
    let device = Device::without_management();
    let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
    assert_eq!(holder.alloc("alloc 800").0, 0);
    let (code, waited) = starving.alloc("alloc 500");
    assert_eq!(code, 2);
    assert!(waited < 1000, "{waited} ms");
    assert_eq!(holder.number("physical"), 800);
}

#[test]
fn a_plain_process_gets_what_another_holds_idle() {
    let device = Device::new();
    let (mut holder, mut plain) = (device.preloaded(), device.plain());
    holder.idle(1000);
    let (code, _) = plain.alloc("try 800 20");
    assert_eq!(code, 0);
    // A tenth of the device stays.
    let left = holder.number("physical");
    assert!((64..=224).contains(&left), "{left} MiB");
    holder.end();
    plain.end();
}

#[test]
fn as_much_stays_as_the_setting_says() {
    let device = Device::new();
    let mut holder = device.preloaded_with("MEMCUDA_IDLE", "512MiB");
    holder.idle(1000);
    let _plain = device.plain();
    pause(2 * A_WHILE);
    let left = holder.number("physical");
    assert!((448..=576).contains(&left), "{left} MiB");
    let mut all = device.preloaded_with("MEMCUDA_IDLE", "100%");
    all.idle(300);
    pause(A_WHILE);
    assert_eq!(all.number("physical"), 300);
}

#[test]
fn without_the_management_library_a_crowded_device_tells() {
    let device = Device::without_management();
    let (mut holder, mut plain) = (device.preloaded(), device.plain());
    holder.idle(700);
    assert_eq!(plain.alloc("alloc 300").0, 0);
    let (code, _) = plain.alloc("try 400 20");
    assert_eq!(code, 0);
}

#[test]
fn alone_a_process_keeps_everything() {
    for device in [Device::new(), Device::without_management()] {
        let mut holder = device.preloaded_with("MEMCUDA_IDLE", "0");
        holder.idle(1000);
        pause(2 * A_WHILE);
        assert_eq!(holder.number("physical"), 1000);
        assert_eq!(holder.number("info"), 1024, "idle memory counts as free");
    }
}

#[test]
fn what_is_used_again_and_again_is_not_given_away() {
    let device = Device::new();
    let mut holder = device.preloaded_with("MEMCUDA_IDLE", "0");
    let _plain = device.plain();
    holder.idle(1000);
    assert_eq!(holder.number("busy 3000 600") / 600, 1, "600 MiB at least");
    let held = holder.number("physical");
    assert!((600..=664).contains(&held), "the rest went: {held} MiB");
    pause(2 * A_WHILE);
    assert_eq!(holder.number("physical"), 0, "it rests");
}

#[test]
fn a_killed_neighbour_is_nobody_s_trouble() {
    let device = Device::new();
    let (mut doomed, mut other) = (device.preloaded(), device.preloaded());
    doomed.idle(600);
    // A child that outlives it keeps neither its memory nor its place.
    let child = doomed.ask("fork");
    let place = format!("/{}-", doomed.child.id());
    let listed = || std::fs::read_to_string("/proc/net/unix").is_ok_and(|l| l.contains(&place));
    assert!(listed());
    doomed.signal("-KILL");
    doomed.child.wait().unwrap();
    assert!(!listed());
    let (code, waited) = other.alloc("alloc 1000");
    assert_eq!(code, 0);
    assert!(waited < 1000, "{waited} ms");
    let (code, waited) = other.alloc("alloc 100");
    assert_eq!(code, 2);
    assert!(waited < 1000, "{waited} ms");
    let ended = Command::new("kill").args(["-KILL", &child]).status();
    assert!(ended.unwrap().success());
}

#[test]
fn a_stopped_neighbour_is_waited_for_a_moment_only() {
    let device = Device::without_management();
    let mut stopped = device.preloaded_with("MEMCUDA_IDLE", "100%");
    let (mut idle, mut starving) = (device.preloaded(), device.preloaded());
    stopped.idle(300);
    idle.idle(600);
    pause(A_WHILE);
    stopped.signal("-STOP");
    let (code, waited) = starving.alloc("alloc 500");
    assert_eq!(code, 0);
    assert!(waited < 1500, "{waited} ms");
    let (code, waited) = starving.alloc("alloc 900");
    assert_eq!(code, 2);
    assert!(waited < 4000, "{waited} ms");
    stopped.signal("-CONT");
    pause(A_WHILE);
    // Nobody waits for its answers any more.
    assert_eq!(stopped.number("physical"), 300);
}

/// Nothing of this may end a capture, meet a context that goes, or harm anyone
/// when a call of it fails.
#[test]
fn giving_back_meets_captures_contexts_and_failures() {
    let faults = "cuMemUnmap%5=999,cuMemRelease%7=2,cuEventQuery%9=2,cuCtxPushCurrent_v2%11=201";
    for (words, fault) in [
        ("captures 2500", ""),
        ("contexts 2500", ""),
        ("physical", faults),
    ] {
        let device = Device::new();
        let mut holder = Process::start(
            device
                .command()
                .env("MEMCUDA_IDLE", "0")
                .env("MEMCUDA_SIM_FAIL", fault),
        );
        let mut starving = device.preloaded();
        if fault.is_empty() {
            holder.idle(400);
        } else {
            let _ = holder.alloc("alloc 400");
        }
        holder.tell(words);
        let until = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < until {
            if starving.alloc("alloc 900").0 == 0 {
                assert_eq!(starving.ask("free"), "0");
            }
        }
        let done: u64 = holder.hear().parse().unwrap();
        assert!(done > 0, "{words}");
        holder.end();
        starving.end();
    }
}

/// The names of a process's threads, and the signals that each blocks.
fn threads(process: &Process) -> Vec<(String, String)> {
    let folder = format!("/proc/{}/task", process.child.id());
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        (field("Name:"), field("SigBlk:"))
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

#[test]
fn the_thread_comes_with_the_first_pool_and_takes_no_signal() {
    let device = Device::new();
    let mut process = device.preloaded();
    assert_eq!(
        threads(&process).len(),
        1,
        "CUDA runs, but nothing was allocated"
    );
    assert_eq!(process.alloc("alloc 1").0, 0);
    let now = threads(&process);
    let (own, others): (Vec<_>, Vec<_>) = now.iter().partition(|(name, _)| name == "memcuda");
    assert_eq!((own.len(), others.len()), (1, 1), "{now:?}");
    // All but those that the C library keeps for itself, and the two that nobody blocks.
    let blocked = u64::from_str_radix(&own[0].1, 16).unwrap();
    assert_eq!(
        blocked,
        !(1_u64 << 8 | 1 << 18 | 1 << 31 | 1 << 32),
        "{blocked:x}"
    );
    assert_eq!(
        others[0].1,
        "0".repeat(16),
        "the program's own are as they were"
    );
    process.end();
}
