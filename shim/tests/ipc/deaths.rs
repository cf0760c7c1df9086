//! Exporter, importer and keeper killed, and processes that fork or close what
//! they do not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use memcuda_core::share::protocol::{Generation, Reply, Request};

use crate::actor::Place;
use crate::fickle;
use crate::keeper::{signal, until};
use crate::{INVALID_VALUE, MIB, PARKED, shared};

/// How often the library asks a keeper that goes away.
const TRIES: u32 = 4;

#[test]
fn the_exporters_death_takes_nothing_from_those_who_have_it_open() {
    let (place, [exporter, mut importer], [_, here, handle]) = shared(6 * MIB);
    exporter.kill();
    assert!(importer.has(&here, 6 * MIB, 1));
    importer.close(&here);
    // It ended with the last who had it.
    let mut third = place.actor();
    until("the memory is gone", || {
        third.code(&format!("open {handle}")) == INVALID_VALUE
    });
}

#[test]
fn an_importers_death_gives_the_memory_back() {
    for freed_before in [true, false] {
        let (_place, [mut exporter, importer], [there, _, _]) = shared(PARKED);
        if freed_before {
            exporter.free(&there);
            importer.kill();
        } else {
            importer.kill();
            exporter.free(&there);
        }
        exporter.gets_again(&there, PARKED);
    }
}

#[test]
fn a_forked_child_holds_nothing() {
    let (_place, [mut exporter, mut importer], [there, here, _]) = shared(PARKED);
    importer.must("fork");
    assert!(importer.has(&here, PARKED, 1));
    let child: i32 = importer.must("fork-and-stay").parse().unwrap();
    exporter.free(&there);
    importer.kill();
    exporter.gets_again(&there, PARKED);
    signal(child, libc::SIGKILL);
}

#[test]
fn the_keepers_death_loses_nothing() {
    for bytes in [1000, 6 * MIB] {
        let (place, [mut exporter, mut importer], [there, here, handle]) = shared(bytes);
        let second = exporter.filled(bytes, 2);
        let second_handle = exporter.handle(&second);
        for round in 0..3 {
            place.keeper.kill();
            // Opens that are there need nobody; others find the keeper again.
            assert_eq!(importer.open(&handle), here);
            importer.close(&here);
            assert!(importer.has(&here, bytes, 1), "round {round}");
            let other = importer.open(&second_handle);
            assert!(importer.has(&other, bytes, 2), "round {round}");
            importer.close(&other);
        }
        exporter.free(&there);
        place.keeper.kill();
        let other = exporter.filled(bytes, 3);
        // What lies with others on a handle stays; all else is the importer's.
        assert_eq!(other == there, bytes > MIB);
        assert!(importer.has(&here, bytes, 1));
        exporter.free(&other);
        importer.close(&here);
        exporter.gets_again(&there, bytes);
    }
}

#[test]
fn a_program_that_closes_all_descriptors_finds_the_keeper_again() {
    let (_place, [mut exporter, mut importer], [_, here, _]) = shared(6 * MIB);
    importer.must("close-sockets");
    let second = exporter.filled(6 * MIB, 2);
    let handle = exporter.handle(&second);
    let other = importer.open(&handle);
    assert!(importer.has(&other, 6 * MIB, 2) && importer.has(&here, 6 * MIB, 1));
    importer.close(&here);
    importer.end();
}

/// A keeper on a busy host: longer than a moment of no answer, after which nobody is asked
/// for a while.
fn busy() {
    std::thread::sleep(Duration::from_millis(120));
}

#[test]
fn an_export_survives_keepers_that_go_away() {
    let place = Place::empty();
    let mut gone = 0;
    let mut actor = fickle::start(&place, move |request| {
        let goes = gone < 3 && matches!(request, Request::Export { .. });
        gone += u32::from(goes);
        if goes {
            busy();
        }
        (!goes).then_some(Reply::Done)
    });
    let at = actor.filled(2 * MIB, 1);
    assert_ne!(actor.handle(&at), "0".repeat(128));
}

