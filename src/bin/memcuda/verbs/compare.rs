//! `memcuda compare`: the same command bare and under each profile, in turn,
//! and one table of medians. The turn begins with another one each time. Every
//! figure in it is measured; what nothing can measure is shown as unknown.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Result;
use clap::ValueEnum;
use memcuda::driver::children;
use serde::Serialize;

use crate::accepted;
use crate::output::{self, Table};
use crate::program::measure::{self, Meter, Run};
use crate::program::preload;

/// Run a command bare and under each profile, and compare.
///
/// Use a GPU that nobody else uses: the use of the device is measured over all
/// its processes. Each repeat begins with the next profile, for the first program to
/// run may wait for the disk. The command's output goes to standard error, and its input is empty.
#[derive(clap::Args)]
pub struct Arguments {
    /// Runs of each profile
    #[arg(long, default_value_t = 3, value_parser = accepted::between(1_u32..=1000))]
    repeat: u32,
    /// What to run under
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bare,native,async,keep"
    )]
    profiles: Vec<Profile>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Spelt as `MEMCUDA_TORCH` spells it, but for the first.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Profile {
    /// Without memcuda
    Bare,
    /// PyTorch's own allocator, asked to give back: expandable segments where it is fit, else segments
    Native,
    /// PyTorch's expandable segments, asked to give back, over pages that are kept
    Expandable,
    /// PyTorch's segments by cudaMalloc, asked to give back before the pool grows
    Segments,
    /// PyTorch's backend:cudaMallocAsync, served by the pool
    Async,
    /// PyTorch's settings untouched
    Keep,
}

impl Profile {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no profile is hidden");
        value.get_name().to_owned()
    }
}

/// Medians over the runs that succeeded; `None` is unknown.
#[derive(Serialize)]
struct Row {
    profile: Profile,
    runs: usize,
    failed: usize,
    /// The first failure.
    failure: Option<String>,
    peak_physical_bytes: Option<u64>,
    peak_live_bytes: Option<u64>,
    peak_device_bytes: Option<u64>,
    device_meter: Option<&'static str>,
    wall_s: Option<f64>,
    /// What the bare run took of the device beyond this one, both measured.
    saved_bytes: Option<i64>,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    children::can_be_waited_for();
    let library = preload::library()?;
    let meter = Meter::find();
    let mut profiles = Vec::new();
    for profile in &arguments.profiles {
        if !profiles.contains(profile) {
            profiles.push(*profile);
        }
    }
    let mut runs: Vec<Vec<Run>> = profiles.iter().map(|_| Vec::new()).collect();
    for number in 1..=arguments.repeat {
        // Whoever is first finds the caches of the host as others left them.
        let first = (number - 1) as usize % profiles.len();
        for at in (first..profiles.len()).chain(0..first) {
            let (profile, runs) = (profiles[at], &mut runs[at]);
            let command = command(&arguments.command, profile, &library);
            let run = measure::run(command, &meter)?;
            if let Some(signal) = run.asked_to_end {
                return Ok(ExitCode::from(children::end_by(signal as i32)));
            }
            let (status, wall_s, profile) = (run.status, run.wall_s, profile.name());
            tracing::info!("run {number} as {profile}: {status} after {wall_s:.2} s");
            runs.push(run);
        }
    }
    let mut rows: Vec<Row> = profiles
        .iter()
        .zip(&runs)
        .map(|(profile, runs)| row(*profile, runs, &meter))
        .collect();
    let bare = rows.iter().find(|r| r.profile == Profile::Bare);
    let bare = bare.and_then(|row| row.peak_device_bytes);
    for row in rows.iter_mut().filter(|row| row.profile != Profile::Bare) {
        let pair = bare.zip(row.peak_device_bytes);
        row.saved_bytes = pair.map(|(bare, own)| bare as i64 - own as i64);
    }
    let all_ran = rows.iter().all(|row| row.failed == 0);
    let printed = match arguments.json {
        true => output::json_lines("compare", &rows),
        false => print(&rows, &meter, arguments),
    };
    output::after(ExitCode::from(if all_ran { 0 } else { 1 }), printed)
}

