//! What the machine offers: libmemcuda.so, the C library, the driver, its
//! devices, and settings in the environment.

use std::process::{Command, Stdio};

use memcuda::config::{Config, Torch};
use memcuda::driver::inspect::{Inspection, SIMULATED_GPU, glibc_version, inspect};
use memcuda::driver::nvml::Nvml;
use memcuda::error::Error;
use memcuda::names::rules::{Facts, Rules};
use memcuda::units::show_bytes;

use super::{Finding, Status};
use crate::program::preload;

/// First driver whose virtual-memory calls have all that the pool uses.
const OLDEST_CUDA: u32 = 11_020;

pub fn examine() -> Vec<Finding> {
    let mut findings = vec![library()];
    findings.push(Finding::new(
        "c library",
        Status::Info,
        format!("glibc {}", glibc_version()),
    ));
    findings.extend(settings());
    match inspect() {
        Ok(found) => findings.extend(driver(&found)),
        Err(reason) => findings.push(Finding::new(
            "driver",
            Status::Fail,
            format!("{reason}; programs run as if memcuda were not there"),
        )),
    }
    findings.push(match Nvml::open_meter() {
        Ok(nvml) => {
            let version = nvml
                .driver_version()
                .unwrap_or_else(|| "unknown".to_owned());
            Finding::new("nvml", Status::Ok, format!("kernel driver {version}"))
        }
        Err(reason) => Finding::new(
            "nvml",
            Status::Info,
            format!("{reason}; `memcuda compare` cannot measure a bare run on a real GPU"),
        ),
    });
    findings.extend(torch_settings());
    findings
}

/// Is libmemcuda.so there, and does the loader take it?
fn library() -> Finding {
    let check = "libmemcuda.so";
    let path = match preload::library() {
        Ok(path) => path,
        Err(reason) => return Finding::new(check, Status::Fail, reason.to_string()),
    };
    let tried = Command::new("true")
        .env("LD_PRELOAD", &path)
        .stdin(Stdio::null())
        .output();
    match tried {
        Err(reason) => Finding::new(check, Status::Fail, format!("cannot run `true`: {reason}")),
        Ok(run) if run.status.success() && run.stderr.is_empty() => {
            Finding::new(check, Status::Ok, path.display().to_string())
        }
        Ok(run) => {
            let said = String::from_utf8_lossy(&run.stderr);
            let said = said.lines().next().unwrap_or("no message");
            let detail = format!("{} cannot be preloaded: {said}", path.display());
            Finding::new(check, Status::Fail, detail)
        }
    }
}

fn settings() -> Vec<Finding> {
    let found = |status, detail: String| Finding::new("settings", status, detail);
    let wrong = |reason: Error| found(Status::Fail, reason.to_string());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut findings: Vec<_> = names
        .filter(|name| Config::is_unknown(name))
        .map(|name| {
            let detail = format!("{name} is no setting, and changes nothing");
            found(Status::Warn, detail)
        })
        .collect();
    let (config, errors) = Config::read_all(|name| std::env::var_os(name));
    let understood = errors.is_empty();
    findings.extend(errors.into_iter().map(wrong));
    if understood && config.disable {
        let detail = "MEMCUDA_DISABLE is set: the shim does nothing";
        findings.push(found(Status::Warn, detail.to_owned()));
    } else if understood {
        let unused = config.without_effect().into_iter();
        findings.extend(unused.map(|line| found(Status::Warn, line.to_owned())));
        let (line, file) = (config.names.as_deref(), config.names_file.as_deref());
        let rules = Rules::read(line, file, &Facts::here(|name| std::env::var(name).ok()));
        findings.extend(rules.err().map(wrong));
    }
    if findings.is_empty() {
        let detail = "every MEMCUDA_* value is understood";
        findings.push(found(Status::Ok, detail.to_owned()));
    }
    findings
}

fn driver(found: &Inspection) -> Vec<Finding> {
    let (major, minor) = (found.cuda_version / 1000, found.cuda_version % 1000 / 10);
    let speaks = format!("libcuda.so.1 speaks CUDA {major}.{minor}");
    let (status, more) = if !found.missing.is_empty() {
        let missing = found.missing.join(", ");
        (Status::Fail, format!(" and lacks {missing}"))
    } else if found.cuda_version < OLDEST_CUDA {
        (Status::Fail, "; the pool needs 11.2 or later".to_owned())
    } else {
        (Status::Ok, String::new())
    };
    let mut findings = vec![Finding::new("driver", status, speaks + &more)];
    if found.devices.is_empty() {
        findings.push(Finding::new("device", Status::Fail, "the driver sees none"));
    }
    for (ordinal, device) in found.devices.iter().enumerate() {
        let what = format!(
            "{ordinal}: {}, {}",
            device.name,
            show_bytes(device.total_bytes)
        );
        let (status, more) = match (device.virtual_memory, device.fd_export) {
            (false, _) => (Status::Fail, ", no virtual memory management: plain driver"),
            (true, false) => (
                Status::Warn,
                ", no export as file descriptor: no names, and no CUDA IPC of pooled memory",
            ),
            (true, true) => (Status::Ok, ", virtual memory management"),
        };
        findings.push(Finding::new("device", status, what + more));
        if device.name.contains(SIMULATED_GPU) {
            let detail = "this is no real GPU: its libraries are on the loader's path";
            findings.push(Finding::new("device", Status::Info, detail));
        }
    }
    findings
}

/// Torch settings of the user's own, and what becomes of them.
fn torch_settings() -> Option<Finding> {
    let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];
    let set = names
        .iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)));
    let (name, value) = set?;
    let expandable = value
        .to_lowercase()
        .replace(' ', "")
        .contains("expandable_segments:true");
    let (config, _) = Config::read_all(|name| std::env::var_os(name));
    let left_out = |profile| {
        format!(
            ": expandable segments are left out under MEMCUDA_TORCH={profile} (native keeps their pages)"
        )
    };
    let (status, more) = match config.torch {
        _ if config.disable => (Status::Info, " stays as it is".to_owned()),
        Torch::Keep => (Status::Info, " stays as it is".to_owned()),
        Torch::Segments if expandable => (Status::Warn, left_out("segments")),
        Torch::Async if expandable => (Status::Warn, left_out("async")),
        _ => (Status::Info, " is merged, not replaced".to_owned()),
    };
    let detail = format!("{name}={value}{more}");
    Some(Finding::new("torch settings", status, detail))
}
