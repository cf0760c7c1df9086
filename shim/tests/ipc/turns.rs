//! The library's own thread leaves freed memory to others, but not while a context ends.

use std::time::Duration;

use crate::actor::{Actor, Place, program};
use crate::driver::driver;
use crate::keeper::until;
use crate::support::shim;
use crate::{MIB, counters};

#[test]
fn nothing_is_left_while_a_context_ends() {
    let place = Place::with_keeper();
    let mut command = place.command(program(), &[shim()]);
    command.env("LD_LIBRARY_PATH", driver("pausing"));
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
