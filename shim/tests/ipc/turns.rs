//! The library's own thread leaves freed memory to others, but not while a context ends.

use std::path::PathBuf;
use std::time::Duration;

use crate::actor::{Actor, Place, program};
use crate::keeper::until;
use crate::support::{compile, scratch, shim, simulator};
use crate::{MIB, counters};

/// The directory of a driver that pauses. What is behind it, the simulated driver by another
/// name, is itself only while it is linked.
fn pausing() -> PathBuf {
    let directory = scratch().join("pausing");
    std::fs::create_dir_all(&directory).unwrap();
    let shared = |name: &str, needs: &[&str]| {
        let soname = format!("-Wl,-soname,{name}");
        let arguments = [&["-shared", "-fPIC", "-ldl", &soname], needs].concat();
        compile("pausing.c", &format!("pausing/{name}"), &arguments)
    };
    let behind = shared("libsimulated.so", &[]);
    let search = format!("-L{}", directory.display());
    let needs = ["-Wl,--no-as-needed", &search, "-l:libsimulated.so"];
    shared("libcuda.so.1", &needs);
    std::fs::remove_file(&behind).unwrap();
    std::fs::copy(simulator().join("libcuda.so.1"), behind).unwrap();
    directory
}

#[test]
fn nothing_is_left_while_a_context_ends() {
    let place = Place::with_keeper();
    let search = [pausing(), simulator()];
    let mut command = place.command(program(), &[shim()]);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(search).unwrap());
    let (mut exporter, mut importer) = (Actor::start(&mut command), place.actor());
    let there = exporter.filled(8 * MIB, 1);
    let here = importer.open(&exporter.handle(&there));
    exporter.must(&format!("work {there} 4096 300000"));
    exporter.must(&format!("free-async {there}"));
    exporter.must("sync");
    exporter.tell("destroy");
    std::thread::sleep(Duration::from_millis(500));
    // What was freed is withdrawn once more.
    place.keeper.kill();
    assert_eq!(exporter.heard(), "0");
    until("the memory is left", || {
        counters::of(exporter.pid())[0].pool.parked_bytes == 0
    });
    assert!(importer.has(&here, 8 * MIB, 1));
    let log = exporter.end();
    assert!(!log.contains("while a context ends"), "{log}");
}
