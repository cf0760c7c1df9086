//! A trace in words: how much was live when, what the peak was made of, and what
//! the pool would have held of it, under the settings that are asked about. What
//! a replay says is called an estimate.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use memcuda::error::Error;
use memcuda::trace::account::{Account, Device, Part, Peak, account};
use memcuda::units::show_bytes;

use super::estimates::Estimates;
use super::json::Report;
use super::{Arguments, svg};
use crate::output::{self, Table, times};
use crate::verbs::replay::check_chunk;
use crate::verbs::trace::{lacks, open};
use crate::whole;

/// Rows of a table.
const ROWS: usize = 8;

/// Explains a trace in words, or as JSON, and draws it where that is asked for.
pub fn explain(path: &Path, arguments: &Arguments) -> Result<String> {
    check_chunk(arguments.profile(), arguments.chunk)?;
    if let Some(to) = &arguments.svg {
        whole::apart(to, [path])?;
    }
    let account = account(|| open(path)).map_err(|error| Error::of_file(path, error))?;
    let estimates = Estimates::of(path, arguments)?;
    if let Some(to) = &arguments.svg {
        let drawn = svg::draw(&path.display().to_string(), &account);
        whole::write(to, |out| Ok(out.write_all(drawn.as_bytes())?))?;
    }
    if arguments.json {
        output::json("explain", &Report::of(path, &account, &estimates))?;
        return Ok(String::new());
    }
    let mut text = String::new();
    head(&mut text, path, &account)?;
    for (ordinal, device) in &account.devices {
        describe(&mut text, *ordinal, device)?;
    }
    let pages = account.devices.values().any(|device| device.pages > 0);
    estimates.describe(&mut text, pages)?;
    Ok(text)
}

fn head(text: &mut String, path: &Path, account: &Account) -> std::fmt::Result {
    let seconds = account.duration_us as f64 / 1e6;
    writeln!(
        text,
        "{}: {} in {seconds:.1} s",
        path.display(),
        times(account.events, "event", "events")
    )?;
    if let Some((pid, command)) = &account.process {
        writeln!(text, "  process {pid}: {}", command.replace('\n', " "))?;
    }
    for line in lacks(account.shortfall) {
        writeln!(text, "  {line}")?;
    }
    Ok(())
}

fn describe(text: &mut String, ordinal: u32, device: &Device) -> std::fmt::Result {
    let program = &device.program;
    let peak = program.peak_bytes;
    writeln!(text, "\nDevice {ordinal}")?;
    writeln!(
        text,
        "  The peak was {} live, {:.3} s after the beginning. {} allocations asked for {} in all; {} were never freed.",
        show_bytes(peak),
        program.peak_us as f64 / 1e6,
        program.allocs,
        show_bytes(program.asked_bytes),
        show_bytes(program.left_bytes),
    )?;
    if device.pages > 0 {
        writeln!(
            text,
            "  {} of them are pages of torch's expandable segments, live while torch has them mapped; its tensors are recorded under MEMCUDA_TORCH=async.",
            device.pages
        )?;
    }
    let (refused, largest) = device.refused;
    if refused > 0 {
        writeln!(
            text,
            "  For {refused} of the requests there was no memory, {} at most.",
            show_bytes(largest)
        )?;
    }
    if let Some(segments) = &device.segments {
        let (held, live) = (segments.peak_bytes, device.live_at_segment_peak);
        let waste = held.saturating_sub(live);
        writeln!(
            text,
            "  The program's own allocator held {} in segments at most, {:.3} s after the beginning, when {} were live: {} ({:.1} %) lay idle in it or between what was live.",
            show_bytes(held),
            segments.peak_us as f64 / 1e6,
            show_bytes(live),
            show_bytes(waste),
            100.0 * waste as f64 / held.max(1) as f64
        )?;
    }
    made_of(text, &device.peak, peak);
    Ok(())
}

fn made_of(text: &mut String, peak: &Peak, all: u64) {
    let groups = [
        ("by size", "size", &peak.sizes, false),
        ("by who asked", "library", &peak.callers, true),
        ("by name", "name", &peak.names, true),
        ("by stream", "stream", &peak.streams, false),
        ("by thread", "thread", &peak.threads, true),
        (
            "by what was called, innermost first",
            "stack",
            &peak.stacks,
            true,
        ),
    ];
    for (title, heading, parts, may_lack) in groups {
        // Where nothing is known there is nothing to tell.
        if may_lack && parts.iter().all(|part| part.what.is_empty()) {
            continue;
        }
        let _ = writeln!(text, "\n  What the peak was made of, {title}");
        *text += &table(heading, parts, all).text("    ");
    }
    let mut table = Table::left(&["bytes", "made after", "library", "thread", "for", "name"]);
    for one in &peak.largest {
        let [library, thread, stream] = one.who.clone();
        table.row(vec![
            show_bytes(one.bytes),
            format!("{:.3} s", one.t_us as f64 / 1e6),
            or_unknown(library),
            or_unknown(thread),
            stream,
            one.name.clone(),
        ]);
    }
    *text += "\n  The largest allocations of the peak\n";
    *text += &table.text("    ");
}

fn or_unknown(text: String) -> String {
    if text.is_empty() {
        "not known".to_owned()
    } else {
        text
    }
}

fn table(heading: &str, parts: &[Part], all: u64) -> Table {
    let mut table = Table::left(&["live", "part", "allocations", heading]);
    let row = |what: String, count: u64, bytes: u64| {
        let part = format!("{:.1} %", 100.0 * bytes as f64 / all.max(1) as f64);
        vec![show_bytes(bytes), part, count.to_string(), what]
    };
    for part in parts.iter().take(ROWS) {
        table.row(row(or_unknown(part.what.clone()), part.count, part.bytes));
    }
    if let Some(rest) = parts.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let sum = |of: fn(&Part) -> u64| rest.iter().map(of).sum();
        let what = format!("{} more", rest.len());
        table.row(row(what, sum(|p| p.count), sum(|p| p.bytes)));
    }
    table
}
