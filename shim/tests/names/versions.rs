//! Versions between two processes, on the host and in the order of streams.

use std::time::{Duration, Instant};

use crate::actor::{Actor, Place};
use crate::{DENIED, INVALID, NOT_FOUND, TIMEOUT, field, support};

/// A writer and a reader of one name in a place; the handle of each, and its address.
fn two() -> (Place, [Actor; 2], [String; 4]) {
    let place = Place::with_keeper();
    let (mut writer, mut reader) = (place.actor(), place.actor());
    let (w, here) = writer.opened("create w bytes=4096 flags=2");
    let (r, there) = reader.opened("open w flags=1");
    (place, [writer, reader], [w, r, here, there])
}

#[test]
fn a_version_is_waited_for_on_the_host() {
    let (_place, [mut writer, mut reader], [w, r, here, there]) = two();
    assert_eq!(reader.say(&format!("wait {r} 0 0")), "0 0");
    assert_eq!(reader.say(&format!("wait {r} 1 0")), format!("{TIMEOUT} 0"));
    let began = Instant::now();
    assert_eq!(reader.code(&format!("wait {r} 1 30000")), TIMEOUT);
    assert!(began.elapsed() >= Duration::from_millis(30));
    writer.set(&here, 7, 4096);
    assert_eq!(writer.must(&format!("publish {w} 0")), "1");
    assert_eq!(reader.must(&format!("wait {r} 1 5000000")), "1");
    assert_eq!(reader.get(&there), 7);
    assert_eq!(writer.must(&format!("publish {w} 40")), "40");
    assert_eq!(writer.code(&format!("publish {w} 40")), INVALID);
    assert_eq!(writer.must(&format!("publish {w} 0")), "41");
    assert_eq!(reader.must(&format!("wait {r} 3 0")), "41");
    assert_eq!(field(&reader.must("show w"), "version"), "41");
    assert_eq!(
        field(&reader.must(&format!("describe {r}")), "version"),
        "41"
    );
}

#[test]
fn a_version_is_published_behind_the_work_of_a_stream() {
    let (_place, [mut writer, mut reader], [w, r, here, there]) = two();
    writer.must(&format!("setasync {here} 7 4096"));
    assert_eq!(writer.must(&format!("publishon {w} 0")), "1");
    assert_eq!(
        reader.code(&format!("wait {r} 1 0")),
        TIMEOUT,
        "the work is not done"
    );
    writer.must("sync");
    assert_eq!(reader.must(&format!("wait {r} 1 0")), "1");
    assert_eq!(reader.get(&there), 7);
}

/// A stream writes its number whatever stands there.
#[test]
fn no_version_that_was_published_is_taken_back() {
    let (_place, [mut writer, mut reader], [w, r, here, _]) = two();
    writer.must(&format!("setasync {here} 7 4096"));
    assert_eq!(writer.must(&format!("publishon {w} 2")), "2");
    let (other, _) = reader.opened("open w");
    for version in [0, 3] {
        let said = writer.code(&format!("publish {w} {version}"));
        assert_eq!(said, INVALID);
        assert!(
            writer.message().contains("version 2"),
            "{}",
            writer.message()
        );
        assert_eq!(reader.code(&format!("publish {other} {version}")), INVALID);
    }
    assert_eq!(writer.must(&format!("publishon {w} 0")), "3");
    writer.must("sync");
    assert_eq!(writer.must(&format!("publish {w} 0")), "4");
    assert_eq!(reader.must(&format!("wait {r} 4 0")), "4");
}

/// Nor where another thread queues one on a stream at that very moment.
#[test]
fn none_is_taken_back_by_one_that_is_queued_at_once() {
    let place = Place::with_keeper();
    let program = support::program("versions.c", "versions");
    let (said, _) = support::said(&mut place.command(&program, &[support::shim()]));
    assert_eq!(said, "0 wrong, 0 failed\n");
}

