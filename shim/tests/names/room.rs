//! The interface's own calls of the driver find room as the program's do.

use crate::actor::Place;
use crate::{MIB, support};

#[test]
fn a_device_full_of_idle_memory_has_room_for_what_a_name_needs() {
    let program = support::program("room.c", "room");
    for (what, call) in [
        ("context", "cuDevicePrimaryCtxRetain"),
        ("stream", "cuStreamCreate"),
    ] {
        let place = Place::with_keeper();
        let mut command = place.command(&program, &[support::shim()]);
        let fails = format!("{call}@1=2");
        command.arg(what).env("MEMCUDA_SIM_FAIL", fails);
        let (said, log) = support::said(command.env("MEMCUDA_LOG", "debug"));
        assert_eq!(said, "0 \n", "{what}");
        assert!(log.contains("given back for another call"), "{what}: {log}");
    }
}

/// It counts for who made it, also once that one has closed it.
#[test]
fn what_another_process_made_takes_nothing_of_a_limit() {
    const CUDA: i32 = 12;
    let place = Place::with_keeper();
    let (mut maker, mut reader) = (
        place.actor(),
        place.actor_with(&[("MEMCUDA_LIMIT", "16MiB")]),
    );
    let made = ["one", "two"].map(|name| {
        let (made, _) = maker.opened(&format!("create {name} bytes={}", 12 * MIB));
        reader.opened(&format!("open {name}"));
        made
    });
    made.iter().for_each(|made| maker.close(made));
    let at = reader.malloc(8 * MIB);
    let (own, _) = reader.opened(&format!("create own bytes={}", 8 * MIB));
    let more = format!("create more bytes={}", 2 * MIB);
    assert_eq!(reader.code(&more), CUDA, "all of the limit is its own");
    reader.free(&at);
    reader.close(&own);
    reader.malloc(16 * MIB);
}

/// Programs free what they can then, and ask again.
#[test]
fn what_finds_no_memory_leaves_its_name_to_the_next_try() {
    const OUT_OF_MEMORY: i32 = 2;
    let place = Place::with_keeper();
    let (memory, rules) = (("MEMCUDA_SIM_MEMORY", "64MiB"), "size=16MiB,name=ruled");
    let mut actor = place.actor_with(&[memory, ("MEMCUDA_NAMES", rules)]);
    let large = format!("malloc {}", 16 * MIB);
    for said in [false, true] {
        let held = actor.malloc(56 * MIB);
        if said {
            actor.must("next said 1");
        }
        assert_eq!(actor.code(&large), OUT_OF_MEMORY);
        assert_eq!(actor.say("list"), "0");
        actor.free(&held);
        let named = actor.must(&large);
        let name = if said { "said" } else { "ruled" };
        assert_eq!(actor.say("list"), format!("0 {name}"));
        actor.free(&named);
    }
    let plain = actor.must(&large);
    assert_ne!(actor.code(&format!("find {plain}")), 0, "once is enough");
}
