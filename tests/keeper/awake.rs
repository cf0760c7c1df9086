//! A keeper that waits awake sleeps again, and nobody keeps it from that.

use std::time::{Duration, Instant};

use crate::requests::*;
use crate::support::*;

const CONNECTIONS: usize = 300;

#[test]
fn it_sleeps_again_once_names_were_opened() {
    let keeper = Keeper::start(&[]);
    let mut maker = keeper.client();
    make(&mut maker, "a", b"seen").unwrap();
    let mut other = keeper.client();
    has(&mut other, "a", b"seen");
    // One that never asks.
    let silent = keeper.client();
    let pid = keeper.status().pid;
    std::thread::sleep(Duration::from_millis(200));
    let before = processor_time(pid);
    std::thread::sleep(Duration::from_secs(2));
    let idle = processor_time(pid) - before;
    assert!(idle < Duration::from_millis(30), "{idle:?}");
    // And it is woken as any.
    has(&mut other, "a", b"seen");
    drop(silent);
}

/// Processor time of connections that are made every 5 ms and never ask, and how long all
/// of them took.
fn cost_of_newcomers(arguments: &[&str]) -> (Duration, Duration) {
    let keeper = Keeper::start(arguments);
    let pid = keeper.status().pid;
    let (before, began) = (processor_time(pid), Instant::now());
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            keeper.client()
        })
        .collect();
    let (cost, took) = (processor_time(pid) - before, began.elapsed());
    let count = clients.len();
    println!("{count} connections with {arguments:?}: {cost:?} in {took:?}");
    (cost, took)
}

#[test]
fn those_who_connect_and_never_ask_do_not_keep_it_awake() {
    // Each of them is waited for awake for 20 ms, or for as long as can be said.
    let (sleeps, _) = cost_of_newcomers(&["--awake", "0"]);
    for arguments in [&[][..], &["--awake", "1000000"]] {
        let (cost, took) = cost_of_newcomers(arguments);
        // 50 ms at once and 5 % of the time, where it was not busy anyway; it is awake for
        // all of it where they keep it so.
        let most = sleeps + Duration::from_millis(200) + took / 4;
        assert!(cost < most, "{cost:?}, {sleeps:?} asleep");
    }
}
