//! What was before a picture: the pool's last minute, as rows and as a chart,
//! and who got the memory in the last seconds, where the process recorded it.

use std::collections::HashMap;
use std::fmt::Write as _;

use memcuda::picture::{Device, Moment, Picture};
use memcuda::trace::Op;
use memcuda::units::show_bytes;

use super::svg::Chart;
use crate::output::{Table, times};
use crate::pictures::history::History;

/// Where rows begin, in milliseconds before the picture: the end has the most.
const ROWS: [u64; 13] = [
    120_000, 60_000, 30_000, 20_000, 10_000, 5_000, 3_000, 2_000, 1_000, 500, 200, 100, 0,
];
/// Columns of a bar.
const BAR: u64 = 40;
/// Seconds that a rate is of, at least: of two moments of one burst it would say anything.
const RATE: f64 = 0.05;
/// Milliseconds of a step of a chart.
const STEP_MS: u64 = 250;
/// Seconds of which a recording is asked.
const RECENT: u64 = 10;
/// Rows of who got memory.
const MOST: usize = 8;

/// The pool's last minute, if it is known.
pub fn describe(text: &mut String, device: &Device) {
    let moments = &device.pool.before;
    let most = moments.iter().map(|m| m.physical_bytes).max();
    let Some(most) = most.filter(|most| *most > 0) else {
        return;
    };
    let headings = ["seconds before", "in use", "held", "requests/s", "failed"];
    let bars = format!("# in use, - held; the width is {}", show_bytes(most));
    let mut table = Table::left(&[&headings[..], &[&bars]].concat());
    for edges in ROWS.windows(2) {
        let (from, to) = (edges[0] * 1000, edges[1] * 1000);
        let within = |m: &&Moment| m.before_us <= from && (m.before_us > to || to == 0);
        let row: Vec<&Moment> = moments.iter().filter(within).collect();
        let earlier = moments.iter().rfind(|m| m.before_us > from);
        if let Some(cells) = cells(&row, earlier, most) {
            let when = format!("{} to {}", from as f64 / 1e6, to as f64 / 1e6);
            table.row([vec![when], cells].concat());
        }
    }
    *text += "\n  Before that: most bytes in use, bytes held\n";
    *text += &table.text("    ");
}

fn cells(row: &[&Moment], earlier: Option<&Moment>, most: u64) -> Option<Vec<String>> {
    let (first, last) = (row.first()?, row.last()?);
    let used = row.iter().map(|m| m.used_bytes).max()?;
    let held = row.iter().map(|m| m.physical_bytes).max()?;
    let since = earlier.unwrap_or(first);
    let seconds = since.before_us.saturating_sub(last.before_us) as f64 / 1e6;
    let requests = last.requests.saturating_sub(since.requests);
    let rate = match seconds >= RATE {
        true => format!("{:.0}", requests as f64 / seconds),
        false => String::new(),
    };
    let columns = |bytes: u64| (u128::from(bytes) * u128::from(BAR) / u128::from(most)) as usize;
    let (dark, all) = (columns(used.min(held)), columns(held));
    let bar = "#".repeat(dark) + &"-".repeat(all.saturating_sub(dark));
    let failed = last.failures.saturating_sub(since.failures);
    let failed = if failed > 0 {
        failed.to_string()
    } else {
        String::new()
    };
    Some(vec![show_bytes(used), show_bytes(held), rate, failed, bar])
}

/// The same as a chart; `None` where it is not known.
pub fn chart(device: &Device) -> Option<Chart> {
    let moments = &device.pool.before;
    let first = moments.first()?.before_us / 1000;
    // A damaged picture may say anything.
    let steps = (first.min(ROWS[0]) / STEP_MS + 1) as usize;
    let (mut used, mut held) = (vec![None; steps], vec![None; steps]);
    for moment in moments {
        let before = (moment.before_us / 1000 / STEP_MS) as usize;
        if let Some(step) = (steps - 1).checked_sub(before) {
            used[step] = used[step].max(Some(moment.used_bytes));
            held[step] = held[step].max(Some(moment.physical_bytes));
        }
    }
    let (used, held) = (carried(used), carried(held));
    let spare = used
        .iter()
        .zip(&held)
        .map(|(used, held)| held.saturating_sub(*used));
    let span = steps as f64 * STEP_MS as f64 / 1e3;
    Some(Chart {
        title: format!("Device {}: the last {span:.0} s", device.ordinal),
        layers: vec![("held, not in use", spare.collect()), ("in use", used)],
        colours: (0, 3),
        step: STEP_MS as f64 / 1e3,
        begin: -span,
        mark: None,
    })
}

/// What is not known of a step is as it was before.
fn carried(steps: Vec<Option<u64>>) -> Vec<u64> {
    let mut last = 0;
    let known = steps.into_iter().map(|step| {
        last = step.unwrap_or(last);
        last
    });
    known.collect()
}

/// Who got the memory in the last seconds, by the recording.
pub fn recent(text: &mut String, picture: &Picture, device: u32, history: &History) {
    let since = picture.taken_us.saturating_sub(RECENT * 1_000_000);
    let recent = history
        .events(device)
        .filter(|e| history.time_us(e) >= since);
    let (mut allocs, mut frees, mut got, mut gave) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut stays: HashMap<String, (u64, u64)> = HashMap::new();
    for event in recent {
        if event.op != Op::Alloc {
            (frees, gave) = (frees + 1, gave.saturating_add(event.bytes));
            continue;
        }
        (allocs, got) = (allocs + 1, got.saturating_add(event.bytes));
        if history.stays(event) {
            let (count, bytes) = stays.entry(history.asked(event)).or_default();
            (*count, *bytes) = (*count + 1, bytes.saturating_add(event.bytes));
        }
    }
    let _ = writeln!(
        text,
        "\n  Of the last {RECENT} s the recording has {} ({}) and {} ({})",
        times(allocs, "allocation", "allocations"),
        show_bytes(got),
        times(frees, "free", "frees"),
        show_bytes(gave)
    );
    if stays.is_empty() {
        return;
    }
    let mut stays: Vec<_> = stays.into_iter().collect();
    stays.sort_by(|a, b| (b.1.1, &a.0).cmp(&(a.1.1, &b.0)));
    let mut table = Table::left(&["allocated since then and held, by", "blocks", "asked for"]);
    for (who, (count, bytes)) in stays.into_iter().take(MOST) {
        table.row(vec![who, count.to_string(), show_bytes(bytes)]);
    }
    *text += &table.text("    ");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_a_time_and_not_of_a_burst() {
        let rate = |us: u64| {
            let moment = |before_us, requests| Moment {
                before_us,
                requests,
                ..Moment::default()
            };
            let (earlier, last) = (moment(us, 1), moment(0, 6));
            cells(&[&last], Some(&earlier), 1).unwrap()[2].clone()
        };
        assert_eq!(rate(250_000), "20");
        assert_eq!(rate(83), "", "five requests are not 60,000 a second");
        assert_eq!(rate(0), "");
    }
}
