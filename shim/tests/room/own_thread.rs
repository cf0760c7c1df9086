//! The library's own thread, as a process sees it that starts, forks and ends.

use std::time::{Duration, Instant};

use crate::counters;
use crate::resident::{A_WHILE, Device, Process, pause};

/// A library that the thread asks ends with the process.
#[test]
fn a_process_ends_after_its_thread_has_asked() {
    let start = |_| {
        let device = Device::new();
        let command = &mut device.command();
        command.arg("lingers").env("MEMCUDA_SIM_NVML", "slow");
        let mut process = Process::start(command.env("MEMCUDA_IDLE", "0"));
        process.idle(100);
        (process, device)
    };
    let processes = [0; 8].map(start);
    pause(A_WHILE);
    for (process, _device) in processes {
        process.end();
        pause(90);
    }
}

/// As on a host where nobody has the other GPUs open.
#[test]
fn contexts_end_while_the_management_library_starts() {
    let device = Device::new();
    let command = &mut device.command();
    command.env("MEMCUDA_SIM_NVML", "asleep");
    let mut process = Process::start(command.env("MEMCUDA_IDLE", "0"));
    process.idle(100);
    pause(A_WHILE);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let one = Instant::now();
        process.number("contexts 1");
        let took = one.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    process.end();
}

/// Whatever the thread does, which there is in the parent alone.
#[test]
fn children_end_without_waiting() {
    let device = Device::new();
    let command = &mut device.command();
    command.env("MEMCUDA_SIM_NVML", "slow");
    let mut parent = Process::start(command.env("MEMCUDA_IDLE", "0"));
    parent.idle(300);
    pause(A_WHILE);
    // Who waits for the thread does it for a second, whenever it is done; a busy machine
    // takes one now and then.
    let longest = [0; 3].map(|_| parent.number("exits"));
    assert!(longest.iter().any(|&time| time < 1000), "{longest:?} ms");
}

/// The names of a process's threads, and the signals that each blocks.
fn threads(process: &Process) -> Vec<(String, String)> {
    let folder = format!("/proc/{}/task", process.pid());
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        (field("Name:"), field("SigBlk:"))
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

#[test]
fn the_thread_comes_with_the_first_pool_and_takes_no_signal_of_the_programs() {
    let device = Device::new();
    let mut process = device.preloaded();
    assert_eq!(
        threads(&process).len(),
        1,
        "CUDA runs, but nothing was allocated"
    );
    assert_eq!(process.alloc("alloc 1").0, 0);
    // A thread names itself, a moment after it began.
    let until = Instant::now() + Duration::from_secs(10);
    let named = |now: &[(String, String)]| now.iter().any(|(name, _)| name == "memcuda");
    let mut now = threads(&process);
    while !named(&now) && Instant::now() < until {
        pause(1);
        now = threads(&process);
    }
    let (own, others): (Vec<_>, Vec<_>) = now.iter().partition(|(name, _)| name == "memcuda");
    assert_eq!((own.len(), others.len()), (1, 1), "{now:?}");
    // All but those that the C library keeps for itself, the two that nobody blocks, and the one
    // by which a sandbox answers the thread's own calls.
    let blocked = u64::from_str_radix(&own[0].1, 16).unwrap();
    assert_eq!(
        blocked,
        !(1_u64 << 8 | 1 << 18 | 1 << 30 | 1 << 31 | 1 << 32),
        "{blocked:x}"
    );
    assert_eq!(
        others[0].1,
        "0".repeat(16),
        "the program's own are as they were"
    );
    process.end();
    // A recording has it before, and there is one.
    let trace = tempfile::tempdir().unwrap();
    let trace = trace.path().join("trace");
    let mut process = device.preloaded_with("MEMCUDA_TRACE", trace.to_str().unwrap());
    assert_eq!(threads(&process).len(), 2);
    assert_eq!(process.alloc("alloc 1").0, 0);
    assert_eq!(threads(&process).len(), 2);
    process.end();
}

#[test]
fn frees_of_what_is_not_the_pools_are_counted_with_and_without_one() {
    let device = Device::new();
    let mut process = device.preloaded();
    let id = process.pid();
    let mut frees = |number| {
        assert_eq!(process.say("foreign"), "0");
        assert_eq!(counters::of(id)[0].foreign_frees, number);
        process.idle(32);
        assert_eq!(counters::of(id)[0].foreign_frees, number);
    };
    (1..=2).for_each(&mut frees);
}
