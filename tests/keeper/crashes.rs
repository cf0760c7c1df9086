//! The keeper, its standby, makers and holders die or are started anew.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{Code, Generation, Hello, Mode, Packet, Persist, Reply, Request};
use memcuda::share::wire;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::faults::{answer, raw};
use crate::requests::*;
use crate::support::*;
use crate::worker;

#[test]
fn nothing_is_lost_when_the_keeper_is_killed() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    attach(&mut client, "held").unwrap();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    let deleted = make(&mut client, "deleted", b"deleted").unwrap();
    client.call(delete("deleted"), &[]).unwrap();
    let exported = Generation([9; 16]);
    export(&mut client, exported);
    let (_, page) = client
        .call(Request::Timeline { generation: held }, &[])
        .unwrap();
    rustix::io::pwrite(&page[0], &5u64.to_ne_bytes(), 0).unwrap();
    let before = keeper.status();
    assert_eq!(before.references, 5);
    keeper.kill(before.pid);
    // Before anybody is back the leases are there: this process lives.
    let after = keeper.status();
    assert_eq!(after.restarts, 1);
    assert_ne!(after.pid, before.pid);
    assert_eq!(books(&after), books(&before));
    assert_eq!(client.call(Request::Status, &[]).unwrap_err(), Error::Lost);
    let leases = [
        lease(held, 2),
        lease(deleted, 1),
        lease(exported, 1),
        lease(Generation([1; 16]), 1),
    ];
    let (mut client, lost) = keeper.client_with(&leases);
    assert_eq!(lost, [Generation([1; 16])]);
    assert!(
        list(&mut client, true)
            .iter()
            .any(|entry| entry.version == 5)
    );
    has(&mut client, "kept", b"kept");
    has(&mut client, "held", b"held");
    // What it did not take up again it has for a while: other connections of
    // this process may come back, too.
    keeper.settle("a lease stays", |status| status.references == 4 + 2);
    // The exporter's memory is its own still.
    let (reply, _) = client
        .call(
            Request::Withdraw {
                generation: exported,
            },
            &[],
        )
        .unwrap();
    assert_eq!(reply, Reply::Done);
    drop(client);
    keeper.settle("references stay", |status| status.references == 0);
    let kept = keeper.status();
    assert_eq!((kept.names, kept.exports, kept.dying), (1, 0, 0));
    keeper.collect();
    keeper.settle_empty(fresh);
}

/// A keeper that is stopped answers nobody; who waited long enough comes back later.
#[test]
fn who_hung_up_before_a_new_keeper_heard_it_takes_nothing_along() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    let pid = keeper.status().pid;
    stop(pid);
    let leases = [lease(held, 1)];
    let unheard = Client::dial(&keeper.socket(), std::process::id(), "test", &leases);
    drop((unheard.unwrap(), client));
    keeper.kill(pid);
    let (mut client, lost) = keeper.client_with(&leases);
    assert_eq!(lost, []);
    has(&mut client, "held", b"held");
}

/// One with so many leases that it has to say them in several packets.
#[test]
fn who_breaks_off_while_it_comes_back_may_do_so_again() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    let body = |more| Request::Introduce {
        pid: std::process::id(),
        command: "test".to_owned(),
        leases: vec![lease(held, 1)],
        more,
    };
    client.come_back();
    let again = raw(&keeper);
    wire::send_bytes(&again, &Hello::OURS.to_bytes(), &[]).unwrap();
    for (number, body) in [(1, body(true)), (2, Request::ComeBack)] {
        wire::send(&again, &Packet { number, body }, &[]).unwrap();
        answer(&again).unwrap();
    }
    drop(again);
    keeper.settle("it stays", |status| status.clients == 1);
    let (mut client, lost) = keeper.client_with(&[lease(held, 1)]);
    assert_eq!(lost, []);
    attach(&mut client, "held").unwrap();
}

#[test]
fn an_upgrade_keeps_process_names_and_leases() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    let before = keeper.status();
    for times in 1..=3 {
        assert_eq!(client.call(Request::Restart, &[]).unwrap().0, Reply::Done);
        let (next, lost) = wait_for("the new keeper", || {
            connect(&keeper.socket(), &[lease(held, 1)])
        });
        assert!(lost.is_empty());
        client = next;
        let status = keeper.status();
        assert_eq!((status.pid, status.restarts), (before.pid, times));
        has(&mut client, "held", b"held");
        release(&mut client, held);
    }
}

