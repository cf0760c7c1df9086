//! Recordings of torch over pages, and what is said of them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::keeper::memcuda;
use crate::{NATIVE, command, support, torch, train_with};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 12 * MIB;

fn said(arguments: &[&str], trace: &Path) -> String {
    let mut command = Command::new(memcuda());
    support::said(command.args(arguments).arg(trace)).0
}

fn explained(arguments: &[&str], trace: &Path) -> Value {
    let all = [&["explain", "--json"], arguments].concat();
    serde_json::from_str(&said(&all, trace)).unwrap()
}

/// Has torch enough under this limit?
fn is_enough(limit: u64) -> bool {
    let limit = limit.to_string();
    let settings = [NATIVE, ("MEMCUDA_LIMIT", limit.as_str())];
    let mut job = command(&torch().join("expandable"), "plain", &settings);
    job.output().unwrap().status.success()
}

#[test]
fn a_recording_has_the_pages_that_torch_maps_and_would_fit_says_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let settings = [NATIVE, ("MEMCUDA_TRACE", trace.to_str().unwrap())];
    let ran = train_with(&torch().join("expandable"), "plain", &settings);
    let held = ran.peak_reserved * MIB;

    let text = said(&["trace", "-o", "-"], &trace);
    let pages = |op: &str| {
        let of = format!(",{op},");
        let rows = text.lines().filter(|line| line.contains(&of));
        rows.filter(|line| line.contains(",page,")).count()
    };
    assert!(pages("alloc") > 100, "{text}");
    assert_eq!(pages("alloc"), pages("free"));
    let first = text.lines().find(|line| line.contains(",page,")).unwrap();
    assert!(first.contains(&format!(",{PAGE},")) && first.contains("libc10_cuda.so"));
    let refused = text.lines().filter(|line| line.contains(",refused,"));
    assert_eq!(refused.count() as u64, ran.retries);

    let report = explained(&["--would-fit", &held.to_string()], &trace);
    let device = &report["devices"][0];
    assert_eq!(report["lost_events"], 0);
    assert_eq!(device["pages"].as_u64().unwrap(), pages("alloc") as u64);
    assert_eq!(device["peak_live_bytes"], held);
    // Each was asked for again, and was there.
    assert_eq!(device["refused"], 0);
    let fit = &report["would_fit"];
    let least = fit["least_limit_bytes"].as_u64().unwrap();
    assert_eq!((fit["fits"].clone(), least), (Value::Bool(true), held));
    assert!(is_enough(least) && !is_enough(least * 97 / 100), "{least}");
    let less = explained(&["--would-fit", &(held - MIB).to_string()], &trace);
    assert_eq!(less["would_fit"]["fits"], false);
    let words = said(&["explain"], &trace);
    assert!(
        words.contains("pages of torch's expandable segments"),
        "{words}"
    );

    // What was recorded is played as it was: so many pages were there already.
    let replay: Value = serde_json::from_str(&said(&["replay", "--json"], &trace)).unwrap();
    let physical = replay["peak_physical_bytes"].as_u64().unwrap();
    assert!(physical >= held && physical <= held + 2 * MIB, "{replay}");
    assert!(replay["hit_rate"].as_f64().unwrap() > 0.2, "{replay}");
    // A model of torch needs tensors, and pages are none.
    for profile in ["native", "segments", "expandable"] {
        let mut command = Command::new(memcuda());
        let command = command.args(["replay", "--profile", profile]).arg(&trace);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("is a page of torch's own allocator"),
            "{text}"
        );
    }
    // As text it says the same.
    let written = folder.path().join("text");
    said(&["trace", "-o", written.to_str().unwrap()], &trace);
    let again = explained(&["--would-fit", &held.to_string()], &written);
    assert_eq!(again["would_fit"], report["would_fit"]);
}

/// Where torch has no memory left the report shows who has which pages.
#[test]
fn a_report_shows_pages_in_use_and_idle_ones_and_whose_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, reports) = (folder.path().join("t"), folder.path().join("oom"));
    let limit = 640 * MIB;
    let settings = [
        NATIVE,
        ("MEMCUDA_LIMIT", "640MiB"),
        ("MEMCUDA_TRACE", trace.to_str().unwrap()),
        ("MEMCUDA_OOM_REPORT", reports.to_str().unwrap()),
    ];
    let mut job = command(&torch().join("expandable"), "plain", &settings);
    assert_eq!(job.output().unwrap().status.code(), Some(1));

    let seen: Value = serde_json::from_str(&said(&["snapshot", "--json"], &reports)).unwrap();
    assert_eq!(seen["refused"]["asked_bytes"], PAGE);
    let pool = &seen["devices"][0]["pool"];
    let all = |what: &str| pool[what].as_array().unwrap().clone();
    let sum = |of: &[Value], field: &str| of.iter().map(|it| it[field].as_u64().unwrap()).sum();
    let held: u64 = sum(&all("chunks"), "bytes");
    assert_eq!(pool["counters"]["physical_bytes"], held);
    assert!(held <= limit && held + PAGE > limit, "{held}");
    assert!(all("chunks").iter().all(|chunk| chunk["page"] == true));
    let blocks = all("blocks");
    assert!(
        blocks
            .iter()
            .all(|it| it["owner"] == "page" && it["state"] == "live")
    );
    let live: u64 = sum(&blocks, "bytes");
    // What was made for the request that failed is nobody's, and not idle.
    assert!(
        live <= held && pool["counters"]["live_bytes"] == held,
        "{live}"
    );
    assert_eq!(
        pool["counters"]["out_of_memory"],
        seen["refused"]["refusals"]
    );
    let moments = all("before");
    assert!(
        moments
            .iter()
            .any(|it| it["physical_bytes"].as_u64().unwrap() > 400 * MIB)
    );

    let words = said(&["explain"], &reports);
    for part in [
        "The limit of 640.0 MiB (MEMCUDA_LIMIT) is in the way",
        "a page of torch's expandable segments",
        "pages of torch's expandable segments 0 are idle",
        "libc10_cuda.so",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // For torch's own viewer: its segments are what is held.
    let pickle = folder.path().join("p");
    said(&["snapshot", "-o", pickle.to_str().unwrap()], &reports);
    let read = "import pickle, sys; s = pickle.load(open(sys.argv[1], 'rb'));\
        print(sum(x['total_size'] for x in s['segments']), \
        sum(x['action'] == 'alloc' for x in s['device_traces'][0]))";
    let mut python = Command::new("python3");
    let (numbers, _) = support::said(python.args(["-c", read]).arg(&pickle));
    let numbers: Vec<u64> = numbers
        .split(' ')
        .map(|n| n.trim().parse().unwrap())
        .collect();
    assert!(numbers[0] == held && numbers[1] > 50, "{numbers:?}");
}
