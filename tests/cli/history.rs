//! What happened before a snapshot: of processes that record themselves, at rest
//! and at work, of their reports, and of traces that are another's.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::snapshot::{Holder, mixed, sums};
use crate::{code, done, failed, objects, run, stderr, stdout};

/// A process that may hold 256 MiB, reports what is refused and records itself; its
/// report and recording.
fn refused(folder: &Path, lines: &[String]) -> (Holder, PathBuf, PathBuf) {
    let (reports, trace) = (folder.join("reports"), folder.join("t"));
    let settings = [
        ("MEMCUDA_OOM_REPORT", reports.to_str().unwrap()),
        ("MEMCUDA_TRACE", trace.to_str().unwrap()),
        ("MEMCUDA_LIMIT", "256MiB"),
    ];
    let holder = Holder::start(&settings, lines);
    let report = fs::read_dir(&reports).unwrap().next().unwrap().unwrap();
    (holder, report.path(), trace)
}

/// Takes a snapshot into a file.
fn taken(source: &str, file: &Path, more: &[&str]) -> Output {
    let arguments = ["snapshot", source, "-o", file.to_str().unwrap()];
    run(&[&arguments[..], more].concat())
}

#[test]
fn a_process_that_records_has_its_history_in_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, file) = (folder.path().join("t"), folder.path().join("s.pickle"));
    let settings = [("MEMCUDA_TRACE", trace.to_str().unwrap())];
    let holder = Holder::start(&settings, &mixed());
    let output = taken(&holder.pid(), &file, &[]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let sum = sums(&file);
    let stat = objects(&run(&["stat", &holder.pid(), "--json"]), "stat");
    let counter = |name: &str| stat[0][name].as_u64().unwrap();
    assert_eq!(sum("most"), counter("peak_live_bytes"));
    assert_eq!(sum("left"), counter("live_bytes"));
    assert!(sum("left") < sum("most"));
    // 120 allocations and 24 frees, which are two entries each, and where blocks
    // were that have no segment now.
    let places = sum("events") - 120 - 2 * 24;
    assert_eq!(places, 2 * sum("places"));

    // The same of a trace that is named, as a recording and as text.
    let text = folder.path().join("t.zst");
    let converted = run(&[
        "trace",
        trace.to_str().unwrap(),
        "-o",
        text.to_str().unwrap(),
    ]);
    assert_eq!(code(&converted), 0);
    for named in [&trace, &text] {
        let output = taken(&holder.pid(), &file, &["--trace", named.to_str().unwrap()]);
        assert_eq!((code(&output), stderr(&output)), (0, String::new()));
        assert_eq!(sums(&file)("most"), counter("peak_live_bytes"));
    }

    let output = taken(&holder.pid(), &file, &["--events", "10"]);
    assert_eq!(code(&output), 0);
    assert!(
        stderr(&output).contains("the latest 10 events; 134 before them"),
        "{}",
        stderr(&output)
    );
    let few = sums(&file);
    assert!((10..=40).contains(&few("events")));
    assert_eq!(few("left"), counter("live_bytes"));

    let output = taken(&holder.pid(), &file, &["--events", "0"]);
    let said = stderr(&output);
    assert!(said.contains("the latest 0 events; 144 before"), "{said}");
    assert_eq!(sums(&file)("left"), counter("live_bytes"));

    // A recording that cannot be read costs the history alone.
    let recording = fs::File::options().write(true).open(&trace).unwrap();
    recording.write_all_at(&99_u64.to_le_bytes(), 8).unwrap();
    let output = taken(&holder.pid(), &file, &[]);
    assert_eq!(code(&output), 0);
    let said = stderr(&output);
    assert!(
        said.contains("version 99") && said.contains("is left out"),
        "{said}"
    );
    assert_eq!(sums(&file)("events"), 0);
}

#[test]
fn a_process_at_work_has_a_history_that_ends_with_its_picture() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, file) = (folder.path().join("t"), folder.path().join("s.pickle"));
    let settings = [("MEMCUDA_TRACE", trace.to_str().unwrap())];
    let lines = ["malloc 1000", "churn 4"].map(str::to_owned);
    let holder = Holder::start(&settings, &lines);
    let mut events = 0;
    for _ in 0..4 {
        done(taken(&holder.pid(), &file, &["--events", "3000"]));
        let sum = sums(&file);
        assert_eq!(sum("left"), sum("requested"));
        assert!(sum("events") > events || sum("events") > 3000);
        events = sum("events");
    }
}

