//! Pictures for the tests: one that is right, and any number that need not be.

use super::*;
use crate::random::Random;

/// Three chunks of 100 bytes. The first stitch shows the first two, the second
/// one shows the second and the third; a block each begins in the first, ends
/// the second chunk through the second stitch, and fills the third.
pub fn example() -> Picture {
    let chunk = |id, free: &[Free]| Chunk {
        id,
        bytes: 100,
        page: false,
        free: free.to_vec(),
    };
    let free = |start, bytes, pending| Free {
        start,
        bytes,
        pending,
    };
    let stitch = |id, address, chunks: [u32; 2]| Stitch {
        id,
        address,
        bytes: 200,
        pieces: vec![
            Piece {
                offset: 0,
                chunk: chunks[0],
            },
            Piece {
                offset: 100,
                chunk: chunks[1],
            },
        ],
    };
    let block = |address, bytes, asked_bytes, state, id, stream| Block {
        address,
        bytes,
        asked_bytes,
        state,
        owner: Owner::MemoryPool,
        small: false,
        exported: false,
        id,
        stream,
    };
    let pool = Pool {
        held_ns: 1200,
        counters: [("physical_bytes", 300), ("live_bytes", 155)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        chunks: vec![
            chunk(0, &[free(60, 40, true)]),
            chunk(3, &[]),
            chunk(5, &[]),
        ],
        stitches: vec![stitch(0, 0x1000, [0, 3]), stitch(1, 0x9000, [3, 5])],
        blocks: vec![
            block(0x1000, 60, 55, State::Live, 1, Some(0)),
            block(0x9000, 50, 0, State::Idle, 0, None),
            block(0x9064, 100, 100, State::Live, 2, Some(0)),
        ],
        streams: vec![Stream {
            context: 0x55,
            stream: 0x7f00,
            thread: 0,
        }],
        before: vec![
            Moment {
                before_us: 2_000_000,
                used_bytes: 100,
                physical_bytes: 200,
                requests: 1,
                failures: 0,
            },
            Moment {
                used_bytes: 210,
                physical_bytes: 300,
                requests: 2,
                ..Moment::default()
            },
        ],
    };
    Picture {
        process: Process {
            pid: 4711,
            started_ticks: 99,
            command: "python train.py".to_owned(),
            library: "0.1.0".to_owned(),
        },
        taken_us: 1_700_000_000_000_000,
        refused: None,
        devices: vec![Device {
            ordinal: 0,
            uuid: "GPU-1".to_owned(),
            name: "a GPU".to_owned(),
            total_bytes: 1 << 30,
            limit_bytes: None,
            pool,
        }],
        names: vec![Named {
            name: "weights/0".to_owned(),
            device: 0,
            address: 0x9064,
            bytes: 100,
            write: true,
            generation: "00".repeat(16),
        }],
        recording: "/var/tmp/t".to_owned(),
    }
}

impl Random {
    fn few<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(5)).map(|_| make(self)).collect()
    }

    /// A number, most often of a kind that others meet.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => self.next(),
            1 => u64::MAX - self.below(3),
            2 => 0,
            _ => self.below(8) * 50,
        }
    }
}

/// A picture whose parts need not fit together.
pub fn random_picture(random: &mut Random) -> Picture {
    let mut picture = example();
    picture.taken_us = random.next();
    let device = &mut picture.devices[0];
    device.total_bytes = random.number();
    let pool = &mut device.pool;
    pool.before = random.few(|random| Moment {
        before_us: random.number(),
        used_bytes: random.number(),
        physical_bytes: random.number(),
        requests: random.number(),
        failures: random.number(),
    });
    if random.below(4) > 0 {
        pool.chunks = random.few(|random| Chunk {
            page: random.below(2) == 0,
            id: random.below(4) as u32,
            bytes: random.number(),
            free: random.few(|random| Free {
                start: random.number(),
                bytes: random.number(),
                pending: random.below(2) == 0,
            }),
        });
    }
    if random.below(4) > 0 {
        pool.stitches = random.few(|random| Stitch {
            id: random.below(4) as u32,
            address: random.number(),
            bytes: random.number(),
            pieces: random.few(|random| Piece {
                offset: random.number(),
                chunk: random.below(4) as u32,
            }),
        });
    }
    if random.below(4) > 0 {
        let states = [State::Live, State::Attached, State::Pending, State::Idle];
        pool.blocks = random.few(|random| Block {
            address: random.number(),
            bytes: random.number(),
            asked_bytes: random.number(),
            state: states[random.below(4) as usize],
            owner: Owner::Context,
            small: random.below(2) == 0,
            exported: random.below(2) == 0,
            id: random.number(),
            stream: (random.below(2) == 0).then(|| random.below(3) as u32),
        });
    }
    picture
}

#[test]
fn pages_beside_a_pool_go_behind_it_and_their_moments_are_one() {
    let mut pool = example().devices.remove(0).pool;
    let mut pages = Pool {
        chunks: vec![Chunk {
            id: 0,
            bytes: 12,
            page: true,
            free: Vec::new(),
        }],
        stitches: vec![Stitch {
            id: 0,
            address: 0x500,
            bytes: 12,
            pieces: vec![Piece {
                offset: 0,
                chunk: 0,
            }],
        }],
        blocks: vec![Block {
            address: 0x500,
            bytes: 12,
            owner: Owner::Page,
            ..pool.blocks[0]
        }],
        ..Pool::default()
    };
    pages.counters.insert("physical_bytes".to_owned(), 12);
    pages.before = [1_000_000, 0]
        .map(|before_us| Moment {
            before_us,
            used_bytes: 10,
            physical_bytes: 12,
            requests: 1,
            failures: 0,
        })
        .into();
    pool.add(pages);
    assert_eq!(pool.chunks[3].id, 6);
    assert_eq!(
        (pool.stitches[2].id, pool.stitches[2].pieces[0].chunk),
        (2, 6)
    );
    assert_eq!(pool.blocks[0].owner, Owner::Page, "by address");
    assert_eq!(pool.counter("physical_bytes"), 312);
    let held: Vec<_> = pool
        .before
        .iter()
        .map(|m| (m.before_us, m.physical_bytes))
        .collect();
    assert_eq!(held[..2], [(2_000_000, 200), (1_000_000, 212)]);
    assert_eq!(held.last(), Some(&(0, 312)));
}
