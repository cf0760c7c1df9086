//! Memory that is opened again: after a close, after the end of a context, by several threads.

use crate::*;

/// What was exported in another one is there still, and found.
#[test]
fn a_context_that_ends_takes_nothing_that_another_one_exported() {
    for bytes in [1000, 8 * MIB] {
        let (_place, [mut exporter, mut importer], [_, here, handle]) = shared(bytes);
        importer.close(&here);
        exporter.must("destroy");
        let again = importer.open(&handle);
        assert!(importer.has(&again, bytes, 1), "{bytes}");
    }
}

/// At whose address the other one is meanwhile.
#[test]
fn what_was_closed_and_is_opened_again_is_not_taken_for_another_one() {
    let bytes = 8 * MIB;
    for ends in ["close", "reset"] {
        let (_place, [mut exporter, mut importer], [_, first, handle]) = shared(bytes);
        let other = exporter.filled(bytes, 2);
        let other = exporter.handle(&other);
        match ends {
            "close" => importer.close(&first),
            _ => drop(importer.must(ends)),
        }
        let there = importer.open(&other);
        let again = importer.open(&handle);
        assert!(importer.has(&there, bytes, 2), "{ends}");
        assert!(
            importer.has(&again, bytes, 1),
            "{ends}: {first} {there} {again}"
        );
    }
}

#[test]
fn what_was_opened_in_a_view_is_open_in_the_context_that_has_it_then() {
    let (_place, [_exporter, mut importer], [_, _, handle]) = shared(PARKED);
    importer.must("reset");
    importer.must("view");
    let here = importer.open(&handle);
    importer.must("view-ends");
    assert_eq!(importer.open(&handle), here);
    importer.close(&here);
    assert!(importer.has(&here, PARKED, 1));
    importer.close(&here);
    assert_eq!(importer.code(&format!("close {here}")), INVALID_VALUE);
}

/// All but one of them have asked for nothing then.
#[test]
fn threads_that_open_it_at_once_hold_one_lease() {
    for _ in 0..4 {
        let (place, [_exporter, mut importer], [_, here, handle]) = shared(8 * MIB);
        importer.close(&here);
        let here = importer.must(&format!("open-at-once {handle}"));
        (0..4).for_each(|_| importer.close(&here));
        until("nobody but the exporter to have it", || {
            let status = place.keeper.verb(&["keeper", "status", "--json"]);
            status.is_some_and(|status| status.contains(r#""references":1,"#))
        });
    }
}
