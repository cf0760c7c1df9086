//! What MPI's libraries remember of their own shared memory: its handles, until they hear, by
//! what they have written into the driver's functions, that it is freed.

use crate::actor::{Actor, Place, program};
use crate::{MIB, support};

/// A process in which such a library listens.
fn listened(place: &Place) -> Actor {
    let directory = format!("-L{}", support::simulator().display());
    let driver = ["-Wl,--no-as-needed", directory.as_str(), "-l:libcuda.so.1"];
    let arguments = [&["-shared", "-fPIC", "-ldl"], &driver[..]].concat();
    let listener = support::compile("listener.c", "liblistener.so", &arguments);
    let mut command = place.command(program(), &[support::shim(), listener]);
    Actor::start(command.env("MEMCUDA_CHUNK", "2MiB"))
}

#[test]
fn who_listens_hears_of_exported_memory_before_it_is_freed() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (listened(&place), place.actor());
    let mut expected = Vec::new();
    for (bytes, free) in [(1000, "free"), (6 * MIB, "free"), (6 * MIB, "free-async")] {
        let there = exporter.filled(bytes, 1);
        let handle = exporter.handle(&there);
        let here = importer.open(&handle);
        importer.close(&here);
        exporter.must(&format!("{free} {there}"));
        expected.push(format!("heard {there} {bytes}"));
        // What was not exported is nobody's business.
        let again = exporter.filled(bytes, 2);
        assert_eq!(again, there, "nobody had it open");
        exporter.must(&format!("{free} {again}"));
    }
    // Beside a capture, too, which stays as it is; there the library waits by a free of its own.
    let there = exporter.filled(8 * MIB, 1);
    exporter.handle(&there);
    exporter.must("capture 2");
    exporter.free(&there);
    assert_eq!(exporter.must("captured"), "kept");
    expected.push(format!("heard {there} {}", 8 * MIB));
    let log = exporter.end();
    let heard = log
        .lines()
        .filter(|line| line.starts_with("heard") && !line.ends_with(" 1"));
    assert_eq!(heard.collect::<Vec<_>>(), expected, "{log}");
}
