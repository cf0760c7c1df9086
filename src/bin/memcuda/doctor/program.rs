//! Runs a program under the shim and reports what it loaded, by which routes
//! it reached the driver, and what went past the shim. Sees the loaded
//! libraries from outside, in /proc; takes the rest from the shim's own log.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Finding, Status};
use crate::{preload, process};

/// Libraries worth naming, by the start of their file names.
const LIBRARIES: [&str; 9] = [
    "libcuda.so",
    "libcudart.so",
    "libmemcuda.so",
    "libnccl.so",
    "libc10_cuda.so",
    "libtorch_cuda.so",
    "libcublas.so",
    "libcudnn.so",
    "libcupti.so",
];

pub fn examine(words: &[OsString]) -> Result<Vec<Finding>> {
    let library = preload::library()?;
    let log = tempfile::NamedTempFile::with_prefix("memcuda-doctor-")?;
    let existing = std::env::var_os("LD_PRELOAD");
    let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env("LD_PRELOAD", preload::with(&library, existing.as_deref()))
        .env("MEMCUDA_LOG", "debug")
        .env("MEMCUDA_LOG_FORMAT", "json")
        .env("MEMCUDA_LOG_FILE", log.path())
        .stdin(Stdio::null())
        .stdout(stderr);
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot run {}", words[0].display()))?;
    let mut loaded = BTreeSet::new();
    let status = loop {
        for pid in process::tree(child.id()) {
            loaded.extend(libraries(pid));
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let log = std::fs::read(log.path())?;
    let events = events(&String::from_utf8_lossy(&log));
    let mut findings = Vec::new();
    let status_kind = if status.success() {
        Status::Ok
    } else {
        Status::Warn
    };
    findings.push(Finding::new(
        "program",
        status_kind,
        format!("ended with {status}"),
    ));
    for path in &loaded {
        findings.push(Finding::new("loaded", Status::Info, path.clone()));
    }
    findings.extend(routes(&events));
    findings.extend(decisions(&events));
    findings.extend(bypasses(&loaded, &events));
    Ok(findings)
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

/// The shim's log: one JSON object a line. A line that is cut off by the end
/// of its process is passed over.
fn events(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn named<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    events
        .iter()
        .filter(move |event| text(event, "event") == name)
}

/// By which route each module reached which entry points.
fn routes(events: &[Value]) -> Vec<Finding> {
    let mut names: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for event in named(events, "route") {
        let key = (text(event, "module"), text(event, "via"));
        names.entry(key).or_default().insert(text(event, "symbol"));
    }
    let findings = names.iter().map(|((module, via), names)| {
        let names: Vec<&str> = names.iter().copied().collect();
        Finding::new(
            "route",
            Status::Info,
            format!("{module} by {via}: {}", names.join(", ")),
        )
    });
    findings.collect()
}

/// What the shim found out and decided: the probe, the profile.
fn decisions(events: &[Value]) -> Vec<Finding> {
    let of = |check: &'static str| {
        let said: BTreeSet<&str> = named(events, check).map(|e| text(e, "message")).collect();
        said.into_iter()
            .map(move |said| Finding::new(check, Status::Info, said))
    };
    ["probe", "profile", "pool"]
        .into_iter()
        .flat_map(of)
        .collect()
}

/// What went past the shim.
fn bypasses(loaded: &BTreeSet<String>, events: &[Value]) -> Vec<Finding> {
    let has = |library: &str| {
        let file = |path: &String| {
            path.rsplit('/')
                .next()
                .unwrap_or_default()
                .starts_with(library)
        };
        loaded.iter().any(file)
    };
    let mut findings: Vec<Finding> = named(events, "bypass")
        .map(|e| text(e, "message"))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|said| Finding::new("bypass", Status::Warn, said))
        .collect();
    let warn = |detail: &str| Finding::new("bypass", Status::Warn, detail);
    if !has("libcuda.so") {
        let detail = "the driver was never seen loaded: the program does not use CUDA, or ended too soon to be seen";
        findings.push(Finding::new("driver", Status::Info, detail));
    } else if !has("libmemcuda.so") {
        findings.push(warn(
            "the driver was loaded but libmemcuda.so was not: LD_PRELOAD has no effect on static and set-user-ID programs",
        ));
    } else if named(events, "route").next().is_none() {
        findings.push(warn(
            "the driver was loaded but no lookup reached the shim: it was loaded with RTLD_DEEPBIND, or by a library of its own",
        ));
    } else if findings.is_empty() {
        findings.push(Finding::new(
            "bypass",
            Status::Ok,
            "nothing was seen to go past the shim",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_told_once_with_all_that_it_reached() {
        let log = r#"{"event":"route","module":"libcudart.so.13","via":"dlsym","symbol":"cuInit"}
{"event":"route","module":"libcudart.so.13","via":"dlsym","symbol":"cuGetProcAddress_v2"}
{"event":"route","module":"libcudart.so.13","via":"dlsym","symbol":"cuInit"}
{"event":"rou"#;
        let found = routes(&events(log));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].detail,
            "libcudart.so.13 by dlsym: cuGetProcAddress_v2, cuInit"
        );
    }

    #[test]
    fn a_driver_that_no_lookup_led_to_is_a_bypass() {
        let loaded = ["/usr/lib/libcuda.so.1", "/opt/libmemcuda.so"].map(str::to_owned);
        let found = bypasses(&loaded.clone().into(), &[]);
        assert!(found[0].status == Status::Warn && found[0].detail.contains("RTLD_DEEPBIND"));
        let found = bypasses(&[loaded[0].clone()].into(), &[]);
        assert!(found[0].status == Status::Warn && found[0].detail.contains("set-user-ID"));
        let route = events(r#"{"event":"route","module":"a.out","via":"dlsym","symbol":"cuInit"}"#);
        assert_eq!(bypasses(&loaded.into(), &route)[0].status, Status::Ok);
    }
}
