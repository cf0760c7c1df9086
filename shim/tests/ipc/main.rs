//! CUDA IPC of pooled memory, between processes over the simulated GPU and a
//! keeper of the test's own.

mod actor;
mod anew;
mod caches;
mod closes;
#[path = "../support/counters.rs"]
mod counters;
#[path = "../support/crowd.rs"]
mod crowd;
mod deaths;
#[path = "../support/driver.rs"]
mod driver;
mod elsewhere;
mod fickle;
mod hangs;
#[path = "../support/keeper.rs"]
mod keeper;
mod listening;
mod older;
mod places;
#[path = "../../../tests/support/random.rs"]
mod random;
mod refused;
mod reopened;
mod start;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod turns;

use actor::{Actor, Place, program};
use keeper::until;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Memory that lies with other on a handle: freed, it comes back once nobody has it open.
const PARKED: u64 = 1000;
const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;

/// An exporter of one allocation with pattern 1, an importer that has it open;
/// where each of them has it, and its handle.
fn shared(bytes: u64) -> (Place, [Actor; 2], [String; 3]) {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (place.actor(), place.actor());
    let there = exporter.filled(bytes, 1);
    let handle = exporter.handle(&there);
    let here = importer.open(&handle);
    (place, [exporter, importer], [there, here, handle])
}

#[test]
fn two_processes_have_the_same_bytes_whatever_lies_below_them() {
    let place = Place::with_keeper();
    let mut exporter = place.actor_with(&[("MEMCUDA_CHUNK", "2MiB")]);
    let mut importer = place.actor();
    // Alone in its handle; over several handles; behind another one in a handle;
    // small ones, packed with others.
    for (number, bytes) in [2 * MIB, 11 * MIB, 300 * KIB, 300 * KIB, 1000, 1000]
        .into_iter()
        .enumerate()
    {
        let number = number as u64 * 2;
        let there = exporter.filled(bytes, number);
        let handle = exporter.handle(&there);
        let here = importer.open(&handle);
        assert!(importer.has(&here, bytes, number), "{bytes}");
        assert_eq!(
            importer.must(&format!("range {here}")),
            format!("{here} {bytes}")
        );
        importer.must(&format!("fill {here} {bytes} {}", number + 1));
        assert!(exporter.has(&there, bytes, number + 1), "{bytes}");
    }
}

#[test]
fn a_handle_is_the_allocations_and_never_used_again() {
    let (_place, [mut exporter, mut importer], [there, here, handle]) = shared(6 * MIB);
    let inside = u64::from_str_radix(&there, 16).unwrap() + 5 * MIB;
    assert_eq!(exporter.must(&format!("get {inside:x}")), handle);
    importer.close(&here);
    exporter.free(&there);
    let again = exporter.filled(6 * MIB, 2);
    assert_eq!(again, there, "nobody had it open");
    let other = exporter.handle(&again);
    assert_ne!(other, handle);
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
    let here = importer.open(&other);
    assert!(importer.has(&here, 6 * MIB, 2));
    let log = importer.end();
    assert!(log.contains("memory that is gone"), "{log}");
}

#[test]
fn repeated_opens_share_address_and_count() {
    let (_place, [_exporter, mut importer], [_, here, handle]) = shared(4 * MIB);
    for _ in 0..2 {
        assert_eq!(importer.open(&handle), here);
    }
    for _ in 0..2 {
        importer.close(&here);
        assert!(importer.has(&here, 4 * MIB, 1));
    }
    importer.close(&here);
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
    assert_ne!(importer.code(&format!("range {here}")), 0);
    let here = importer.open(&handle);
    assert!(importer.has(&here, 4 * MIB, 1));
}

#[test]
fn threads_that_open_it_at_once_hold_it_once_each() {
    for _ in 0..4 {
        let (place, [mut exporter, mut importer], [there, here, handle]) = shared(8 * MIB);
        importer.close(&here);
        let here = importer.must(&format!("open-at-once {handle}"));
        for _ in 0..4 {
            assert!(importer.has(&here, 8 * MIB, 1));
            importer.close(&here);
        }
        assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
        exporter.free(&there);
        exporter.gets_again(&there, 8 * MIB);
        // Nothing more is mapped than was opened.
        has_nothing_open(&place, &importer);
    }
}

fn has_nothing_open(place: &Place, importer: &Actor) {
    let said = place.keeper.verb(&["explain", &importer.pid().to_string()]);
    let said = said.unwrap();
    assert!(said.contains(" shared 0 B"), "{said}");
}

