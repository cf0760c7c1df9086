//! Torch's tensors over pages, where all that allocates is seen: a large one that is new is an
//! allocation by itself, as it would be with a segment of its own, though it begins and ends within
//! pages; and what was registered stays.

use crate::actor::{Actor, Place};
use crate::sharing::{INVALID_VALUE, MIB, PAGE, RANGE_START, Torch};
use crate::sharing::{actor, command, moved, number};
use crate::support::shim;

const BUFFER_ID: u32 = 7;

/// A process whose tensors begin where the one before ended.
fn with_tails(place: &Place) -> Actor {
    Actor::start(command(place, &[shim()]).env("TAILS", "1"))
}

fn range(actor: &mut Actor, at: &str) -> String {
    actor.must(&format!("range {at}"))
}

#[test]
fn a_large_tensor_is_an_allocation_and_stays_it_whatever_comes_beside_it() {
    let place = Place::empty();
    let mut actor = with_tails(&place);
    let first = actor.tensor(29 * MIB + 4096);
    let second = actor.tensor(50 * MIB);
    assert_eq!(
        second,
        moved(&first, 29 * MIB + 4096),
        "on a page of the host"
    );
    let known = [&first, &second].map(|at| actor.attribute(at, BUFFER_ID));
    assert_ne!(known[0], known[1]);
    let small = actor.tensor(5 * MIB + 4096);
    let third = actor.tensor(PAGE);
    assert_eq!(third, moved(&small, 5 * MIB + 4096));
    let whole = [
        (&first, 29 * MIB + 4096),
        (&second, 50 * MIB),
        (&third, 12 * MIB),
    ];
    for (at, bytes) in whole {
        let whole = format!("{at} {bytes}");
        assert_eq!(range(&mut actor, at), whole);
        assert_eq!(range(&mut actor, &moved(at, bytes - 1)), whole);
        assert_eq!(number(at), actor.attribute(&moved(at, 5), RANGE_START));
    }
    assert_eq!(
        known,
        [&first, &second].map(|at| actor.attribute(at, BUFFER_ID))
    );
    actor.end();
}

/// What a range says must be what can be registered with a card, which has whole pages.
#[test]
fn a_large_tensor_within_a_page_of_the_host_is_part_of_what_touches() {
    let place = Place::empty();
    let mut actor = with_tails(&place);
    let first = actor.tensor(20 * MIB + 512);
    let second = actor.tensor(50 * MIB);
    assert_eq!(second, moved(&first, 20 * MIB + 512));
    for at in [&first, &second] {
        assert_eq!(number(&first), actor.attribute(at, RANGE_START));
    }
    actor.end();
}

/// As engines for key-value caches do that take it for the tensor's own segment.
#[test]
fn the_handle_of_a_large_tensor_opens_at_its_first_byte() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (with_tails(&place), actor(&place));
    let weights = exporter.tensor(30 * MIB);
    let cache = exporter.tensor(50 * MIB);
    exporter.must(&format!("fill {weights} {} 1", 30 * MIB));
    exporter.must(&format!("fill {cache} {} 2", 50 * MIB));
    let handle = exporter.handle(&cache);
    assert_ne!(handle, exporter.handle(&weights));
    assert_eq!(handle, exporter.handle(&moved(&cache, 49 * MIB)));
    let here = importer.open(&handle);
    assert!(importer.has(&here, 50 * MIB, 2));
    assert_eq!(range(&mut importer, &here), format!("{here} {}", 50 * MIB));
    importer.must(&format!("fill {here} {} 3", 50 * MIB));
    assert!(exporter.has(&cache, 50 * MIB, 3) && exporter.has(&weights, 30 * MIB, 1));
    // What torch maps beside it is another one.
    exporter.tensor(20 * MIB);
    assert_eq!(exporter.handle(&cache), handle);
    importer.close(&here);
    exporter.give_up(&cache);
    assert!(exporter.has(&weights, 30 * MIB, 1));
    importer.end();
    let log = exporter.end();
    let told = log.matches("was asked for within an allocation of torch's");
    assert_eq!(told.count(), 1, "{log}");
}

#[test]
fn of_many_exported_tensors_each_handle_stays_good() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (with_tails(&place), actor(&place));
    let tensors: Vec<String> = (0..70).map(|_| exporter.tensor(10 * MIB)).collect();
    let handles: Vec<String> = tensors.iter().map(|at| exporter.handle(at)).collect();
    for (value, (at, handle)) in (1..).zip(tensors.iter().zip(&handles)) {
        exporter.must(&format!("fill {at} {} {value}", 10 * MIB));
        let here = importer.open(handle);
        assert!(importer.has(&here, 10 * MIB, value));
        importer.close(&here);
    }
}

/// As Mooncake does of each tensor, and Monarch of all that torch has side by side.
#[test]
fn a_descriptor_is_over_a_tensor_or_over_several() {
    let place = Place::empty();
    let mut actor = with_tails(&place);
    let first = actor.tensor(30 * MIB);
    let second = actor.tensor(50 * MIB);
    assert_eq!(range(&mut actor, &second), format!("{second} {}", 50 * MIB));
    for (at, bytes) in [(&second, 50 * MIB), (&first, 30 * MIB), (&first, 84 * MIB)] {
        actor.must(&format!("dma-buf {at} {bytes}"));
    }
    let beyond = actor.code(&format!("dma-buf {first} {}", 85 * MIB));
    assert_eq!(beyond, INVALID_VALUE);
}

#[test]
fn other_devices_reach_and_copy_a_tensor_within_pages() {
    let place = Place::empty();
    let mut actor = with_tails(&place);
    actor.tensor(30 * MIB);
    let tensor = actor.tensor(14 * MIB);
    actor.must("device 1");
    actor.must(&format!("fill {tensor} {} 5", 14 * MIB));
    let own = actor.must(&format!("alloc {}", 14 * MIB));
    actor.must("capture 2");
    actor.must(&format!("queue-copy {tensor} {own} {}", 14 * MIB));
    assert_eq!(actor.must("captured"), "kept");
    actor.must("device 0");
    let later = actor.tensor(40 * MIB);
    actor.must("device 1");
    actor.must("peer 0");
    for (at, bytes) in [(&tensor, 14 * MIB), (&later, 40 * MIB)] {
        actor.must(&format!("work {at} {bytes} 10"));
        actor.must("sync");
    }
    actor.end();
}

/// Torch at a new peak gives up what it has idle, where it is asked for it.
#[test]
fn what_was_registered_stays_where_it_is() {
    let register = |at: &str| {
        let (descriptor, marked) = (format!("dma-buf {at} {PAGE}"), format!("mark {at} 1"));
        [None, Some(descriptor), Some(marked)]
    };
    for way in 0..3 {
        let place = Place::empty();
        let mut actor = actor(&place);
        let [_, idle, _] = [0; 3].map(|_| actor.tensor(4 * PAGE));
        actor.must(&format!("fill {idle} {} 6", 4 * PAGE));
        if let Some(line) = &register(&idle)[way] {
            actor.must(line);
        }
        actor.must(&format!("torch-free {idle}"));
        actor.tensor(6 * PAGE);
        let stays = actor.code(&format!("range {idle}")) == 0;
        assert_eq!(stays, way > 0, "{way}");
        if stays {
            assert_eq!(actor.tensor(4 * PAGE), idle);
            assert!(actor.has(&idle, 4 * PAGE, 6), "the same memory");
        }
        let log = actor.end();
        assert_eq!(
            log.matches("its memory is registered").count(),
            usize::from(stays),
            "{log}"
        );
    }
}
