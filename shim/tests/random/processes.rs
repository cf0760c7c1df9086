//! Two processes on one device, one of them killed at any moment; forks.

use super::{Done, number, preloaded, support};
use std::process::Stdio;
use std::time::Duration;

const MEMORY: &str = "2GiB";

#[test]
fn a_killed_process_harms_nobody_and_its_memory_comes_back() {
    let mut done = Done::default();
    for seed in 1..=number("MEMCUDA_RANDOM_SEEDS", 5) {
        let ledger = support::scratch().join(format!("ledger-{}-{seed}", std::process::id()));
        let _ = std::fs::remove_file(&ledger);
        let on_the_device = |operations, threads| {
            let mut command = preloaded(seed, operations, threads);
            command
                .env("MEMCUDA_SIM_SHARED", &ledger)
                .env("MEMCUDA_SIM_MEMORY", MEMORY)
                .env("RANDOM_SHORT", "1");
            command
        };
        let mut doomed = on_the_device(u64::MAX >> 8, 2);
        let mut doomed = doomed
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut other = on_the_device(20_000, 2);
        let other = other
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A moment that no operation is tied to.
        std::thread::sleep(Duration::from_millis(40 + 37 * (seed % 8)));
        doomed.kill().unwrap();
        let killed = doomed.wait_with_output().unwrap();
        assert_eq!(killed.status.code(), None, "it ended before it was killed");
        assert_eq!(String::from_utf8_lossy(&killed.stderr), "");
        let other = other.wait_with_output().unwrap();
        assert!(other.status.success(), "{other:?}");
        done.add(&String::from_utf8_lossy(&other.stdout));
        // Everything is free again: the program finds the device's whole memory.
        let mut after = on_the_device(2000, 1);
        done.run(after.env("RANDOM_WHOLE", "1"));
        std::fs::remove_file(&ledger).unwrap();
    }
    done.say("one of two processes killed");
}

/// Several processes on devices that are too small for all of them: each is
/// asked by the others, and gives back by itself, at any moment.
#[test]
fn processes_that_give_back_to_each_other_stay_whole() {
    let mut done = Done::default();
    let (mut asked, mut unasked) = (0, 0);
    let rounds = number("MEMCUDA_RANDOM_SEEDS", 2);
    // Which of them meet is the scheduler's choice.
    for seed in 1..=5 * rounds {
        if seed > rounds && asked > 0 && unasked > 0 {
            break;
        }
        let ledger = support::scratch().join(format!("starving-{}-{seed}", std::process::id()));
        let _ = std::fs::remove_file(&ledger);
        let search = [support::simulator(), support::simulator().join("nvml")];
        let start = |number| {
            let mut command = preloaded(100 * seed + number, 20_000, 2);
            command
                .env("LD_LIBRARY_PATH", std::env::join_paths(&search).unwrap())
                .env("MEMCUDA_SIM_SHARED", &ledger)
                .env("MEMCUDA_SIM_MEMORY", "600MiB")
                .env("MEMCUDA_IDLE", "0")
                .env("MEMCUDA_LOG", "debug")
                .env("RANDOM_SHORT", "1")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let running: Vec<_> = (1..=3).map(start).collect();
        for process in running {
            let ended = process.wait_with_output().unwrap();
            let log = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{}: {log}", ended.status);
            asked += log.matches("other processes gave").count();
            unasked += log
                .matches("idle bytes given back, others are on it")
                .count();
            done.add(&String::from_utf8_lossy(&ended.stdout));
        }
        std::fs::remove_file(&ledger).unwrap();
    }
    assert!(asked > 0 && unasked > 0, "{asked} asked, {unasked} unasked");
    done.say("processes that give back to each other");
}

#[test]
fn forks_before_and_after_the_start_harm_nobody() {
    let mut done = Done::default();
    for seed in 1..=number("MEMCUDA_RANDOM_SEEDS", 5) {
        for threads in [1, 3] {
            let mut command = preloaded(seed, 5000, threads);
            let (out, log) = support::said(command.env("RANDOM_FORK", "1"));
            assert_eq!(log, "");
            // Of the child that ran the same program, and of the program.
            assert_eq!(out.lines().count(), 2, "{out}");
            out.lines().for_each(|line| done.add(line));
        }
    }
    done.say("forks");
}
