//! The life of names, exports and leases, without a process or a descriptor.

use std::collections::BTreeSet;

use super::exports::Withdrawn;
use super::*;
use crate::keeper::journal::Known;
use crate::names::Dtype;
use crate::share::protocol::{DeviceId, Lease, MOST_ENTRIES, Mode};

const MAKER: ClientId = 1;
const OTHER: ClientId = 2;

fn process(pid: u32) -> Process {
    Process {
        pid,
        started: 5,
        uid: 0,
        gid: 0,
        command: "test".to_owned(),
    }
}

fn entries() -> Entries {
    let mut entries = Entries::default();
    entries.set_time(1_000_000);
    entries.join(MAKER, process(10));
    entries.join(OTHER, process(20));
    entries
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn generation(number: u8) -> Generation {
    Generation([number; 16])
}

fn spec(bytes: u64) -> Spec {
    Spec {
        bytes,
        dtype: None,
        shape: Vec::new(),
        device: DeviceId([1; 16]),
        ordinal: 0,
        backend: Backend::Vmm,
    }
}

fn wish(text: &str, mode: Mode) -> Wish {
    Wish {
        name: name(text),
        mode,
        spec: spec(100),
        write: false,
        hidden: false,
    }
}

/// Makes a name with memory.
fn make(entries: &mut Entries, text: &str, number: u8) -> Generation {
    let opened = entries.open(MAKER, wish(text, Mode::Create), generation(number));
    assert_eq!(opened, Ok(Opened::Make(generation(number))));
    let committed = entries.commit(MAKER, generation(number), vec![4096], Vec::new());
    assert_eq!(committed, Ok(()));
    generation(number)
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.unwrap_err().code
}

fn gone(entries: &mut Entries) -> BTreeSet<Generation> {
    let effects = entries.take_effects().into_iter();
    let gone = effects.filter_map(|effect| match effect {
        Effect::Gone(item) => Some(item.generation),
        _ => None,
    });
    gone.collect()
}

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
    entries.leave(MAKER);
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(1)]));
    let opened = entries.open(OTHER, wish("a", Mode::CreateOrAttach), generation(2));
    assert_eq!(opened, Ok(Opened::Make(generation(2))));
    entries.abort(OTHER, generation(2)).unwrap();
    assert!(entries.is_empty());
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
    entries.take_effects();
    assert_eq!(
        code(entries.delete(&name("a"), Some(generation(9)))),
        Code::NotFound
    );
    entries.delete(&name("a"), Some(first)).unwrap();
    assert!(entries.take_effects().contains(&Effect::Hidden(name("a"))));
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
    entries.persist(&name("kept"), Persist::Yes).unwrap();
    entries.persist(&name("timed"), Persist::Until(7)).unwrap();
    entries.persist(&name("held"), Persist::Until(7)).unwrap();
    entries
        .open(OTHER, wish("held", Mode::Attach), generation(9))
        .unwrap();
    entries.leave(MAKER);
    assert_eq!(gone(&mut entries), BTreeSet::new());
    assert_eq!(entries.totals().unheld_bytes, 2 * 4096);
    assert_eq!(entries.next_expiry_s(), Some(7));
    entries.set_time(6_999_999);
    entries.expire();
    assert_eq!(gone(&mut entries), BTreeSet::new());
    entries.set_time(7_000_000);
    entries.expire();
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(2)]));
    assert_eq!(entries.next_expiry_s(), None);
    assert_eq!(entries.collect(true, false), (0, 0));
    assert_eq!(entries.collect(true, true), (1, 4096));
    assert_eq!(entries.collect(false, true), (1, 4096));
    assert_eq!(gone(&mut entries), BTreeSet::from([generation(1)]));
    entries.leave(OTHER);
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
    entries.leave(MAKER);
    assert!(entries.find(&name("a")).is_none());
    assert_eq!(entries.item(generation(1)).unwrap().state, State::Dying);
    entries.leave(OTHER);
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
    entries.leave(OTHER);
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
    entries.leave(MAKER);
    assert!(entries.item(generation(1)).is_some());
    entries.leave(OTHER);
    assert!(entries.is_empty());
}

#[test]
fn an_exporter_that_comes_back_late_still_hears_that_others_hold_its_memory() {
    let mut entries = entries();
    let it = generation(1);
    entries.export(MAKER, it, spec(1), 0, vec![1], 1).unwrap();
    entries.import(OTHER, it).unwrap();
    entries.leave(MAKER);
    entries.join(3, process(10));
    entries.adopt(3, it);
    assert_eq!(entries.withdraw(3, it), Withdrawn::Held(1));
    entries.take_effects();
    entries.leave(OTHER);
    assert!(entries.take_effects().contains(&Effect::LetGo(3, it)));
}

