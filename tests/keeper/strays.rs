//! What clients leave behind when they go: descriptors that take long to close, and
//! answers that they have not read.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use memcuda::share::protocol::{Code, Generation, Mode, Packet, Request};
use memcuda::share::wire;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;

use crate::faults::{introduced, raw, refused};
use crate::requests::{export, memory, open, spec};
use crate::support::{Keeper, LONG, signal, stop, wait_for};

/// A TCP connection with so much to be read that who closes it waits for a minute.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    here.set_nonblocking(true).unwrap();
    while here.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&here, Some(Duration::from_secs(60))).unwrap();
    (here, there)
}

/// Does something while the keeper does nothing.
fn meanwhile(keeper: &Keeper, work: impl FnOnce()) {
    let pid = keeper.status().pid;
    stop(pid);
    work();
    signal(pid, Signal::CONT);
}

fn say(socket: &OwnedFd, number: u32, body: Request) {
    wire::send(socket, &Packet { number, body }, &[]).unwrap();
}

#[test]
fn what_takes_long_to_close_slows_nobody() {
    let keeper = Keeper::start(&[]);
    let mut other = keeper.client();
    type Connect = fn(&Keeper) -> OwnedFd;
    let connections: [Connect; 3] = [introduced, introduced, raw];
    for (connected, asked) in connections.into_iter().zip([0, 50, 0]) {
        let socket = &connected(&keeper);
        let mut unread = Vec::new();
        meanwhile(&keeper, || {
            for number in 1..=asked {
                say(socket, number, Request::Status);
            }
            for number in [51, 52, 53] {
                let (descriptor, there) = lingering();
                let body = Request::Status;
                let packet = Packet { number, body };
                wire::send(socket, &packet, &[descriptor.as_fd()]).unwrap();
                unread.push(there);
            }
        });
        for _ in 0..20 {
            let began = Instant::now();
            other.call(Request::Status, &[]).unwrap();
            let waited = began.elapsed();
            assert!(waited < LONG, "{asked}: {waited:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        if asked == 0 {
            assert_eq!(refused(socket).1, Code::Invalid);
        }
    }
}

/// Nanoseconds that the loop of a process was on a processor: its first thread.
fn looped(pid: u32) -> u64 {
    let spent = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    spent.split(' ').next().unwrap().parse().unwrap()
}

/// Its pages are freed with the last descriptor, which takes as long as they are many.
#[test]
fn what_was_the_last_of_a_large_file_slows_nobody() {
    const BYTES: u64 = 1 << 30;
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let export = Request::Export {
        generation: Generation([8; 16]),
        spec: spec(4096),
        offset: 0,
        parts: vec![4096],
        total: 1,
    };
    // It is held for a while; it is refused.
    for body in [export, Request::Status] {
        let both = [keeper.status().pid, keeper.status().standby];
        let file = memory(b"", 4096);
        fallocate(&file, FallocateFlags::empty(), 0, BYTES).unwrap();
        let socket = introduced(&keeper);
        let before = both.map(looped);
        meanwhile(&keeper, || {
            let packet = Packet { number: 2, body };
            wire::send(&socket, &packet, &[file.as_fd()]).unwrap();
            drop(file);
        });
        wait_for("the refusal", || wire::length_of_next(&socket).ok());
        drop(socket);
        keeper.settle_empty(fresh);
        for (pid, before) in both.into_iter().zip(before) {
            let spent = Duration::from_nanos(looped(pid) - before);
            assert!(spent < Duration::from_millis(50), "{spent:?}");
        }
    }
}

/// As one that gave a keeper up which then answered.
#[test]
fn who_leaves_an_answer_unread_is_heard_to_the_end() {
    let keeper = Keeper::start(&[]);
    let socket = introduced(&keeper);
    say(&socket, 2, open("a", Mode::Create, 10));
    wait_for("the answer", || wire::length_of_next(&socket).ok());
    meanwhile(&keeper, || {
        say(&socket, 3, Request::ComeBack);
        drop(socket);
    });
    let left = keeper.settle("the client is not gone", |status| status.clients == 1);
    assert_eq!((left.names, left.references), (1, 1));
}

/// As one looks like the end.
#[test]
fn what_is_behind_packets_of_no_bytes_slows_nobody() {
    let keeper = Keeper::start(&[]);
    let mut other = keeper.client();
    let socket = introduced(&keeper);
    let mut unread = Vec::new();
    meanwhile(&keeper, || {
        for number in 1..=3 {
            let (descriptor, there) = lingering();
            wire::send_bytes(&socket, &[], &[]).unwrap();
            let body = Request::Status;
            wire::send(&socket, &Packet { number, body }, &[descriptor.as_fd()]).unwrap();
            unread.push(there);
        }
    });
    for _ in 0..20 {
        let began = Instant::now();
        other.call(Request::Status, &[]).unwrap();
        let waited = began.elapsed();
        assert!(waited < LONG, "{waited:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(refused(&socket).1, Code::Invalid);
}

/// The kernel tells of the end of a connection as long as anybody listens to it.
#[test]
fn a_connection_that_ended_with_an_answer_unread_costs_nothing() {
    let keeper = Keeper::start(&[]);
    let mut exporter = keeper.client();
    let generation = Generation([8; 16]);
    export(&mut exporter, generation);
    let socket = introduced(&keeper);
    say(&socket, 2, Request::Import { generation });
    wait_for("the answer", || wire::length_of_next(&socket).ok());
    wire::send_bytes(&socket, &[0; 9], &[]).unwrap();
    keeper.settle("it is not sent away", |status| status.clients == 2);
    let pid = keeper.status().pid;
    let before = looped(pid);
    std::thread::sleep(Duration::from_millis(500));
    let spent = Duration::from_nanos(looped(pid) - before);
    assert!(spent < Duration::from_millis(20), "{spent:?}");
}
