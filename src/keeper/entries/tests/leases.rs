//! Clients whose connections end before their processes do.

use super::*;
use crate::keeper::entries::exports::Withdrawn;
use crate::share::protocol::Lease;

const BACK: ClientId = 3;

/// Three things of the maker: a name, one that it is making, an export.
fn three(entries: &mut Entries) -> [Generation; 3] {
    let named = make(entries, "named", 1);
    let (making, exported) = (generation(2), generation(3));
    let wanted = wish("making", Mode::Create);
    entries.open(MAKER, wanted, making).unwrap();
    entries
        .export(MAKER, exported, spec(1), 0, vec![1], 1)
        .unwrap();
    [named, making, exported]
}

fn comes_back(entries: &mut Entries, holds: &[Generation]) {
    entries.join(BACK, process(10));
    for &generation in holds {
        let count = 1;
        assert!(resume(entries, BACK, Lease { generation, count }));
    }
    entries.adopt_exports(BACK);
}

#[test]
fn who_comes_back_finds_all_that_it_held() {
    let mut entries = entries();
    let all = three(&mut entries);
    assert!(entries.expect(MAKER));
    let wanted = wish("making", Mode::Create);
    let asked = entries.open(OTHER, wanted, generation(9));
    assert_eq!(code(asked), Code::InProgress);
    comes_back(&mut entries, &all);
    assert!(gone(&mut entries).is_empty());
    assert_eq!(entries.earlier_of(BACK), [MAKER]);
    entries
        .commit(BACK, all[1], vec![4096], Vec::new())
        .unwrap();
    // What is left of the former connection is nothing.
    for generation in all {
        entries.release(BACK, generation);
    }
    assert_eq!(gone(&mut entries), BTreeSet::from(all));
}

/// It may have been heard before the end of its former connection was.
#[test]
fn who_is_back_already_has_what_the_former_connection_made() {
    let mut entries = entries();
    let all = three(&mut entries);
    let unheard = generation(4);
    let wanted = wish("unheard", Mode::Create);
    entries.open(MAKER, wanted, unheard).unwrap();
    comes_back(&mut entries, &all);
    assert!(entries.holds(MAKER, all[0]), "as long as it is connected");
    assert!(!entries.expect(MAKER));
    entries.leave(MAKER, ALL);
    assert_eq!(gone(&mut entries), BTreeSet::from([unheard]));
    entries
        .commit(BACK, all[1], vec![4096], Vec::new())
        .unwrap();
    assert_eq!(entries.withdraw(BACK, all[2]), Withdrawn::Gone);
    assert_eq!(entries.totals().references, 2);
}

/// It holds so much that it says so in several packets.
#[test]
fn who_has_not_said_yet_all_that_it_holds_is_not_back_already() {
    let mut entries = entries();
    let all = three(&mut entries);
    let [first, rest @ ..] = all.map(|generation| Lease {
        generation,
        count: 1,
    });
    entries.join(BACK, process(10));
    assert!(resume(&mut entries, BACK, first));
    assert!(entries.expect(MAKER));
    for lease in rest {
        assert!(resume(&mut entries, BACK, lease));
    }
    entries.adopt_exports(BACK);
    assert!(gone(&mut entries).is_empty());
    assert_eq!(entries.earlier_of(BACK), [MAKER]);
}

#[test]
fn who_is_back_already_hears_of_the_memory_that_it_had_withdrawn() {
    let mut entries = entries();
    let [named, making, exported] = three(&mut entries);
    entries.import(OTHER, exported).unwrap();
    assert_eq!(entries.withdraw(MAKER, exported), Withdrawn::Held(1));
    comes_back(&mut entries, &[named, making]);
    assert!(!entries.expect(MAKER));
    entries.leave(MAKER, ALL);
    entries.leave(OTHER, ALL);
    let told = Effect::LetGo(BACK, exported);
    assert!(entries.take_effects().contains(&told));
}

/// Two processes that are not seen may have one number.
#[test]
fn who_is_not_seen_is_never_back_already() {
    let mut entries = entries();
    let unseen = || Process {
        started: 0,
        ..process(10)
    };
    entries.join(BACK, unseen());
    entries.join(BACK + 1, unseen());
    assert!(entries.expect(BACK));
}

