//! `memcuda stat`: the counters of running processes, from their statistics
//! pages.

use std::process::ExitCode;

use anyhow::bail;
use memcuda::stats_page::Counters;
use memcuda::units::show_bytes;
use serde::Serialize;

use crate::output::{self, Table, plain};
use crate::{accepted, process, survey};

/// Show what a process holds on each device.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct Arguments {
    /// The process
    #[arg(group = "which", value_parser = accepted::between(0..=u32::MAX))]
    pid: Option<u32>,
    /// Every process of this machine that runs on the pool
    #[arg(long, group = "which")]
    all: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Device {
    pid: u32,
    command: String,
    #[serde(flatten)]
    counters: Counters,
    /// While the process records itself: frames begun, events lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_frames: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_lost_events: Option<u64>,
}

pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (pages, unread) = match arguments.pid {
        Some(pid) => (vec![survey::page_of(pid)?], Vec::new()),
        None => survey::pages()?,
    };
    for (pid, why) in unread {
        output::say(format_args!("process {pid}: {why}"));
    }
    let mut devices = Vec::new();
    for page in &pages {
        let counters = match page.read() {
            Ok(counters) => counters,
            Err(error) if arguments.all => {
                output::say(format_args!("process {}: {error}", page.pid));
                continue;
            }
            // Not bad input of the user's, so not the library's error.
            Err(error) => bail!("process {}: {error}", page.pid),
        };
        let (pid, command) = (page.pid, process::name(page.pid));
        let recording = process::recording(pid);
        devices.extend(counters.into_iter().map(|counters| Device {
            pid,
            command: command.clone(),
            counters,
            trace_frames: recording.as_ref().map(|r| r.frames),
            trace_lost_events: recording.as_ref().map(|r| r.lost),
        }));
    }
    if arguments.json {
        output::json_lines("stat", &devices)?;
    } else if devices.is_empty() {
        output::line(survey::NOBODY)?;
    } else {
        print(&devices)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(devices: &[Device]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        "process",
        "device",
        "live",
        "pending",
        "idle",
        "shared",
        "physical",
        "peak live",
        "peak physical",
        "requests",
        "hits",
        "driver time",
    ]);
    for device in devices {
        let pool = &device.counters.pool;
        table.row(vec![
            format!("{} {}", device.pid, plain(&device.command)),
            device.counters.ordinal.to_string(),
            show_bytes(pool.live_bytes),
            show_bytes(pool.pending_bytes),
            show_bytes(pool.idle_bytes),
            show_bytes(pool.shared_bytes),
            show_bytes(pool.physical_bytes),
            show_bytes(pool.peak_live_bytes),
            show_bytes(pool.peak_physical_bytes),
            pool.requests.to_string(),
            share(pool.hits, pool.requests),
            format!("{:.3} s", pool.driver_ns as f64 / 1e9),
        ]);
    }
    table.print()?;
    let mut told = 0;
    for device in devices {
        if let (Some(frames), Some(lost)) = (device.trace_frames, device.trace_lost_events)
            && told != device.pid
        {
            told = device.pid;
            output::line(format_args!(
                "process {told} records itself: {frames} frames, {lost} events lost"
            ))?;
        }
    }
    Ok(())
}

/// A share in percent, `-` of nothing.
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.2} %", 100.0 * part as f64 / whole as f64),
    }
}
