//! In words who holds a device's memory, from the picture of a process or the
//! report of an allocation that failed. Says what is known, and of what is not
//! that it is not.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::Result;
use memcuda::epoch::now_us;
use memcuda::picture::layout::{Kind, Layout};
use memcuda::picture::{Block, Device, Picture, Refused, State};
use memcuda::trace::account::CLASSES;
use memcuda::units::{HANDLE, show_bytes};

use super::before;
use crate::names::entry::seconds_since;
use crate::output::{Table, times};
use crate::pictures::history::History;
use crate::pictures::reading::{Reading, stream};

/// Rows of a table.
const HOLDERS: usize = 12;
const LARGEST: usize = 10;

/// Explains a picture, with what happened before as far as that is known.
pub fn explain(picture: &Picture, history: Option<&History>) -> Result<String> {
    let mut text = String::new();
    let process = &picture.process;
    writeln!(
        text,
        "Process {}, {}, libmemcuda {}\n  {}",
        process.pid,
        age(picture.taken_us),
        process.library,
        process.command.replace('\n', " ")
    )?;
    let reading = Reading::of(picture);
    if let Some(refused) = &picture.refused {
        let failed = |(device, _): &&(&Device, Layout)| device.ordinal == refused.device;
        if let Some((device, layout)) = reading.devices.iter().find(failed) {
            failure(&mut text, refused, device, layout)?;
        }
    }
    if reading.devices.is_empty() {
        text += "\nNo device has a pool.\n";
    }
    for (device, layout) in &reading.devices {
        describe(&mut text, &reading, device, layout)?;
        before::describe(&mut text, device);
        if let Some(history) = history {
            before::recent(&mut text, picture, device.ordinal, history);
        }
    }
    Ok(text)
}

