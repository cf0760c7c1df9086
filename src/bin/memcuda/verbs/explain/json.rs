//! What is said of a trace, for programs.

use std::path::Path;

use memcuda::trace::account::{Account, Device, Part};
use memcuda::trace::replay::Outcome;
use serde::Serialize;

use super::estimates::Estimates;

/// A trace.
#[derive(Serialize)]
pub struct Report {
    trace: String,
    events: u64,
    duration_s: f64,
    lost_events: u64,
    devices: Vec<DeviceReport>,
    estimates: Vec<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_fit: Option<WouldFit>,
}

#[derive(Serialize)]
struct DeviceReport {
    ordinal: u32,
    allocs: u64,
    /// Of these, pages that torch's own allocator mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<u64>,
    peak_live_bytes: u64,
    peak_s: f64,
    left_bytes: u64,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_segment_bytes: Option<u64>,
    sizes: Vec<PartReport>,
    callers: Vec<PartReport>,
    names: Vec<PartReport>,
    streams: Vec<PartReport>,
    threads: Vec<PartReport>,
    stacks: Vec<PartReport>,
}

#[derive(Serialize)]
struct PartReport {
    what: String,
    count: u64,
    live_bytes: u64,
}

#[derive(Serialize)]
struct Estimate {
    setting: String,
    /// `None`: out of memory.
    peak_physical_bytes: Option<u64>,
}

#[derive(Serialize)]
struct WouldFit {
    asked_bytes: u64,
    fits: bool,
    /// Of the device that held the most: limits are each device's.
    peak_physical_bytes: Option<u64>,
    least_limit_bytes: u64,
}

impl Report {
    /// What was found of a trace, and the estimates.
    pub fn of(path: &Path, account: &Account, estimates: &Estimates) -> Self {
        let physical = |outcome: &Option<Outcome>| outcome.as_ref().map(|o| o.peak_physical_bytes);
        let rows = estimates.rows.iter();
        Self {
            trace: path.display().to_string(),
            events: account.events,
            duration_s: account.duration_us as f64 / 1e6,
            lost_events: account.shortfall.lost,
            devices: account.devices.iter().map(|(o, d)| device(*o, d)).collect(),
            estimates: rows
                .map(|(setting, outcome)| Estimate {
                    setting: setting.clone(),
                    peak_physical_bytes: physical(outcome),
                })
                .collect(),
            would_fit: estimates.fit.as_ref().map(|fit| WouldFit {
                asked_bytes: fit.asked,
                fits: fit.outcome.is_some(),
                peak_physical_bytes: fit.outcome.as_ref().map(|o| o.device_peak_bytes),
                least_limit_bytes: fit.least,
            }),
        }
    }
}

fn device(ordinal: u32, device: &Device) -> DeviceReport {
    let parts = |parts: &[Part]| {
        let report = |part: &Part| PartReport {
            what: part.what.clone(),
            count: part.count,
            live_bytes: part.bytes,
        };
        parts.iter().map(report).collect()
    };
    let (program, peak) = (&device.program, &device.peak);
    DeviceReport {
        ordinal,
        allocs: program.allocs,
        pages: (device.pages > 0).then_some(device.pages),
        peak_live_bytes: program.peak_bytes,
        peak_s: program.peak_us as f64 / 1e6,
        left_bytes: program.left_bytes,
        refused: device.refused.0,
        peak_segment_bytes: device.segments.as_ref().map(|s| s.peak_bytes),
        sizes: parts(&peak.sizes),
        callers: parts(&peak.callers),
        names: parts(&peak.names),
        streams: parts(&peak.streams),
        threads: parts(&peak.threads),
        stacks: parts(&peak.stacks),
    }
}
