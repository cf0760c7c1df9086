//! Importers of another kind: on another device, in another namespace, without
//! the library; and handles of the driver's own.

use std::process::Command;

use crate::actor::{Actor, Place, program};
use crate::{INVALID_VALUE, MIB, shared, support};

/// A process on the plain simulated driver.
fn plain(place: &Place) -> Actor {
    Actor::start(place.command(program(), &[]).env_remove("LD_PRELOAD"))
}

#[test]
fn a_process_without_the_library_gets_the_drivers_answer_and_the_log_says_why() {
    let (place, [exporter, _importer], [_, _, handle]) = shared(4 * MIB);
    assert_eq!(plain(&place).code(&format!("open {handle}")), INVALID_VALUE);
    let log = exporter.end();
    assert!(
        log.contains("a process that opens it must be preloaded, too"),
        "{log}"
    );
}

#[test]
fn handles_of_the_drivers_own_are_the_drivers() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (plain(&place), place.actor());
    let there = exporter.filled(4 * MIB, 1);
    let handle = exporter.handle(&there);
    let here = importer.open(&handle);
    assert!(importer.has(&here, 4 * MIB, 1));
    importer.close(&here);
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
}

#[test]
fn another_device_reaches_what_it_opens() {
    let (place, [mut exporter, _importer], [there, _, handle]) = shared(4 * MIB);
    let mut importer = place.actor();
    importer.must("device 1");
    let here = importer.open(&handle);
    assert!(importer.has(&here, 4 * MIB, 1));
    // The simulated GPU ends a program that touches what its device may not.
    importer.must(&format!("work {here} {} 10", 4 * MIB));
    importer.must("sync");
    importer.must(&format!("fill {here} {} 2", 4 * MIB));
    assert!(exporter.has(&there, 4 * MIB, 2));
    importer.close(&here);
    importer.end();
}

#[test]
fn another_pid_namespace_is_no_hindrance() {
    let (place, [mut exporter, _importer], [there, _, handle]) = shared(4 * MIB);
    let mut command = place.command("unshare".as_ref(), &[support::shim()]);
    let permitted = |flags: &str| {
        let probe = Command::new("unshare").args([flags, "true"]).output();
        probe.is_ok_and(|probe| probe.status.success())
    };
    let flags = ["-pf", "-Urpf"].into_iter().find(|flags| permitted(flags));
    let flags = flags.expect("this machine lets nobody make a PID namespace");
    let mut importer = Actor::start(command.args([flags, "--kill-child"]).arg(program()));
    let here = importer.open(&handle);
    assert!(importer.has(&here, 4 * MIB, 1));
    exporter.free(&there);
    exporter.filled(4 * MIB, 2);
    assert!(importer.has(&here, 4 * MIB, 1));
    importer.close(&here);
}

/// As under another `CUDA_VISIBLE_DEVICES`.
#[test]
fn memory_of_a_device_that_is_not_seen_is_the_drivers_answer_and_a_line() {
    const INVALID_DEVICE: i32 = 101;
    let place = Place::with_keeper();
    let mut exporter = place.actor();
    exporter.must("device 1");
    let there = exporter.filled(4 * MIB, 1);
    let handle = exporter.handle(&there);
    let mut importer = place.actor_with(&[("MEMCUDA_SIM_DEVICES", "1")]);
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_DEVICE);
    let log = importer.end();
    assert!(log.contains("which this process does not see"), "{log}");
    exporter.free(&there);
}