fn age(taken_us: u64) -> String {
    match seconds_since(taken_us, now_us()) {
        0..=9 => "now".to_owned(),
        seconds @ 10..=119 => format!("{seconds} s ago"),
        seconds @ 120..=7199 => format!("{} min ago", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// What was asked for, what was in the way, and what was tried.
fn failure(
    text: &mut String,
    refused: &Refused,
    device: &Device,
    layout: &Layout,
) -> std::fmt::Result {
    let asked = show_bytes(refused.asked_bytes);
    let stream = refused.stream.map_or(String::new(), |s| format!(" on {s}"));
    writeln!(
        text,
        "\nOut of memory: {asked} could not be had on device {}",
        device.ordinal
    )?;
    writeln!(
        text,
        "  Asked for by thread {} ({}){stream}, try {} of the same request; {} so far in this process.",
        refused.thread,
        refused.thread_name,
        refused.tries,
        times(refused.refusals, "failure", "failures"),
    )?;
    let sums = layout.sums(&device.pool);
    let free = sums.idle.saturating_add(sums.pending);
    // Of whole handles, one at least: what is idle was not enough.
    let needed = refused.asked_bytes.saturating_sub(free).max(1);
    let needed = needed.checked_next_multiple_of(HANDLE).unwrap_or(u64::MAX);
    let more = show_bytes(needed);
    let growth = match in_the_way(text, refused, device, needed)? {
        Some(_) => "no new memory, because of the limit".to_owned(),
        None => format!("{more} of new memory, which the driver did not have"),
    };
    let others = match refused.asked_others {
        0 => "no other process".to_owned(),
        n => format!(
            "what other processes had idle ({}, {:.1} s in all)",
            times(n.into(), "question", "questions"),
            refused.waited_us as f64 / 1e6
        ),
    };
    writeln!(
        text,
        "  Tried: all idle memory ({}, of which {} were still in use after a wait for them); {growth}; {others}.",
        show_bytes(free),
        show_bytes(sums.pending)
    )
}

/// What kept the pool from growing by what was needed: the limit, which is answered, or
/// what the driver has.
fn in_the_way(
    text: &mut String,
    refused: &Refused,
    device: &Device,
    needed: u64,
) -> Result<Option<u64>, std::fmt::Error> {
    let physical = device.pool.counter("physical_bytes");
    // What others made counts for them.
    let counted = physical.saturating_sub(device.pool.counter("opened_bytes"));
    let over = |limit: &u64| counted.saturating_add(needed) > *limit;
    let limit = device.limit_bytes.filter(over);
    if let Some(limit) = limit {
        writeln!(
            text,
            "  The limit of {} (MEMCUDA_LIMIT) is in the way: the pool holds {} and needs {} more.",
            show_bytes(limit),
            show_bytes(counted),
            show_bytes(needed)
        )?;
    } else if let Some(free) = refused.driver_free_bytes {
        let others = device.total_bytes.saturating_sub(free);
        writeln!(
            text,
            "  Of the device's {} the driver had {} free; the pool holds {}, and {} are others', or this process's beside the pool.",
            show_bytes(device.total_bytes),
            show_bytes(free),
            show_bytes(physical),
            show_bytes(others.saturating_sub(physical))
        )?;
    }
    Ok(limit)
}

fn describe(
    text: &mut String,
    reading: &Reading<'_>,
    device: &Device,
    layout: &Layout,
) -> std::fmt::Result {
    let pool = &device.pool;
    let title = [device.name.as_str(), device.uuid.as_str()];
    let title: Vec<&str> = title.into_iter().filter(|word| !word.is_empty()).collect();
    writeln!(
        text,
        "\nDevice {} ({}, {})",
        device.ordinal,
        title.join(", "),
        show_bytes(device.total_bytes)
    )?;
    let sums = layout.sums(pool);
    let live = pool.counter("live_bytes");
    let (peak, physical) = (
        pool.counter("peak_live_bytes"),
        pool.counter("physical_bytes"),
    );
    // All of it is lent, and none of it is live.
    let shared = pool.counter("shared_bytes");
    writeln!(
        text,
        "  physical {}: live {} (lent {}), shared {}, pending {}, idle {}",
        show_bytes(physical),
        show_bytes(live),
        show_bytes(sums.live.saturating_sub(shared)),
        show_bytes(shared),
        show_bytes(sums.pending),
        show_bytes(sums.idle)
    )?;
    let most = show_bytes(peak);
    match part(live, peak) {
        _ if peak == 0 => {}
        at if at >= 99.0 => writeln!(
            text,
            "  This is the peak ({most} live): what follows made it."
        )?,
        at if at >= 90.0 => writeln!(
            text,
            "  This is {at:.0} % of the peak ({most} live): what follows made most of it."
        )?,
        at => writeln!(
            text,
            "  The peak was {most} live; now it is {at:.0} % of that. What the rest of it was, a picture does not tell."
        )?,
    }
    let has = |block: &&Block| !matches!(block.state, State::Idle | State::Pending);
    let mut blocks: Vec<&Block> = pool.blocks.iter().filter(has).collect();
    if blocks.is_empty() {
        return writeln!(text, "  Nobody holds anything.");
    }
    holders(text, reading, device, &blocks);
    blocks.sort_by_key(|block| std::cmp::Reverse((block.asked_bytes, block.id)));
    sizes(text, &blocks);
    largest(text, reading, device, &blocks);
    idle(text, device, layout)
}

/// Who holds it, and for which stream.
fn holders(text: &mut String, reading: &Reading<'_>, device: &Device, blocks: &[&Block]) {
    let mut groups: HashMap<(String, String), (u64, u64)> = HashMap::new();
    for block in blocks {
        let who = reading.who(device, block).unwrap_or_default();
        let stream = stream(device, block);
        let (count, bytes) = groups.entry((who, stream)).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(block.asked_bytes);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|a, b| (b.1.1, &a.0).cmp(&(a.1.1, &b.0)));
    let all = groups.iter().map(|(_, (_, bytes))| bytes);
    let all = all.fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let mut table = Table::left(&["who", "for", "blocks", "asked for", "part"]);
    let row = |who: String, stream: String, count: u64, bytes: u64| {
        let part = format!("{:.1} %", part(bytes, all));
        vec![who, stream, count.to_string(), show_bytes(bytes), part]
    };
    let rest = groups.split_off(groups.len().min(HOLDERS));
    for ((who, stream), (count, bytes)) in groups {
        table.row(row(who, stream, count, bytes));
    }
    if !rest.is_empty() {
        let sum = |of: fn(&(u64, u64)) -> u64| {
            let parts = rest.iter().map(|(_, group)| of(group));
            parts.fold(0, u64::saturating_add)
        };
        let who = format!("{} more", rest.len());
        table.row(row(who, String::new(), sum(|g| g.0), sum(|g| g.1)));
    }
    *text += "\n  Who holds it\n";
    *text += &table.text("    ");
}

/// How large what is held is.
fn sizes(text: &mut String, blocks: &[&Block]) {
    let mut table = Table::new(&["size", "blocks", "asked for"]);
    let mut least = 0;
    for (name, most) in CLASSES {
        let of = |b: &&&Block| (b.asked_bytes > least || least == 0) && b.asked_bytes <= most;
        let of: Vec<_> = blocks.iter().filter(of).collect();
        least = most;
        let bytes = of
            .iter()
            .fold(0_u64, |sum, b| sum.saturating_add(b.asked_bytes));
        if !of.is_empty() {
            table.row(vec![
                name.to_owned(),
                of.len().to_string(),
                show_bytes(bytes),
            ]);
        }
    }
    *text += "\n  By size\n";
    *text += &table.text("    ");
}

fn largest(text: &mut String, reading: &Reading<'_>, device: &Device, sorted: &[&Block]) {
    let mut table = Table::left(&["asked for", "number", "address", "who", "for"]);
    for block in sorted.iter().take(LARGEST) {
        table.row(vec![
            show_bytes(block.asked_bytes),
            block.id.to_string(),
            format!("{:#x}", block.address),
            reading.who(device, block).unwrap_or_default(),
            stream(device, block),
        ]);
    }
    *text += "\n  The largest blocks (no two allocations have the same number)\n";
    *text += &table.text("    ");
}

/// Where idle bytes are, and what could become of them.
fn idle(text: &mut String, device: &Device, layout: &Layout) -> std::fmt::Result {
    let pool = &device.pool;
    let (mut whole, mut wholes, mut parts) = (0_u64, 0_u64, 0_u64);
    let (mut pages, mut unused, mut unused_bytes) = (0_usize, 0_u64, 0_u64);
    for (chunk, tiles) in pool.chunks.iter().zip(&layout.chunks) {
        if chunk.page {
            pages += 1;
            let free = chunk.free.first().map_or(0, |free| free.bytes);
            unused += u64::from(free > 0);
            unused_bytes = unused_bytes.saturating_add(free);
            continue;
        }
        let mut free = 0;
        for part in tiles {
            let idle = match part.kind {
                Kind::Block(at) => matches!(pool.blocks[at].state, State::Idle | State::Pending),
                Kind::Pending | Kind::Idle => true,
                Kind::Held => false,
            };
            free += if idle { part.bytes } else { 0 };
        }
        if free == chunk.bytes {
            (whole, wholes) = (whole.saturating_add(free), wholes + 1);
        } else {
            parts = parts.saturating_add(free);
        }
    }
    writeln!(
        text,
        "\n  Idle: {} in {} of {} handles that are wholly idle, which any request can have stitched; {} in handles that are partly in use.",
        show_bytes(whole),
        wholes,
        pool.chunks.len() - pages,
        show_bytes(parts)
    )?;
    if pages == 0 {
        return Ok(());
    }
    writeln!(
        text,
        "  Of {pages} pages of torch's expandable segments {unused} are idle ({}): kept for torch, and given to whoever runs out.",
        show_bytes(unused_bytes)
    )
}

fn part(bytes: u64, of: u64) -> f64 {
    100.0 * bytes as f64 / of.max(1) as f64
}