#[test]
fn a_report_has_the_history_of_its_own_process_only() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        format!("alloc {} 1", 150 << 20),
        "free".to_owned(),
        format!("malloc {}", 60 << 20),
        format!("alloc {} 1", 1_u64 << 30),
        // After the report.
        format!("alloc {} 1", 90 << 20),
    ];
    let (holder, report, trace) = refused(folder.path(), &lines);
    let (report, file) = (report.to_str().unwrap(), folder.path().join("s.pickle"));
    let text = folder.path().join("text");
    run(&[
        "trace",
        trace.to_str().unwrap(),
        "-o",
        text.to_str().unwrap(),
    ]);
    // It knows where its process records, and takes another trace of it.
    for named in [&[][..], &["--trace", text.to_str().unwrap()]] {
        let output = taken(report, &file, named);
        assert_eq!((code(&output), stderr(&output)), (0, String::new()));
        let sum = sums(&file);
        assert_eq!((sum("most"), sum("left")), (150 << 20, 60 << 20));
        assert_eq!(sum("events") - 2 * sum("places"), 5);
    }

    let other = Holder::start(&[], &mixed());
    let output = taken(&other.pid(), &file, &["--trace", trace.to_str().unwrap()]);
    let why = format!(
        "the trace is of process {}, the picture of process {}",
        holder.pid(),
        other.pid()
    );
    failed(&output, 2, &why);
    drop(holder);

    // Another process's file by now: it is not taken for the report's.
    let again = Holder::start(&[("MEMCUDA_TRACE", trace.to_str().unwrap())], &mixed());
    let output = taken(report, &file, &[]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    assert_eq!(sums(&file)("events"), 1);
    drop(again);
}

#[test]
fn what_is_told_late_and_what_is_missing_are_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        format!("malloc {}", 60 << 20),
        format!("alloc {} 1", 150 << 20),
        "free".to_owned(),
        format!("alloc {} 1", 1_u64 << 30),
    ];
    let (holder, report, trace) = refused(folder.path(), &lines);
    let whole = stdout(&run(&["trace", trace.to_str().unwrap(), "-o", "-"]));
    drop(holder);

    // The report knows of all; an allocation is told late and the free is lost.
    let (late, told): (Vec<&str>, Vec<&str>) = whole
        .lines()
        .filter(|line| !line.contains(",free,"))
        .partition(|line| line.contains(&format!(",{},", 60 << 20)));
    let ([late], true) = (late.as_slice(), told.len() + 2 == whole.lines().count()) else {
        panic!("{whole}");
    };
    let (t_us, event) = late.split_once(',').unwrap();
    let t_us = t_us.parse::<u64>().unwrap() + 2_000_000;
    let text = folder.path().join("text");
    fs::write(&text, format!("{}\n{t_us},{event}\n", told.join("\n"))).unwrap();
    let file = folder.path().join("s.pickle");
    done(taken(
        report.to_str().unwrap(),
        &file,
        &["--trace", text.to_str().unwrap()],
    ));
    let sum = sums(&file);
    assert_eq!((sum("most"), sum("left")), (210 << 20, 60 << 20));
}

#[test]
fn what_was_before_a_report_is_explained_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let (reports, trace) = (folder.path().join("reports"), folder.path().join("t"));
    let reports = reports.to_str().unwrap();
    let settings = [
        ("MEMCUDA_OOM_REPORT", reports),
        ("MEMCUDA_LIMIT", "256MiB"),
        ("MEMCUDA_TRACE_STACKS", "c"),
        ("MEMCUDA_TRACE", trace.to_str().unwrap()),
    ];
    let lines = [
        format!("alloc {} 1", 50 << 20),
        "free".to_owned(),
        format!("alloc {} 1", 40 << 20),
        format!("malloc {}", 60 << 20),
        format!("alloc {} 1", 1_u64 << 30),
    ];
    let bare = Holder::start(&settings[..2], &lines);
    let svg = folder.path().join("before.svg");
    let text = done(run(&["explain", reports, "--svg", svg.to_str().unwrap()]));
    assert!(text.contains("Before that: most bytes in use, bytes held"));
    let rows: Vec<&str> = text.lines().filter(|l| l.contains(" to 0 ")).collect();
    let [row] = rows.as_slice() else {
        panic!("{text}");
    };
    assert!(row.contains(" 100.0 MiB  100.0 MiB "), "{row}");
    let bar = row.split_whitespace().last().unwrap();
    assert_eq!(bar, "#".repeat(40), "{row}");
    assert!(row.contains(" 1  "), "one failure: {row}");
    assert!(!text.contains("Of the last 10 s"), "nothing was recorded");
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.contains("<title>in use</title>"));
    drop(bare);

    let holder = Holder::start(&settings, &lines);
    let text = stdout(&run(&["explain", reports]));
    for part in [
        "Of the last 10 s the recording has 3 allocations (150.0 MiB) and 1 free (50.0 MiB)",
        "the program+0x",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    // A process that keeps nothing has nothing to draw.
    let plain = Holder::start(&[], &mixed());
    let output = run(&["explain", &plain.pid(), "--svg", svg.to_str().unwrap()]);
    failed(&output, 2, "kept nothing of what was before");
    let path = trace.to_str().unwrap();
    let output = run(&["explain", path, "--trace", path]);
    failed(&output, 2, &format!("{path} is no report; --trace says"));
    drop(holder);
}

#[test]
fn a_trace_that_says_no_time_or_is_none_is_a_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.pickle");
    let holder = Holder::start(&[], &mixed());
    let trace = folder.path().join("t");
    let with = || taken(&holder.pid(), &file, &["--trace", trace.to_str().unwrap()]);
    failed(&with(), 2, "No such file");
    fs::write(&trace, "t_us,op,id,bytes,stream\n1,alloc,1,1,0\n").unwrap();
    failed(&with(), 2, "does not say when it was recorded");
    fs::write(&trace, "no trace").unwrap();
    failed(&with(), 2, "line 1");
    assert!(!file.exists());
}
