//! Runs a program under the shim and reports what it loaded, by which routes
//! it reached the driver, and what went past the shim. Sees the loaded
//! libraries from outside, in /proc; takes the rest from the shim's own log.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use memcuda::config::{BEFORE_DOCTOR, Config};
use serde::Deserialize;

use super::{Finding, Status};
use crate::process;
use crate::program::child::{Program, Signals, Streams};
use crate::program::{preload, unstarted};

const DRIVER: &str = "libcuda.so";

/// Bytes of the longest line of the shim's log.
const LINE: usize = 1024;

/// Libraries worth naming, by the start of their file names.
const LIBRARIES: [&str; 9] = [
    DRIVER,
    "libcudart.so",
    preload::LIBRARY,
    "libnccl.so",
    "libc10_cuda.so",
    "libtorch_cuda.so",
    "libcublas.so",
    "libcudnn.so",
    "libcupti.so",
];

pub fn examine(words: &[OsString]) -> Result<Vec<Finding>> {
    let library = preload::library()?;
    let signals = Signals::hold()?;
    let log = tempfile::NamedTempFile::with_prefix("memcuda-doctor-")
        .context("cannot make a temporary file")?;
    let existing = std::env::var_os("LD_PRELOAD");
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env("LD_PRELOAD", preload::with(&library, existing.as_deref()));
    let settings: [(_, &OsStr); 3] = [
        ("MEMCUDA_LOG", "debug".as_ref()),
        ("MEMCUDA_LOG_FORMAT", "json".as_ref()),
        ("MEMCUDA_LOG_FILE", log.path().as_ref()),
    ];
    for (name, value) in settings {
        let before = std::env::var_os(name).unwrap_or_default();
        command.env(name, value);
        // For a keeper that the program starts and that stays.
        command.env(format!("{BEFORE_DOCTOR}{name}"), before);
    }
    let child = Program::start(&command, Streams::Beside, &signals);
    let mut child = child.map_err(|error| anyhow!(unstarted::why("doctor", &words[0], &error)))?;
    let mut seen = Seen::default();
    let status = loop {
        for pid in process::tree(child.id()) {
            seen.look(pid);
        }
        if let Some(status) = child.ended()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = std::fs::read(log.path())?;
    // A line that does not fit is lost in silence: the program goes on.
    let lost = log
        .as_file()
        .write_all_at(&[b'\n'; LINE], said.len() as u64);
    let log = parse(&String::from_utf8_lossy(&said));
    let mut findings = Vec::new();
    let kind = match status.success() {
        true => Status::Ok,
        false => Status::Warn,
    };
    let ended = format!("ended with {status}");
    findings.push(Finding::new("program", kind, ended));
    for path in &seen.libraries {
        findings.push(Finding::new("loaded", Status::Info, path.clone()));
    }
    findings.extend(routes(&log));
    findings.extend(decisions(&log));
    if let Err(error) = &lost {
        let folder = std::env::temp_dir();
        let detail = format!(
            "there is no room for what the library logs, and some of it may be lost: {}: {error}; let TMPDIR name another folder",
            folder.display()
        );
        findings.push(Finding::new("log", Status::Warn, detail));
    }
    let (config, _) = Config::read_all(|name| std::env::var_os(name));
    findings.push(bypasses(&seen, &log, lost.is_err(), config.disable));
    Ok(findings)
}

/// What was seen of the program's processes.
#[derive(Default)]
struct Seen {
    /// The libraries of interest that any of them had mapped.
    libraries: BTreeSet<String>,
    /// The processes that had the driver and not the shim.
    without: BTreeSet<u32>,
    /// The processes that show counters.
    counting: BTreeSet<u32>,
}

impl Seen {
    /// Looks at a process, which may become another program between two looks.
    fn look(&mut self, pid: u32) {
        let libraries = libraries(pid);
        if has(&libraries, DRIVER) && !has(&libraries, preload::LIBRARY) {
            self.without.insert(pid);
        }
        self.libraries.extend(libraries);
        if !self.counting.contains(&pid) && process::page(pid).is_ok_and(|page| page.is_some()) {
            self.counting.insert(pid);
        }
    }
}

/// Is a library of this name among them?
fn has(libraries: &BTreeSet<String>, name: &str) -> bool {
    let file = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    libraries.iter().any(|path| file(path).starts_with(name))
}

/// The libraries of interest that a process has mapped now.
fn libraries(pid: u32) -> BTreeSet<String> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    paths
        .filter(|path| {
            let file = path.rsplit('/').next().unwrap_or_default();
            LIBRARIES.iter().any(|library| file.starts_with(library))
        })
        .map(str::to_owned)
        .collect()
}

/// A line of the shim's log.
#[derive(Deserialize)]
struct Said {
    pid: u32,
    level: String,
    message: String,
}

impl Said {
    /// `route: SYMBOL by VIA from MODULE`: how a module came to an entry point.
    fn route(&self) -> Option<(&str, &str, &str)> {
        let (symbol, rest) = self.message.strip_prefix("route: ")?.split_once(" by ")?;
        let (via, module) = rest.split_once(" from ")?;
        Some((symbol, via, module))
    }
}

/// The shim's log: one JSON object a line. A line that is cut off by the end
/// of its process is passed over.
fn parse(log: &str) -> Vec<Said> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// By which route each module reached which entry points.
fn routes(log: &[Said]) -> Vec<Finding> {
    let mut symbols: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (symbol, via, module) in log.iter().filter_map(Said::route) {
        symbols.entry((module, via)).or_default().insert(symbol);
    }
    let finding = |((module, via), symbols): (&(&str, &str), &BTreeSet<&str>)| {
        let symbols: Vec<&str> = symbols.iter().copied().collect();
        let detail = format!("{module} by {via}: {}", symbols.join(", "));
        Finding::new("route", Status::Info, detail)
    };
    symbols.iter().map(finding).collect()
}