#[test]
fn what_the_driver_refuses_is_refused() {
    let (_place, [mut exporter, mut importer], [there, here, handle]) = shared(4 * MIB);
    assert_eq!(exporter.code(&format!("open {handle}")), INVALID_CONTEXT);
    assert_eq!(
        exporter.say(&format!("open {handle}")),
        "201 7",
        "nothing is written"
    );
    assert_eq!(exporter.code(&format!("close {there}")), INVALID_VALUE);
    assert_eq!(importer.say(&format!("open {handle} 0")), "1 7", "flags");
    // Opened memory is closed, not freed, and is not exported further.
    assert_eq!(importer.code(&format!("free {here}")), INVALID_VALUE);
    assert_eq!(importer.code(&format!("get {here}")), INVALID_VALUE);
    const IS_IPC_CAPABLE: u32 = 10;
    for (actor, at, said) in [
        (&mut exporter, &there, "0 1"),
        (&mut importer, &here, "0 0"),
    ] {
        assert_eq!(actor.say(&format!("attribute {at} {IS_IPC_CAPABLE}")), said);
        assert_eq!(actor.say(&format!("access {at}")), "0 3");
    }
    let inside = u64::from_str_radix(&here, 16).unwrap() + 512;
    assert_eq!(importer.code(&format!("close {inside:x}")), INVALID_VALUE);
    let ordered = exporter.must("alloc-async 4000000");
    assert_eq!(exporter.code(&format!("get {ordered}")), INVALID_VALUE);
    assert!(importer.has(&here, 4 * MIB, 1));
}

