//! `memcuda replay`: plays recorded traces through the pool over a model of
//! the driver, on any machine.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use memcuda::config::Policy;
use memcuda::error::Error;
use memcuda::pool::Settings;
use memcuda::trace::Reader;
use memcuda::trace::replay::{self, Failure, Outcome, Profile};
use memcuda::units::{GIB, HANDLE, parse_size, show_bytes};
use serde::Serialize;

use crate::output::{self, Table};
use crate::verbs::trace;

/// Play recorded traces through the pool, without a GPU.
///
/// Physical bytes, hits and handles are the pool's own. Driver time is an
/// estimate, by what each call cost on an idle H200; of the jobs that were measured
/// there it was 0.9 to 3.5 times as much, the most beside copies to the host.
/// The time of an allocation is measured here, without driver calls. In the native profile requests, hits and
/// times are those of pages, in the profile segments those of segments; live is what
/// the tensors asked for. The profile expandable has live and physical bytes alone.
#[derive(clap::Args)]
pub struct Arguments {
    /// Traces: text, zstd, or recordings (MEMCUDA_TRACE)
    #[arg(required = true)]
    trace: Vec<PathBuf>,
    /// How the trace's requests reach the pool
    #[arg(long, value_enum, default_value = "async")]
    profile: Profile,
    /// How the pool serves it
    #[arg(long, value_enum, default_value = "stitch")]
    policy: Serve,
    /// Memory of each device
    #[arg(long, value_name = "SIZE", default_value = "141GB", value_parser = size)]
    total: u64,
    /// Size of a physical handle, a multiple of 2MiB [default: the pool chooses]
    #[arg(long, value_name = "SIZE", value_parser = chunk)]
    chunk: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Handles of this size are the pool's.
pub fn check_chunk(profile: Profile, chunk: Option<u64>) -> Result<()> {
    match profile.has_pages() && chunk.is_some() {
        true => Err(without_pool(profile, "--chunk").into()),
        false => Ok(()),
    }
}

fn without_pool(profile: Profile, option: &str) -> Error {
    let value = profile.to_possible_value();
    let name = value.as_ref().map_or("", |value| value.get_name());
    Error::new(format!(
        "{option} is about the pool, which profile {name} does not ask; accepted with async, segments and recorded"
    ))
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Serve {
    /// The stitching pool
    Stitch,
    /// One handle per allocation, a baseline
    Direct,
}

#[derive(Serialize)]
struct Report {
    trace: String,
    profile: Profile,
    /// This and the other options: `None` without memcuda.
    requests: Option<u64>,
    peak_live_bytes: u64,
    peak_physical_bytes: u64,
    efficiency: f64,
    hit_rate: Option<f64>,
    handles_mapped: Option<u64>,
    driver_time_s: Option<f64>,
    trace_time_s: f64,
    median_alloc_ns: Option<u64>,
    p99_alloc_ns: Option<u64>,
    /// In the profiles that ask torch.
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_failures: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_ladders: Option<u64>,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let profile = arguments.profile;
    check_chunk(profile, arguments.chunk)?;
    if arguments.policy == Serve::Direct && profile.has_pages() {
        return Err(without_pool(profile, "--policy direct").into());
    }
    let mut table = Table::new(&[
        "trace",
        "requests",
        "peak live",
        "peak physical",
        "efficiency",
        "hits",
        "handles",
        "driver time (est.)",
        "trace time",
        "median alloc",
        "p99",
    ]);
    let mut rows = 0;
    let played = arguments.trace.iter().try_for_each(|path| {
        let report = report(path, arguments)?;
        if arguments.json {
            return output::json("replay", &report);
        }
        table.row(cells(&report));
        rows += 1;
        Ok(())
    });
    // What was played before one that cannot be may have taken minutes.
    let printed = if rows > 0 { table.print() } else { Ok(()) };
    played.and(printed).map(|()| ExitCode::SUCCESS)
}

fn report(path: &Path, arguments: &Arguments) -> Result<Report> {
    let o = play(path, arguments)?;
    let asked = matches!(arguments.profile, Profile::Native | Profile::Segments);
    let counted = arguments.profile.asks_memcuda();
    Ok(Report {
        trace: path.display().to_string(),
        profile: arguments.profile,
        requests: counted.then_some(o.requests),
        peak_live_bytes: o.peak_live_bytes,
        peak_physical_bytes: o.peak_physical_bytes,
        efficiency: o.efficiency(),
        hit_rate: counted.then_some(o.hit_rate),
        handles_mapped: counted.then_some(o.handles_mapped),
        driver_time_s: counted.then_some(o.driver_time_s),
        trace_time_s: o.trace_time_s,
        median_alloc_ns: counted.then_some(o.median_alloc_ns),
        p99_alloc_ns: counted.then_some(o.p99_alloc_ns),
        soft_failures: asked.then_some(o.soft_failures),
        short_ladders: asked.then_some(o.short_ladders),
    })
}

fn play(path: &Path, arguments: &Arguments) -> Result<Outcome> {
    let file = File::open(path).map_err(|error| Error::of_file(path, error))?;
    let progress = progress(path, file.metadata()?.len());
    let input = BufReader::with_capacity(1 << 16, progress.wrap_read(file));
    let mut reader = Reader::new(input).map_err(|error| Error::of_file(path, error))?;
    let settings = || Settings {
        policy: match arguments.policy {
            Serve::Stitch => Policy::Stitch,
            Serve::Direct => Policy::Direct,
        },
        chunk: arguments.chunk,
        ..Settings::default()
    };
    let outcome = replay::replay(
        reader.by_ref(),
        arguments.profile,
        arguments.total,
        settings,
    );
    progress.finish_and_clear();
    trace::say(path, reader.shortfall());
    outcome.map_err(|failure| match failure {
        Failure::Trace(error) => Error::of_file(path, error).into(),
        Failure::Refused(line, code) => {
            let name = path.display();
            let total = show_bytes(arguments.total);
            anyhow!("{name}: line {line}: the pool answered {code:?} on a device of {total}")
        }
    })
}

/// A bar over the bytes of the file, on a terminal only.
fn progress(path: &Path, bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}");
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    ProgressBar::new(bytes)
        .with_style(style.expect("a valid template"))
        .with_message(name.into_owned())
}

/// A figure, or that there is none.
fn known<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn cells(report: &Report) -> Vec<String> {
    let number = |value| known(value, |number: u64| number.to_string());
    let name = report.trace.rsplit('/').next().unwrap_or(&report.trace);
    vec![
        name.to_owned(),
        number(report.requests),
        show_bytes(report.peak_live_bytes),
        show_bytes(report.peak_physical_bytes),
        format!("{:.2} %", 100.0 * report.efficiency),
        known(report.hit_rate, |rate| format!("{:.2} %", 100.0 * rate)),
        number(report.handles_mapped),
        known(report.driver_time_s, |time| format!("{time:.3} s")),
        format!("{:.1} s", report.trace_time_s),
        known(report.median_alloc_ns, |ns| format!("{ns} ns")),
        known(report.p99_alloc_ns, |ns| format!("{ns} ns")),
    ]
}

/// A size in bytes, not 0.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_size(text).filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| "accepted: a size such as 24GiB, 512MiB or bytes".to_owned())
}

/// A limit in bytes, as `MEMCUDA_LIMIT` takes one: nothing can be had under less than a handle.
pub fn limit(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_size(text).filter(|&bytes| bytes >= HANDLE);
    bytes.ok_or_else(|| "accepted: a size of 2MiB or more, such as 24GiB".to_owned())
}

/// The size of a handle in bytes, as `MEMCUDA_CHUNK` takes one.
pub fn chunk(text: &str) -> std::result::Result<u64, String> {
    let fits = |bytes: &u64| (HANDLE..=GIB).contains(bytes) && bytes.is_multiple_of(HANDLE);
    let bytes = parse_size(text).filter(fits);
    bytes.ok_or_else(|| "accepted: a multiple of 2MiB, at most 1GiB".to_owned())
}
