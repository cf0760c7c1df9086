//! The interface's own calls of the driver find room as the program's do.

use crate::actor::Place;
use crate::support;

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