/// Also after a time that no clock can show.
#[test]
fn one_that_ends_when_it_is_idle_serves_before() {
    let keeper = Keeper::start(&["--idle", &u64::MAX.to_string()]);
    assert_eq!(keeper.status().restarts, 0);
}

#[test]
fn a_standby_that_is_killed_is_replaced_and_has_everything() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    for _ in 0..3 {
        let before = keeper.status();
        keeper.kill(before.standby);
        let now = keeper.settle("no new standby", |status| {
            status.standby != before.standby && status.standby != 0
        });
        assert_eq!(now.pid, before.pid);
        // Clients notice nothing.
        attach(&mut client, "held").unwrap();
    }
    keeper.kill(keeper.status().pid);
    let (mut client, lost) = keeper.client_with(&[lease(held, 4)]);
    assert!(lost.is_empty());
    has(&mut client, "held", b"held");
}

#[test]
fn a_maker_that_comes_back_says_its_commit_again() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let generation = begin(&mut client, "a").unwrap();
    keeper.kill(keeper.status().pid);
    let (mut client, lost) = keeper.client_with(&[lease(generation, 1)]);
    assert!(lost.is_empty());
    commit(&mut client, generation, b"made").unwrap();
    commit(&mut client, generation, b"again").unwrap();
    has(&mut keeper.client(), "a", b"made");
    // And one that comes back without it has not heard that it is to make it: it asks
    // again, and is told so at once.
    let mut client = keeper.client();
    client.call(open("b", Mode::Create, 4096), &[]).unwrap();
    keeper.kill(keeper.status().pid);
    let (mut client, _) = keeper.client_with(&[]);
    let (reply, _) = client.call(open("b", Mode::Create, 4096), &[]).unwrap();
    assert!(matches!(reply, Reply::Make { .. }));
}

/// What there is has room in a file; all that was has not.
#[test]
fn a_journal_that_may_not_be_longer_is_made_anew() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "early", b"early").unwrap();
    let pid = keeper.status().pid;
    let most = Some(64 << 10);
    let (current, maximum) = (most, most);
    let pid_of = Pid::from_raw(pid as i32);
    prlimit(pid_of, Resource::Fsize, Rlimit { current, maximum }).unwrap();
    for _ in 0..1000 {
        persist(&mut client, "early", Persist::No);
        persist(&mut client, "early", Persist::Yes);
    }
    make(&mut client, "late", b"late").unwrap();
    persist(&mut client, "late", Persist::Yes);
    keeper.kill(pid);
    let mut client = keeper.client();
    has(&mut client, "early", b"early");
    has(&mut client, "late", b"late");
}

/// As where the host has no memory for a moment, and nobody asks for anything afterwards.
#[test]
fn what_could_not_be_written_for_a_moment_is_written_when_it_can_be() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "early", b"early").unwrap();
    persist(&mut client, "early", Persist::Yes);
    let pid = keeper.status().pid;
    let limit = |current| {
        let limit = Rlimit {
            current,
            maximum: None,
        };
        prlimit(Pid::from_raw(pid as i32), Resource::Fsize, limit).unwrap()
    };
    let before = limit(Some(1));
    make(&mut client, "late", b"late").unwrap();
    persist(&mut client, "late", Persist::Yes);
    limit(before.current);
    std::thread::sleep(Duration::from_secs(3));
    keeper.kill(pid);
    let mut client = keeper.client();
    has(&mut client, "early", b"early");
    has(&mut client, "late", b"late");
}

/// A successor would take it for one that is there otherwise.
#[test]
fn a_name_that_was_deleted_while_it_was_made_does_not_come_back() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    let generation = begin(&mut client, "a").unwrap();
    client.call(delete("a"), &[]).unwrap();
    commit(&mut client, generation, b"deleted").unwrap();
    assert!(list(&mut client, false).is_empty());
    keeper.kill(keeper.status().pid);
    let (mut client, lost) = keeper.client_with(&[lease(generation, 1)]);
    assert!(lost.is_empty());
    assert_eq!(code(attach(&mut client, "a")), Code::NotFound);
    make(&mut client, "a", b"made").unwrap();
    has(&mut client, "a", b"made");
}

