//! Keeper and standby are killed at once, as with the job that started them, and another keeper
//! begins that knows nothing: handles stay good, and memory stays with who has it open.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use memcuda_core::share::client::Client;
use memcuda_core::share::handle::Handle;
use memcuda_core::share::protocol::{Backend, DeviceId, Request, Spec};

use crate::actor::Place;
use crate::keeper::until;
use crate::{INVALID_VALUE, MIB, PARKED, shared};

#[test]
fn handles_of_before_stay_good_with_a_keeper_that_knows_nothing() {
    for bytes in [1000, 6 * MIB] {
        let (mut place, [mut exporter, mut importer], [there, here, handle]) = shared(bytes);
        let second = exporter.filled(bytes, 2);
        let of_second = exporter.handle(&second);
        for round in 0..2 {
            place.keeper.end();
            place.keeper.start();
            // Whoever comes first.
            let other = importer.open(&of_second);
            assert!(importer.has(&other, bytes, 2), "round {round}");
            assert!(importer.has(&here, bytes, 1), "round {round}");
            importer.close(&other);
            let mut third = place.actor();
            let elsewhere = third.open(&handle);
            assert!(third.has(&elsewhere, bytes, 1), "round {round}");
            assert_eq!(exporter.handle(&there), handle);
        }
        let log = exporter.end() + &importer.end();
        assert!(!log.contains("stays with this process"), "{log}");
    }
}

#[test]
fn an_allocation_over_more_handles_than_a_packet_holds_is_given_again() {
    let mut place = Place::with_keeper();
    let mut exporter = place.actor_with(&[("MEMCUDA_CHUNK", "2MiB")]);
    let mut importer = place.actor();
    let there = exporter.filled(300 * MIB, 5);
    let handle = exporter.handle(&there);
    let small = exporter.filled(2 * MIB, 6);
    importer.open(&exporter.handle(&small));
    place.keeper.end();
    place.keeper.start();
    let here = importer.open(&handle);
    assert!(importer.has(&here, 300 * MIB, 5));
}

/// Nobody can tell whether anybody has it open: whoever does keeps the handle, and if nobody
/// does the driver has the memory.
#[test]
fn what_is_freed_then_is_left_to_whoever_has_it_open() {
    let (mut place, [mut exporter, mut importer], [there, here, handle]) = shared(6 * MIB);
    let before = exporter.filled(6 * MIB, 7);
    let opened = importer.open(&exporter.handle(&before));
    let nobodys = exporter.filled(64 * MIB, 8);
    let of_nobodys = exporter.handle(&nobodys);
    place.keeper.end();
    exporter.free(&before);
    place.keeper.start();
    until("the new keeper is found", || {
        exporter.code(&format!("get {there}")) == 0
    });
    let other = importer.open(&of_nobodys);
    importer.close(&other);
    let most = exporter.physical();
    exporter.free(&nobodys);
    exporter.free(&there);
    until("the driver has what nobody has open", || {
        exporter.physical() == most - 64 * MIB
    });
    assert_eq!(importer.code(&format!("open {of_nobodys}")), INVALID_VALUE);
    for number in 2..6 {
        let at = exporter.filled(6 * MIB, number);
        let handle = exporter.handle(&at);
        let here = importer.open(&handle);
        assert!(importer.has(&here, 6 * MIB, number));
    }
    assert!(importer.has(&opened, 6 * MIB, 7) && importer.has(&here, 6 * MIB, 1));
    importer.close(&here);
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
}

/// It has no handle to itself that could go.
#[test]
fn what_lies_with_other_memory_on_a_handle_is_never_lent_again() {
    let (mut place, [mut exporter, mut importer], [there, here, handle]) = shared(PARKED);
    let kept = exporter.filled(PARKED, 7);
    let opened = importer.open(&exporter.handle(&kept));
    place.keeper.end();
    exporter.free(&there);
    importer.close(&here);
    place.keeper.start();
    until("the new keeper is found", || {
        exporter.code(&format!("get {kept}")) == 0
    });
    exporter.free(&kept);
    for number in 2..20 {
        let at = exporter.filled(PARKED, number);
        assert!(at != there && at != kept, "nobody can tell who has it");
    }
    assert!(importer.has(&opened, PARKED, 7));
    assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
    let log = exporter.end();
    assert!(log.contains("the keeper is gone for good"), "{log}");
}

/// The number of an allocation that others know may be taken: then the allocation has another.
#[test]
fn a_number_that_somebody_else_took_meanwhile_is_given_up() {
    let mut place = Place::with_keeper();
    let mut exporter = place.actor();
    let there = exporter.filled(6 * MIB, 1);
    let handle = exporter.handle(&there);
    exporter.stop();
    place.keeper.end();
    place.keeper.start();
    let (mut stranger, _) = Client::connect(&place.keeper.socket(), 1, "stranger", &[]).unwrap();
    let bytes: Vec<u8> = (0..64)
        .map(|at| u8::from_str_radix(&handle[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let said = Handle::from_bytes(&bytes.try_into().unwrap()).unwrap();
    // SAFETY: a new descriptor, of nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"memory".as_ptr(), 0)) };
    let export = Request::Export {
        generation: said.generation,
        spec: Spec {
            bytes: 4096,
            dtype: None,
            shape: Vec::new(),
            device: DeviceId([3; 16]),
            ordinal: 0,
            backend: Backend::Vmm,
        },
        offset: 0,
        parts: vec![4096],
        total: 1,
    };
    stranger.call(export, &[file.as_fd()]).unwrap();
    exporter.signal(libc::SIGCONT);
    let mut other = handle.clone();
    until("it has another", || {
        other = exporter.handle(&there);
        other != handle
    });
    let mut importer = place.actor();
    let here = importer.open(&other);
    assert!(importer.has(&here, 6 * MIB, 1));
    assert_ne!(importer.code(&format!("open {handle}")), 0);
}
