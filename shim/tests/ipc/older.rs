//! Drivers that are older than some of the calls that the library makes.

use std::fs;
use std::path::PathBuf;

use crate::actor::{Actor, Place, program};
use crate::{MIB, support};

/// The simulated driver without a call: nobody finds it by that name.
fn driver_without(place: &Place, call: &str) -> PathBuf {
    let directory = place.path("driver");
    fs::create_dir(&directory).unwrap();
    let from = |library: &str| support::simulator().join(library);
    let runtime = "libcudart.so.13";
    fs::copy(from(runtime), directory.join(runtime)).unwrap();
    let mut driver = fs::read(from("libcuda.so.1")).unwrap();
    let ends: Vec<_> = (call.len()..driver.len())
        .filter(|&end| driver[..end].ends_with(call.as_bytes()))
        .collect();
    assert!(!ends.is_empty());
    ends.into_iter().for_each(|end| driver[end - 1] = b'-');
    fs::write(directory.join("libcuda.so.1"), driver).unwrap();
    directory
}

/// It says of a device which it is by an older call alone.
#[test]
fn a_driver_before_cuda_11_4_shares_memory() {
    let place = Place::with_keeper();
    let driver = driver_without(&place, "cuDeviceGetUuid_v2");
    let start = || {
        let mut command = place.command(program(), &[support::shim()]);
        Actor::start(command.env("LD_LIBRARY_PATH", &driver))
    };
    let (mut exporter, mut importer) = (start(), start());
    let there = exporter.filled(4 * MIB, 1);
    let here = importer.open(&exporter.handle(&there));
    assert!(importer.has(&here, 4 * MIB, 1));
}