#[test]
fn lists_are_pages_in_order() {
    let mut entries = entries();
    for number in 0..70u8 {
        make(&mut entries, &format!("n{number:02}"), number);
    }
    entries.delete(&name("n05"), None).unwrap();
    make(&mut entries, "n05", 100);
    for number in 200..240u8 {
        entries
            .export(MAKER, generation(number), spec(1), 0, vec![1], 1)
            .unwrap();
    }
    let all = |all: bool| {
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let (page, next) = entries.list(after.as_ref(), all, MOST_ENTRIES, |_| true);
            assert!(!page.is_empty() && page.len() <= MOST_ENTRIES);
            seen.extend(page.iter().map(|item| (item.name.clone(), item.generation)));
            match next {
                Some(next) => after = Some(next),
                None => return seen,
            }
        }
    };
    assert_eq!(all(false).len(), 70);
    let everything = all(true);
    assert_eq!(everything.len(), 70 + 1 + 40);
    let (named, unnamed) = everything.split_at(71);
    assert!(named.is_sorted() && unnamed.is_sorted());
    let (page, next) = entries.list(None, true, 10, |item| item.name == Some(name("n07")));
    assert_eq!((page.len(), next), (1, None));
}

/// What a successor knows, from what this one says.
fn succeed(entries: &Entries) -> Entries {
    let clients = entries.known();
    let known = Known {
        restarts: 0,
        next_client: 50,
        items: entries
            .items()
            .map(|item| (item.generation, item.clone()))
            .collect(),
        clients: clients
            .map(|(id, process, leases)| (id, (process.clone(), leases.clone())))
            .collect(),
    };
    let (mut restored, lost) = Entries::restore(known, |_, _| true);
    assert!(lost.is_empty());
    restored.take_effects();
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
    assert!(after.resume(51, lease(it, 1)));
    assert_eq!(after.totals().references, 4);
    after.leave(51);
    after.join(52, process(20));
    assert_eq!(after.earlier_of(52), [OTHER]);
    assert!(after.resume(52, lease(it, 1)));
    assert!(!after.resume(52, lease(generation(7), 1)));
    assert_eq!(after.totals().references, 3);
    // The export was said to be held no more, but its memory is the exporter's.
    after.adopt_exports(52);
    after.leave(OTHER);
    assert!(after.item(generation(2)).is_none());
    assert_eq!(after.totals().references, 2);
    after.leave(MAKER);
    after.leave(52);
    assert!(after.is_empty());
}

#[test]
fn what_was_not_handed_over_whole_is_left_out() {
    let mut before = entries();
    make(&mut before, "a", 1);
    make(&mut before, "b", 2);
    let known = Known {
        items: before
            .items()
            .map(|item| (item.generation, item.clone()))
            .collect(),
        ..Known::default()
    };
    let mut known = known;
    for item in known.items.values_mut() {
        item.persist = Persist::Yes;
    }
    let (after, lost) = Entries::restore(known, |it, _| it == generation(2));
    assert_eq!(lost.len(), 1);
    assert_eq!(after.names().collect::<Vec<_>>(), [&name("b")]);
}

#[test]
fn the_largest_page_of_a_list_is_a_packet() {
    let mut entries = Entries::default();
    entries.set_time(u64::MAX);
    let largest = Process {
        pid: u32::MAX,
        started: u64::MAX,
        uid: u32::MAX,
        gid: u32::MAX,
        command: "c".repeat(15),
    };
    for client in 0..MOST_HOLDERS as u64 + 4 {
        entries.join(client, largest.clone());
    }
    let mut wanted = wish(&"n".repeat(Name::MOST_BYTES), Mode::Create);
    wanted.spec.backend = Backend::CudaIpc;
    wanted.spec.bytes = 1 << 48;
    wanted.spec.shape = vec![u64::MAX; 32];
    wanted.spec.ordinal = u32::MAX;
    entries.open(0, wanted, generation(1)).unwrap();
    entries
        .commit(0, generation(1), vec![], vec![9; 64])
        .unwrap();
    for client in 0..MOST_HOLDERS as u64 + 4 {
        entries.grant(client, generation(1), u32::MAX / 2).unwrap();
    }
    let mut entry = entries.entry(entries.item(generation(1)).unwrap());
    entry.version = u64::MAX;
    entry.offset = u64::MAX;
    entry.persist = Persist::Until(u64::MAX);
    assert_eq!(entry.holders.len(), MOST_HOLDERS);
    let page = crate::share::protocol::Packet {
        number: u32::MAX,
        body: crate::share::protocol::Reply::Entries {
            next: Some(crate::share::protocol::Place::Named(
                entry.name.clone().unwrap(),
                generation(1),
            )),
            entries: vec![entry; MOST_ENTRIES],
        },
    };
    let bytes = postcard::to_allocvec(&page).unwrap().len();
    assert!(bytes <= crate::share::wire::MOST_BYTES, "{bytes}");
}