/// A graph would write the same number each time, and host versions would wait for a launch.
#[test]
fn no_version_is_published_in_a_capture() {
    let (_place, [mut writer, mut reader], [w, r, here, _]) = two();
    writer.must("relaxed");
    writer.must(&format!("setasync {here} 7 4096"));
    assert_eq!(writer.code(&format!("publishon {w} 0")), INVALID);
    assert!(writer.message().contains("behind the graph's launch"));
    writer.must("captured");
    assert_eq!(writer.must(&format!("publish {w} 0")), "1");
    assert_eq!(writer.must(&format!("publishon {w} 0")), "2");
    writer.must("sync");
    assert_eq!(reader.must(&format!("wait {r} 2 0")), "2");
}

#[test]
fn the_work_of_a_stream_waits_for_a_version_of_another_process() {
    const NOT_READY: i32 = 600;
    let (_place, [mut writer, mut reader], [w, r, here, _]) = two();
    let (copy, target) = reader.opened("create copy bytes=4096 flags=2");
    reader.must(&format!("waiton {r} 2"));
    reader.must(&format!("setasync {target} 3 4096"));
    assert_eq!(reader.code("query"), NOT_READY);
    writer.must(&format!("publish {w} 0"));
    assert_eq!(
        reader.code("query"),
        NOT_READY,
        "version 1 is not version 2"
    );
    writer.set(&here, 7, 4096);
    writer.must(&format!("publishon {w} 0"));
    writer.must("sync");
    reader.must("sync");
    assert_eq!(reader.get(&target), 3);
    // What is there already holds nothing up.
    reader.must(&format!("waiton {r} 1"));
    reader.must("sync");
    reader.close(&copy);
    reader.close(&r);
    writer.close(&w);
    writer.end();
    reader.end();
}

/// A stream takes any larger number for one that came before.
#[test]
fn versions_end_where_streams_cannot_compare_them() {
    const MOST: u64 = i64::MAX as u64;
    let (_place, [mut writer, mut reader], [w, r, _, _]) = two();
    for call in ["publish", "publishon"] {
        let beyond = format!("{call} {w} {}", MOST + 1);
        assert_eq!(writer.code(&beyond), INVALID);
        assert!(writer.message().contains("versions of w end with"));
    }
    assert_eq!(reader.code(&format!("waiton {r} {}", MOST + 1)), INVALID);
    reader.must(&format!("waiton {r} {MOST}"));
    assert_ne!(reader.code("query"), 0, "it waits");
    writer.must(&format!("publishon {w} {MOST}"));
    writer.must("sync");
    reader.must("sync");
    for call in ["publish", "publishon"] {
        assert_eq!(writer.code(&format!("{call} {w} 0")), INVALID, "the next");
    }
    assert_eq!(reader.must(&format!("wait {r} {MOST} 0")), MOST.to_string());
}

#[test]
fn who_waits_for_a_deleted_name_is_told() {
    let (_place, [mut writer, mut reader], [_, r, _, _]) = two();
    let deleting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        writer.must("delete w");
        writer
    });
    assert_eq!(reader.code(&format!("wait {r} 1 {}", u64::MAX)), NOT_FOUND);
    assert!(reader.message().contains("deleted"));
    drop(deleting.join());
}

