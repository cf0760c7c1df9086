//! Several processes on one device: what lies idle in one goes to another.

use std::time::{Duration, Instant};

use crate::resident::{A_WHILE, Device, LONG, Process, pause, until};
use crate::support::signal;

/// A process waits for others for a moment only, which other work on the machine may
/// take: one of three tries must do.
fn at_best(attempt: impl Fn() -> Result<(), String>) {
    let failed: Vec<_> = (0..3).map_while(|_| attempt().err()).collect();
    assert!(failed.len() < 3, "{failed:?}");
}

/// Asks for memory: this must be the answer, within so many milliseconds.
fn asks(process: &mut Process, mib: u64, answer: u32, within: u64) -> Result<(), String> {
    let (code, waited) = process.alloc(&format!("alloc {mib}"));
    let good = code == answer && waited < within;
    let said = || format!("{mib} MiB: {code} after {waited} ms, not {answer} within {within}");
    good.then_some(()).ok_or_else(said)
}

#[test]
fn a_starving_process_gets_what_another_holds_idle() {
    at_best(|| {
        let device = Device::without_management();
        let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
        holder.idle(800);
        // At once: what was used a moment ago becomes idle while it waits.
        asks(&mut starving, 500, 0, 4000)?;
        let left = holder.number("physical");
        assert!(left <= 512, "{left} MiB");
        // What it needs again it gets again, from the one that is idle now.
        assert_eq!(starving.say("free"), "0");
        pause(A_WHILE);
        asks(&mut holder, 900, 0, 1000)?;
        holder.end();
        starving.end();
        Ok(())
    });
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

/// In a container, too, and without the management library: who only looks takes nothing.
#[test]
fn what_another_process_holds_idle_is_free_in_the_eyes_of_one_that_has_allocated_nothing() {
    for device in [Device::new(), Device::without_management()] {
        let start = || Process::start(device.command().env("MEMCUDA_SIM_NVML", "container"));
        let (mut holder, mut other) = (start(), start());
        let all = other.number("info");
        assert_eq!(holder.alloc("alloc 800").0, 0);
        pause(A_WHILE);
        assert_eq!(other.number("info"), all - 800, "in use");
        assert_eq!(holder.say("free"), "0");
        // Who is too late with an answer is asked again.
        until("idle memory is free", || other.number("info") == all);
        for _ in 0..20 {
            pause(100);
            assert!(other.number("info") <= all);
        }
        assert_eq!(holder.number("physical"), 800);
        // A call that is the driver's can have it, too.
        assert_eq!(other.say("managed 500"), "0");
        let is_counted_once = |other: &mut Process| other.number("info") <= all - 500;
        assert!(is_counted_once(&mut other));
        let ask = |other: &mut Process| asks(other, all - 500, 0, 4000);
        until("all of it is had", || ask(&mut other).is_ok());
        assert!(other.number("info") < 64);
    }
}

#[test]
fn memory_in_use_stays_where_it_is_and_the_answer_comes_soon() {
    let device = Device::without_management();
    let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
    assert_eq!(holder.alloc("alloc 800").0, 0);
    let waited = [0; 3].map(|_| {
        let (code, waited) = starving.alloc("alloc 500");
        assert_eq!(code, 2);
        waited
    });
    assert!(waited.iter().any(|&time| time < 1000), "{waited:?} ms");
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

/// On a part of a GPU, which has a name of another kind; where they draw; in a container,
/// whose processes alone the management library lists, and without that library, by the doors.
#[test]
fn others_are_found_wherever_they_can_be() {
    let devices = [
        (Device::new(), "mig", false),
        (Device::new(), "drawing", false),
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
    for (kind, holder, ..) in &mut holders {
        holder.comes_to(0..=0, kind);
    }
}

#[test]
fn a_display_server_is_no_company() {
    let device = Device::new();
    let _plain = device.plain();
    let mut command = device.command();
    command.env("MEMCUDA_SIM_NVML", "desktop");
    let mut holder = Process::start(command.env("MEMCUDA_IDLE", "0"));
    holder.idle(300);
    pause(2 * A_WHILE);
    assert_eq!(holder.number("physical"), 300);
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
    let about_half = 448..=576;
    holder.comes_to(about_half.clone(), "what the setting says");
    // And stays there.
    pause(A_WHILE);
    let left = holder.number("physical");
    assert!(about_half.contains(&left), "{left} MiB");
    let mut all = device.preloaded_with("MEMCUDA_IDLE", "100%");
    all.idle(300);
    pause(A_WHILE);
    assert_eq!(all.number("physical"), 300);
    // It is no reserve: who asks for what is idle gets that, too.
    assert_eq!(device.preloaded().alloc("alloc 900").0, 0);
}

#[test]
fn without_a_list_of_processes_a_crowded_device_tells() {
    for device in [Device::without_management(), Device::new()] {
        let mut holder = device.preloaded_with("MEMCUDA_SIM_NVML", "unlisted");
        let mut plain = device.plain();
        holder.idle(700);
        assert_eq!(plain.alloc("alloc 300").0, 0);
        let (code, _) = plain.alloc("try 400 20");
        assert_eq!(code, 0);
    }
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

/// But not the host's, which cannot ask for it.
#[test]
fn of_an_integrated_device_what_lies_idle_goes_back_to_the_host() {
    let device = Device::new();
    let mut alone = device.preloaded_with("MEMCUDA_SIM_LACKS", "own-memory");
    alone.idle(1000);
    alone.comes_to(64..=224, "a tenth stays");
}

#[test]
fn what_is_used_again_and_again_is_not_given_away() {
    at_best(|| {
        let device = Device::new();
        let mut holder = device.preloaded_with("MEMCUDA_IDLE", "0");
        let _plain = device.plain();
        holder.idle(1000);
        // How little it had while it was in use: the rest goes, and no more.
        let (began, mut least) = (Instant::now(), 1000);
        while least > 664 && began.elapsed() < LONG {
            least = holder.number("busy 3000 600");
        }
        if !(600..=664).contains(&least) {
            return Err(format!("{least} MiB"));
        }
        holder.comes_to(0..=0, "what rests");
        Ok(())
    });
}

#[test]
fn nor_is_it_to_who_asks() {
    at_best(|| {
        let device = Device::without_management();
        let (mut holder, mut starving) = (device.preloaded(), device.preloaded());
        holder.idle(600);
        holder.tell("busy 4000 600 400");
        pause(1000);
        let asked = asks(&mut starving, 500, 2, u64::MAX);
        let least = holder.heard();
        asked?;
        assert_eq!(least.parse::<u64>().unwrap() / 600, 1);
        Ok(())
    });
}

#[test]
fn a_killed_neighbour_is_nobody_s_trouble() {
    at_best(|| {
        let device = Device::new();
        let (mut doomed, mut other) = (device.preloaded(), device.preloaded());
        doomed.idle(600);
        // A child that outlives it keeps neither its memory nor its place.
        let child = doomed.say("fork").parse().unwrap();
        let place = format!("/{}-", doomed.pid());
        let listed = || std::fs::read_to_string("/proc/net/unix").is_ok_and(|l| l.contains(&place));
        assert!(listed());
        doomed.kill();
        // The child may not have run yet; then it still has its parent's socket.
        until("its place is free", || !listed());
        let asked = asks(&mut other, 1000, 0, 1000).and_then(|()| asks(&mut other, 100, 2, 1000));
        signal(child, libc::SIGKILL);
        asked
    });
}

/// As under a limit of MPS's: what the others have is of no use to it.
#[test]
fn who_gets_no_memory_whatever_is_free_does_not_empty_the_others() {
    let device = Device::without_management();
    let command = &mut device.command();
    command.env("MEMCUDA_CHUNK", "32MiB");
    let mut holder = Process::start(command.env("MEMCUDA_IDLE", "100%"));
    let refused = "cuMemCreate%1=2,cuMemAlloc%1=2";
    let mut bounded = device.preloaded_with("MEMCUDA_SIM_FAIL", refused);
    holder.idle(800);
    pause(A_WHILE);
    for _ in 0..3 {
        assert_eq!(bounded.alloc("alloc 8").0, 2);
    }
    let left = holder.number("physical");
    assert!((600..800).contains(&left), "{left} MiB");
}

/// To try it would leave the others without memory for a moment.
#[test]
fn for_what_is_longer_than_the_device_no_memory_is_taken() {
    let device = Device::new();
    let mut process = device.preloaded_with("MEMCUDA_SIM_FAIL", "cuMemCreate%1=999");
    assert_eq!(process.alloc("alloc 1025").0, 2);
    assert_eq!(process.alloc("alloc 1024").0, 999, "that could be");
}

/// Under WSL2 it may serve them out of the host's memory.
#[test]
fn more_bytes_than_the_device_has_are_the_drivers_to_refuse() {
    let device = Device::new();
    let mut process = device.preloaded_with("MEMCUDA_SIM_FAIL", "cuMemAlloc%1=999");
    assert_eq!(process.alloc("alloc 1025").0, 999);
    assert_eq!(process.alloc("alloc 1024").0, 0);
    let command = &mut device.command();
    command.env("MEMCUDA_SIM_FAIL", "cuMemAlloc%1=999");
    let mut limited = Process::start(command.env("MEMCUDA_LIMIT", "2GiB"));
    assert_eq!(
        limited.alloc("alloc 1025").0,
        2,
        "it is told how many it may have"
    );
}

#[test]
fn a_stopped_neighbour_is_waited_for_a_moment_only() {
    at_best(|| {
        let device = Device::without_management();
        let mut stopped = device.preloaded_with("MEMCUDA_IDLE", "100%");
        let (mut idle, mut starving) = (device.preloaded(), device.preloaded());
        stopped.idle(300);
        idle.idle(600);
        pause(A_WHILE);
        stopped.stop();
        asks(&mut starving, 500, 0, 1500)?;
        asks(&mut starving, 900, 2, 4000)?;
        stopped.signal(libc::SIGCONT);
        pause(A_WHILE);
        // Nobody waits for its answers any more.
        assert_eq!(stopped.number("physical"), 300);
        Ok(())
    });
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
