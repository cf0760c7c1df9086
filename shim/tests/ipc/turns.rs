//! The library's own thread leaves freed memory to others, but not while a context ends. The
//! program's do, in whatever context is theirs.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crate::actor::{Actor, Place, program};
use crate::driver::driver;
use crate::keeper::until;
use crate::support::{self, shim};
use crate::{MIB, counters};

fn pausing() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| driver("pausing")).clone()
}

#[test]
fn nothing_is_left_while_a_context_ends() {
    let place = Place::with_keeper();
    let mut command = place.command(program(), &[shim()]);
    command.env("LD_LIBRARY_PATH", pausing());
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

#[test]
fn no_other_threads_context_is_current_while_memory_is_left() {
    let place = Place::with_keeper();
    let mut command = place.command(&support::program("beside.c", "beside"), &[shim()]);
    command.env("LD_LIBRARY_PATH", pausing());
    let (mut exporter, mut importer) = (Actor::start(&mut command), place.actor());
    let handle = exporter.must("get");
    importer.open(&handle);
    exporter.must("free");
    let log = exporter.end();
    assert!(log.contains("unmaps while a context ends"), "{log}");
    assert!(!log.contains("a context ends that is current"), "{log}");
}
