//! Random bytes and mutated packets against a keeper that serves: it answers or
//! closes, and lives on.

use std::os::fd::{AsFd, OwnedFd};

use memcuda::names::Dtype;
use memcuda::share::protocol::{Generation, Mode, Packet, Persist, Request};
use memcuda::share::wire;

use crate::faults::{introduced, raw};
use crate::random::Random;
use crate::requests::*;
use crate::support::*;

/// One request of each kind.
fn requests(generation: Generation) -> Vec<Request> {
    let leases = vec![lease(generation, 3)];
    let mut typed = spec(24);
    typed.dtype = Some(Dtype::F32);
    typed.shape = vec![2, 3];
    vec![
        Request::Introduce {
            pid: 7,
            command: "fuzz".to_owned(),
            leases: leases.clone(),
            more: true,
        },
        Request::Leases {
            leases,
            more: false,
        },
        open("fuzz/a", Mode::CreateOrAttach, 24),
        Request::Open {
            name: name("fuzz/b"),
            mode: Mode::Create,
            spec: typed.clone(),
            write: true,
            hidden: true,
        },
        Request::Commit {
            generation,
            mapped: 4096,
            legacy: vec![1; 64],
        },
        Request::Abort { generation },
        Request::Seal { generation },
        Request::Release { generation },
        Request::Persist {
            name: name("fuzz/a"),
            persist: Persist::Until(5),
        },
        Request::Delete {
            name: name("fuzz/a"),
            generation: Some(generation),
        },
        Request::Show {
            name: name("fuzz/a"),
        },
        Request::List {
            after: None,
            all: true,
        },
        Request::Timeline { generation },
        Request::Export {
            generation,
            spec: typed,
            offset: 4,
            parts: vec![64, 64],
            total: 3,
        },
        Request::ExportMore {
            generation,
            parts: vec![64],
        },
        Request::Import { generation },
        Request::Parts {
            generation,
            from: 1,
        },
        Request::Withdraw { generation },
        Request::GiveUp {
            parts: vec![(generation, 0), (generation, u32::MAX)],
        },
        Request::Status,
        Request::Collect {
            dry: true,
            kept: true,
        },
    ]
}

/// Reads what has come; `false` where the keeper closed the connection.
fn drain(socket: &OwnedFd, room: &mut [u8]) -> bool {
    loop {
        match wire::receive_bytes(socket, room, true) {
            Ok(_) => {}
            Err(wire::Broken::Later) => return true,
            Err(_) => return false,
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.index(4) {
        let at = random.index(bytes.len().max(1));
        match random.index(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.index(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 127, 128, 255][random.index(5)],
            2 => bytes.truncate(at.max(1)),
            3 => bytes.insert(at.min(bytes.len()), random.index(256) as u8),
            4 => bytes.extend((0..random.index(300)).map(|n| n as u8)),
            _ => {
                let tail = bytes.split_off(at.min(bytes.len()));
                bytes.splice(0..0, tail);
            }
        }
    }
    bytes.truncate(wire::MOST_BYTES);
    if bytes.is_empty() {
        bytes.push(0);
    }
}

/// A keeper ends, or is started anew, where its own user says so.
fn ends_it(bytes: &[u8]) -> bool {
    let packet = wire::understand::<Packet<Request>>(bytes);
    packet.is_ok_and(|packet| matches!(packet.body, Request::Stop { .. } | Request::Restart))
}

/// `MEMCUDA_FUZZ_PACKETS` makes it longer.
#[test]
fn no_packet_harms_the_keeper() {
    let packets = std::env::var("MEMCUDA_FUZZ_PACKETS");
    let packets = packets.map_or(20_000, |packets| packets.parse().expect("a number"));
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let before = keeper.status();
    let mut honest = keeper.client();
    let kept = make(&mut honest, "kept", b"kept").unwrap();
    let mut random = Random::new(std::process::id().into());
    let file = memory(b"", 4096);
    let mut room = vec![0; wire::MOST_BYTES];
    let mut socket = introduced(&keeper);
    let mut closed = 0;
    for packet in 0..packets {
        let mut generation = Generation([random.index(4) as u8; 16]);
        if random.index(10) == 0 {
            generation = kept;
        }
        let requests = requests(generation);
        let number = [1, 1, 0, u32::MAX][random.index(4)].max(u32::from(random.index(8) > 0));
        let body = requests[random.index(requests.len())].clone();
        let mut bytes = postcard::to_allocvec(&Packet { number, body }).unwrap();
        match random.index(4) {
            0 => {}
            1 => {
                bytes = (0..random.index(200) + 1)
                    .map(|_| random.index(256) as u8)
                    .collect()
            }
            _ => mutate(&mut bytes, &mut random),
        }
        if ends_it(&bytes) {
            continue;
        }
        let beside = vec![file.as_fd(); [0, 0, 1, 2, 3, 60][random.index(6)]];
        let sent = wire::send_bytes(&socket, &bytes, &beside);
        if sent.is_err() || !drain(&socket, &mut room) {
            closed += 1;
            // Some begin with nonsense.
            socket = if random.index(3) == 0 {
                raw(&keeper)
            } else {
                introduced(&keeper)
            };
        }
        if packet % 1000 == 0 {
            has(&mut honest, "kept", b"kept");
        }
    }
    println!("{packets} packets, {closed} connections closed");
    drop(socket);
    let after = keeper.status();
    assert_eq!(
        (after.pid, after.restarts),
        (before.pid, 0),
        "it was started anew"
    );
    drop(honest);
    // Some packets persist names.
    keeper.settle("references stay", |status| status.references == 0);
    keeper.collect();
    keeper.settle_empty(fresh);
}
