//! What the protocol promises of names, exports, timelines and lists.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use memcuda::share::protocol::{
    Code, Event, Generation, MOST_LEASES, MOST_PARTS, Mode, Persist, Reply, Request, State, Status,
};

use rustix::io::{Errno, ioctl_fionbio, read};

use crate::requests::*;
use crate::rights::{MAKER, RULES, as_user, keeper};
use crate::support::*;

#[test]
fn two_clients_share_the_memory_of_a_name() {
    let keeper = Keeper::start(&[]);
    let (mut one, mut two) = (keeper.client(), keeper.client());
    let generation = make(&mut one, "weights/a", b"hello").unwrap();
    assert_eq!(code(make(&mut two, "weights/a", b"")), Code::Exists);
    let (entry, memory) = attach(&mut two, "weights/a").unwrap();
    assert_eq!((entry.generation, entry.state), (generation, State::Ready));
    assert_eq!(entry.spec, spec(4096));
    assert_eq!(content(memory, 5), b"hello");
    // A different size is no name to be opened.
    assert_eq!(
        code(one.call(open("weights/a", Mode::Attach, 8192), &[])),
        Code::Mismatch
    );
    let listed = list(&mut one, true);
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].references, listed[0].holders.len()), (2, 2));
    assert_eq!(listed[0].maker.pid, std::process::id());
    assert!(listed[0].maker.started > 0);
    drop(one);
    release(&mut two, generation);
    assert!(list(&mut two, true).is_empty());
    assert_eq!(code(attach(&mut two, "weights/a")), Code::NotFound);
}

#[test]
fn the_epoch_grows_when_a_name_is_gone() {
    let keeper = Keeper::start(&[]);
    let connected = memcuda::share::client::Client::connect(&keeper.socket(), 1, "t", &[]);
    let (mut client, welcome) = connected.unwrap();
    let epoch = std::fs::File::from(welcome.epoch);
    let word = || {
        let mut word = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&epoch, &mut word, 0).unwrap();
        u64::from_ne_bytes(word)
    };
    assert_eq!(epoch.metadata().unwrap().len(), 4096);
    let before = word();
    make(&mut client, "a", b"").unwrap();
    assert_eq!(word(), before);
    client.call(delete("a"), &[]).unwrap();
    assert!(word() > before);
    assert!(std::os::unix::fs::FileExt::write_at(&epoch, &[0; 8], 0).is_err());
}

#[test]
fn a_persisted_name_outlives_its_maker_and_expires() {
    let keeper = Keeper::start(&[]);
    let mut maker = keeper.client();
    make(&mut maker, "kept", b"kept").unwrap();
    make(&mut maker, "timed", b"").unwrap();
    persist(&mut maker, "kept", Persist::Yes);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    persist(&mut maker, "timed", Persist::Until(now.as_secs() + 1));
    drop(maker);
    keeper.settle("a name did not expire", |status| status.names == 1);
    let mut other = keeper.client();
    has(&mut other, "kept", b"kept");
    drop(other);
    let mut collector = keeper.client();
    let mut collect = |dry, kept| {
        let (reply, _) = collector.call(Request::Collect { dry, kept }, &[]).unwrap();
        reply
    };
    let (count, bytes) = (1, 4096);
    until("the last holder to be gone", || {
        collect(true, true) == Reply::Collected { count, bytes }
    });
    assert_eq!(
        collect(false, false),
        Reply::Collected { count: 0, bytes: 0 }
    );
    assert_eq!(collect(false, true), Reply::Collected { count, bytes });
    assert_eq!(keeper.status().names, 0);
}

#[test]
fn a_name_that_is_being_made_is_aborted_with_its_maker() {
    let keeper = Keeper::start(&[]);
    let (mut maker, mut other) = (keeper.client(), keeper.client());
    maker
        .call(open("a", Mode::CreateOrAttach, 100), &[])
        .unwrap();
    assert_eq!(
        code(other.call(open("a", Mode::Attach, 0), &[])),
        Code::InProgress
    );
    drop(maker);
    let reply = wait_for("the name to be free", || {
        other.call(open("a", Mode::CreateOrAttach, 100), &[]).ok()
    });
    assert!(matches!(reply.0, Reply::Make { .. }));
}

#[test]
fn a_timeline_counts_versions_that_listings_show() {
    let keeper = Keeper::start(&[]);
    let (mut one, mut two) = (keeper.client(), keeper.client());
    let generation = make(&mut one, "a", b"").unwrap();
    assert_eq!(
        code(two.call(Request::Timeline { generation }, &[])),
        Code::NotFound
    );
    attach(&mut two, "a").unwrap();
    let page = |client: &mut memcuda::share::client::Client| {
        let (_, beside) = client.call(Request::Timeline { generation }, &[]).unwrap();
        let [page] = <[OwnedFd; 1]>::try_from(beside).unwrap();
        std::fs::File::from(page)
    };
    let (first, second) = (page(&mut one), page(&mut two));
    assert_eq!(first.metadata().unwrap().len(), 4096);
    assert!(first.set_len(0).is_err(), "cut short under who maps it");
    std::os::unix::fs::FileExt::write_all_at(&first, &3u64.to_ne_bytes(), 0).unwrap();
    let mut word = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(&second, &mut word, 0).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 3);
    assert_eq!(list(&mut one, false)[0].version, 3);
}

