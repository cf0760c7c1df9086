//! One user of several, who takes what there is: the others are served all the same.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use memcuda::share::client::Client;
use memcuda::share::protocol::{
    Code, Generation, Lease, MOST_LEASES, MOST_PARTS, Mode, Packet, Reply, Request, Status,
};
use memcuda::share::wire::{self, Broken};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::Signal;

use crate::faults::introduced_with;
use crate::requests::*;
use crate::rights::{MAKER, READER, RULES, as_user, keeper, keeper_by};
use crate::support::*;

#[test]
fn former_connections_of_a_user_do_not_take_all_descriptors() {
    // Few enough that so many have come before the first of them is forgotten.
    let few = ["prlimit", "--nofile=1024:1024"];
    let Some((keeper, _)) = keeper_by(&few, RULES) else {
        return;
    };
    let socket = keeper.socket();
    let generation = Generation([8; 16]);
    let mut exporter = as_user(MAKER, MAKER, || client(&socket));
    export(&mut exporter, generation);
    let refused = as_user(MAKER, MAKER, || {
        (0..10_000).find_map(|_| {
            let connected = Client::connect(&socket, 1, "test", &[]);
            match connected {
                Ok((mut importer, _)) => {
                    importer.call(Request::Import { generation }, &[]).unwrap();
                    None
                }
                Err(error) => Some(code(Err::<(), _>(error))),
            }
        })
    });
    assert_eq!(refused, Some(Code::Unavailable));
    // Others are served all the same.
    make(&mut keeper.client(), "a", b"").unwrap();
}

#[test]
fn one_user_of_several_does_not_make_all_that_there_is_room_for() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let mut maker = as_user(MAKER, MAKER, || client(&socket));
    let page = memory(b"", 4096);
    let many = vec![page.as_fd(); MOST_PARTS];
    let mut export = |number: u64| {
        let mut generation = [0; 16];
        generation[..8].copy_from_slice(&number.to_ne_bytes());
        let export = Request::Export {
            generation: Generation(generation),
            spec: spec(4096),
            offset: 0,
            parts: vec![4096; MOST_PARTS],
            total: MOST_PARTS as u32,
        };
        maker.call(export, &many)
    };
    let refused = (0..1000).find_map(|number| export(number).err());
    assert_eq!(code(Err::<(), _>(refused.unwrap())), Code::Unavailable);
    // The others have room.
    let mut own = keeper.client();
    for number in 0..100 {
        make(&mut own, &format!("n{number}"), b"").unwrap();
    }
}

/// A page of versions takes a descriptor, and who made the name does not ask for it.
#[test]
fn pages_of_versions_count_for_who_asks_for_them() {
    let few = ["prlimit", "--nofile=1024:1024"];
    let Some((keeper, _)) = keeper_by(&few, RULES) else {
        return;
    };
    let socket = keeper.socket();
    let mut own = keeper.client();
    let names: Vec<_> = (0..400).map(|number| format!("weights/{number}")).collect();
    let made = names.iter().map(|name| make(&mut own, name, b"").unwrap());
    let all: Vec<_> = made.collect();
    let (mut reader, asked) = as_user(READER, READER, || {
        let mut client = client(&socket);
        let asked = names.iter().zip(&all).position(|(name, &generation)| {
            attach(&mut client, name).unwrap();
            let answer = client.call(Request::Timeline { generation }, &[]);
            answer.is_err_and(|error| code(Err::<(), _>(error)) == Code::Unavailable)
        });
        (client, asked)
    });
    // A quarter of what there is room for.
    assert!(asked.is_some_and(|pages| pages > 100), "{asked:?}");
    make(&mut own, "weights/more", b"").unwrap();
    // They are a name's, whoever has asked, and go with it.
    for name in &names {
        own.call(delete(name), &[]).unwrap();
    }
    for &generation in &all {
        release(&mut own, generation);
        release(&mut reader, generation);
    }
    let generation = make(&mut own, "weights/again", b"").unwrap();
    attach(&mut reader, "weights/again").unwrap();
    reader.call(Request::Timeline { generation }, &[]).unwrap();
}

#[test]
fn many_connections_of_a_user_are_in_nobodys_way() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let pid = keeper.status().pid;
    let many = as_user(READER, READER, || {
        let many = (0..200).map(|_| introduced_with(&keeper, &[]));
        many.collect::<Vec<_>>()
    });
    let own = introduced_with(&keeper, &[]);
    // The kernel has those that are answered in this order, whenever it is looked at.
    let order = epoll::create(CreateFlags::CLOEXEC).unwrap();
    let all = || many.iter().chain([&own]);
    for (place, socket) in (0..).zip(all()) {
        epoll::add(&order, socket, EventData::new_u64(place), EventFlags::IN).unwrap();
    }
    // All ask before the keeper hears anybody.
    stop(pid);
    let list = Request::List {
        after: None,
        all: true,
    };
    let number = 2;
    let list = Packet { number, body: list };
    for other in &many {
        (0..4).for_each(|_| wire::send(other, &list, &[]).unwrap());
    }
    let body = Request::Status;
    wire::send(&own, &Packet { number, body }, &[]).unwrap();
    signal(pid, Signal::CONT);
    for socket in all() {
        let length = || wire::length_of_next(socket).ok();
        wait_for("an answer", || length().filter(|bytes| *bytes > 0));
    }
    let mut answered = Vec::with_capacity(many.len() + 1);
    epoll::wait(&order, spare_capacity(&mut answered), None).unwrap();
    assert_eq!(answered.len(), many.len() + 1);
    let mut places = answered.iter().map(|event| event.data.u64());
    let before = places.position(|place| place == many.len() as u64);
    let before = before.unwrap();
    assert!(before < 100, "{before} of 200 came before");
}

