//! `/metrics`: the counters in Prometheus' text format, from one table of names,
//! units and meanings, from which `docs/reference/metrics.md` is made.

use std::collections::BTreeMap;
use std::fmt::Write;

use memcuda::share::protocol::Entry;

use crate::survey::{Names, Seen};

/// Content type of the format.
pub const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy)]
enum Type {
    Gauge,
    Counter,
}

use Type::{Counter, Gauge};

/// A counter of the page, what it is, and what it means.
const POOL: &[(&str, Type, &str)] = &[
    ("live_bytes", Gauge, "Bytes asked for and not freed."),
    (
        "granted_bytes",
        Gauge,
        "Bytes lent for them: live and rounding.",
    ),
    (
        "pending_bytes",
        Gauge,
        "Of the idle bytes, those whose uses may still run.",
    ),
    ("idle_bytes", Gauge, "Bytes held and not lent."),
    (
        "physical_bytes",
        Gauge,
        "Bytes of all physical handles, other processes' memory included.",
    ),
    (
        "shared_bytes",
        Gauge,
        "Of the physical bytes, those not the pool's own: named, or opened from another process.",
    ),
    (
        "parked_bytes",
        Gauge,
        "Bytes freed while other processes have them open.",
    ),
    (
        "peak_live_bytes",
        Gauge,
        "Highest live bytes so far; where torch has pages, theirs and those beside them, each at its own time.",
    ),
    (
        "peak_physical_bytes",
        Gauge,
        "Highest physical bytes so far.",
    ),
    ("chunks", Gauge, "Physical handles held."),
    (
        "requests",
        Counter,
        "Allocations asked for; of torch's expandable segments, pages.",
    ),
    (
        "hits",
        Counter,
        "Allocations served with no driver call but event operations.",
    ),
    (
        "searches",
        Counter,
        "Allocations served by a search for a window.",
    ),
    ("stitches", Counter, "Address ranges stitched."),
    (
        "growths",
        Counter,
        "Times that new physical memory was taken.",
    ),
    (
        "handles_mapped",
        Counter,
        "Handles mapped, aliases included.",
    ),
    (
        "frees",
        Counter,
        "Allocations freed; of torch's expandable segments, pages.",
    ),
    (
        "foreign_frees",
        Counter,
        "Frees of addresses that are not the pool's, passed to the driver.",
    ),
    ("waits", Counter, "Orderings behind another stream."),
    (
        "edges",
        Counter,
        "Orderings behind the same stream for another address.",
    ),
    ("host_waits", Counter, "Waits on the host."),
    (
        "out_of_memory",
        Counter,
        "Allocations that failed for lack of memory.",
    ),
    (
        "driver_ns",
        Counter,
        "Seconds spent in driver calls other than event operations.",
    ),
    (
        "stalls",
        Counter,
        "Requests and frees that took longer than 1 ms beyond the quick path.",
    ),
    ("stall_ns", Counter, "Seconds that these took."),
];

/// What a counter of the page is called here: in seconds, where it is in nanoseconds.
fn called(field: &str, kind: Type) -> String {
    let field = match field {
        "waits" | "edges" => format!("stream_{field}"),
        _ => field.replace("_ns", "_seconds"),
    };
    match kind {
        Gauge => format!("memcuda_{field}"),
        Counter => format!("memcuda_{field}_total"),
    }
}

