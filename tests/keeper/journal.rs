//! The journal stays one, and short, whatever is asked of the keeper.

use memcuda::share::protocol::Persist;

use crate::requests::*;
use crate::support::*;

/// The journals that a keeper has, and how long they are.
fn journals(pid: u32) -> Vec<u64> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten();
    let is_one = |path: &std::path::PathBuf| {
        let link = std::fs::read_link(path);
        link.is_ok_and(|link| link.to_string_lossy().contains("memfd:memcuda-keeper"))
    };
    let all = all.map(|entry| entry.path()).filter(is_one);
    let mut all: Vec<(u64, u64)> = all
        .map(|path| std::fs::metadata(path).unwrap())
        .map(|it| (std::os::unix::fs::MetadataExt::ino(&it), it.len()))
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn whatever_was_asked_the_journal_is_one_and_short() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let long = "n".repeat(200);
    make(&mut client, &long, b"a").unwrap();
    for _ in 0..12_000 {
        for kept in [Persist::Yes, Persist::No] {
            persist(&mut client, &long, kept);
        }
    }
    for pid in [keeper.status().pid, keeper.status().standby] {
        let journals = journals(pid);
        assert!(matches!(journals[..], [..5_000_000]), "{journals:?}");
    }
}