/// As one that is killed, or whose program is replaced, before it has said a word.
#[test]
fn who_came_to_keepers_that_went_away_comes_to_the_next_one() {
    let place = Place::empty();
    let mut gone = 0;
    let mut actor = fickle::start(&place, move |request| {
        // More often than an export comes to it by itself.
        let goes = gone < 12 && matches!(request, Request::Introduce { .. });
        gone += u32::from(goes);
        if goes {
            busy();
        }
        (!goes).then_some(Reply::Done)
    });
    let at = actor.filled(2 * MIB, 1);
    assert_ne!(actor.handle(&at), "0".repeat(128));
}

/// The connection of a program with names is begun before anybody asks; the first who does
/// waits for the keeper's word, or asks for a name with it.
#[test]
fn who_waited_for_a_keeper_that_went_away_comes_to_the_next_one() {
    const NAMED: u64 = 4 * MIB;
    for is_named in [false, true] {
        let place = Place::empty();
        let mut gone = 0;
        let rules = [("MEMCUDA_NAMES", "size=4MiB,name=a")];
        let mut actor = fickle::start_with(&place, &rules, move |request| match request {
            Request::Introduce { .. } if gone == 0 => {
                gone += 1;
                (0..8).for_each(|_| busy());
                None
            }
            Request::Open { .. } => Some(Reply::Make {
                generation: Generation([7; 16]),
            }),
            _ => Some(Reply::Done),
        });
        let at = actor.filled(if is_named { NAMED } else { 2 * MIB }, 1);
        if !is_named {
            assert_ne!(actor.handle(&at), "0".repeat(128));
        }
        let log = actor.end();
        assert!(!log.contains("the keeper went away"), "{log}");
        assert_eq!(log.contains("a is 4194304 bytes"), is_named, "{log}");
    }
}

/// It may not have heard it. What was heard is claimed no more.
#[test]
fn what_was_withdrawn_is_withdrawn_once_more_after_a_keeper_that_went_away() {
    let place = Place::empty();
    let claimed = Arc::new(AtomicUsize::new(usize::MAX));
    let (last, mut deaf, mut exports) = (Arc::clone(&claimed), 0, 0);
    let mut actor = fickle::start(&place, move |request| {
        match request {
            Request::Introduce { leases, .. } => last.store(leases.len(), Ordering::SeqCst),
            Request::Withdraw { .. } => deaf += 1,
            Request::Export { .. } => exports += 1,
            _ => {}
        }
        let goes = match request {
            Request::Withdraw { .. } => deaf <= TRIES,
            Request::Export { .. } => exports == 2,
            _ => false,
        };
        (!goes).then_some(Reply::Done)
    });
    let at = actor.filled(6 * MIB, 1);
    actor.handle(&at);
    actor.free(&at);
    actor.gets_again(&at, 6 * MIB);
    let other = actor.filled(6 * MIB, 2);
    actor.handle(&other);
    assert_eq!(claimed.load(Ordering::SeqCst), 0);
}

/// Which it did, and could not say any more.
#[test]
fn what_a_keeper_withdrew_before_it_went_away_is_not_missed() {
    let place = Place::empty();
    let mut is_withdrawn = false;
    let mut actor = fickle::start(&place, move |request| match request {
        Request::Withdraw { .. } if !is_withdrawn => {
            is_withdrawn = true;
            None
        }
        Request::Introduce { leases, .. } if is_withdrawn => {
            let lost = leases.iter().map(|lease| lease.generation).collect();
            Some(Reply::Welcome { node: 7, lost })
        }
        _ => Some(Reply::Done),
    });
    let at = actor.filled(6 * MIB, 1);
    actor.handle(&at);
    actor.free(&at);
    actor.gets_again(&at, 6 * MIB);
    let log = actor.end();
    assert!(!log.contains("knows nothing more"), "{log}");
}

#[test]
fn who_has_nothing_but_freed_memory_hears_of_the_next_keeper_that_it_is_let_go() {
    let (place, [mut exporter, mut importer], [there, here, _]) = shared(1000);
    exporter.free(&there);
    place.keeper.kill();
    importer.close(&here);
    exporter.gets_again(&there, 1000);
}