/// The text of what was seen.
pub fn text(seen: &Seen, names: &Names) -> String {
    let mut text = String::new();
    for (field, kind, help) in POOL {
        let metric = called(field, *kind);
        open(&mut text, &metric, *kind, help);
        for row in &seen.rows {
            let mut fields = row.counters.fields();
            let value = fields.find_map(|(name, value)| (name == *field).then_some(value));
            let labels = format!(
                "pid=\"{}\",command=\"{}\",device=\"{}\"",
                row.pid,
                escaped(&row.command),
                row.counters.ordinal
            );
            let value = shown(field, value.unwrap_or(0));
            let _ = writeln!(text, "{metric}{{{labels}}} {value}");
        }
    }
    let pids: std::collections::HashSet<u32> = seen.rows.iter().map(|row| row.pid).collect();
    single(
        &mut text,
        "memcuda_processes",
        "Processes that run on a pool.",
        pids.len() as u64,
    );
    let unread = seen.unread.len() as u64;
    single(
        &mut text,
        "memcuda_unread_processes",
        "Processes whose statistics page cannot be read.",
        unread,
    );
    named(&mut text, names);
    open(
        &mut text,
        "memcuda_build_info",
        Gauge,
        "1, with the version of this program.",
    );
    let _ = writeln!(
        text,
        "memcuda_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    text
}

/// A counter's value in the unit of its metric, exactly.
fn shown(field: &str, value: u64) -> String {
    match field.ends_with("_ns") {
        true => format!("{}.{:09}", value / 1_000_000_000, value % 1_000_000_000),
        false => value.to_string(),
    }
}

fn open(text: &mut String, metric: &str, kind: Type, help: &str) {
    let kind = match kind {
        Gauge => "gauge",
        Counter => "counter",
    };
    let _ = writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
}

fn single(text: &mut String, metric: &str, help: &str, value: u64) {
    open(text, metric, Gauge, help);
    let _ = writeln!(text, "{metric} {value}");
}

/// Names by device: a sum, not a label each, of which there may be ten thousand.
fn named(text: &mut String, names: &Names) {
    let up = u64::from(names.nobody.is_none());
    single(
        text,
        "memcuda_keeper_up",
        "Is there a keeper of names that answers?",
        up,
    );
    let mut devices: BTreeMap<String, Vec<&Entry>> = BTreeMap::new();
    for entry in names.entries.iter() {
        devices
            .entry(entry.spec.device.to_string())
            .or_default()
            .push(entry);
    }
    type Sum = fn(&Entry) -> u64;
    let sums: [(&str, &str, Sum); 4] = [
        ("memcuda_names", "Names that the keeper knows.", |_| 1),
        (
            "memcuda_named_bytes",
            "Physical bytes of named memory.",
            |it| it.mapped,
        ),
        (
            "memcuda_named_unheld_bytes",
            "Of them, bytes of names that nobody holds.",
            |it| {
                if it.references == 0 { it.mapped } else { 0 }
            },
        ),
        (
            "memcuda_name_references",
            "How often names are held, as a sum of counts.",
            |it| it.references,
        ),
    ];
    for (metric, help, of) in sums {
        open(text, metric, Gauge, help);
        for (uuid, entries) in &devices {
            let sum: u64 = entries.iter().map(|entry| of(entry)).sum();
            let _ = writeln!(text, "{metric}{{device_uuid=\"{}\"}} {sum}", escaped(uuid));
        }
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '\\' => "\\\\".to_owned(),
        '"' => "\\\"".to_owned(),
        '\n' => "\\n".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use memcuda::stats_page::Counters;

    use super::*;
    use crate::survey::Row;

    #[test]
    fn every_counter_of_the_page_is_a_metric_once() {
        let told: Vec<&str> = POOL.iter().map(|row| row.0).collect();
        for (name, _) in Counters::default().fields() {
            let count = told.iter().filter(|it| **it == name).count();
            assert_eq!(count, usize::from(name != "ordinal"), "{name}");
        }
    }

    #[test]
    fn values_are_exact_and_labels_cannot_break_out() {
        let mut counters = Counters {
            ordinal: 2,
            ..Counters::default()
        };
        counters.pool.live_bytes = u64::MAX;
        counters.pool.driver_ns = 1_000_000_001;
        let command = "a\"} 9\\".to_owned();
        let row = Row {
            pid: 7,
            page: 1,
            command,
            counters,
            rates: None,
        };
        let seen = Seen {
            rows: vec![row],
            unread: vec![(9, "why".to_owned())],
        };
        let text = text(
            &seen,
            &Names {
                nobody: Some("none".to_owned()),
                ..Names::default()
            },
        );
        let labels = r#"{pid="7",command="a\"} 9\\",device="2"}"#;
        for line in [
            format!("memcuda_live_bytes{labels} 18446744073709551615"),
            format!("memcuda_driver_seconds_total{labels} 1.000000001"),
            "memcuda_processes 1".to_owned(),
            "memcuda_unread_processes 1".to_owned(),
            "memcuda_keeper_up 0".to_owned(),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
