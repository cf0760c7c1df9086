//! The whole keeper becomes another program while memory is made for it.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::clients::{connect, push};
use crate::waiting::until;
use crate::whole::{Keeper, program};

/// How many children of a process have ended, and nobody waits for them.
fn zombies(parent: u32) -> usize {
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|file| fs::read_to_string(file.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let behind_name = stat.rsplit_once(')').unwrap().1;
            behind_name.starts_with(&format!(" Z {parent} "))
        })
        .count()
}

#[test]
fn a_keeper_that_is_started_anew_waits_for_what_it_had_started() {
    let keeper = Keeper::start();
    let mut redis = connect(keeper.server.socket());
    let mut ordered = 0;
    for _ in 0..6 {
        for _ in 0..20 {
            let name = format!("w{ordered}");
            let create = json!({"op": "create", "name": name, "bytes": 4096, "zero": true,
                "reply": "made"});
            push(&mut redis, "tensor:cmd", create.to_string());
            ordered += 1;
        }
        std::thread::sleep(Duration::from_millis(50));
        let restart = program()
            .args(["keeper", "restart", "--socket"])
            .arg(&keeper.socket)
            .output();
        assert!(restart.unwrap().status.success());
    }
    until("all answered", || {
        keeper.server.ask("LLEN made") == format!(":{ordered}")
    });
    until("waited for", || zombies(keeper.status().pid) == 0);
}

/// A keeper that became another program has the same process id.
#[test]
fn memory_is_made_for_nobody_who_does_not_listen() {
    let keeper = Keeper::start();
    let allocate = || {
        let mut command = program();
        command
            .args(["keeper-allocate", "--name=w", "--bytes=4096", "--socket"])
            .arg(&keeper.socket)
            .arg(format!("--keeper={}", std::process::id()));
        command
    };
    let (listens, to) = std::io::pipe().unwrap();
    drop(listens);
    let status = allocate().stdout(to).stderr(Stdio::null()).status();
    assert!(!status.unwrap().success());
    assert!(keeper.names().is_empty());
    let heard = allocate().output().unwrap();
    assert!(heard.status.success(), "{heard:?}");
    assert_eq!(keeper.names().len(), 1);
}
