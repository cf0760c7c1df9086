//! Clients that talk nonsense, too much, or not at all: they are told so, and
//! nobody else is slowed.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use memcuda::share::client::Client;
use memcuda::share::protocol::{
    Code, Generation, Hello, Lease, MOST_PARTS, Mode, Packet, Reply, Request,
};
use memcuda::share::wire::{self, Broken};
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, sendmsg, socket_with,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::requests::*;
use crate::support::*;

/// A socket that has said nothing yet.
pub fn raw(keeper: &Keeper) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(LONG)).unwrap();
    connect(&socket, &SocketAddrUnix::new(keeper.socket()).unwrap()).unwrap();
    socket
}

pub fn answer(socket: &OwnedFd) -> Result<Packet<Reply>, Broken> {
    let mut room = vec![0; wire::MOST_BYTES];
    let (bytes, _) = wire::receive_bytes(socket, &mut room, false)?;
    wire::understand(bytes)
}

/// Greets and introduces itself.
pub fn introduced(keeper: &Keeper) -> OwnedFd {
    introduced_with(keeper, &[])
}

/// The same, and claims to hold these.
pub fn introduced_with(keeper: &Keeper, leases: &[Lease]) -> OwnedFd {
    let socket = raw(keeper);
    wire::send_bytes(&socket, &Hello::OURS.to_bytes(), &[]).unwrap();
    let body = Request::Introduce {
        pid: std::process::id(),
        command: "raw".to_owned(),
        leases: leases.to_vec(),
        more: false,
    };
    wire::send(&socket, &Packet { number: 1, body }, &[]).unwrap();
    assert!(matches!(
        answer(&socket).unwrap().body,
        Reply::Welcome { .. }
    ));
    socket
}

pub fn refused(socket: &OwnedFd) -> (u32, Code) {
    let packet = answer(socket).unwrap();
    match packet.body {
        Reply::Failed { code, message } => {
            assert!(!message.is_empty() && !message.contains('\n') && message.len() < 300);
            (packet.number, code)
        }
        reply => panic!("{reply:?}"),
    }
}

/// A name that one begins to make.
fn begun(socket: &OwnedFd) -> Generation {
    let (number, body) = (2, open("a", Mode::Create, 10));
    wire::send(socket, &Packet { number, body }, &[]).unwrap();
    match answer(socket).unwrap().body {
        Reply::Make { generation } => generation,
        reply => panic!("{reply:?}"),
    }
}

fn is_closed(socket: &OwnedFd) {
    assert_eq!(answer(socket).unwrap_err(), Broken::Closed);
}

/// As where the host has no file to spare: whoever waits at the door wakes it again and
/// again.
#[test]
fn a_keeper_without_a_descriptor_to_spare_sleeps() {
    let keeper = Keeper::start(&[]);
    let pid = keeper.status().pid;
    let process = Pid::from_raw(pid as i32);
    let few = Rlimit {
        current: Some(4),
        ..getrlimit(Resource::Nofile)
    };
    let before = prlimit(process, Resource::Nofile, few).unwrap();
    let waiting = [raw(&keeper), raw(&keeper)];
    let began = processor_time(pid);
    std::thread::sleep(Duration::from_millis(1000));
    let took = processor_time(pid) - began;
    prlimit(process, Resource::Nofile, before).unwrap();
    assert!(took < Duration::from_millis(500), "{took:?}");
    drop(waiting);
    keeper.status();
}

#[test]
fn nonsense_is_answered_and_where_it_is_no_client_closed() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"mcud", &[0; 8]] {
        let socket = raw(&keeper);
        wire::send_bytes(&socket, bytes, &[]).unwrap();
        assert_eq!(refused(&socket), (1, Code::Invalid));
        is_closed(&socket);
    }
    let socket = raw(&keeper);
    let hello = Hello {
        oldest: 900,
        newest: 901,
    };
    // A client does not wait for an answer to its greeting.
    wire::send_bytes(&socket, &hello.to_bytes(), &[]).unwrap();
    for _ in 0..20 {
        let _ = wire::send_bytes(&socket, &[1; 100], &[]);
    }
    assert_eq!(refused(&socket), (1, Code::Version));
    is_closed(&socket);
    // A request before the introduction.
    let socket = raw(&keeper);
    wire::send_bytes(&socket, &Hello::OURS.to_bytes(), &[]).unwrap();
    let body = Request::Status;
    wire::send(&socket, &Packet { number: 5, body }, &[]).unwrap();
    assert_eq!(refused(&socket), (5, Code::Invalid));
    is_closed(&socket);
    // Half a packet of a client that is known: the next one is heard.
    let socket = introduced(&keeper);
    let whole = postcard::to_allocvec(&Packet {
        number: 6,
        body: open("a", Mode::Create, 4096),
    })
    .unwrap();
    wire::send_bytes(&socket, &whole[..whole.len() / 2], &[]).unwrap();
    assert_eq!(refused(&socket), (6, Code::Invalid));
    wire::send_bytes(&socket, &whole, &[]).unwrap();
    assert!(matches!(answer(&socket).unwrap().body, Reply::Make { .. }));
    // But not for ever.
    for _ in 0..40 {
        let _ = wire::send_bytes(&socket, &[7, 255, 255, 255], &[]);
    }
    let mut answers = 0;
    while let Ok(packet) = answer(&socket) {
        assert!(matches!(packet.body, Reply::Failed { .. }));
        answers += 1;
    }
    assert!(answers < 40);
    drop(socket);
    keeper.settle_empty(fresh);
}

