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
