//! `MEMCUDA_OOM_REPORT` over the simulated GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memcuda_core::picture::{Picture, State, bytes};

use crate::holder::{Holder, MIB, command, until};
use crate::shown::picture;
use crate::support::scratch;

/// A folder that is not there yet.
fn folder(name: &str) -> PathBuf {
    let folder = scratch().join(format!("reports-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn holder(folder: &Path, settings: &[(&str, &str)]) -> Holder {
    let mut command = command();
    command.env("MEMCUDA_OOM_REPORT", folder);
    Holder::start(command.envs(settings.iter().copied()))
}

/// All reports of a folder, in the order of their numbers; nothing else is in it.
fn reports(folder: &Path) -> Vec<Picture> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| bytes::decode(&fs::read(file).unwrap()).unwrap())
        .collect()
}

#[test]
fn a_limit_that_is_reached_is_reported_with_who_holds_what() {
    let folder = folder("limit");
    let mut holder = holder(&folder, &[("MEMCUDA_LIMIT", "256MiB")]);
    let kept = holder.alloc(&format!("alloc {} 0", 200 * MIB));
    assert_eq!(holder.say(&format!("alloc {} 1", 100 * MIB)), "2 0");
    let all = reports(&folder);
    let [report] = all.as_slice() else {
        panic!("{} reports", all.len());
    };
    let refused = report.refused.as_ref().unwrap();
    assert_eq!((refused.device, refused.asked_bytes), (0, 100 * MIB));
    assert_eq!((refused.tries, refused.refusals), (1, 1));
    assert_eq!((refused.thread, refused.asked_others), (holder.pid(), 0));
    assert_eq!(refused.thread_name, "holder");
    assert_eq!(report.devices[0].limit_bytes, Some(256 * MIB));
    let pool = &report.devices[0].pool;
    let block = pool.blocks.iter().find(|b| b.address == kept).unwrap();
    assert_eq!((block.state, block.asked_bytes), (State::Live, 200 * MIB));
    assert_ne!(refused.stream, None);
    assert_ne!(refused.stream, pool.stream(block));
    // The program goes on.
    holder.alloc(&format!("alloc {} 1", 50 * MIB));
    let said = holder.end();
    let path = folder.display().to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("memcuda explain") && said.contains(&path),
        "{said}"
    );
}

/// Whichever device is current: the stream says where memory was asked for.
#[test]
fn what_the_driver_has_left_is_that_of_the_device_that_is_short() {
    let folder = folder("devices");
    let settings = [("MEMCUDA_SIM_DEVICES", "2"), ("MEMCUDA_SIM_MEMORY", "1GiB")];
    let mut holder = holder(&folder, &settings);
    holder.alloc(&format!("malloc {}", 900 * MIB));
    assert_eq!(holder.say("device 1"), "0");
    assert_eq!(holder.say(&format!("alloc {} 0", 500 * MIB)), "2 0");
    let all = reports(&folder);
    let refused = all[0].refused.as_ref().unwrap();
    assert_eq!(refused.device, 0);
    let free = refused.driver_free_bytes.unwrap();
    assert!(free <= 124 * MIB, "{free}");
    holder.end();
}

#[test]
fn a_report_has_what_was_before() {
    let folder = folder("before");
    let trace = scratch().join(format!("before-{}.t", std::process::id()));
    let trace_path = trace.to_str().unwrap();
    let settings = [
        ("MEMCUDA_LIMIT", "256MiB"),
        ("MEMCUDA_TRACE", trace_path),
        ("MEMCUDA_STATS", "off"),
    ];
    let mut holder = holder(&folder, &settings);
    let began = Instant::now();
    let mut first = None;
    for (mib, sum) in [(20, 20), (40, 60), (60, 120)] {
        holder.alloc(&format!("alloc {} 0", mib * MIB));
        first.get_or_insert_with(Instant::now);
        // Of regular moments one is there, too.
        until("a moment", || {
            let before = picture(&holder).devices.remove(0).pool.before;
            let (_now, earlier) = before.split_last().unwrap();
            let held = earlier.iter().filter(|m| m.physical_bytes == sum * MIB);
            held.count() >= 2
        });
    }
    assert_eq!(holder.say("free"), "0");
    let least = first.unwrap().elapsed();
    assert_eq!(holder.say(&format!("alloc {} 0", 200 * MIB)), "2 0");
    let ages = least.as_micros() as u64..=began.elapsed().as_micros() as u64;
    let all = reports(&folder);
    assert_eq!(all[0].recording, trace_path);
    let before = &all[0].devices[0].pool.before;
    let (now, earlier) = before.split_last().unwrap();
    assert_eq!((now.before_us, now.physical_bytes), (0, 120 * MIB));
    assert_eq!((now.requests, now.failures), (4, 1));
    let grown: Vec<u64> = [20, 60, 120].map(|mib| mib * MIB).into();
    let mut held: Vec<u64> = earlier.iter().map(|m| m.physical_bytes).collect();
    assert!(held.is_sorted());
    held.dedup();
    assert_eq!(held, grown);
    let of = |mib: u64| {
        earlier
            .iter()
            .filter(move |m| m.physical_bytes == mib * MIB)
    };
    assert_eq!(of(60).map(|m| m.used_bytes).max(), Some(60 * MIB));
    let age = of(20).next().unwrap().before_us;
    assert!(ages.contains(&age), "{age}, not {ages:?}");
    holder.end();
    fs::remove_file(trace).unwrap();
}