#[test]
fn a_packet_of_ten_mebibytes_reaches_nobody() {
    let keeper = Keeper::start(&[]);
    let mut other = keeper.client();
    let socket = introduced(&keeper);
    // As much as the system lets anybody send; what is more it refuses itself.
    set_socket_send_buffer_size(&socket, 32 << 20).unwrap();
    let huge = vec![1; 10 << 20];
    let mut none = SendAncillaryBuffer::default();
    let mut sent = Err(rustix::io::Errno::MSGSIZE);
    for bytes in [10 << 20, 400 << 10, 100 << 10] {
        sent = sendmsg(
            &socket,
            &[IoSlice::new(&huge[..bytes])],
            &mut none,
            SendFlags::NOSIGNAL,
        );
        if sent.is_ok() {
            break;
        }
    }
    assert!(sent.is_ok(), "{sent:?}");
    assert_eq!(refused(&socket).1, Code::Invalid);
    is_closed(&socket);
    make(&mut other, "a", b"").unwrap();
}

#[test]
fn who_says_nothing_is_sent_away_and_slows_nobody() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let silent: Vec<_> = (0..50).map(|_| raw(&keeper)).collect();
    let half = raw(&keeper);
    wire::send_bytes(&half, &Hello::OURS.to_bytes(), &[]).unwrap();
    let mut other = keeper.client();
    let begun = Instant::now();
    make(&mut other, "a", b"").unwrap();
    // Those who say nothing have five seconds for it.
    assert!(begun.elapsed() < Duration::from_secs(5));
    for socket in silent.iter().chain([&half]) {
        assert_eq!(refused(socket), (1, Code::Invalid));
        is_closed(socket);
    }
    drop(other);
    keeper.settle_empty(fresh);
}

#[test]
fn who_floods_without_reading_is_dropped_and_slows_nobody() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let flood = introduced(&keeper);
    let socket = keeper.socket();
    // One that does not read, one that does: neither is in the others' way.
    let flooder = std::thread::spawn(move || {
        let list = Request::List {
            after: None,
            all: true,
        };
        let packet = Packet {
            number: 9,
            body: list,
        };
        let mut sent = 0;
        while wire::send(&flood, &packet, &[]).is_ok() {
            sent += 1;
        }
        sent
    });
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut client = client(&socket);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                client.call(Request::Status, &[]).unwrap();
            }
        })
    };
    let mut other = keeper.client();
    let begun = Instant::now();
    for n in 0..200 {
        make(&mut other, &format!("n{n}"), b"").unwrap();
    }
    assert!(begun.elapsed() < LONG);
    let sent = flooder.join().unwrap();
    assert!(sent > 10, "{sent}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().unwrap();
    drop(other);
    keeper.settle_empty(fresh);
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let socket = introduced(&keeper);
    let null = std::fs::File::open("/dev/null").unwrap();
    let many = vec![null.as_fd(); MOST_PARTS];
    for number in 2..40 {
        let body = Request::Status;
        wire::send(&socket, &Packet { number, body }, &many).unwrap();
        assert!(matches!(answer(&socket).unwrap().body, Reply::Status(_)));
        wire::send_bytes(&socket, &[2, 200], &many[..1]).ok();
        assert_eq!(refused(&socket).1, Code::Invalid);
        if number > 10 {
            break;
        }
    }
    // A commit with two for one, and one for nobody's name.
    let (number, generation) = (50, begun(&socket));
    for (generation, descriptors) in [(generation, 2), (generation, 0), (Generation([4; 16]), 1)] {
        let body = commit_of(generation, 4096);
        wire::send(&socket, &Packet { number, body }, &many[..descriptors]).unwrap();
        assert!(matches!(refused(&socket).1, Code::Invalid | Code::NotFound));
    }
    drop(socket);
    keeper.settle_empty(fresh);
}

/// The keeper would hold the connection open itself, for as long as it holds the name.
#[test]
fn a_connection_that_is_given_as_memory_is_refused_and_ends() {
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let socket = introduced(&keeper);
    let (number, body) = (2, commit_of(begun(&socket), 4096));
    wire::send(&socket, &Packet { number, body }, &[socket.as_fd()]).unwrap();
    assert_eq!(refused(&socket).1, Code::Invalid);
    drop(socket);
    keeper.settle_empty(fresh);
}

#[test]
fn when_descriptors_run_out_it_is_said_and_what_is_there_works_on() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("keeper.sock");
    // Soft and hard limit: the keeper raises the one to the other.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 200 && exec \"$@\"", "sh"]);
    limited
        .arg(env!("CARGO_BIN_EXE_memcuda"))
        .args(["keeper", "--socket"])
        .arg(&socket);
    assert!(limited.status().unwrap().success());
    let mut first = client(&socket);
    let mut made = 0;
    let refused = loop {
        match make(&mut first, &format!("n{made}"), b"x") {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 200);
    };
    assert_eq!(code(Err::<(), _>(refused)), Code::Unavailable);
    assert!(made > 50, "{made}");
    let mut others: Vec<_> = (0..10).map(|_| client(&socket)).collect();
    for other in &mut others {
        attach(other, "n0").unwrap();
    }
    // Connections run out before descriptors do, and one that ends makes room.
    let refused = loop {
        match Client::connect(&socket, 1, "test", &[]) {
            Ok((other, _)) => others.push(other),
            Err(error) => break error,
        }
        assert!(others.len() < 200);
    };
    assert_eq!(code(Err::<(), _>(refused)), Code::Unavailable);
    others.pop();
    wait_for("room", || crate::support::connect(&socket, &[]));
    first.call(Request::Stop { force: true }, &[]).unwrap();
}