/// What the shim found out and decided (the probe, the profile and why), and
/// what it warned of. Steps of its work (level debug) are left out.
fn decisions(log: &[Said]) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let lines = log
        .iter()
        .filter(|said| said.level != "debug" && seen.insert(&said.message));
    let finding = |said: &Said| {
        let status = match said.level.as_str() {
            "info" => Status::Info,
            _ => Status::Warn,
        };
        Finding::new("shim", status, said.message.clone())
    };
    lines.map(finding).collect()
}

/// What went past the shim, which may be told to do nothing. Of a log that may be lost
/// nothing follows from what is not there.
fn bypasses(seen: &Seen, log: &[Said], lost: bool, disabled: bool) -> Finding {
    // A short program may have been missed, and speaks of itself.
    if !has(&seen.libraries, DRIVER) && log.is_empty() {
        let mut detail = "the driver was never seen loaded: the program does not use CUDA, or ended too soon to be seen".to_owned();
        if !has(&seen.libraries, preload::LIBRARY) {
            detail += "; nor was libmemcuda.so: LD_PRELOAD has no effect on static and set-user-ID programs";
        }
        return Finding::new("driver", Status::Info, detail);
    }
    let warn = |detail: String| Finding::new("bypass", Status::Warn, detail);
    let plain = |said: &&Said| said.message.contains("plain driver");
    if !seen.without.is_empty() {
        let pids: Vec<String> = seen.without.iter().map(u32::to_string).collect();
        warn(format!(
            "the driver was loaded but libmemcuda.so was not (process {}): LD_PRELOAD has no effect on static and set-user-ID programs, nor where the environment was cleaned",
            pids.join(", ")
        ))
    } else if let Some(said) = log.iter().find(plain) {
        let Said { pid, message, .. } = said;
        warn(format!("process {pid} is not on the pool: {message}"))
    } else if !log.is_empty() {
        Finding::new("bypass", Status::Ok, "calls reach the shim")
    } else if let Some(pid) = seen.counting.first() {
        let mut detail = format!("calls reach the shim: process {pid} shows counters");
        if !lost {
            detail += "; what it logs cannot be read here, as of another user";
        }
        Finding::new("bypass", Status::Ok, detail)
    } else if disabled {
        warn("no call reached the shim: MEMCUDA_DISABLE is set".to_owned())
    } else if lost {
        warn("the driver was loaded; whether calls reached the shim is not known, as there is no room for what it logs".to_owned())
    } else {
        warn("the driver was loaded but no call reached the shim: it was loaded by dlmopen, or with RTLD_DEEPBIND under MEMCUDA_DEEPBIND=keep, or another preloaded library comes first whose dlsym leads past the shim, or it was never initialised".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_told_once_with_all_that_it_reached() {
        let log = r#"{"pid":7,"level":"debug","message":"route: cuInit by dlsym from libcudart.so.13"}
{"pid":7,"level":"debug","message":"route: cuGetProcAddress_v2 by dlsym from libcudart.so.13"}
{"pid":7,"level":"debug","message":"route: cuInit by dlsym from libcudart.so.13"}
{"pid":7,"level":"debug","mess"#;
        let found = routes(&parse(log));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].detail,
            "libcudart.so.13 by dlsym: cuGetProcAddress_v2, cuInit"
        );
    }

    #[test]
    fn decisions_are_told_once_and_steps_are_not() {
        let log = r#"{"pid":7,"level":"info","message":"torch's profile is segments (MEMCUDA_TORCH=auto)"}
{"pid":7,"level":"debug","message":"grew by 2 MiB"}
{"pid":7,"level":"warning","message":"no driver"}
{"pid":7,"level":"info","message":"torch's profile is segments (MEMCUDA_TORCH=auto)"}"#;
        let found = decisions(&parse(log));
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].status, found[1].status),
            (Status::Info, Status::Warn)
        );
    }

    #[test]
    fn a_driver_from_which_no_call_came_is_a_bypass() {
        let libraries = ["/usr/lib/libcuda.so.1", "/opt/libmemcuda.so"].map(str::to_owned);
        let seen = |without: &[u32], counting: &[u32]| Seen {
            libraries: libraries.clone().into(),
            without: without.iter().copied().collect(),
            counting: counting.iter().copied().collect(),
        };
        let warned = |seen, log: &str, part: &str| {
            let found = bypasses(&seen, &parse(log), false, false);
            assert_eq!(found.status, Status::Warn);
            assert!(found.detail.contains(part), "{}", found.detail);
        };
        let started = r#"{"pid":7,"level":"info","message":"started"}"#;
        let plain =
            r#"{"pid":8,"level":"error","message":"a is no size; running on the plain driver"}"#;
        warned(seen(&[], &[]), "", "RTLD_DEEPBIND");
        // Whatever others do.
        warned(seen(&[5, 6], &[7]), started, "was not (process 5, 6)");
        let disabled = bypasses(&seen(&[], &[]), &[], false, true);
        assert!(
            disabled.detail.contains("MEMCUDA_DISABLE"),
            "{}",
            disabled.detail
        );
        warned(seen(&[], &[7]), &format!("{started}\n{plain}"), "process 8");
        for (seen, log) in [(seen(&[], &[]), started), (seen(&[], &[7]), "")] {
            assert_eq!(
                bypasses(&seen, &parse(log), false, false).status,
                Status::Ok
            );
        }
    }
}
