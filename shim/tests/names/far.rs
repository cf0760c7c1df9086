//! Names whose memory is on another device than the one that is current where they are opened.

use crate::actor::{Actor, Place};
use crate::keeper::until;
use crate::{MISMATCH, NOT_FOUND, TIMEOUT, field};

/// What a stream answers whose work is not over.
const NOT_READY: i32 = 600;

/// Who made a name on device 1, and who opened it with device 0 current: its handle and address.
fn two() -> (Place, [Actor; 2], String, String) {
    let place = Place::with_keeper();
    let (mut maker, mut opener) = (place.actor(), place.actor());
    maker.opened("create w bytes=4096 flags=2 device=1");
    let (handle, at) = opener.opened("open w");
    (place, [maker, opener], handle, at)
}

/// On either device: who opened it there may use it there, too.
#[test]
fn a_close_waits_for_the_work_of_both_devices() {
    for device in [0, 1] {
        let (_place, [_maker, mut opener], handle, at) = two();
        opener.must(&format!("device {device}"));
        opener.must(&format!("work {at} 4096 300000"));
        opener.must(&format!("device {}", 1 - device));
        opener.close(&handle);
        opener.must(&format!("device {device}"));
        opener.must("sync-device");
        let log = opener.end();
        assert!(!log.contains("MISUSE"), "device {device}: {log}");
    }
}

#[test]
fn a_version_on_a_default_stream_comes_behind_the_work_of_its_own_device() {
    let (_place, [_maker, mut opener], handle, at) = two();
    opener.must("device 1");
    opener.must(&format!("work {at} 4096 300000"));
    opener.must("device 0");
    assert_eq!(opener.must(&format!("publish-default {handle} 0")), "1");
    opener.must("sync-device");
    assert_eq!(opener.code(&format!("wait {handle} 1 0")), TIMEOUT);
    opener.must("device 1");
    opener.must("sync-device");
    assert_eq!(opener.must(&format!("wait {handle} 1 0")), "1");
    opener.end();
}

#[test]
fn the_work_of_its_own_device_waits_for_a_version() {
    let (_place, [mut maker, mut opener], handle, _) = two();
    let (theirs, _) = maker.opened("open w device=1");
    opener.must(&format!("wait-default {handle} 1"));
    assert_eq!(opener.code("query-default"), 0, "nothing waits on device 0");
    opener.must("device 1");
    assert_eq!(opener.code("query-default"), NOT_READY);
    maker.must(&format!("publish {theirs} 1"));
    opener.must("sync-device");
    opener.end();
}

#[test]
fn it_outlives_the_context_that_it_was_opened_in() {
    let (_place, [mut maker, mut opener], handle, at) = two();
    opener.must("reset");
    opener.must("device 1");
    opener.set(&at, 5, 4096);
    opener.close(&handle);
    assert_eq!(maker.references("w"), 1);
    opener.end();
}

#[test]
fn memory_of_another_device_is_told_or_reached() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    let (_, at) = actor.opened("create w bytes=4096 device=1");
    assert_eq!(field(&actor.must("show w"), "device"), "1");
    actor.must("device 1");
    actor.set(&at, 5, 4096);
    actor.must("device 0");
    assert_eq!(actor.code("open w device=0"), MISMATCH);
    // Where no device is said it is mapped for the current one, too.
    let mut other = place.actor();
    let (_, there) = other.opened("open w");
    other.set(&there, 6, 4096);
    // Open there, it is on that device no more than before: known, and asked for anew.
    assert_eq!(other.code("open w device=0"), MISMATCH);
    assert!(other.message().contains("another device"));
    other.opened("create v bytes=4096");
    other.must("delete v");
    assert_eq!(other.code("open w device=0"), MISMATCH);
    other.opened("open w device=1");
    other.opened("open w");
    assert_eq!(other.references("w"), 3, "one of the maker, two mappings");
    actor.must("device 1");
    assert_eq!(actor.get(&at), 6);
}

/// As under another `CUDA_VISIBLE_DEVICES`.
#[test]
fn memory_of_a_device_that_is_not_seen_is_told() {
    const CUDA: i32 = 12;
    const INVALID_DEVICE: &str = "101";
    let place = Place::with_keeper();
    let mut maker = place.actor();
    let (handle, _) = maker.opened("create w bytes=4096 device=1");
    let mut other = place.actor_with(&[("MEMCUDA_SIM_DEVICES", "1")]);
    assert_eq!(other.code("open w"), CUDA);
    assert_eq!(other.must("cuda"), INVALID_DEVICE);
    let said = other.message();
    for word in ["GPU-", "does not see", "CUDA_VISIBLE_DEVICES"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(maker.references("w"), 1);
    other.opened("create v bytes=4096");
    maker.close(&handle);
    until("the name is gone", || maker.code("open w") == NOT_FOUND);
}
