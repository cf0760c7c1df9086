//! What becomes of a name.

use super::*;
use crate::names::Dtype;

#[test]
fn a_name_lives_while_somebody_holds_it() {
    let mut entries = entries();
    let it = make(&mut entries, "a", 1);
    assert_eq!(
        code(entries.open(OTHER, wish("a", Mode::Create), generation(2))),
        Code::Exists
    );
    assert_eq!(
        code(entries.open(OTHER, wish("b", Mode::Attach), generation(2))),
        Code::NotFound
    );
    for _ in 0..2 {
        let opened = entries.open(OTHER, wish("a", Mode::CreateOrAttach), generation(2));
        assert_eq!(opened, Ok(Opened::There(it)));
    }
    assert_eq!(entries.totals().references, 3);
    entries.release(MAKER, it);
    entries.release(MAKER, it);
    entries.release(OTHER, it);
    assert_eq!(gone(&mut entries), BTreeSet::new());
    entries.release(OTHER, it);
    assert_eq!(gone(&mut entries), BTreeSet::from([it]));
    assert!(entries.is_empty() && entries.find(&name("a")).is_none());
}

#[test]
fn what_is_being_made_is_nobody_elses_and_ends_with_its_maker() {
    let mut entries = entries();
    let wanted = wish("a", Mode::CreateOrAttach);
    entries.open(MAKER, wanted, generation(1)).unwrap();
    for mode in [Mode::Attach, Mode::CreateOrAttach] {
        assert_eq!(
            code(entries.open(OTHER, wish("a", mode), generation(2))),
            Code::InProgress
        );
    }
    assert_eq!(code(entries.import(OTHER, generation(1))), Code::NotFound);
    assert_eq!(
        code(entries.commit(OTHER, generation(1), vec![100], vec![])),
        Code::NotFound
    );
    // Nothing is kept of what is not there yet.
    entries.persist(&name("a"), Persist::Yes).unwrap();
    entries.release(MAKER, generation(1));
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(1)]));
    let wanted = wish("a", Mode::CreateOrAttach);
    entries.open(MAKER, wanted, generation(3)).unwrap();
    entries.leave(MAKER, ALL);
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(3)]));
    let opened = entries.open(OTHER, wish("a", Mode::CreateOrAttach), generation(2));
    assert_eq!(opened, Ok(Opened::Make(generation(2))));
    entries.abort(OTHER, generation(2)).unwrap();
    assert!(entries.is_empty());
}

/// Which it will be is not known before the maker is done.
#[test]
fn a_name_that_is_being_made_may_still_be_anybodys_to_create() {
    let mut entries = entries();
    let wanted = wish("a", Mode::Create);
    entries.open(MAKER, wanted, generation(1)).unwrap();
    let create =
        |entries: &mut Entries| entries.open(OTHER, wish("a", Mode::Create), generation(2));
    assert_eq!(code(create(&mut entries)), Code::InProgress);
    entries.abort(MAKER, generation(1)).unwrap();
    assert_eq!(create(&mut entries), Ok(Opened::Make(generation(2))));
    let hidden = Wish {
        hidden: true,
        ..wish("b", Mode::Create)
    };
    entries.open(MAKER, hidden, generation(3)).unwrap();
    entries
        .commit(MAKER, generation(3), vec![100], vec![])
        .unwrap();
    let other = entries.open(OTHER, wish("b", Mode::Create), generation(4));
    assert_eq!(code(other), Code::Exists);
}