/// Who waits has its own time, which is shorter than a keeper that hangs is waited for.
#[test]
fn a_wait_is_no_longer_where_the_keeper_hangs() {
    const MOST: Duration = memcuda_core::share::client::PATIENCE;
    let (place, [mut writer, mut reader], [w, r, ..]) = two();
    let (mut late, mut looks) = (place.actor(), place.actor());
    let (l, _) = late.opened("open w flags=1");
    let (k, _) = looks.opened("open w flags=1");
    // These two know the page already.
    assert_eq!(reader.code(&format!("wait {r} 1 0")), TIMEOUT);
    assert_eq!(writer.code(&format!("wait {w} 1 0")), TIMEOUT);
    let keeper = place.keeper.stop();
    let waits = [
        (&mut reader, &r, 100_000),
        (&mut late, &l, 100_000),
        (&mut looks, &k, 0),
    ];
    for (actor, handle, time_us) in waits {
        for _ in 0..2 {
            let began = Instant::now();
            let wait = format!("wait {handle} 1 {time_us}");
            assert_eq!(actor.code(&wait), TIMEOUT);
            assert!(began.elapsed() < MOST, "{wait}: {:?}", began.elapsed());
        }
    }
    // What is published meanwhile comes.
    reader.tell(&format!("wait {r} 1 20000000"));
    assert_eq!(writer.must(&format!("publish {w} 0")), "1");
    assert_eq!(reader.heard(), "0 1");
    crate::keeper::signal(keeper, libc::SIGCONT);
    for (actor, handle) in [(&mut reader, &r), (&mut late, &l), (&mut looks, &k)] {
        assert_eq!(actor.must(&format!("wait {handle} 1 20000000")), "1");
        assert_eq!(field(&actor.must("show w"), "version"), "1");
    }
}

/// Nor who only looks, where another thread asks a keeper that hangs.
#[test]
fn what_is_open_is_described_while_a_keeper_hangs() {
    let (place, [_writer, mut reader], [_, r, ..]) = two();
    let keeper = place.keeper.stop();
    let took: u64 = reader.must(&format!("looks {r}")).parse().unwrap();
    crate::keeper::signal(keeper, libc::SIGCONT);
    assert!(took < 5_000_000, "{took} us");
}

#[test]
fn what_a_stream_refused_to_publish_can_be_published_after_it() {
    const CUDA: i32 = 12;
    for call in ["cuStreamWriteValue64", "cuMemHostGetDevicePointer"] {
        let place = Place::with_keeper();
        let fault = format!("{call}@1=999");
        let mut actor = place.actor_with(&[("MEMCUDA_SIM_FAIL", &fault)]);
        let (w, _) = actor.opened("create w bytes=4096");
        let publish = |version| format!("publishon {w} {version}");
        assert_eq!(actor.code(&publish(7)), CUDA, "{call}");
        assert_eq!(actor.must(&format!("publish {w} 5")), "5", "{call}");
        assert_eq!(actor.must(&publish(7)), "7", "{call}");
        assert_eq!(actor.must(&publish(0)), "8", "{call}");
    }
}

/// The page of versions is where the one before it was.
#[test]
fn versions_are_published_on_streams_by_who_opens_a_name_again() {
    let (_place, [mut writer, mut reader], [w, r, ..]) = two();
    reader.must(&format!("close {r}"));
    writer.must(&format!("publishon {w} 0"));
    for number in 2..6 {
        let (again, _) = reader.opened("open w");
        let published = reader.must(&format!("publishon {again} 0"));
        assert_eq!(published, number.to_string());
        reader.must("sync");
        reader.must(&format!("close {again}"));
    }
}

#[test]
fn who_only_reads_publishes_nothing() {
    let (_place, [mut writer, mut reader], [w, r, ..]) = two();
    assert_eq!(reader.code(&format!("publish {r} 0")), DENIED);
    assert_eq!(reader.code(&format!("publishon {r} 0")), DENIED);
    assert_eq!(writer.must(&format!("publish {w} 0")), "1");
}

#[test]
fn what_the_host_was_refused_is_in_nobodys_way() {
    let (_place, [mut writer, _reader], [w, _, here, _]) = two();
    writer.must(&format!("setasync {here} 7 4096"));
    assert_eq!(writer.must(&format!("publishon {w} 5")), "5");
    assert_eq!(writer.code(&format!("publish {w} 100")), INVALID);
    writer.must("sync");
    assert_eq!(writer.must(&format!("publishon {w} 6")), "6");
}
