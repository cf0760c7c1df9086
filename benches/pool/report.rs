//! What was measured, as a table or as one JSON object a line.

use memcuda::pool::Stats;
use memcuda::units::show_bytes;
use std::ops::Sub;
use std::process::Command;

/// One thing that is measured.
#[derive(Clone, Copy)]
pub struct Case {
    /// What, in a few words.
    pub what: &'static str,
    /// Bytes of a request; the mean where they differ.
    pub size: u64,
    /// Threads that work at once.
    pub threads: u32,
    /// Blocks that live meanwhile.
    pub live: u64,
}

/// What one run found.
pub struct Run {
    /// Nanoseconds of one operation.
    pub ns: f64,
    /// Share of the requests that were served as the case is meant to be.
    pub share: f64,
}

/// How requests were served.
#[derive(Clone, Copy)]
pub struct Served {
    pub requests: u64,
    pub searches: u64,
    pub stitches: u64,
    pub growths: u64,
}

impl From<Stats> for Served {
    fn from(stats: Stats) -> Self {
        Self {
            requests: stats.requests,
            searches: stats.searches,
            stitches: stats.stitches,
            growths: stats.growths,
        }
    }
}

impl Sub for Served {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            searches: self.searches - before.searches,
            stitches: self.stitches - before.stitches,
            growths: self.growths - before.growths,
        }
    }
}

impl Served {
    /// Share of the requests that the quick path served.
    pub fn quick(self) -> f64 {
        1.0 - self.searches as f64 / self.requests.max(1) as f64
    }
}

/// Prints as it goes.
pub struct Report {
    /// What it is measured on, as JSON.
    pub machine: String,
    /// JSON instead of a table.
    pub json: bool,
    /// Runs of each case.
    pub runs: usize,
}

impl Report {
    /// The head of the table.
    pub fn begin(&self) {
        if !self.json {
            println!(
                "{:<20} {:>9} {:>7} {:>8} {:>10} [lowest, highest] of {} runs; \
                 share served that way",
                "what", "bytes", "threads", "live", "median ns", self.runs
            );
        }
    }

    /// Measures a case as often as asked for, and prints it. Returns the median.
    pub fn measure(&self, case: Case, mut run: impl FnMut() -> Run) -> f64 {
        let mut runs: Vec<Run> = (0..self.runs).map(|_| run()).collect();
        runs.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        let (low, high) = (runs[0].ns, runs[runs.len() - 1].ns);
        let middle = &runs[runs.len() / 2];
        let Case {
            what,
            size,
            threads,
            live,
        } = case;
        let (median, share) = (middle.ns, middle.share);
        if self.json {
            println!(
                "{{\"schema\":\"memcuda.bench/1\",\"kind\":\"cpu\",\"what\":\"{what}\",\
                 \"size\":{size},\"threads\":{threads},\"live\":{live},\
                 \"median_ns\":{median:.1},\"low_ns\":{low:.1},\"high_ns\":{high:.1},\
                 \"share_rate\":{share:.4},\"machine\":{}}}",
                self.machine
            );
        } else {
            println!(
                "{what:<20} {:>9} {threads:>7} {live:>8} {median:>10.1} \
                 [{low:.1}, {high:.1}]  {:.0} %",
                show_bytes(size),
                100.0 * share
            );
        }
        median
    }

    /// A remark below a row; no part of JSON.
    pub fn remark(&self, text: &str) {
        if !self.json {
            println!("{:>57}   {text}", "");
        }
    }
}

/// The processor and today's date, as a JSON object.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    let date = Command::new("date").args(["-u", "+%F"]).output();
    let date = date.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let quoted = |text: &str| text.replace(['"', '\\'], "");
    format!(
        "{{\"cpu\":\"{}\",\"cores\":{},\"date\":\"{}\"}}",
        quoted(model.map_or("unknown", |(_, model)| model)),
        std::thread::available_parallelism().map_or(1, usize::from),
        quoted(&date.unwrap_or_default())
    )
}
