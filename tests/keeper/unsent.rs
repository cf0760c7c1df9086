//! So much is on its way for the keeper's user that the kernel takes no descriptor more:
//! what the keeper has is not lost by that, whoever ends meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use memcuda::names::MOST_EXTENTS;
use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{MOST_PARTS, Mode, Persist, Reply, Request, Spec, Status};
use memcuda::share::wire::{self, Broken};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::requests::*;
use crate::rights::{as_user, can_be_several};
use crate::support::*;

/// A keeper of a user who is not root, to whom the kernel sets limits, with a name. Each
/// test has a user of its own: what is on its way counts for the user.
fn with_keeper(user: u32, test: impl FnOnce(&Keeper, Client) + Send) {
    if can_be_several() {
        as_user(user, user, || {
            let keeper = Keeper::start(&[]);
            let mut client = keeper.client();
            make(&mut client, "kept", b"kept").unwrap();
            persist(&mut client, "kept", Persist::Yes);
            test(&keeper, client);
        });
    }
}

/// As many descriptors on their way as this user may have there, until it is dropped.
pub fn flood() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let page = memory(b"", 4096);
    let many = vec![page.as_fd(); MOST_PARTS];
    let refused = loop {
        if let Err(error) = wire::send_bytes(&here, b"packet", &many) {
            break error;
        }
    };
    assert_eq!(refused, Broken::System(Errno::TOOMANYREFS));
    (here, there)
}

/// Makes a name of which as much is written as may be.
pub fn make_long(client: &mut Client) {
    let spec = Spec {
        shape: vec![u64::MAX; MOST_EXTENTS],
        ..spec(4096)
    };
    let open = Request::Open {
        name: name("long"),
        mode: Mode::Create,
        spec,
        write: false,
        hidden: false,
    };
    let Reply::Make { generation } = client.call(open, &[]).unwrap().0 else {
        panic!("it is there");
    };
    commit(client, generation, b"").unwrap();
}

/// Changes it until the journal is made anew.
pub fn lengthen_journal(client: &mut Client) {
    for _ in 0..8000 {
        persist(client, "long", Persist::Yes);
        persist(client, "long", Persist::No);
    }
}

#[test]
fn a_successor_is_handed_everything_once_there_is_room_again() {
    with_keeper(42011, |keeper, _client| {
        let pid = keeper.status().pid;
        let flood = flood();
        keeper.kill(pid);
        // The standby has tried by then.
        std::thread::sleep(Duration::from_millis(500));
        drop(flood);
        has(&mut keeper.client(), "kept", b"kept");
    });
}

#[test]
fn a_journal_that_the_standby_does_not_get_is_not_put_in_the_place_of_the_one_it_has() {
    with_keeper(42012, |keeper, mut client| {
        let pid = keeper.status().pid;
        make_long(&mut client);
        let flood = flood();
        lengthen_journal(&mut client);
        keeper.kill(pid);
        drop(flood);
        has(&mut keeper.client(), "kept", b"kept");
    });
}

/// One that is there and complete is not ended for another.
#[test]
fn a_standby_that_was_replaced_before_it_was_given_what_it_lacked_stays() {
    with_keeper(42013, |keeper, mut client| {
        let generation = attach(&mut client, "kept").unwrap().0.generation;
        let flood = flood();
        let timeline = client.call(Request::Timeline { generation }, &[]);
        assert_eq!(timeline.unwrap_err(), Error::Lost);
        drop(flood);
        let before = keeper.status().standby;
        keeper.kill(before);
        let is_new = |status: &Status| ![before, 0].contains(&status.standby);
        let now = keeper.settle("no new standby", is_new).standby;
        // The first one would have been given it by then.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(keeper.status().standby, now);
    });
}

/// A client of root's, of whom the kernel takes descriptors still.
#[test]
fn a_keeper_whose_standby_lacks_something_is_not_started_anew_before_it_has_it() {
    if !can_be_several() {
        return;
    }
    let user = 42015;
    let keeper = as_user(user, user, || Keeper::start(&[]));
    let mut client = keeper.client();
    let flood = as_user(user, user, flood);
    let generation = make(&mut client, "new", b"new").unwrap();
    client.call(Request::Restart, &[]).unwrap();
    let Ok((Reply::Status(status), _)) = client.call(Request::Status, &[]) else {
        panic!("it was started anew");
    };
    assert_eq!(status.restarts, 0);
    drop(flood);
    client.call(Request::Restart, &[]).unwrap();
    keeper.settle("it is not started anew", |status| status.restarts == 1);
    let (mut client, lost) = keeper.client_with(&[lease(generation, 1)]);
    assert_eq!(lost, []);
    has(&mut client, "new", b"new");
}

/// As while a keeper with many names hands them over.
#[test]
fn a_client_whose_user_has_too_many_on_their_way_waits() {
    with_keeper(42016, |_keeper, mut client| {
        let flood = flood();
        let over = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(flood);
        });
        make(&mut client, "new", b"new").unwrap();
        over.join().unwrap();
        has(&mut client, "new", b"new");
    });
}

#[test]
fn a_standby_that_has_no_descriptor_to_spare_starts_a_keeper_once_it_has() {
    let keeper = Keeper::start(&[]);
    let mut client = keeper.client();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    let status = keeper.status();
    let standby = Pid::from_raw(status.standby as i32);
    // It needs descriptors to take up what it was sent, and sleeps once it has.
    until("the standby sleeps", || is_asleep(status.standby));
    let few = Rlimit {
        current: Some(3),
        ..getrlimit(Resource::Nofile)
    };
    let before = prlimit(standby, Resource::Nofile, few).unwrap();
    keeper.kill(status.pid);
    // It has tried by then.
    std::thread::sleep(Duration::from_millis(500));
    prlimit(standby, Resource::Nofile, before).unwrap();
    has(&mut keeper.client(), "kept", b"kept");
}
