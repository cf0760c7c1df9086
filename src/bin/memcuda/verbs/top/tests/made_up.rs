//! Processes, a picture and names, made up.

use memcuda::names::{Backend, Name};
use memcuda::picture::{Block, Chunk, Device, Free, Owner, Picture, Piece, Pool, State, Stitch};
use memcuda::share::protocol::{self, DeviceId, Entry, Generation, Holder, Persist, Process, Spec};
use memcuda::stats_page::Counters;

use crate::survey::{Rates, Row, Seen};

const GIB: u64 = 1 << 30;

fn row(pid: u32, command: &str, ordinal: u64, live: u64, physical: u64) -> Row {
    let mut counters = Counters {
        ordinal,
        ..Counters::default()
    };
    let pool = &mut counters.pool;
    (pool.live_bytes, pool.physical_bytes) = (live, physical);
    pool.granted_bytes = live + live / 1000;
    pool.idle_bytes = physical - pool.granted_bytes;
    pool.peak_live_bytes = live + live / 10;
    pool.peak_physical_bytes = physical;
    (pool.chunks, pool.stitches, pool.stalls) = (physical >> 26, 17, 2);
    Row {
        pid,
        page: u64::from(pid),
        command: command.to_owned(),
        counters,
        rates: Some(Rates {
            requests_rate: 12_345.6,
            hits_rate: 12_300.0,
            stitches_rate: 0.4,
            driver_time_rate: 0.0213,
        }),
    }
}

/// Chunks of 64 MiB: most of them blocks, some shared, pending, idle.
pub fn picture(chunks: u32) -> Picture {
    let bytes = 64 << 20;
    let address = |at: u32| GIB + u64::from(at) * bytes;
    let free = |at: u32| match at % 9 {
        7 => vec![Free {
            start: 0,
            bytes,
            pending: at.is_multiple_of(2),
        }],
        8 => vec![Free {
            start: bytes / 2,
            bytes: bytes / 2,
            pending: false,
        }],
        _ => Vec::new(),
    };
    let block = |at: u32| Block {
        address: address(at),
        bytes: if at % 9 == 8 { bytes / 2 } else { bytes },
        asked_bytes: bytes / 2,
        state: State::Live,
        owner: Owner::MemoryPool,
        small: false,
        exported: at % 9 == 3,
        id: 1,
        stream: None,
    };
    let pool = Pool {
        chunks: (0..chunks)
            .map(|id| Chunk {
                page: false,
                id,
                bytes,
                free: free(id),
            })
            .collect(),
        stitches: vec![Stitch {
            id: 0,
            address: address(0),
            bytes: u64::from(chunks) * bytes,
            pieces: (0..chunks)
                .map(|chunk| Piece {
                    offset: u64::from(chunk) * bytes,
                    chunk,
                })
                .collect(),
        }],
        blocks: (0..chunks).filter(|at| at % 9 != 7).map(block).collect(),
        ..Pool::default()
    };
    let device = Device {
        name: "NVIDIA H200".to_owned(),
        total_bytes: 140 * GIB,
        limit_bytes: Some(64 * GIB),
        pool,
        ..Device::default()
    };
    Picture {
        devices: vec![device],
        ..Picture::default()
    }
}

pub fn named(number: u8, name: &str, holders: &[u32]) -> Entry {
    let process = |pid| Process {
        pid,
        started: 1,
        uid: 1000,
        gid: 100,
        command: "python3".to_owned(),
    };
    let holders = holders.iter().map(|&pid| Holder {
        process: process(pid),
        count: 1,
    });
    Entry {
        name: Some(Name::new(name).unwrap()),
        generation: Generation([number; 16]),
        spec: Spec {
            bytes: u64::from(number) << 28,
            dtype: None,
            shape: Vec::new(),
            device: DeviceId([0; 16]),
            ordinal: 0,
            backend: Backend::Vmm,
        },
        mapped: u64::from(number) << 28,
        offset: 0,
        state: protocol::State::Ready,
        version: 0,
        persist: Persist::No,
        legacy: Vec::new(),
        maker: process(4000),
        references: holders.len() as u64,
        holders: holders.collect(),
        created_us: 0,
        changed_us: 0,
    }
}

pub fn seen() -> Seen {
    let mut rows = vec![
        row(4711, "python3", 0, 21 * GIB, 24 * GIB),
        row(4711, "python3", 1, 20 * GIB, 24 * GIB),
        row(4980, "vllm-worker", 2, 60 * GIB, 61 * GIB),
        row(2_097_151, "a-long-command-", 3, 1000 << 20, 1023 << 20),
    ];
    // Nobody asked for these with cudaMalloc: they are as good as any others.
    let named = &mut rows[2].counters.pool;
    named.shared_bytes = 30 * GIB;
    named.live_bytes -= 30 * GIB;
    Seen {
        rows,
        unread: vec![(77, "statistics page of version 3".to_owned())],
    }
}
