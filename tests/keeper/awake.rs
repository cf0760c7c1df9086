//! A keeper that waits awake sleeps again, and nobody keeps it from that.

use std::time::Duration;

use crate::support::{Keeper, attach, content, make};

const CONNECTIONS: usize = 300;

/// Processor time of a process up to now.
fn worked(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    // The 14th and the 15th field, in hundredths of a second.
    let fields = behind_name.split_whitespace().skip(11).take(2);
    let hundredths: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(hundredths * 10)
}

#[test]
fn it_sleeps_again_once_names_were_opened() {
    let keeper = Keeper::start(&[]);
    let mut maker = keeper.client();
    make(&mut maker, "a", b"seen").unwrap();
    let mut other = keeper.client();
    assert_eq!(content(attach(&mut other, "a").unwrap().1, 4), b"seen");
    // One that never asks.
    let silent = keeper.client();
    let pid = keeper.status().pid;
    std::thread::sleep(Duration::from_millis(200));
    let before = worked(pid);
    std::thread::sleep(Duration::from_secs(2));
    let idle = worked(pid) - before;
    assert!(idle < Duration::from_millis(30), "{idle:?}");
    // And it is woken as any.
    assert_eq!(content(attach(&mut other, "a").unwrap().1, 4), b"seen");
    drop(silent);
}

/// Processor time of connections that are made every 5 ms and never ask.
fn cost_of_newcomers(arguments: &[&str]) -> Duration {
    let keeper = Keeper::start(arguments);
    let pid = keeper.status().pid;
    let before = worked(pid);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            keeper.client()
        })
        .collect();
    let cost = worked(pid) - before;
    println!("{} connections with {arguments:?}: {cost:?}", clients.len());
    cost
}

#[test]
fn those_who_connect_and_never_ask_do_not_keep_it_awake() {
    // Each of them is waited for awake for 20 ms, or for as long as can be said.
    let sleeps = cost_of_newcomers(&["--awake", "0"]);
    for arguments in [&[][..], &["--awake", "1000000"]] {
        let cost = cost_of_newcomers(arguments);
        // 50 ms at once and 5 % of the time, where it was not busy anyway.
        let most = sleeps + Duration::from_millis(400);
        assert!(cost < most, "{cost:?}, {sleeps:?} asleep");
    }
}
