//! What becomes of an export.

use super::*;
use crate::keeper::entries::exports::Withdrawn;
use crate::share::protocol::Lease;

#[test]
fn an_export_arrives_in_parts_and_is_let_go_by_its_last_importer() {
    let mut entries = entries();
    let it = generation(1);
    entries
        .export(MAKER, it, spec(100), 10, vec![60], 2)
        .unwrap();
    entries
        .export(MAKER, it, spec(100), 10, vec![60], 2)
        .unwrap();
    assert_eq!(
        code(entries.export(OTHER, it, spec(100), 10, vec![60], 2)),
        Code::Exists
    );
    assert_eq!(code(entries.import(OTHER, it)), Code::NotFound);
    assert_eq!(
        code(entries.export_more(MAKER, it, vec![49])),
        Code::Invalid
    );
    assert_eq!(
        code(entries.export_more(MAKER, it, vec![u64::MAX])),
        Code::Invalid
    );
    assert_eq!(
        code(entries.export_more(MAKER, it, vec![25, 25])),
        Code::Invalid
    );
    entries.export_more(MAKER, it, vec![50]).unwrap();
    entries.import(OTHER, it).unwrap();
    entries.import(OTHER, it).unwrap();
    // Somebody else's withdrawal is of no effect.
    assert_eq!(entries.withdraw(OTHER, it), Withdrawn::Gone);
    assert_eq!(entries.withdraw(MAKER, it), Withdrawn::Held(2));
    assert_eq!(entries.withdraw(MAKER, it), Withdrawn::Held(2));
    assert_eq!(code(entries.import(OTHER, it)), Code::NotFound);
    entries.release(OTHER, it);
    entries.take_effects();
    entries.leave(OTHER, ALL);
    assert!(entries.take_effects().contains(&Effect::LetGo(MAKER, it)));
    assert_eq!(entries.withdraw(MAKER, it), Withdrawn::Gone);
    // Without importers it is gone with the withdrawal, which says so itself.
    entries
        .export(MAKER, it, spec(100), 0, vec![100], 1)
        .unwrap();
    entries.take_effects();
    assert_eq!(entries.withdraw(MAKER, it), Withdrawn::Gone);
    assert!(!entries.take_effects().contains(&Effect::LetGo(MAKER, it)));
    assert!(entries.is_empty());
}

#[test]
fn an_export_outlives_its_exporter_while_it_is_imported() {
    let mut entries = entries();
    entries
        .export(MAKER, generation(1), spec(1), 0, vec![1], 1)
        .unwrap();
    entries.import(OTHER, generation(1)).unwrap();
    entries.leave(MAKER, ALL);
    assert!(entries.item(generation(1)).is_some());
    entries.leave(OTHER, ALL);
    assert!(entries.is_empty());
}

#[test]
fn an_exporter_that_comes_back_late_still_hears_that_others_hold_its_memory() {
    let mut entries = entries();
    let it = generation(1);
    entries.export(MAKER, it, spec(1), 0, vec![1], 1).unwrap();
    entries.import(OTHER, it).unwrap();
    entries.leave(MAKER, ALL);
    // Nobody else's is it meanwhile.
    entries.adopt(OTHER, it);
    assert_eq!(entries.withdraw(OTHER, it), Withdrawn::Gone);
    entries.join(3, process(10));
    entries.adopt(3, it);
    assert_eq!(entries.withdraw(3, it), Withdrawn::Held(1));
    entries.take_effects();
    entries.leave(OTHER, ALL);
    assert!(entries.take_effects().contains(&Effect::LetGo(3, it)));
}

#[test]
fn a_part_that_is_given_up_is_let_go_and_another_of_its_size_stands_for_it() {
    let mut entries = entries();
    let it = generation(1);
    let parts = vec![20, 2, 20, 20, 2];
    entries.export(MAKER, it, spec(64), 0, parts, 5).unwrap();
    entries.import(OTHER, it).unwrap();
    entries.take_effects();
    let mut give_up = |client, part| {
        entries.give_up(client, it, part);
        let item = entries.item(it).unwrap();
        let handed_out: Vec<u32> = (0..5).map(|part| item.instead_of(part)).collect();
        let (mapped, made) = (item.mapped, entries.made().parts);
        (handed_out, mapped, made, entries.take_effects())
    };
    let gone = |part| vec![Effect::GaveUp(it, part)];
    assert_eq!(give_up(OTHER, 0), (vec![0, 1, 2, 3, 4], 64, 5, vec![]));
    assert_eq!(give_up(MAKER, 5), (vec![0, 1, 2, 3, 4], 64, 5, vec![]));
    assert_eq!(give_up(MAKER, 2), (vec![0, 1, 0, 3, 4], 44, 4, gone(2)));
    assert_eq!(give_up(MAKER, 2), (vec![0, 1, 0, 3, 4], 44, 4, vec![]));
    assert_eq!(give_up(MAKER, 0), (vec![3, 1, 3, 3, 4], 24, 3, gone(0)));
    assert_eq!(give_up(MAKER, 3), (vec![3, 1, 3, 3, 4], 24, 3, vec![]));
    assert_eq!(give_up(MAKER, 1), (vec![3, 4, 3, 3, 4], 22, 2, gone(1)));
    // Whoever opens it still can, and its end is as ever.
    entries.import(OTHER, it).unwrap();
    assert_eq!(entries.withdraw(MAKER, it), Withdrawn::Held(2));
    entries.leave(OTHER, ALL);
    assert!(entries.is_empty());
    assert_eq!(entries.made().parts, 0);
}

#[test]
fn names_and_exports_that_are_not_whole_have_no_part_to_give_up() {
    let mut entries = entries();
    let named = make(&mut entries, "a", 1);
    let it = generation(2);
    let begun = entries.export(MAKER, it, spec(4), 0, vec![2, 2], 3);
    assert_eq!(begun, Ok(()));
    entries.take_effects();
    entries.give_up(MAKER, named, 0);
    entries.give_up(MAKER, it, 0);
    assert!(entries.take_effects().is_empty());
    // Nor is either another's, who says that it had it.
    let making = generation(3);
    let begun = entries.open(MAKER, wish("b", Mode::Create), making);
    assert_eq!(begun, Ok(Opened::Make(making)));
    for generation in [it, making] {
        let count = 1;
        assert!(!resume(&mut entries, OTHER, Lease { generation, count }));
    }
    let more = entries.export_more(OTHER, it, vec![2]);
    assert_eq!(code(more), Code::NotFound);
    let made = entries.commit(OTHER, making, vec![4096], vec![]);
    assert_eq!(code(made), Code::NotFound);
    assert_eq!(code(entries.abort(OTHER, making)), Code::NotFound);
}
