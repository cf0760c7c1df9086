//! The host's clock is set while a keeper runs: it is told another date by a library
//! that is preloaded into it, as long as there is a file.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memcuda::share::protocol::{Persist, Reply, Request};

use crate::requests::{make, name, persist};
use crate::support::{Keeper, wait_for};

const HOUR_S: u64 = 3600;

const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at)
{
    int answer = syscall(SYS_clock_gettime, id, at);
    if (id == CLOCK_REALTIME && access(getenv("CLOCK_IS_SET"), F_OK) == 0)
        at->tv_sec += 3600;
    return answer;
}
"#;

fn library(folder: &Path) -> std::path::PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, CLOCK).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    let built = compiler.arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    library
}

#[test]
fn a_name_keeps_its_time_when_the_clock_is_set() {
    let keeper = Keeper::run(|command, folder| {
        command
            .env("LD_PRELOAD", library(folder))
            .env("CLOCK_IS_SET", folder.join("is_set"));
    });
    let is_set = keeper.directory.path().join("is_set");
    let mut client = keeper.client();
    let generation = make(&mut client, "timed", b"").unwrap();
    let began = Instant::now();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let until = now_s.as_secs() + 10;
    persist(&mut client, "timed", Persist::Until(until));
    client.call(Request::Release { generation }, &[]).unwrap();
    let mut shown = || {
        let name = name("timed");
        match client.call(Request::Show { name }, &[]) {
            Ok((Reply::Entries { entries, .. }, _)) => Some(entries[0].persist),
            _ => None,
        }
    };
    std::fs::write(&is_set, "").unwrap();
    assert_eq!(shown(), Some(Persist::Until(until + HOUR_S)));
    std::fs::remove_file(&is_set).unwrap();
    assert_eq!(shown(), Some(Persist::Until(until)));
    std::fs::write(&is_set, "").unwrap();
    wait_for("the name to expire", || shown().is_none().then_some(()));
    let lived = began.elapsed();
    assert!(lived >= Duration::from_secs(9), "{lived:?}");
}