#[test]
fn a_name_that_is_deleted_while_it_is_made_stays_deleted() {
    let mut entries = entries();
    for (number, hidden) in [(1, false), (2, true)] {
        let wanted = Wish {
            hidden,
            ..wish("a", Mode::Create)
        };
        entries.open(MAKER, wanted, generation(number)).unwrap();
        entries.delete(&name("a"), None).unwrap();
        let made = entries.commit(MAKER, generation(number), vec![4096], vec![]);
        assert_eq!(made, Ok(()));
        assert_eq!(
            entries.item(generation(number)).unwrap().state,
            State::Dying
        );
    }
    let second = make(&mut entries, "a", 3);
    assert_eq!((entries.totals().names, entries.totals().dying), (1, 2));
    assert_eq!(entries.find(&name("a")).unwrap().generation, second);
    // One that cannot be made is nobody's any more, and its name another's.
    let wanted = wish("b", Mode::Create);
    entries.open(MAKER, wanted, generation(4)).unwrap();
    entries.delete(&name("b"), None).unwrap();
    let next = make(&mut entries, "b", 5);
    entries.abort(MAKER, generation(4)).unwrap();
    assert!(entries.item(generation(4)).is_none());
    assert!(!entries.holds(MAKER, generation(4)));
    assert_eq!(entries.find(&name("b")).unwrap().generation, next);
}

#[test]
fn a_hidden_name_is_seen_once_it_is_sealed_and_is_read_only_then() {
    let mut entries = entries();
    let hidden = Wish {
        hidden: true,
        ..wish("a", Mode::Create)
    };
    entries.open(MAKER, hidden, generation(1)).unwrap();
    assert_eq!(code(entries.seal(MAKER, generation(1))), Code::Invalid);
    entries
        .commit(MAKER, generation(1), vec![128], vec![])
        .unwrap();
    entries
        .commit(MAKER, generation(1), vec![128], vec![])
        .unwrap();
    assert_eq!(
        code(entries.open(OTHER, wish("a", Mode::Attach), generation(2))),
        Code::InProgress
    );
    entries.seal(MAKER, generation(1)).unwrap();
    entries.seal(MAKER, generation(1)).unwrap();
    let write = Wish {
        write: true,
        ..wish("a", Mode::Attach)
    };
    assert_eq!(
        code(entries.open(OTHER, write, generation(2))),
        Code::Sealed
    );
    assert!(
        entries
            .open(OTHER, wish("a", Mode::Attach), generation(2))
            .is_ok()
    );
}

#[test]
fn a_deleted_name_is_free_at_once_and_its_memory_with_the_last_holder() {
    let mut entries = entries();
    let first = make(&mut entries, "a", 1);
    entries.persist(&name("a"), Persist::Until(7)).unwrap();
    entries.take_effects();
    assert_eq!(
        code(entries.delete(&name("a"), Some(generation(9)))),
        Code::NotFound
    );
    entries.delete(&name("a"), Some(first)).unwrap();
    assert!(entries.take_effects().contains(&Effect::Hidden(name("a"))));
    assert_eq!(entries.next_expiry_s(), None);
    assert_eq!(code(entries.delete(&name("a"), None)), Code::NotFound);
    let second = make(&mut entries, "a", 2);
    assert_eq!((entries.totals().names, entries.totals().dying), (1, 1));
    entries.release(MAKER, first);
    assert_eq!(gone(&mut entries), BTreeSet::from([first]));
    assert_eq!(entries.find(&name("a")).unwrap().generation, second);
}

#[test]
fn a_persisted_name_stays_until_it_is_deleted_or_its_time_is_over() {
    let mut entries = entries();
    make(&mut entries, "kept", 1);
    make(&mut entries, "timed", 2);
    make(&mut entries, "held", 3);
    entries.persist(&name("kept"), Persist::Until(5)).unwrap();
    entries.persist(&name("kept"), Persist::Yes).unwrap();
    entries.persist(&name("timed"), Persist::Until(7)).unwrap();
    entries.persist(&name("held"), Persist::Until(7)).unwrap();
    entries
        .open(OTHER, wish("held", Mode::Attach), generation(9))
        .unwrap();
    entries.leave(MAKER, ALL);
    assert_eq!(gone(&mut entries), BTreeSet::new());
    assert_eq!(entries.totals().unheld_bytes, 2 * 4096);
    assert_eq!(entries.next_expiry_s(), Some(7));
    entries.set_time(6_999_999);
    entries.expire();
    assert_eq!(gone(&mut entries), BTreeSet::new());
    // Somebody sets the clock, and back.
    entries.set_time(3_606_999_999);
    entries.move_expiries(3600);
    entries.expire();
    let later = entries.find(&name("timed")).unwrap();
    assert_eq!(later.persist, Persist::Until(3607));
    assert_eq!(entries.next_expiry_s(), Some(3607));
    entries.move_expiries(-3600);
    entries.set_time(7_000_000);
    entries.expire();
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(2)]));
    assert_eq!(entries.next_expiry_s(), None);
    assert_eq!(entries.collect(true, false), (0, 0));
    assert_eq!(entries.collect(true, true), (1, 4096));
    assert_eq!(entries.collect(false, true), (1, 4096));
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(1)]));
    entries.leave(OTHER, ALL);
    assert!(entries.is_empty());
}