/// Each of its connections ends with all that it holds, and all of them end at once.
#[test]
fn the_end_of_what_a_user_holds_is_in_nobodys_way_and_bounded() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let mut own = keeper.client();
    let lease = |number| Lease {
        generation: make(&mut own, &format!("weights/{number}"), b"").unwrap(),
        count: 1,
    };
    let made: Vec<Lease> = (0..MOST_LEASES).map(lease).collect();
    let mut many = Vec::new();
    as_user(READER, READER, || {
        let mut lost = 0;
        while lost == 0 && many.len() < 250 {
            let (client, welcome) = Client::connect(&socket, 1, "test", &made).unwrap();
            many.push(client);
            lost = welcome.lost.len();
        }
        assert_eq!(
            (lost, many.len()),
            (MOST_LEASES, 197),
            "200,000 are its most"
        );
        let more = many[0].call(open("weights/0", Mode::Attach, 4096), &[]);
        assert_eq!(code(more), Code::Unavailable);
    });
    let held = keeper.status().references as usize;
    assert_eq!(held, 197 * MOST_LEASES);
    let pid = keeper.status().pid;
    stop(pid);
    drop(many);
    signal(pid, Signal::CONT);
    let (reply, _) = own.call(Request::Status, &[]).unwrap();
    let Reply::Status(status) = reply else {
        panic!("{reply:?}");
    };
    let left = status.references as usize;
    assert!(
        left > held / 2,
        "{left} of {held} are left when others are heard"
    );
    let ended = |status: &Status| status.references as usize == made.len();
    keeper.settle("their leases stay", ended);
}

/// Beyond a program's limit of open files the kernel takes no descriptor from it any more while
/// so many of its user's are on their way, the keeper's as well.
#[test]
fn other_users_leave_little_of_what_may_be_unread() {
    if let Some((keeper, _)) = keeper(RULES) {
        leave_unread(&keeper);
    }
}

/// As a container's: the kernel does not tell one of the sockets of the other.
#[test]
fn nor_does_one_whose_network_is_another() {
    if let Some((keeper, _)) = keeper_by(&["unshare", "--net"], RULES) {
        leave_unread(&keeper);
    }
}

fn leave_unread(keeper: &Keeper) {
    const MOST: usize = 512;
    const FLOOD: usize = 50;
    let generation = Generation([8; 16]);
    let body = Request::Import { generation };
    let import = Packet { number: 3, body };
    let (flooded, _exporter, waiting) = as_user(MAKER, MAKER, || {
        let mut exporter = client(&keeper.socket());
        export_in_parts(&mut exporter, generation);
        let sockets = [0; 2].map(|_| introduced_with(keeper, &[]));
        let [flooded, waiting] = sockets;
        (0..FLOOD).for_each(|_| wire::send(&flooded, &import, &[]).unwrap());
        (flooded, exporter, waiting)
    });
    // Others are served all the same, the keeper's own user and another one.
    let mut own = keeper.client();
    make(&mut own, "weights/a", b"a").unwrap();
    has(&mut own, "weights/a", b"a");
    as_user(READER, READER, || {
        has(&mut client(&keeper.socket()), "weights/a", b"a");
    });
    // It has no more of it by another connection, and the keeper does not go round meanwhile.
    wire::send(&waiting, &import, &[]).unwrap();
    let pid = keeper.status().pid;
    let before = processor_time(pid);
    std::thread::sleep(Duration::from_millis(500));
    let took = processor_time(pid) - before;
    assert!(took < Duration::from_millis(250), "{took:?}");
    stop(pid);
    assert_eq!(wire::length_of_next(&waiting), Err(Broken::Later));
    let mut room = vec![0; wire::MOST_BYTES];
    let mut read = |socket: &OwnedFd, now| {
        let read = wire::receive_bytes(socket, &mut room, now);
        read.map(|(_, beside)| beside.len())
    };
    let mut got = 0;
    while let Ok(more) = read(&flooded, true) {
        got += more;
    }
    assert!(got > MOST / 2 && got <= MOST, "{got} of {MOST}");
    // Once it reads it has all that it asked for.
    signal(pid, Signal::CONT);
    while got < FLOOD * MOST_PARTS {
        got += read(&flooded, false).unwrap();
    }
    assert_eq!(read(&waiting, false), Ok(MOST_PARTS));
}

/// What waits goes with who waits.
#[test]
fn who_goes_while_its_answers_wait_leaves_nothing() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let generation = Generation([8; 16]);
    let body = Request::Import { generation };
    let import = Packet { number: 3, body };
    let (mut exporter, waiting) = as_user(MAKER, MAKER, || {
        let mut exporter = client(&keeper.socket());
        export_in_parts(&mut exporter, generation);
        let sockets = [0; 8].map(|_| introduced_with(&keeper, &[]));
        for socket in &sockets {
            (0..4).for_each(|_| wire::send(socket, &import, &[]).unwrap());
        }
        (exporter, sockets)
    });
    keeper.settle("nobody has opened it", |status| status.references > 8);
    drop(waiting);
    keeper.settle("it is open", |status| status.clients == 2);
    exporter
        .call(Request::Withdraw { generation }, &[])
        .unwrap();
    drop(exporter);
}
