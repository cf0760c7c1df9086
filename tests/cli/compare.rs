//! `memcuda compare`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

use memcuda::pool::Stats;
use memcuda::stats_page::{Counters, MEMFD_NAME, VERSION};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Signal;

use crate::stat::page;
use crate::{check_units, code, memcuda, objects, run, stderr, stdout, unread};

/// Runs it with these words.
fn compare(words: &str) -> Output {
    let words = words.split(' ');
    run(&std::iter::once("compare").chain(words).collect::<Vec<_>>())
}

/// Whatever the command itself was started with: the library, or input.
#[test]
fn profiles_take_turns_and_each_gets_its_setting() {
    let directory = tempfile::tempdir().unwrap();
    let [log, input] = ["log", "input"].map(|name| directory.path().join(name));
    fs::write(&input, "input").unwrap();
    let preloaded = "$(echo \"$LD_PRELOAD\" | sed 's,[^:]*/,,g')";
    let script = format!("echo \"${{MEMCUDA_TORCH:-bare}} {preloaded}$(cat)\" >> \"$0\"");
    let options = "compare --repeat 2 --profiles bare,native,bare,async --json";
    let output = memcuda()
        .args(options.split(' '))
        .args(["--", "sh", "-c", &script])
        .arg(&log)
        .env("LD_PRELOAD", "/nowhere/libmemcuda.so:/nowhere/other.so")
        .stdin(fs::File::open(input).unwrap())
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let pooled = "libmemcuda.so:other.so";
    // Another one is the first of each repeat: it pays for what the host keeps afterwards.
    let (bare, others) = (
        "bare other.so\n",
        format!("native {pooled}\nasync {pooled}\n"),
    );
    let turns = format!("{bare}{others}{others}{bare}");
    assert_eq!(fs::read_to_string(log).unwrap(), turns);
    let rows = objects(&output, "compare");
    assert_eq!(rows.len(), 3);
    for row in &rows {
        check_units(row, &["runs", "failed"]);
        assert!(row["runs"] == 2 && row["failed"] == 0);
        assert!(row["wall_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn what_nothing_measured_is_unknown_and_not_zero() {
    let output = compare("--repeat 1 --profiles bare,keep --json true");
    let keep = &objects(&output, "compare")[1];
    // `true` makes no pool, so nobody counted.
    assert!(keep["peak_physical_bytes"].is_null() && keep["peak_live_bytes"].is_null());
    let table = compare("--repeat 1 --profiles keep true");
    let why = "unknown: it was not seen in use; `memcuda doctor -- true` says whether calls arrive";
    assert!(stdout(&table).contains(why), "{}", stdout(&table));
    let bare = compare("--repeat 1 --profiles bare true");
    assert!(!stdout(&bare).contains(why), "{}", stdout(&bare));
}

#[test]
fn what_one_run_of_each_does_not_say_is_said() {
    let told = "once each, bare first";
    let said = |words| stdout(&compare(words)).contains(told);
    assert!(said("--repeat 1 --profiles bare,keep true"));
    assert!(!said("--repeat 2 --profiles bare,keep true"));
    assert!(!said("--repeat 1 --profiles bare true"));
    assert!(!said("--repeat 1 --profiles bare,keep --json true"));
}

#[test]
fn a_run_that_fails_is_told_and_ends_with_1() {
    let output = compare("--repeat 2 --profiles keep false");
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).contains("keep: 2 of 2 runs failed (exit status 1)"));
    let output = compare("--profiles bare -- no-such-program");
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("no-such-program"));
    for times in ["0", "1001", "-1"] {
        let output = compare(&format!("--repeat={times} true"));
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("accepted: a whole number from 1 to 1000"));
    }
}

#[test]
fn that_a_run_failed_is_told_by_the_status_also_where_nobody_reads_the_table() {
    for options in ["", "--json "] {
        let words = format!("compare --repeat 1 --profiles bare {options}false");
        let mut command = memcuda();
        let output = command.args(words.split(' ')).stdout(unread()).output();
        assert_eq!(code(&output.unwrap()), 1, "{words}");
    }
}

#[test]
fn the_commands_output_does_not_mix_with_the_table() {
    let output = compare("--repeat 1 --profiles bare --json echo hello");
    assert_eq!(objects(&output, "compare").len(), 1);
    assert!(stderr(&output).contains("hello"));
}

/// As this process does, for its own sake.
#[test]
fn the_command_does_not_ignore_the_end_of_who_reads_it() {
    let output = compare("--repeat 1 --profiles bare grep SigIgn /proc/self/status");
    let said = stderr(&output);
    let ignored = said.split_whitespace().last().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & 1 << (Signal::PIPE.as_raw() - 1), 0, "{said}");
}

/// Not a test: what the next one measures. It has a page, and then starts itself anew.
#[test]
#[ignore = "a process of another test, not a test"]
fn two_programs_in_one_process() {
    // First one device had all of it, then the other.
    let of = |ordinal, now| Counters {
        ordinal,
        pool: Stats {
            physical_bytes: now,
            peak_physical_bytes: 64 << 20,
            live_bytes: now,
            peak_live_bytes: 50 << 20,
            ..Stats::default()
        },
        ..Counters::default()
    };
    let file = File::from(memfd_create(MEMFD_NAME, MemfdFlags::CLOEXEC).unwrap());
    let bytes = page(VERSION, &[of(0, 0), of(1, 40 << 20)]);
    file.write_all_at(&bytes, 0).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    if std::env::var_os("AGAIN").is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(std::env::args_os().skip(1)).env("AGAIN", "1");
        panic!("{}", again.exec());
    }
}

#[test]
fn what_a_process_had_at_different_times_is_no_sum() {
    let program = std::env::current_exe().unwrap();
    let test = "--ignored --exact compare::two_programs_in_one_process";
    let words = format!(
        "--repeat 1 --profiles keep --json {} {test}",
        program.display()
    );
    let output = compare(&words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let row = &objects(&output, "compare")[0];
    assert_eq!(row["peak_physical_bytes"], 64 << 20, "{row}");
    assert_eq!(row["peak_live_bytes"], 50 << 20, "{row}");
}