#[test]
fn an_export_of_many_parts_is_imported_whole_and_let_go() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let (mut exporter, mut importer) = (keeper.client(), keeper.client());
    let generation = Generation([7; 16]);
    let total = MOST_PARTS as u32 + 9;
    let parts: Vec<OwnedFd> = (0..total).map(|n| memory(&n.to_ne_bytes(), 4096)).collect();
    let parts: Vec<BorrowedFd> = parts.iter().map(|part| part.as_fd()).collect();
    let (first, rest) = parts.split_at(MOST_PARTS);
    let export = Request::Export {
        generation,
        spec: spec(4096 * u64::from(total) - 100),
        offset: 100,
        parts: vec![4096; first.len()],
        total,
    };
    exporter.call(export, first).unwrap();
    assert_eq!(
        code(importer.call(Request::Import { generation }, &[])),
        Code::NotFound
    );
    let more = Request::ExportMore {
        generation,
        parts: vec![4096; rest.len()],
    };
    exporter.call(more, rest).unwrap();
    let (reply, mut beside) = importer.call(Request::Import { generation }, &[]).unwrap();
    assert!(
        matches!(&reply, Reply::Memory { total: t, parts, .. } if *t == total && parts.len() == 128)
    );
    let from = beside.len() as u32;
    let (reply, more) = importer
        .call(Request::Parts { generation, from }, &[])
        .unwrap();
    assert_eq!(reply, Reply::Parts(vec![4096; 9]));
    beside.extend(more);
    for (n, part) in beside.into_iter().enumerate() {
        assert_eq!(content(part, 4), (n as u32).to_ne_bytes());
    }
    let withdraw = Request::Withdraw { generation };
    let (reply, _) = exporter.call(withdraw.clone(), &[]).unwrap();
    assert_eq!(reply, Reply::Held { references: 1 });
    assert_eq!(
        code(keeper.client().call(Request::Import { generation }, &[])),
        Code::NotFound
    );
    release(&mut importer, generation);
    let events = wait_for("the event", || {
        let events = exporter.events().unwrap();
        (!events.is_empty()).then_some(events)
    });
    assert_eq!(events, [Event::LetGo(generation)]);
    assert_eq!(exporter.call(withdraw, &[]).unwrap().0, Reply::Done);
    drop((exporter, importer));
    drop(parts);
    keeper.settle_empty(fresh);
}

/// The kernel closes the sockets of a process that dies before its devices.
#[test]
fn what_was_opened_by_handle_is_held_as_long_as_its_process_lives() {
    let keeper = Keeper::start(&[]);
    let (mut exporter, mut importer) = (keeper.client(), keeper.client());
    let generation = Generation([9; 16]);
    export(&mut exporter, generation);
    importer.call(Request::Import { generation }, &[]).unwrap();
    make(&mut importer, "a", b"a").unwrap();
    let withdraw = Request::Withdraw { generation };
    exporter.call(withdraw.clone(), &[]).unwrap();

    drop(importer);
    let alone = keeper.settle("a name outlives its connection", |status| status.names == 0);
    assert_eq!((alone.references, alone.exports), (1, 1));
    let held = exporter.call(withdraw, &[]).unwrap().0;
    assert_eq!(held, Reply::Held { references: 1 });
    // Back, and without it: then it was let go.
    let _back = keeper.client();
    until("the event", || !exporter.events().unwrap().is_empty());
    keeper.settle("it stays", |status| status.exports == 0);
}

#[test]
fn ten_thousand_names_are_held_and_listed_in_order_and_little_memory() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let mut client = keeper.client();
    let count = 10_000;
    let one = memory(b"x", 4096);
    for n in 0..count {
        let (reply, _) = client
            .call(open(&format!("layer/{n:05}"), Mode::Create, 4096), &[])
            .unwrap();
        let Reply::Make { generation } = reply else {
            panic!("{reply:?}");
        };
        let commit = commit_of(generation, 4096);
        client.call(commit, &[one.as_fd()]).unwrap();
    }
    let listed = list(&mut client, false);
    assert_eq!(listed.len(), count);
    assert!(listed.is_sorted_by_key(|entry| entry.name.clone()));
    let status = keeper.status();
    for pid in [status.pid, status.standby] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kib = |field: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            line.unwrap()
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .unwrap()
        };
        // Of 20 MiB in all: an optimized program's own pages are 5 of them, this
        // one's say nothing.
        let own = kib("RssAnon:") + kib("RssShmem:");
        assert!(own < 14 << 10, "process {pid} has {own} KiB");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("libcuda") && !maps.contains("libmemcuda"));
    }
    drop(client);
    keeper.settle_empty(fresh);
}

