//! Torch's memory over pages, by CUDA IPC: what a handle is good for while pages come and go.

use crate::actor::Place;
use crate::keeper::{signal, until};
use crate::sharing::{INVALID_VALUE, PAGE, RANGE_START, Torch};
use crate::sharing::{actor, command_of, exports, moved, number, with_torch};
use crate::support::{self, shim};

const INVALID_CONTEXT: i32 = 201;

/// As all-reduces do it: the start of the range, its handle, the offset.
#[test]
fn another_process_has_torchs_memory_by_handle_and_offset() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let before = exporter.torch(2 * PAGE);
    exporter.must(&format!("fill {before} {} 1", 2 * PAGE));
    let tensor = exporter.torch(3 * PAGE);
    exporter.must(&format!("fill {tensor} {} 7", 3 * PAGE));
    let start = format!("{:x}", exporter.attribute(&tensor, RANGE_START));
    let offset = number(&tensor) - number(&start);
    assert_eq!(offset, 2 * PAGE);
    let handle = exporter.handle(&start);
    assert_eq!(exporter.handle(&tensor), handle, "the same from everywhere");
    assert_eq!(exporter.code(&format!("open {handle}")), INVALID_CONTEXT);
    let here = importer.open(&handle);
    let seen = moved(&here, offset);
    assert!(importer.has(&seen, 3 * PAGE, 7));
    assert_eq!(
        importer.must(&format!("range {here}")),
        format!("{here} {}", 5 * PAGE)
    );
    importer.must(&format!("fill {seen} {} 8", 3 * PAGE));
    assert!(exporter.has(&tensor, 3 * PAGE, 8));
    // Torch gives it up: it stays with who has it, and with nobody else.
    exporter.give_up(&tensor);
    assert!(importer.has(&seen, 3 * PAGE, 8));
    let mut third = actor(&place);
    let there = third.open(&handle);
    assert!(third.has(&there, 2 * PAGE, 1), "what is beside it");
    assert!(!third.has(&moved(&there, offset), 3 * PAGE, 8));
    let other = exporter.torch(3 * PAGE);
    assert_eq!(other, tensor, "the same addresses");
    exporter.must(&format!("fill {other} {} 9", 3 * PAGE));
    assert!(importer.has(&seen, 3 * PAGE, 8), "other memory");
    importer.close(&here);
    for actor in [exporter, importer, third] {
        actor.end();
    }
}

#[test]
fn a_handle_is_good_for_those_of_its_pages_that_are_there() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let first = exporter.torch(2 * PAGE);
    exporter.must(&format!("fill {first} {} 1", 2 * PAGE));
    let small = exporter.handle(&first);
    // It grows: another one, and the one before is as good as it was.
    let second = exporter.torch(2 * PAGE);
    exporter.must(&format!("fill {second} {} 2", 2 * PAGE));
    let large = exporter.handle(&first);
    assert_ne!(large, small);
    assert_eq!(exporter.handle(&second), large);
    let (one, both) = (importer.open(&small), importer.open(&large));
    assert!(importer.has(&one, 2 * PAGE, 1));
    assert!(importer.has(&both, 2 * PAGE, 1));
    assert!(importer.has(&moved(&both, 2 * PAGE), 2 * PAGE, 2));
    // It loses pages: both are as good for the rest.
    exporter.give_up(&second);
    let mut third = actor(&place);
    for handle in [&small, &large] {
        let again = third.open(handle);
        assert!(third.has(&again, 2 * PAGE, 1));
    }
    // Others come where they were: they have a handle of their own, which alone has them.
    let again = exporter.torch(2 * PAGE);
    assert_eq!(again, second);
    exporter.must(&format!("fill {again} {} 3", 2 * PAGE));
    let mut last = actor(&place);
    let before = last.open(&large);
    assert!(last.has(&before, 2 * PAGE, 1));
    assert!(!last.has(&moved(&before, 2 * PAGE), 2 * PAGE, 3));
    let both_now = exporter.handle(&first);
    let after = last.open(&both_now);
    assert!(last.has(&moved(&after, 2 * PAGE), 2 * PAGE, 3));
    exporter.give_up(&again);
    let now = exporter.handle(&first);
    assert!(now != large && now != small);
    assert!(importer.has(&moved(&both, 2 * PAGE), 2 * PAGE, 2));
    exporter.give_up(&first);
    for handle in [small, large, both_now, now] {
        let mut fourth = actor(&place);
        assert_eq!(fourth.code(&format!("open {handle}")), INVALID_VALUE);
    }
}