#[test]
fn a_device_without_memory_is_reported_with_what_was_tried() {
    let folder = folder("device");
    let mut holder = holder(&folder, &[]);
    holder.alloc(&format!("malloc {}", 600 * MIB));
    assert_eq!(holder.say(&format!("malloc {}", 500 * MIB)), "2 0");
    let all = reports(&folder);
    let refused = all[0].refused.as_ref().unwrap();
    assert_eq!(refused.asked_others, 1);
    assert_eq!(refused.driver_free_bytes, Some(424 * MIB));
    assert_eq!(refused.stream, None);
    holder.end();
}

#[test]
fn who_was_asked_for_a_request_that_was_served_is_told_of_no_other_one() {
    let folder = folder("served");
    let device = tempfile::NamedTempFile::new().unwrap();
    let shared = [("MEMCUDA_SIM_SHARED", device.path().to_str().unwrap())];
    let (mut idle, mut holder) = (holder(&folder, &shared), holder(&folder, &shared));
    idle.alloc(&format!("malloc {}", 600 * MIB));
    assert_eq!(idle.say("free"), "0");
    // What was used a moment ago is idle soon: on a busy host perhaps too late for the first try.
    until("the other makes room", || {
        let is_served = holder.say(&format!("malloc {}", 800 * MIB)) != "2 0";
        if !is_served {
            // Each refusal has a report, of which so many are written at a time.
            std::thread::sleep(Duration::from_secs(1));
        }
        is_served
    });
    assert_eq!(holder.say(&format!("malloc {}", 2048 * MIB)), "2 0");
    let last = reports(&folder).pop().unwrap();
    let refused = last.refused.as_ref().unwrap();
    assert_eq!((refused.asked_bytes, refused.asked_others), (2048 * MIB, 0));
    holder.end();
    idle.end();
}

#[test]
fn a_second_try_is_the_same_report_written_anew() {
    let folder = folder("tries");
    let mut holder = holder(&folder, &[("MEMCUDA_LIMIT", "64MiB")]);
    assert_eq!(holder.say(&format!("fail {} 3 0", 100 * MIB)), "3");
    let all = reports(&folder);
    assert_eq!(all.len(), 1);
    let refused = all[0].refused.as_ref().unwrap();
    assert_eq!((refused.tries, refused.refusals), (3, 3));
    holder.end();
}

#[test]
fn a_program_that_fails_ten_thousand_times_writes_few_files_and_goes_on() {
    let folder = folder("often");
    let mut holder = holder(&folder, &[("MEMCUDA_LIMIT", "64MiB")]);
    assert_eq!(
        holder.say(&format!("fail {} 10000 512", 100 * MIB)),
        "10000"
    );
    let all = reports(&folder);
    assert!((4..=8).contains(&all.len()), "{}", all.len());
    holder.alloc(&format!("alloc {} 1", 50 * MIB));
    assert_eq!(holder.end().lines().count(), 1);
}

#[test]
fn threads_that_fail_at_once_have_a_report_each() {
    let folder = folder("threads");
    let mut holder = holder(&folder, &[("MEMCUDA_LIMIT", "64MiB")]);
    assert_eq!(holder.say(&format!("threads {} 2", 100 * MIB)), "2");
    let all = reports(&folder);
    let thread = |n: usize| all[n].refused.as_ref().unwrap().thread;
    assert_eq!(all.len(), 2);
    assert_ne!(thread(0), thread(1));
    holder.end();
}

#[test]
fn a_folder_that_cannot_be_written_is_one_line_and_changes_no_answer() {
    let blocked = scratch().join(format!("no-folder-{}", std::process::id()));
    fs::write(&blocked, "a file").unwrap();
    let mut holder = holder(&blocked.join("reports"), &[("MEMCUDA_LIMIT", "64MiB")]);
    assert_eq!(holder.say(&format!("fail {} 100 0", 100 * MIB)), "100");
    holder.alloc(&format!("alloc {} 1", 50 * MIB));
    let said = holder.end();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("MEMCUDA_OOM_REPORT=") && said.contains("no report"),
        "{said}"
    );
    fs::remove_file(&blocked).unwrap();
}

#[test]
fn without_the_setting_nothing_is_written() {
    let mut holder = Holder::start(command().env("MEMCUDA_LIMIT", "64MiB"));
    assert_eq!(holder.say(&format!("fail {} 3 0", 100 * MIB)), "3");
    assert_eq!(holder.end(), "");
}
