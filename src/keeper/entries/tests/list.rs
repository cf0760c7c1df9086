//! Lists are pages, each a packet.

use super::*;
use crate::share::protocol::MOST_ENTRIES;

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