/// Of the driver's own memory it may go on using what the maker has freed.
#[test]
fn who_may_be_another_is_not_taken_for_the_maker() {
    let mut entries = entries();
    let unseen = || Process {
        started: 0,
        ..process(10)
    };
    let [maker, other, other_again, maker_again] = [11, 12, 13, 14];
    entries.join(maker, unseen());
    entries.join(other, unseen());
    let (made, count) = (generation(1), 1);
    let mut wanted = wish("w", Mode::Create);
    wanted.spec.backend = Backend::CudaIpc;
    entries.open(maker, wanted, made).unwrap();
    let commit = entries.commit(maker, made, Vec::new(), vec![7; 64]);
    assert_eq!(commit, Ok(()));
    let attach = entries.open(other, wish("w", Mode::Attach), generation(2));
    assert_eq!(attach, Ok(Opened::There(made)));
    assert!(entries.expect(maker) && entries.expect(other));
    let lease = || Lease {
        generation: made,
        count,
    };
    entries.join(other_again, unseen());
    assert!(resume(&mut entries, other_again, lease()));
    entries.release(other_again, made);
    assert!(entries.find(&name("w")).is_some(), "its maker holds it");
    entries.join(maker_again, unseen());
    assert!(resume(&mut entries, maker_again, lease()));
    entries.release(maker_again, made);
    assert!(entries.find(&name("w")).is_none(), "its maker has freed it");
}

/// The kernel closes the sockets of a process that dies before its devices.
#[test]
fn what_was_opened_by_handle_is_held_until_the_process_is_gone() {
    let mut entries = entries();
    let [named, _, exported] = three(&mut entries);
    let attached = entries.open(OTHER, wish("named", Mode::Attach), generation(9));
    assert_eq!(attached, Ok(Opened::There(named)));
    entries.import(OTHER, exported).unwrap();
    assert!(
        !entries.has_opened(MAKER),
        "it has opened nothing by handle"
    );
    assert!(entries.has_opened(OTHER));
    entries.linger(OTHER, ALL);
    assert!(entries.holds(OTHER, exported) && !entries.holds(OTHER, named));
}

#[test]
fn who_ends_piece_by_piece_ends_once() {
    for most in [1, 2, 3, 100] {
        let mut entries = entries();
        let all = three(&mut entries);
        let attached = entries.open(OTHER, wish("named", Mode::Attach), generation(9));
        assert_eq!(attached, Ok(Opened::There(all[0])));
        entries.take_effects();
        let pieces = std::iter::repeat_with(|| entries.leave(MAKER, most));
        let ended: usize = pieces.take(4).sum();
        assert_eq!(ended, 3, "by {most}");
        let effects = entries.take_effects();
        let count = |effect: &Effect| effects.iter().filter(|it| *it == effect).count();
        assert_eq!(count(&Effect::Left(MAKER)), 1);
        for generation in all {
            assert_eq!(count(&Effect::Held(MAKER, generation, 0)), 1);
        }
        assert!(entries.holds(OTHER, all[0]) && !entries.holds(MAKER, all[0]));
        assert_eq!(entries.totals().references, 1);
    }
}

/// What it exported itself goes, whichever piece that is in.
#[test]
fn who_lingers_keeps_what_others_exported_alone() {
    for most in [1, 2, 100] {
        let mut entries = entries();
        let [named, making, exported] = three(&mut entries);
        let others = generation(4);
        entries
            .export(OTHER, others, spec(1), 0, vec![1], 1)
            .unwrap();
        entries.import(MAKER, others).unwrap();
        assert!(entries.has_opened(MAKER));
        for _ in 0..4 {
            entries.linger(MAKER, most);
        }
        assert_eq!(
            gone(&mut entries),
            BTreeSet::from([named, making, exported])
        );
        assert!(entries.holds(MAKER, others));
        assert_eq!(entries.leave(MAKER, ALL), 1);
    }
}