/// Whoever hears that the last hold has ended may ask the device for the bytes:
/// nobody else has them any more, neither the keeper nor its standby.
#[test]
fn memory_is_free_once_its_last_release_is_answered() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let has_standby = |status: &Status| status.standby != 0;
    let mut standby = keeper.settle("no standby", has_standby).standby;
    let mut replaced = 0;
    for round in 0..200 {
        let generation = begin(&mut client, "a").unwrap();
        // One end stands for the memory; the other one sees its last copy go.
        let (here, memory) = std::io::pipe().unwrap();
        ioctl_fionbio(&here, true).unwrap();
        let commit = commit_of(generation, 4096);
        client.call(commit, &[memory.as_fd()]).unwrap();
        drop(memory);
        let seen = read(&here, &mut [0_u8; 1]);
        assert_eq!(seen, Err(Errno::AGAIN), "round {round}: nobody has it");
        release(&mut client, generation);
        let is_free = || read(&here, &mut [0_u8; 1]) == Ok(0);
        if !is_free() {
            // A standby that has no processor for a while is ended, and takes its time.
            let what = format!("round {round}: somebody has it still");
            let another = |status: &Status| has_standby(status) && status.standby != standby;
            standby = keeper.settle(&what, another).standby;
            until(&what, is_free);
            replaced += 1;
        }
    }
    assert!(replaced < 20, "{replaced} standbys were replaced");
    let status = keeper.status();
    assert_eq!((status.names, status.restarts), (0, 0));
}

/// More is said to it at once than it has room for; it lives, and reads later.
#[test]
fn who_is_told_too_much_comes_back_to_what_it_held() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let mut exporter = as_user(MAKER, MAKER, || client(&socket));
    let held = make(&mut exporter, "tmp/a", b"a").unwrap();
    let mut importer = keeper.client();
    for number in 0..600_u128 {
        let generation = Generation(number.to_ne_bytes());
        export(&mut exporter, generation);
        importer.call(Request::Import { generation }, &[]).unwrap();
        let withdraw = Request::Withdraw { generation };
        exporter.call(withdraw, &[]).unwrap();
    }
    for number in 0..600_u128 {
        release(&mut importer, Generation(number.to_ne_bytes()));
    }
    drop(importer);
    keeper.settle("it is told all of it", |status| status.clients == 1);
    let (_back, lost) = as_user(MAKER, MAKER, || {
        connect(&socket, &[lease(held, 1)]).unwrap()
    });
    assert_eq!(lost, []);
}

/// However long that takes: it may be stopped meanwhile.
#[test]
fn who_is_to_come_back_holds_what_it_held_as_long_as_it_lives() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "a", b"a").unwrap();
    client.come_back();
    // Any other connection of this process would say that it is back.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(keeper.status().references, 1);
}

/// As one of whose connections more than one were lost.
#[test]
fn what_a_process_exported_is_its_own_by_any_of_its_connections() {
    let keeper = Keeper::start(&[]);
    let (mut exporter, mut importer) = (keeper.client(), keeper.client());
    let generation = Generation([9; 16]);
    let export = Request::Export {
        generation,
        spec: spec(8192),
        offset: 0,
        parts: vec![4096; 2],
        total: 2,
    };
    let page = memory(b"", 4096);
    exporter.call(export, &[page.as_fd(); 2]).unwrap();
    importer.call(Request::Import { generation }, &[]).unwrap();
    let mut again = keeper.client();
    let parts = vec![(generation, 0)];
    again.call(Request::GiveUp { parts }, &[]).unwrap();
    assert_eq!(keeper.status().bytes, 4096);
    let mut again = keeper.client();
    let withdraw = Request::Withdraw { generation };
    let held = again.call(withdraw, &[]).unwrap().0;
    assert_eq!(held, Reply::Held { references: 2 });
}

#[test]
fn leases_of_more_than_a_packet_are_taken_up_or_told_as_lost() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let held = make(&mut client, "a", b"a").unwrap();
    keeper.kill(keeper.status().pid);
    let unknown = 1..=2 * MOST_LEASES as u128 + 1;
    let unknown = unknown.map(|number| lease(Generation(number.to_ne_bytes()), 1));
    let all: Vec<_> = unknown.chain([lease(held, 1)]).collect();
    let (client, lost) = keeper.client_with(&all);
    assert_eq!(lost.len(), all.len() - 1);
    keeper.settle("what it holds", |status| status.references == 1);
    drop(client);
    keeper.settle("it goes with who holds it", |status| status.names == 0);
}
