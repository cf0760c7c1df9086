//! A process shows its picture at its socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use memcuda_core::picture::ask::{DOORS, Unanswered, ask};
use memcuda_core::picture::layout::Layout;
use memcuda_core::picture::{Owner, Picture, State};

use crate::holder::{Holder, MIB, command, command_with_local, until};

/// The sockets of a process, one a device that it uses.
fn doors(pid: u32) -> Vec<String> {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap();
    let names = list
        .lines()
        .filter_map(|line| Some(line.split_once('@')?.1));
    let own = format!("/{pid}-");
    let of_it = |name: &&str| name.starts_with(DOORS) && name.contains(&own);
    names.filter(of_it).map(str::to_owned).collect()
}

fn enter(pid: u32) -> UnixStream {
    let name = doors(pid).pop().expect("it has a pool");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    UnixStream::connect_addr(&address).unwrap()
}

/// What a process shows.
pub fn picture(holder: &Holder) -> Picture {
    ask(|| Ok(enter(holder.pid()))).unwrap()
}

#[test]
fn a_process_shows_what_it_holds() {
    let mut holder = Holder::start(&mut command());
    assert!(doors(holder.pid()).is_empty(), "it has no pool yet");
    let large = holder.alloc(&format!("alloc {} 1", 40 * MIB));
    let small = holder.alloc("alloc 1000 2");
    let plain = holder.alloc(&format!("malloc {}", 4 * MIB));
    let gone = holder.alloc(&format!("malloc {}", 6 * MIB));
    assert_eq!(holder.say("free"), "0");

    let picture = picture(&holder);
    assert_eq!(picture.process.pid, holder.pid());
    assert!(picture.process.command.ends_with("holder"));
    assert!(picture.process.started_ticks > 0 && picture.taken_us > 0);
    let [device] = picture.devices.as_slice() else {
        panic!("{} devices", picture.devices.len());
    };
    assert_eq!(device.name, "memcuda simulated GPU");
    assert!(device.uuid.starts_with("GPU-"), "{}", device.uuid);
    assert_eq!((device.total_bytes, device.limit_bytes), (1 << 30, None));
    let block = |at| device.pool.blocks.iter().find(|b| b.address == at).unwrap();
    let facts = |at| (block(at).state, block(at).asked_bytes, block(at).owner);
    assert_eq!(facts(large), (State::Live, 40 * MIB, Owner::MemoryPool));
    assert_eq!(facts(small), (State::Live, 1000, Owner::MemoryPool));
    assert_eq!(facts(plain), (State::Live, 4 * MIB, Owner::Context));
    assert_eq!(block(gone).state, State::Idle);
    let stream = |at| device.pool.stream(block(at));
    assert!(stream(large).is_some() && stream(large) != stream(small));
    assert_eq!(stream(plain), None);
    let layout = Layout::of(&device.pool);
    let bytes: u64 = layout.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(bytes, device.pool.counter("physical_bytes"));
    assert_eq!(holder.end(), "");
}

#[test]
fn a_process_that_is_looked_at_works_on() {
    let mut holder = Holder::start(&mut command());
    for n in 0..200 {
        let at = holder.alloc(&format!("alloc {} {}", (n % 7 + 1) * 100_000, n % 4));
        let picture = picture(&holder);
        let blocks = &picture.devices[0].pool.blocks;
        let found = blocks.iter().find(|block| block.address == at).unwrap();
        assert_eq!(found.state, State::Live);
        if n % 3 == 0 {
            assert_eq!(holder.say("free"), "0");
        }
    }
    assert_eq!(holder.end(), "");
}

/// Descriptors of a process.
fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

#[test]
fn who_hangs_up_or_talks_nonsense_costs_the_process_nothing() {
    use std::io::{Read, Write};
    let mut holder = Holder::start(&mut command());
    holder.alloc("alloc 1000 0");
    let before = open_files(holder.pid());
    let zeros = [0_u8; 8];
    for words in [&zeros[..], &[], b"nonsense", b"\0\0\0\0\0\0\0\0nonsense"] {
        let mut socket = enter(holder.pid());
        socket.write_all(words).unwrap();
    }
    let mut silent = enter(holder.pid());
    silent.write_all(&[zeros, *b"nonsense"].concat()).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "no answer");
    let _ = picture(&holder);
    // It closes what it sent a moment after that has arrived.
    until("it closes", || open_files(holder.pid()) == before);
    assert_eq!(holder.end(), "");
}

#[test]
fn a_process_that_ends_meanwhile_is_gone() {
    let mut holder = Holder::start(&mut command());
    holder.alloc("alloc 1000 0");
    holder.stop();
    let socket = enter(holder.pid());
    let asking = std::thread::spawn(move || ask(|| socket.try_clone()));
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    holder.signal(libc::SIGKILL);
    assert_eq!(asking.join().unwrap(), Err(Unanswered::Gone));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn thread_local_memory_leaves_the_thread_its_stack() {
    // The program's, and what is kept for files that it loads.
    let kept = |bytes| format!("glibc.rtld.optional_static_tls={bytes}");
    for (local, kept) in [
        (240_000, kept(2000)),
        (1, kept(240_000)),
        (1, kept(900_000)),
    ] {
        let mut command = command_with_local(local);
        let mut holder = Holder::start(command.env("GLIBC_TUNABLES", kept));
        let at = holder.alloc("alloc 1000 1");
        let blocks = &picture(&holder).devices[0].pool.blocks;
        assert!(blocks.iter().any(|b| b.address == at));
        holder.end();
    }
}