fn command(words: &[OsString], profile: Profile, library: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let existing = std::env::var_os("LD_PRELOAD");
    if profile == Profile::Bare {
        match preload::without(existing.as_deref()) {
            Some(rest) => command.env("LD_PRELOAD", rest),
            None => command.env_remove("LD_PRELOAD"),
        };
        return command;
    }
    command
        .env("LD_PRELOAD", preload::with(library, existing.as_deref()))
        .env("MEMCUDA_TORCH", profile.name())
        .env("MEMCUDA_STATS", "on");
    command
}

fn row(profile: Profile, runs: &[Run], meter: &Meter) -> Row {
    let good: Vec<&Run> = runs.iter().filter(|run| run.status.success()).collect();
    let failure = runs.iter().find(|run| !run.status.success());
    let bytes = |of: fn(&Run) -> Option<u64>| {
        let known = good.iter().map(|run| of(run)).collect::<Option<Vec<u64>>>();
        known.and_then(median)
    };
    Row {
        profile,
        runs: runs.len(),
        failed: runs.len() - good.len(),
        failure: failure.map(|run| explain(run.status)),
        peak_physical_bytes: bytes(|run| run.peak_physical_bytes),
        peak_live_bytes: bytes(|run| run.peak_live_bytes),
        peak_device_bytes: bytes(|run| run.peak_device_bytes),
        device_meter: meter.name(),
        wall_s: median(good.iter().map(|run| run.wall_s).collect()),
        saved_bytes: None,
    }
}

/// The middle value, the lower one of two.
fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).expect("times and sizes have an order"));
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn explain(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit status {}", status.code().unwrap_or_default()),
    }
}

fn print(rows: &[Row], meter: &Meter, arguments: &Arguments) -> Result<()> {
    let mut table = Table::new(&[
        "profile",
        "runs",
        "failed",
        "device peak",
        "pool physical peak",
        "live peak",
        "wall",
        "saved",
    ]);
    for row in rows {
        // Of a bare run there is nothing to say.
        let of_pool = |said: String| match row.profile {
            Profile::Bare => "-".to_owned(),
            _ => said,
        };
        table.row(vec![
            row.profile.name(),
            row.runs.to_string(),
            row.failed.to_string(),
            output::bytes(row.peak_device_bytes),
            of_pool(output::bytes(row.peak_physical_bytes)),
            of_pool(output::bytes(row.peak_live_bytes)),
            row.wall_s
                .map_or_else(|| "unknown".to_owned(), |s| format!("{s:.3} s")),
            of_pool(signed(row.saved_bytes)),
        ]);
    }
    table.print()?;
    for row in rows {
        if let Some(failure) = &row.failure {
            let (profile, failed, runs) = (row.profile.name(), row.failed, row.runs);
            output::line(format_args!(
                "{profile}: {failed} of {runs} runs failed ({failure})"
            ))?;
        }
    }
    if let Meter::None(reason) = meter {
        output::line(format_args!("device peak is unknown: {reason}"))?;
    }
    let unseen = |row: &Row| row.failed < row.runs && row.peak_physical_bytes.is_none();
    let mut pooled = rows.iter().filter(|row| row.profile != Profile::Bare);
    if pooled.any(unseen) {
        output::line(format_args!(
            "the pool is unknown: it was not seen in use; `memcuda doctor -- {}` says whether calls arrive",
            arguments.command[0].display()
        ))?;
    }
    if arguments.repeat == 1 && rows.len() > 1 {
        let first = rows[0].profile.name();
        output::line(format_args!(
            "once each, {first} first: it may have waited for what the host keeps for the others; from --repeat 2 on they take turns"
        ))?;
    }
    Ok(())
}

fn signed(bytes: Option<i64>) -> String {
    let sign = if bytes.is_some_and(|b| b < 0) {
        "-"
    } else {
        ""
    };
    sign.to_owned() + &output::bytes(bytes.map(i64::unsigned_abs))
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(vec![3, 1, 2]), Some(2));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median::<u64>(vec![]), None);
    }
}
