//! What a keeper knows that goes on where another ended.

use super::*;
use crate::keeper::succession::journal::Known;
use crate::share::protocol::Lease;

/// What the journal of this one says.
fn known(entries: &Entries) -> Known {
    let clients = entries.known();
    Known {
        restarts: 0,
        next_client: 50,
        items: entries
            .items()
            .map(|item| (item.generation, item.clone()))
            .collect(),
        clients: clients
            .map(|(id, process, leases)| (id, (process.clone(), leases.clone())))
            .collect(),
    }
}

/// What a successor knows, from what this one says.
fn succeed(entries: &Entries) -> Entries {
    let (mut restored, lost) = Entries::restore(known(entries), |_, _| true);
    assert!(lost.is_empty());
    // All of it is in the journal already.
    assert_eq!(restored.take_effects(), []);
    restored
}

#[test]
fn leases_survive_the_keeper_and_are_taken_up_by_their_process() {
    let mut before = entries();
    let it = make(&mut before, "a", 1);
    before
        .open(OTHER, wish("a", Mode::Attach), generation(9))
        .unwrap();
    before
        .export(OTHER, generation(2), spec(1), 0, vec![1], 1)
        .unwrap();
    let mut after = succeed(&before);
    assert_eq!(after.totals(), before.totals());
    let made = after.made();
    assert_eq!((made.items, made.parts), (2, 2));
    after.set_time(0);
    // Another process of the same number takes nothing from it.
    after.join(
        51,
        Process {
            started: 6,
            ..process(20)
        },
    );
    let lease = |generation, count| Lease { generation, count };
    assert!(resume(&mut after, 51, lease(it, 1)));
    assert_eq!(after.totals().references, 4);
    after.leave(51, ALL);
    after.join(52, process(20));
    assert_eq!(after.earlier_of(52), [OTHER]);
    assert!(resume(&mut after, 52, lease(it, 1)));
    assert!(!resume(&mut after, 52, lease(generation(7), 1)));
    assert_eq!(after.totals().references, 3);
    // The export was said to be held no more, but its memory is the exporter's.
    after.adopt_exports(52);
    after.leave(OTHER, ALL);
    assert!(after.item(generation(2)).is_none());
    assert_eq!(after.totals().references, 2);
    after.leave(MAKER, ALL);
    after.leave(52, ALL);
    assert!(after.is_empty());
    assert_eq!(after.made(), Made::default());
}

#[test]
fn what_was_given_up_is_not_missed_and_what_was_lost_is() {
    let mut before = entries();
    let it = generation(1);
    let parts = vec![2, 2, 2];
    before.export(MAKER, it, spec(6), 0, parts, 3).unwrap();
    before.give_up(MAKER, it, 1);
    let (after, lost) = Entries::restore(known(&before), |_, part| part != 1);
    assert!(lost.is_empty());
    let made = after.made();
    assert_eq!((made.items, made.parts), (1, 2));
    let (_, lost) = Entries::restore(known(&before), |_, part| part == 0);
    assert_eq!(lost.len(), 1);
}

#[test]
fn who_never_heard_that_it_is_to_make_a_name_asks_again_and_makes_it() {
    for claims in [false, true] {
        let mut before = entries();
        let wanted = wish("a", Mode::Create);
        before.open(MAKER, wanted, generation(1)).unwrap();
        let made = make(&mut before, "made", 3);
        let mut after = succeed(&before);
        after.join(51, process(10));
        after.join(52, process(20));
        let attached = after.open(51, wish("made", Mode::Attach), generation(2));
        assert_eq!(attached, Ok(Opened::There(made)));
        let mut open = |client| after.open(client, wish("a", Mode::Create), generation(2));
        assert_eq!(code(open(52)), Code::InProgress);
        let lease = Lease {
            generation: generation(1),
            count: 1,
        };
        if claims {
            assert!(resume(&mut after, 51, lease));
            let asked = after.open(51, wish("a", Mode::Create), generation(2));
            assert_eq!(code(asked), Code::InProgress);
            continue;
        }
        assert_eq!(open(51), Ok(Opened::Make(generation(2))));
        assert_eq!(gone(&mut after), BTreeSet::from([generation(1)]));
    }
}

#[test]
fn a_name_stands_for_what_it_stood_for_as_long_as_it_did() {
    let mut before = entries();
    make(&mut before, "a", 9);
    before.delete(&name("a"), None).unwrap();
    let it = make(&mut before, "a", 1);
    before.persist(&name("a"), Persist::Until(7)).unwrap();
    let after = succeed(&before);
    assert_eq!(after.find(&name("a")).unwrap().generation, it);
    assert_eq!(after.next_expiry_s(), Some(7));
}

#[test]
fn what_was_not_handed_over_whole_is_left_out_and_what_nothing_keeps() {
    let mut before = entries();
    make(&mut before, "a", 1);
    make(&mut before, "b", 2);
    make(&mut before, "c", 3);
    let known = Known {
        items: before
            .items()
            .map(|item| (item.generation, item.clone()))
            .collect(),
        ..Known::default()
    };
    let mut known = known;
    for item in known.items.values_mut().take(2) {
        item.persist = Persist::Yes;
    }
    let (after, lost) = Entries::restore(known, |it, _| it != generation(1));
    assert_eq!(lost.len(), 1);
    assert_eq!(after.names().collect::<Vec<_>>(), [&name("b")]);
}
