//! Several processes on one device: what lies idle in one goes to another.

use std::time::{Duration, Instant};

use crate::counters;
use crate::resident::{Device, Process};
use crate::support::signal;

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Longer than memory must lie idle before another process gets it.
const A_WHILE: u64 = 1600;

#[test]
fn a_starving_process_gets_what_another_holds_idle() {
    let device = Device::without_management();
    let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
    holder.idle(800);
    // At once: what was used a moment ago becomes idle while it waits.
    let (code, waited) = starving.alloc("alloc 500");
    assert_eq!(code, 0);
    assert!(waited < 4000, "{waited} ms");
    let left = holder.number("physical");
    assert!(left <= 512, "{left} MiB");
    // What it needs again it gets again, from the one that is idle now.
    assert_eq!(starving.say("free"), "0");
    pause(A_WHILE);
    let (code, waited) = holder.alloc("alloc 900");
    assert_eq!(code, 0);
    assert!(waited < 1000, "{waited} ms, of memory long idle");
    holder.end();
    starving.end();
}

#[test]
fn a_call_beside_the_pool_gets_what_another_process_holds_idle() {
    let device = Device::without_management();
    let (mut holder, mut other) = (device.preloaded(), device.preloaded());
    assert_eq!(other.alloc("alloc 1").0, 0);
    holder.idle(800);
    pause(A_WHILE);
    assert_eq!(other.say("managed 500"), "0");
}

#[test]
fn memory_in_use_stays_where_it_is_and_the_answer_comes_soon() {
    let device = Device::without_management();
    let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
    assert_eq!(holder.alloc("alloc 800").0, 0);
    let (code, waited) = starving.alloc("alloc 500");
    assert_eq!(code, 2);
    assert!(waited < 1000, "{waited} ms");
    assert_eq!(holder.number("physical"), 800);
}

#[test]
fn a_plain_process_gets_what_another_holds_idle() {
    let device = Device::new();
    let (mut holder, mut plain) = (device.preloaded(), device.plain());
    holder.idle(1000);
    let (code, _) = plain.alloc("try 800 20");
    assert_eq!(code, 0);
    // A tenth of the device stays.
    let left = holder.number("physical");
    assert!((64..=224).contains(&left), "{left} MiB");
    holder.end();
    plain.end();
}

/// On a part of a GPU, which has a name of another kind; in a container, whose processes
/// alone the management library lists, and without that library, by the doors.
#[test]
fn others_are_found_wherever_they_can_be() {
    let devices = [
        (Device::new(), "mig", false),
        (Device::new(), "container", true),
        (Device::without_management(), "", true),
    ];
    let mut holders = devices.map(|(device, kind, preloaded)| {
        let command = &mut device.command();
        command
            .env("MEMCUDA_SIM_NVML", kind)
            .env("MEMCUDA_IDLE", "0");
        let mut holder = Process::start(command);
        holder.idle(300);
        let mut other = match preloaded {
            true => device.preloaded(),
            false => device.plain(),
        };
        assert_eq!(other.alloc("alloc 1").0, 0);
        (kind, holder, other, device)
    });
    pause(2 * A_WHILE);
    for (kind, holder, ..) in &mut holders {
        assert_eq!(holder.number("physical"), 0, "{kind}");
    }
}

/// Little that came beside the pool, much of a device with room, and what was there before
/// the pool are no crowd.
#[test]
fn without_the_management_library_few_signs_are_none() {
    let devices = [(0, 800, 200), (0, 300, 300), (300, 700, 0)];
    let mut holders = devices.map(|(before, idle, after)| {
        let device = Device::without_management();
        let mut plain = device.plain();
        let mut holder = device.preloaded_with("MEMCUDA_IDLE", "0");
        if before > 0 {
            assert_eq!(plain.alloc(&format!("alloc {before}")).0, 0);
        }
        holder.idle(idle);
        if after > 0 {
            assert_eq!(plain.alloc(&format!("alloc {after}")).0, 0);
        }
        (holder, plain, device, idle)
    });
    pause(2 * A_WHILE);
    for (holder, _, _, held) in &mut holders {
        assert_eq!(holder.number("physical"), *held);
    }
}

#[test]
fn as_much_stays_as_the_setting_says() {
    let device = Device::new();
    let mut holder = device.preloaded_with("MEMCUDA_IDLE", "512MiB");
    holder.idle(1000);
    let _plain = device.plain();
    pause(2 * A_WHILE);
    let left = holder.number("physical");
    assert!((448..=576).contains(&left), "{left} MiB");
    let mut all = device.preloaded_with("MEMCUDA_IDLE", "100%");
    all.idle(300);
    pause(A_WHILE);
    assert_eq!(all.number("physical"), 300);
    // It is no reserve: who asks for what is idle gets that, too.
    assert_eq!(device.preloaded().alloc("alloc 900").0, 0);
}

#[test]
fn without_the_management_library_a_crowded_device_tells() {
    let device = Device::without_management();
    let (mut holder, mut plain) = (device.preloaded(), device.plain());
    holder.idle(700);
    assert_eq!(plain.alloc("alloc 300").0, 0);
    let (code, _) = plain.alloc("try 400 20");
    assert_eq!(code, 0);
}

/// What there was before the pool counts, of its own device, whichever was current then.
#[test]
fn a_device_that_was_opened_to_another_one_first_is_not_crowded_for_it() {
    let device = Device::without_management();
    let mut command = device.command();
    command.env("MEMCUDA_SIM_DEVICES", "2");
    let mut alone = Process::start(command.env("MEMCUDA_IDLE", "0"));
    assert_eq!(alone.say("managed 600"), "0");
    assert_eq!(alone.say("reached"), "0");
    assert_eq!(alone.alloc("alloc 400").0, 0);
    assert_eq!(alone.say("free"), "0");
    pause(A_WHILE);
    assert_eq!(alone.number("physical"), 1000);
    alone.end();
}