#[test]
fn a_handle_of_another_layout_or_host_is_refused_with_a_line() {
    let (_place, [_exporter, mut importer], [_, here, handle]) = shared(4 * MIB);
    importer.close(&here);
    let changed = |byte: usize| {
        let mut text = handle.clone().into_bytes();
        text[2 * byte] = if text[2 * byte] == b'f' { b'0' } else { b'f' };
        String::from_utf8(text).unwrap()
    };
    for byte in [8, 16, 24] {
        let answer = importer.code(&format!("open {}", changed(byte)));
        assert_eq!(answer, INVALID_VALUE, "byte {byte}");
    }
    let log = importer.end();
    for line in [
        "of another memcuda (layout ",
        "of another host",
        "memory that is gone",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[test]
fn memory_that_others_have_open_is_not_lent_again_before_they_let_go() {
    for (bytes, free) in [(1000, "free"), (8 * MIB, "free"), (8 * MIB, "free-async")] {
        let (_place, [mut exporter, mut importer], [there, here, handle]) = shared(bytes);
        let before = exporter.physical();
        exporter.must(&format!("{free} {there}"));
        for again in [format!("{free} {there}"), format!("open {handle}")] {
            assert_eq!(exporter.code(&again), INVALID_VALUE, "{again}");
        }
        let other = exporter.filled(bytes, 2);
        // What lies with others on a handle is parked. All else is the importer's alone, and its
        // addresses come again: who keeps what it opened closes it then.
        assert_eq!(other == there, bytes > MIB);
        assert!(importer.has(&here, bytes, 1), "{bytes}");
        let grown = exporter.physical();
        assert!(grown >= before);
        importer.close(&here);
        exporter.free(&other);
        exporter.gets_again(&there, bytes);
        let settled = exporter.physical();
        for _ in 0..3 {
            exporter.gets_again(&there, bytes);
        }
        assert!(exporter.physical() <= settled.max(grown));
    }
}

#[test]
fn an_open_that_fails_keeps_nothing() {
    // The pool's own come first: it learns what can be opened.
    for (call, number) in [
        ("cuMemImportFromShareableHandle", 1),
        ("cuMemMap", 2),
        ("cuMemSetAccess", 2),
    ] {
        let place = Place::with_keeper();
        let fault = format!("{call}@{number}=999");
        let mut exporter = place.actor();
        let mut importer = place.actor_with(&[("MEMCUDA_SIM_FAIL", &fault)]);
        let there = exporter.filled(PARKED, 1);
        let handle = exporter.handle(&there);
        assert_eq!(importer.code(&format!("open {handle}")), 999, "{call}");
        exporter.free(&there);
        exporter.gets_again(&there, PARKED);
    }
}

/// The first parts of an allocation over more handles than a packet has room for.
#[test]
fn of_what_is_exported_by_half_nothing_stays() {
    let place = Place::with_keeper();
    // Once is a process that has no descriptors to spare.
    let twice = [200, 201].map(|call| format!("cuMemExportToShareableHandle@{call}=999"));
    let faults = twice.join(",");
    let settings = [("MEMCUDA_CHUNK", "2MiB"), ("MEMCUDA_SIM_FAIL", &faults)];
    let mut exporter = place.actor_with(&settings);
    let there = exporter.filled(600 * MIB, 1);
    assert_ne!(exporter.code(&format!("get {there}")), 0);
    let status = place.keeper.verb(&["keeper", "status", "--json"]).unwrap();
    for none in [r#""exports":0,"#, r#""held_bytes":0,"#] {
        assert!(status.contains(none), "{status}");
    }
    exporter.free(&there);
    exporter.gets_again(&there, 600 * MIB);
}

#[test]
fn what_cannot_be_exported_is_held_by_nobody() {
    let place = Place::with_keeper();
    let mut alone = place.actor_with(&[("MEMCUDA_KEEPER", "off")]);
    let own = alone.filled(4 * MIB, 1);
    assert_ne!(alone.code(&format!("get {own}")), 0);
    alone.free(&own);
    alone.gets_again(&own, 4 * MIB);
}

#[test]
fn captures_of_any_kind_are_not_touched() {
    for mode in 0..3 {
        let (_place, [mut exporter, mut importer], [_, here, handle]) = shared(4 * MIB);
        let second = exporter.filled(4 * MIB, 2);
        importer.must(&format!("work {here} {} 1000", 4 * MIB));
        for actor in [&mut exporter, &mut importer] {
            actor.must(&format!("capture {mode}"));
        }
        let other = exporter.handle(&second);
        assert_eq!(importer.open(&handle), here);
        let there = importer.open(&other);
        for at in [&here, &here, &there] {
            importer.close(at);
        }
        for mut actor in [exporter, importer] {
            assert_eq!(actor.must("captured"), "kept", "mode {mode}");
            actor.end();
        }
    }
}

#[test]
fn a_context_that_ends_closes_what_was_opened_in_it() {
    let (place, [mut exporter, mut importer], [there, before, handle]) = shared(PARKED);
    importer.must("reset");
    assert_eq!(importer.code(&format!("close {before}")), INVALID_VALUE);
    let here = importer.open(&handle);
    assert!(importer.has(&here, PARKED, 1));
    exporter.free(&there);
    importer.must("reset");
    has_nothing_open(&place, &importer);
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
    exporter.gets_again(&there, PARKED);
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
}

/// A green context is a view of the primary one, whose memory it is when the view is gone.
#[test]
fn what_was_opened_in_a_view_outlives_it() {
    let (_place, [mut exporter, mut importer], [there, _, handle]) = shared(PARKED);
    importer.must("reset");
    importer.must("view");
    let here = importer.open(&handle);
    importer.must("view-ends");
    assert!(importer.has(&here, PARKED, 1));
    importer.close(&here);
    importer.must("view");
    let here = importer.open(&handle);
    importer.must("view-ends");
    importer.must("reset");
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
    exporter.free(&there);
    exporter.gets_again(&there, PARKED);
}

#[test]
fn a_broken_context_answers_its_error_and_a_free_there_withdraws_what_was_exported() {
    let (_place, [mut exporter, mut importer], [there, here, handle]) = shared(4 * MIB);
    importer.close(&here);
    let others = importer.filled(4 * MIB, 2);
    let others = importer.handle(&others);
    let error = exporter.code("crash");
    assert_ne!(error, 0);
    assert_eq!(exporter.code(&format!("get {there}")), error);
    assert_eq!(exporter.code(&format!("open {others}")), error);
    assert_eq!(exporter.code(&format!("free {there}")), error);
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
}

#[test]
fn a_context_that_ends_leaves_what_it_exported_to_those_who_have_it() {
    for bytes in [1000, 8 * MIB] {
        let (_place, [mut exporter, mut importer], [_, here, _]) = shared(bytes);
        exporter.must("reset");
        let _others = [exporter.filled(bytes, 2), exporter.filled(bytes, 3)];
        assert!(importer.has(&here, bytes, 1), "{bytes}");
        let before = exporter.physical();
        importer.close(&here);
        exporter.must("reset");
        until("the memory goes back to the driver", || {
            exporter.must("reset");
            exporter.physical() < before
        });
    }
}

#[test]
fn an_allocation_over_more_handles_than_a_packet_holds_needs_few_descriptors() {
    let place = Place::with_keeper();
    let bytes = 600 * MIB;
    let start = |descriptors: u32, chunk: &str| {
        let limited = format!(r#"ulimit -n {descriptors}; exec "$0""#);
        let mut command = place.command("/bin/sh".as_ref(), &[support::shim()]);
        command.args(["-c", &limited]).arg(program());
        Actor::start(command.env("MEMCUDA_CHUNK", chunk))
    };
    // The simulated driver keeps a descriptor for each handle that is imported.
    let (mut exporter, mut importer) = (start(60, "2MiB"), start(350, "auto"));
    let there = exporter.must(&format!("alloc {bytes}"));
    let (first, last) = (0, bytes - 4 * MIB);
    let at =
        |base: &str, offset: u64| format!("{:x}", u64::from_str_radix(base, 16).unwrap() + offset);
    for offset in [first, last] {
        exporter.must(&format!("fill {} {} {offset}", at(&there, offset), 4 * MIB));
    }
    let handle = exporter.handle(&there);
    let here = importer.open(&handle);
    for offset in [first, last] {
        assert!(importer.has(&at(&here, offset), 4 * MIB, offset));
    }
    importer.close(&here);
    exporter.free(&there);
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
}

#[test]
fn what_is_opened_takes_nothing_of_a_limit() {
    const OUT_OF_MEMORY: i32 = 2;
    let place = Place::with_keeper();
    let mut exporter = place.actor();
    let mut importer = place.actor_with(&[("MEMCUDA_LIMIT", "16MiB")]);
    for number in 1..3 {
        let at = exporter.filled(12 * MIB, number);
        let here = importer.open(&exporter.handle(&at));
        assert!(importer.has(&here, 12 * MIB, number));
    }
    let at = importer.must(&format!("alloc {}", 16 * MIB));
    let more = format!("alloc {}", 2 * MIB);
    assert_eq!(importer.code(&more), OUT_OF_MEMORY);
    importer.free(&at);
}
