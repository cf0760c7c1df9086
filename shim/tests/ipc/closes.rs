//! What a close of opened memory waits for, and what goes with it.

use crate::*;

/// So that all copies of the context are synchronous (the driver has that for mapped memory in
/// no other way).
const SYNC_MEMOPS: u32 = 0x80;

#[test]
fn what_was_marked_is_marked_no_more_once_it_is_closed() {
    let (_place, [_exporter, mut importer], [_, here, handle]) = shared(4 * MIB);
    let is_set = |importer: &mut Actor| {
        u32::from_str_radix(&importer.must("flags"), 16).unwrap() & SYNC_MEMOPS != 0
    };
    importer.open(&handle);
    importer.must(&format!("mark {here} 1"));
    importer.close(&here);
    assert!(is_set(&mut importer), "it is open still");
    importer.close(&here);
    assert!(!is_set(&mut importer));
}

#[test]
fn a_close_waits_for_the_work_on_it() {
    // The simulated GPU ends a program that unmaps memory in use.
    let (_place, [_exporter, mut importer], [_, here, _]) = shared(4 * MIB);
    importer.must(&format!("work {here} {} 50000", 4 * MIB));
    importer.close(&here);
    importer.end();
}

/// Beside a capture the wait is an allocation and its free, of the host where the device is full.
#[test]
fn a_close_for_whose_wait_no_memory_is_left_closes_nothing_yet() {
    const OUT_OF_MEMORY: i32 = 2;
    let place = Place::with_keeper();
    let mut exporter = place.actor();
    let full = ("MEMCUDA_SIM_FAIL", "cuMemAlloc_v2%1=2,cuMemHostAlloc%1=2");
    let mut importer = place.actor_with(&[full]);
    let there = exporter.filled(4 * MIB, 1);
    let here = importer.open(&exporter.handle(&there));
    importer.must(&format!("work {here} {} 50000", 4 * MIB));
    importer.must("capture 2");
    // The simulated GPU ends a program that unmaps memory in use.
    assert_eq!(importer.code(&format!("close {here}")), OUT_OF_MEMORY);
    assert_eq!(importer.must("captured"), "kept");
    importer.close(&here);
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
    importer.end();
    exporter.end();
}

/// The simulated GPU ends a program that unmaps memory in use.
#[test]
fn a_close_waits_for_what_another_opening_has_begun_during_its_wait() {
    let place = Place::with_keeper();
    let clock = ("MEMCUDA_SIM_CLOCK", "real");
    let (mut exporter, mut importer) = (place.actor(), place.actor_with(&[clock]));
    let there = exporter.filled(4 * MIB, 1);
    let handle = exporter.handle(&there);
    let here = importer.open(&handle);
    importer.must(&format!("close-overtaken {handle} {here}"));
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
    importer.end();
}