#[test]
fn alone_a_process_keeps_everything() {
    for device in [Device::new(), Device::without_management()] {
        let mut holder = device.preloaded_with("MEMCUDA_IDLE", "0");
        holder.idle(1000);
        pause(2 * A_WHILE);
        assert_eq!(holder.number("physical"), 1000);
        assert_eq!(holder.number("info"), 1024, "idle memory counts as free");
    }
}

#[test]
fn what_is_used_again_and_again_is_not_given_away() {
    let device = Device::new();
    let mut holder = device.preloaded_with("MEMCUDA_IDLE", "0");
    let _plain = device.plain();
    holder.idle(1000);
    assert_eq!(holder.number("busy 3000 600") / 600, 1, "600 MiB at least");
    let held = holder.number("physical");
    assert!((600..=664).contains(&held), "the rest went: {held} MiB");
    pause(2 * A_WHILE);
    assert_eq!(holder.number("physical"), 0, "it rests");
    // Nor is it to who asks.
    let device = Device::without_management();
    let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
    holder.idle(600);
    holder.tell("busy 4000 600 400");
    pause(1000);
    assert_eq!(starving.alloc("alloc 500").0, 2);
    assert_eq!(holder.heard().parse::<u64>().unwrap() / 600, 1);
}

#[test]
fn a_killed_neighbour_is_nobody_s_trouble() {
    let device = Device::new();
    let (mut doomed, mut other) = (device.preloaded(), device.preloaded());
    doomed.idle(600);
    // A child that outlives it keeps neither its memory nor its place.
    let child = doomed.say("fork");
    let place = format!("/{}-", doomed.pid());
    let listed = || std::fs::read_to_string("/proc/net/unix").is_ok_and(|l| l.contains(&place));
    assert!(listed());
    doomed.kill();
    // The child may not have run yet; then it still has its parent's socket.
    let killed = Instant::now();
    while listed() {
        assert!(killed.elapsed() < Duration::from_secs(10), "still listed");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (code, waited) = other.alloc("alloc 1000");
    assert_eq!(code, 0);
    assert!(waited < 1000, "{waited} ms");
    let (code, waited) = other.alloc("alloc 100");
    assert_eq!(code, 2);
    assert!(waited < 1000, "{waited} ms");
    signal(child.parse().unwrap(), libc::SIGKILL);
}

/// To try it would leave the others without memory for a moment.
#[test]
fn for_what_is_longer_than_the_device_no_memory_is_taken() {
    let device = Device::new();
    let mut process = device.preloaded_with("MEMCUDA_SIM_FAIL", "cuMemCreate%1=999");
    assert_eq!(process.alloc("alloc 1025").0, 2);
    assert_eq!(process.alloc("alloc 1024").0, 999, "that could be");
}

#[test]
fn a_stopped_neighbour_is_waited_for_a_moment_only() {
    let device = Device::without_management();
    let mut stopped = device.preloaded_with("MEMCUDA_IDLE", "100%");
    let (mut idle, mut starving) = (device.preloaded(), device.preloaded());
    stopped.idle(300);
    idle.idle(600);
    pause(A_WHILE);
    stopped.stop();
    let (code, waited) = starving.alloc("alloc 500");
    assert_eq!(code, 0);
    assert!(waited < 1500, "{waited} ms");
    let (code, waited) = starving.alloc("alloc 900");
    assert_eq!(code, 2);
    assert!(waited < 4000, "{waited} ms");
    stopped.signal(libc::SIGCONT);
    pause(A_WHILE);
    // Nobody waits for its answers any more.
    assert_eq!(stopped.number("physical"), 300);
}

/// Nothing of this may end a capture, meet a context that goes, or harm anyone
/// when a call of it fails.
#[test]
fn giving_back_meets_captures_contexts_and_failures() {
    let faults = "cuMemUnmap%5=999,cuMemRelease%7=2,cuEventQuery%9=2,cuCtxPushCurrent_v2%11=201";
    for (words, fault) in [
        ("captures 2500", ""),
        ("contexts 2500", ""),
        ("physical", faults),
    ] {
        let device = Device::new();
        let mut holder = Process::start(
            device
                .command()
                .env("MEMCUDA_IDLE", "0")
                .env("MEMCUDA_SIM_FAIL", fault),
        );
        let mut starving = device.preloaded();
        if fault.is_empty() {
            holder.idle(400);
        } else {
            let _ = holder.alloc("alloc 400");
        }
        holder.tell(words);
        let until = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < until {
            if starving.alloc("alloc 900").0 == 0 {
                assert_eq!(starving.say("free"), "0");
            }
        }
        let done: u64 = holder.heard().parse().unwrap();
        assert!(done > 0, "{words}");
        holder.end();
        starving.end();
    }
}

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

/// Whatever the thread does, which there is in the parent alone.
#[test]
fn children_end_without_waiting() {
    let device = Device::new();
    let command = &mut device.command();
    command.env("MEMCUDA_SIM_NVML", "slow");
    let mut parent = Process::start(command.env("MEMCUDA_IDLE", "0"));
    parent.idle(300);
    pause(A_WHILE);
    let longest = parent.number("exits");
    // Who waits for the thread does it for a second.
    assert!(longest < 1000, "{longest} ms");
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
fn the_thread_comes_with_the_first_pool_and_takes_no_signal() {
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
    // All but those that the C library keeps for itself, and the two that nobody blocks.
    let blocked = u64::from_str_radix(&own[0].1, 16).unwrap();
    assert_eq!(
        blocked,
        !(1_u64 << 8 | 1 << 18 | 1 << 31 | 1 << 32),
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