#[test]
fn a_name_of_cuda_ipc_ends_with_its_maker() {
    let mut entries = entries();
    let mut legacy = wish("a", Mode::Create);
    legacy.spec.backend = Backend::CudaIpc;
    entries.open(MAKER, legacy, generation(1)).unwrap();
    assert_eq!(
        code(entries.commit(MAKER, generation(1), vec![100], vec![])),
        Code::Invalid
    );
    entries
        .commit(MAKER, generation(1), vec![], vec![7; 64])
        .unwrap();
    assert_eq!(
        code(entries.persist(&name("a"), Persist::Yes)),
        Code::Invalid
    );
    entries
        .open(OTHER, wish("a", Mode::Attach), generation(2))
        .unwrap();
    entries.leave(MAKER, ALL);
    assert!(entries.find(&name("a")).is_none());
    assert_eq!(entries.item(generation(1)).unwrap().state, State::Dying);
    entries.leave(OTHER, ALL);
    assert!(entries.is_empty());
}

#[test]
fn a_difference_from_what_is_expected_is_a_mismatch() {
    let mut entries = entries();
    let mut typed = wish("a", Mode::Create);
    typed.spec.dtype = Some(Dtype::F32);
    typed.spec.shape = vec![5, 6];
    assert_eq!(
        code(entries.open(MAKER, typed, generation(1))),
        Code::Invalid
    );
    let mut typed = wish("a", Mode::Create);
    typed.spec.dtype = Some(Dtype::F32);
    typed.spec.shape = vec![5, 5];
    entries.open(MAKER, typed, generation(1)).unwrap();
    entries
        .commit(MAKER, generation(1), vec![100], vec![])
        .unwrap();
    let mut with = |change: fn(&mut Spec)| {
        let mut wish = wish("a", Mode::Attach);
        change(&mut wish.spec);
        entries.open(OTHER, wish, generation(2))
    };
    assert!(with(|spec| spec.bytes = 0).is_ok());
    assert!(with(|spec| spec.shape = vec![5, 5]).is_ok());
    assert_eq!(code(with(|spec| spec.bytes = 101)), Code::Mismatch);
    assert_eq!(
        code(with(|spec| spec.dtype = Some(Dtype::I32))),
        Code::Mismatch
    );
    assert_eq!(code(with(|spec| spec.shape = vec![25])), Code::Mismatch);
}

#[test]
fn what_is_kept_no_more_goes_at_once_where_nobody_holds_it() {
    let mut entries = entries();
    let it = make(&mut entries, "a", 1);
    entries.persist(&name("a"), Persist::Yes).unwrap();
    entries.release(MAKER, it);
    assert!(gone(&mut entries).is_empty());
    entries.persist(&name("a"), Persist::No).unwrap();
    assert_eq!(gone(&mut entries), BTreeSet::from([it]));
}

#[test]
fn what_is_committed_again_counts_once() {
    let mut entries = entries();
    let it = make(&mut entries, "a", 1);
    entries.commit(MAKER, it, vec![4096], Vec::new()).unwrap();
    assert_eq!(entries.made().parts, 1);
    entries.release(MAKER, it);
    assert_eq!(entries.made(), Made::default());
}