#[test]
fn an_exporter_is_told_after_a_restart_that_its_memory_is_let_go() {
    let keeper = Keeper::start(&[]);
    let (mut exporter, mut importer) = (keeper.client(), keeper.client());
    let generation = Generation([3; 16]);
    export(&mut exporter, generation);
    importer.call(Request::Import { generation }, &[]).unwrap();
    let withdraw = Request::Withdraw { generation };
    let held = Reply::Held { references: 1 };
    assert_eq!(exporter.call(withdraw.clone(), &[]).unwrap().0, held);
    keeper.kill(keeper.status().pid);
    let (mut exporter, _) = keeper.client_with(&[]);
    let (mut importer, lost) = keeper.client_with(&[lease(generation, 1)]);
    assert!(lost.is_empty());
    assert_eq!(exporter.call(withdraw.clone(), &[]).unwrap().0, held);
    release(&mut importer, generation);
    until("the event", || !exporter.events().unwrap().is_empty());
    assert_eq!(exporter.call(withdraw, &[]).unwrap().0, Reply::Done);
}

#[test]
fn a_holder_that_dies_with_the_keeper_leaves_nothing() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let mut worker = worker::start(&keeper.socket());
    keeper.settle("nobody works", |status| status.references > 3);
    let status = keeper.status();
    // Stopped, the keeper does not see the death; killed, nobody does.
    stop(status.pid);
    worker.kill().unwrap();
    worker.wait().unwrap();
    keeper.kill(status.pid);
    keeper.settle("references stay", |status| status.references == 0);
    keeper.collect();
    keeper.settle_empty(fresh);
}

#[test]
fn a_holder_that_is_killed_is_noticed_soon() {
    let keeper = Keeper::start(&[]);
    let mut times = [0; 5].map(|_| {
        let mut worker = worker::start(&keeper.socket());
        keeper.settle("nobody works", |status| status.references > 3);
        worker.kill().unwrap();
        let killed = Instant::now();
        keeper.settle("references stay", |status| status.references == 0);
        let time = killed.elapsed();
        worker.wait().unwrap();
        time
    });
    // The bench measures it; a busy machine may take longer, now and then much longer.
    times.sort_unstable();
    assert!(times[2] < Duration::from_secs(5), "{times:?}");
}

#[test]
fn an_upgrade_that_does_not_start_is_undone_and_the_next_one_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let (program, socket) = (
        directory.path().join("memcuda"),
        directory.path().join("k.sock"),
    );
    // In its place, as a package manager does it. Not by this process: another thread's
    // child could have it open for writing when it is run.
    let install = |what: &str| {
        let new = directory.path().join("new");
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg(what).arg(&new).status().unwrap().success());
        std::fs::rename(&new, &program).unwrap();
    };
    let good = env!("CARGO_BIN_EXE_memcuda");
    install(good);
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command
            .arg("keeper")
            .arg("--socket")
            .arg(&socket)
            .args(arguments);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), said)
    };
    assert!(run(&program, &[]).0);
    let (mut client, _) = connect(&socket, &[]).unwrap();
    let held = make(&mut client, "held", b"held").unwrap();
    let process = |client: &mut Client| match client.call(Request::Status, &[]) {
        Ok((Reply::Status(status), _)) => status.pid,
        other => panic!("{other:?}"),
    };
    let again = || {
        let (mut client, lost) = connect(&socket, &[lease(held, 1)]).unwrap();
        assert!(lost.is_empty());
        has(&mut client, "held", b"held");
        release(&mut client, held);
        client
    };
    // It may have looked for something first, or waited for it.
    let slow = directory.path().join("slow");
    std::fs::write(&slow, "#!/bin/sh\nsleep 0.25\nexit 1\n").unwrap();
    std::fs::set_permissions(&slow, PermissionsExt::from_mode(0o755)).unwrap();
    let mut before = process(&mut client);
    for bad in ["/bin/false", slow.to_str().unwrap()] {
        install(bad);
        let (done, said) = run(Path::new(good), &["restart"]);
        assert!(!done && said.contains("does not start"), "{said}");
        client = again();
        let now = process(&mut client);
        assert_ne!(before, now);
        install(good);
        assert_eq!(run(Path::new(good), &["restart"]), (true, String::new()));
        client = again();
        assert_eq!(process(&mut client), now);
        before = now;
    }
    let runs = std::fs::read_link(format!("/proc/{before}/exe")).unwrap();
    assert_eq!(runs, program);
    client.call(Request::Stop { force: true }, &[]).unwrap();
}
