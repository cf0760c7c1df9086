//! A picture of the pool. The tables are copied under the state lock, as they
//! are and into memory that was there before, so that the pool stands still for
//! as short as can be; what they mean is written down without it.

use std::collections::HashSet;
use std::time::Instant;

use super::block::{Block, Holder};
use super::hash::FastMap;
use super::request::{Order, Owner, StreamKey};
use super::slab::{self, Small};
use super::state::State;
use super::streams::Use;
use super::{Pool, Stats};
use crate::driver::{Address, Driver};
use crate::picture::{self, Chunk, Free, Piece, Stitch};

/// The tables of a pool as they were.
#[derive(Default)]
struct Copy {
    counters: Stats,
    chunks: Vec<Chunk>,
    stitches: Vec<Stitch>,
    blocks: Vec<(Address, Block)>,
    small: Vec<(Address, Small, Order)>,
    /// Windows and cells that nobody has: address, length, may be in use still.
    free: Vec<(Address, u64, bool)>,
    exported: Vec<u64>,
    parked: Vec<u64>,
}

impl<D: Driver> Pool<D> {
    /// The pool as it is now. Makes no driver call; whoever allocates meanwhile
    /// waits for [`held_ns`](picture::Pool::held_ns).
    pub fn picture(&self) -> picture::Pool {
        let mut copy = Copy::default();
        let stats = self.lock().stats;
        copy.make_room(&stats);
        let state = self.lock();
        let began = Instant::now();
        copy.take(&state);
        let held = began.elapsed();
        drop(state);
        let mut picture = copy.develop(self.padding());
        picture.held_ns = held.as_nanos() as u64;
        picture
    }
}

impl Copy {
    /// Room for all that is lent, and a little more: memory is not asked for
    /// while the pool stands still.
    fn make_room(&mut self, stats: &Stats) {
        let lent = stats.requests.saturating_sub(stats.frees) as usize;
        let room = lent + lent / 8 + 1024;
        self.blocks.reserve(room);
        self.small.reserve(room);
        self.free.reserve(room);
    }

    fn take(&mut self, state: &State) {
        let running = |last: Use| !state.streams.is_done(last);
        self.counters = state.stats;
        self.chunks.extend(state.chunks.iter().map(|(id, chunk)| {
            let free = chunk.spans.iter().map(|span| Free {
                start: span.start,
                bytes: span.bytes,
                pending: running(span.last),
            });
            Chunk {
                id,
                bytes: chunk.bytes,
                free: free.collect(),
            }
        }));
        let stitches = state.stitches.iter().zip(0..);
        self.stitches.extend(stitches.filter_map(|(stitch, id)| {
            let stitch = stitch.as_ref()?;
            let pieces = stitch.pieces.iter().map(|piece| Piece {
                offset: piece.offset,
                chunk: piece.chunk,
            });
            Some(Stitch {
                id,
                address: stitch.at,
                bytes: stitch.bytes,
                pieces: pieces.collect(),
            })
        }));
        self.blocks
            .extend(state.blocks.iter().map(|(&at, &block)| (at, block)));
        self.small.extend(
            state
                .slabs
                .live()
                .map(|(at, small)| (at, small, state.streams.order(small.stream, small.id))),
        );
        for ((bytes, _), windows) in &state.warm {
            let windows = windows.iter();
            self.free
                .extend(windows.map(|&(at, last)| (at, *bytes, running(last))));
        }
        state.slabs.each_free(|at, bytes, last| {
            self.free.push((at, bytes, running(last)));
        });
        self.exported.extend(state.exports.ids());
        let parked = |id: &u64| state.exports.is_parked(*id);
        self.parked
            .extend(self.exported.iter().copied().filter(parked));
    }

    /// What the tables mean. `padding` are the bytes of each block that the
    /// program does not know of.
    fn develop(mut self, padding: u64) -> picture::Pool {
        let mut streams = Streams::default();
        let exported: HashSet<u64> = self.exported.into_iter().collect();
        let parked: HashSet<u64> = self.parked.into_iter().collect();
        let state = |id, attached| match attached {
            true => picture::State::Attached,
            false if parked.contains(&id) => picture::State::Parked,
            false => picture::State::Live,
        };
        let mut blocks = Vec::with_capacity(self.blocks.len() + self.small.len() + self.free.len());
        for (address, block) in self.blocks {
            let attached = block.holder == Holder::Attached;
            if !attached && block.holder != Holder::Program {
                continue;
            }
            blocks.push(picture::Block {
                address,
                bytes: block.window.bytes,
                asked_bytes: match attached {
                    true => block.asked,
                    false => block.asked.saturating_sub(padding),
                },
                state: state(block.id, attached),
                owner: owner(block.owner),
                small: false,
                exported: exported.contains(&block.id),
                id: block.id,
                stream: streams.index(block.order),
            });
        }
        for (address, small, order) in self.small {
            blocks.push(picture::Block {
                address,
                bytes: slab::granted(small.bytes.into()),
                asked_bytes: u64::from(small.bytes).saturating_sub(padding),
                state: state(small.id, false),
                owner: owner(small.owner),
                small: true,
                exported: exported.contains(&small.id),
                id: small.id,
                stream: streams.index(order),
            });
        }
        for (address, bytes, pending) in self.free {
            blocks.push(picture::Block {
                address,
                bytes,
                asked_bytes: 0,
                state: match pending {
                    true => picture::State::Pending,
                    false => picture::State::Idle,
                },
                owner: picture::Owner::Context,
                small: bytes < slab::SLAB,
                exported: false,
                id: 0,
                stream: None,
            });
        }
        blocks.sort_unstable_by_key(|block| block.address);
        let spans = self.chunks.iter().flat_map(|chunk| &chunk.free);
        let spans = spans.filter(|span| span.pending).map(|span| span.bytes);
        let freed = blocks.iter();
        let freed = freed.filter(|block| block.state == picture::State::Pending);
        let freed = freed.map(|block| block.bytes);
        // As of now; the counter is as of the last slow path.
        self.counters.pending_bytes = spans.chain(freed).sum();
        let counters = Stats::NAMES.iter().zip(self.counters.values());
        picture::Pool {
            held_ns: 0,
            counters: counters
                .map(|(name, value)| ((*name).to_owned(), value))
                .collect(),
            chunks: self.chunks,
            stitches: self.stitches,
            blocks,
            streams: streams.known,
        }
    }
}

fn owner(owner: Owner) -> picture::Owner {
    match owner {
        Owner::Context => picture::Owner::Context,
        Owner::MemoryPool => picture::Owner::MemoryPool,
    }
}

/// The streams of a picture, each once.
#[derive(Default)]
struct Streams {
    known: Vec<picture::Stream>,
    by: FastMap<StreamKey, u32>,
}

impl Streams {
    fn index(&mut self, order: Order) -> Option<u32> {
        let Order::Stream(key) = order else {
            return None;
        };
        let known = &mut self.known;
        let index = self.by.entry(key).or_insert_with(|| {
            known.push(key.into());
            (known.len() - 1) as u32
        });
        Some(*index)
    }
}

impl From<StreamKey> for picture::Stream {
    fn from(key: StreamKey) -> Self {
        Self {
            context: key.context.0,
            stream: key.stream.0,
            thread: key.thread,
        }
    }
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