#[test]
fn a_count_that_is_full_takes_no_more() {
    let mut entries = entries();
    let generation = make(&mut entries, "a", 1);
    let count = u32::MAX;
    assert!(resume(&mut entries, OTHER, Lease { generation, count }));
    let again = entries.open(OTHER, wish("a", Mode::Attach), generation);
    assert_eq!(code(again), Code::Quota);
    assert!(entries.holds(OTHER, generation));
}

/// Memory of the driver's own: its maker frees it, and others may have it open.
#[test]
fn what_its_maker_has_freed_is_not_opened_any_more() {
    let mut entries = entries();
    let made = generation(1);
    let mut wanted = wish("w", Mode::Create);
    wanted.spec.backend = Backend::CudaIpc;
    entries.open(MAKER, wanted, made).unwrap();
    entries
        .commit(MAKER, made, Vec::new(), vec![7; 64])
        .unwrap();
    let attach = || wish("w", Mode::Attach);
    let opened = entries.open(OTHER, attach(), generation(2));
    assert_eq!(opened, Ok(Opened::There(made)));
    // Who takes it up over another connection has not freed it.
    assert!(entries.expect(MAKER));
    comes_back(&mut entries, &[made]);
    entries.leave(MAKER, ALL);
    let again = entries.open(OTHER, attach(), generation(3));
    assert_eq!(again, Ok(Opened::There(made)));
    // Nor who holds it twice.
    entries.open(BACK, attach(), generation(4)).unwrap();
    entries.release(BACK, made);
    assert!(entries.find(&name("w")).is_some());
    entries.release(BACK, made);
    let freed = entries.open(OTHER, attach(), generation(5));
    assert_eq!(code(freed), Code::NotFound);
    assert!(entries.holds(OTHER, made));
    assert!(gone(&mut entries).is_empty());
    entries.release(OTHER, made);
    entries.release(OTHER, made);
    assert_eq!(gone(&mut entries), BTreeSet::from([made]));
}

/// What is not to be seen yet, or any more, is nobody's who has only heard of it.
#[test]
fn what_nobody_can_open_is_taken_up_by_who_has_it_alone() {
    let mut entries = entries();
    let mut wanted = wish("hidden", Mode::Create);
    wanted.hidden = true;
    let hidden = generation(1);
    entries.open(MAKER, wanted, hidden).unwrap();
    entries
        .commit(MAKER, hidden, vec![4096], Vec::new())
        .unwrap();
    let deleted = make(&mut entries, "deleted", 2);
    entries.delete(&name("deleted"), None).unwrap();
    for generation in [hidden, deleted] {
        let count = 1;
        assert!(!resume(&mut entries, OTHER, Lease { generation, count }));
        assert!(!entries.holds(OTHER, generation));
    }
    assert!(entries.expect(MAKER));
    comes_back(&mut entries, &[hidden, deleted]);
    entries.leave(MAKER, ALL);
    assert!(gone(&mut entries).is_empty());
    entries.seal(BACK, hidden).unwrap();
}

/// As the driver's own memory: a process that dies may go on using what it has opened.
#[test]
fn who_may_be_another_is_not_taken_for_the_exporter() {
    let mut entries = entries();
    let unseen = || Process {
        started: 0,
        ..process(10)
    };
    let [exporter, other, other_again, exporter_again] = [11, 12, 13, 14];
    entries.join(exporter, unseen());
    entries.join(other, unseen());
    let it = generation(1);
    entries
        .export(exporter, it, spec(1), 0, vec![1], 1)
        .unwrap();
    entries.import(other, it).unwrap();
    assert!(entries.expect(exporter) && entries.expect(other));
    for back in [other_again, exporter_again] {
        entries.join(back, unseen());
        let (generation, count) = (it, 1);
        assert!(resume(&mut entries, back, Lease { generation, count }));
        entries.adopt_exports(back);
    }
    entries.leave(exporter, ALL);
    entries.leave(other, ALL);
    assert!(entries.has_opened(other_again));
    entries.linger(other_again, ALL);
    entries.adopt(exporter_again, it);
    let withdrawn = entries.withdraw(exporter_again, it);
    assert_eq!(withdrawn, Withdrawn::Held(1));
    entries.take_effects();
    entries.leave(other_again, ALL);
    let told = Effect::LetGo(exporter_again, it);
    assert!(entries.take_effects().contains(&told));
}