/// As when torch is asked for memory between the making of a handle and its opening.
#[test]
fn pages_that_are_given_up_beside_an_exported_tensor_are_free_and_its_handle_is_good() {
    let place = Place::with_keeper();
    let mut exporter = actor(&place);
    let tensors: Vec<String> = (0..5).map(|_| exporter.torch(PAGE)).collect();
    for (number, tensor) in (1..).zip(&tensors) {
        exporter.must(&format!("fill {tensor} {PAGE} {number}"));
    }
    let handle = exporter.handle(&tensors[0]);
    let before = exporter.physical();
    for (given_up, tensor) in (1..).zip([&tensors[0], &tensors[3], &tensors[1]]) {
        exporter.give_up(tensor);
        assert_eq!(exporter.physical(), before - given_up * PAGE);
        // A keeper that goes on where this one ends knows it, too.
        if given_up == 2 {
            place.keeper.kill();
        }
        let mut importer = actor(&place);
        let here = importer.open(&handle);
        assert!(importer.has(&moved(&here, 2 * PAGE), PAGE, 3));
        assert!(importer.has(&moved(&here, 4 * PAGE), PAGE, 5));
        importer.must(&format!("fill {} {PAGE} 3", moved(&here, 2 * PAGE)));
        importer.close(&here);
        importer.end();
        assert!(exporter.has(&tensors[2], PAGE, 3) && exporter.has(&tensors[4], PAGE, 5));
    }
    assert_eq!(exports(&place), 1);
    exporter.give_up(&tensors[4]);
    exporter.give_up(&tensors[2]);
    assert_eq!(exports(&place), 0);
    assert_eq!(exporter.physical(), before - 5 * PAGE);
}

#[test]
fn what_was_given_up_while_no_keeper_answered_is_let_go_when_one_does() {
    let place = Place::with_keeper();
    let mut exporter = actor(&place);
    let tensors = [exporter.torch(PAGE), exporter.torch(PAGE)];
    let handle = exporter.handle(&tensors[0]);
    let keeps = |bytes: u64| {
        let all = place.keeper.verb(&["ls", "--all", "--json"]);
        let mapped = format!("\"mapped_bytes\":{bytes},");
        all.is_some_and(|all| all.contains(&mapped))
    };
    assert!(keeps(2 * PAGE));
    let keeper = place.keeper.stop();
    exporter.give_up(&tensors[1]);
    signal(keeper, libc::SIGKILL);
    until("it is let go", || keeps(PAGE));
    let mut importer = actor(&place);
    importer.open(&handle);
}

#[test]
fn of_a_run_that_changes_on_and_on_the_newest_handles_stay_good() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let first = exporter.torch(PAGE);
    exporter.must(&format!("fill {first} {PAGE} 1"));
    let mut handles = vec![exporter.handle(&first)];
    let mut other = exporter.torch(PAGE);
    while handles.len() < 70 {
        handles.push(exporter.handle(&first));
        exporter.give_up(&other);
        handles.push(exporter.handle(&first));
        other = exporter.torch(PAGE);
    }
    let most = exports(&place);
    assert_eq!(most, 65, "and that of now");
    let (older, newer) = handles.split_at(handles.len() - most);
    for handle in older {
        assert_eq!(importer.code(&format!("open {handle}")), INVALID_VALUE);
    }
    for handle in newer {
        let here = importer.open(handle);
        assert!(importer.has(&here, PAGE, 1));
        importer.close(&here);
    }
}

/// Whatever torch maps and unmaps meanwhile.
#[test]
fn a_handle_gives_the_memory_that_it_was_made_for() {
    let place = Place::with_keeper();
    let storm = with_torch("storm.c", "storm");
    for arguments in [&["50"][..], &["50", "tensors"]] {
        let mut command = command_of(&storm, &place, &[shim()]);
        command.args(arguments).env("TAILS", "1");
        let (out, log) = support::said(command.env("MEMCUDA_SIM_MEMORY", "2GiB"));
        let said: Vec<u64> = out
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        let [opened, changed, all] = said[..] else {
            panic!("{out}{log}");
        };
        assert!(opened > 5 && opened + changed == all, "{out}{log}");
        until("the keeper forgets all", || exports(&place) == 0);
    }
}
