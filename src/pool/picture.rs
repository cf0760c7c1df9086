//! A picture of the pool: its tables, written down under the state lock into
//! memory that was there before, so that the pool stands still for as short as
//! can be. Makes no driver call and changes nothing.

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

impl<D: Driver> Pool<D> {
    /// The pool as it is now. Whoever allocates meanwhile waits for
    /// [`held_ns`](picture::Pool::held_ns).
    pub fn picture(&self) -> picture::Pool {
        let stats = self.lock().stats;
        let mut writer = Writer::with_room_for(&stats, self.padding());
        let state = self.lock();
        let began = Instant::now();
        writer.write(&state);
        let (stats, held) = (state.stats, began.elapsed());
        drop(state);
        writer.finish(stats, held.as_nanos() as u64)
    }
}

/// What is written so far.
struct Writer {
    picture: picture::Pool,
    /// The streams that were met, and the latest one.
    streams: FastMap<StreamKey, u32>,
    latest: Option<(StreamKey, u32)>,
    /// Bytes of each block that the program does not know of.
    padding: u64,
}

impl Writer {
    /// Room for all that is lent, and a little more. It is touched here: the
    /// system gives memory when it is first written.
    fn with_room_for(stats: &Stats, padding: u64) -> Self {
        const NOTHING: picture::Block = free_block(0, 0, false);
        let lent = stats.requests.saturating_sub(stats.frees) as usize;
        let mut blocks = vec![NOTHING; lent + lent / 4 + 1024];
        blocks.clear();
        Self {
            picture: picture::Pool {
                blocks,
                ..picture::Pool::default()
            },
            streams: FastMap::default(),
            latest: None,
            padding,
        }
    }

    fn write(&mut self, state: &State) {
        let running = |last: Use| !state.streams.is_done(last);
        for (id, chunk) in state.chunks.iter() {
            let free = chunk.spans.iter().map(|span| Free {
                start: span.start,
                bytes: span.bytes,
                pending: running(span.last),
            });
            self.picture.chunks.push(Chunk {
                id,
                bytes: chunk.bytes,
                free: free.collect(),
            });
        }
        let stitches = state.stitches.iter().zip(0..);
        for (stitch, id) in stitches.filter_map(|(stitch, id)| Some((stitch.as_ref()?, id))) {
            let pieces = stitch.pieces.iter().map(|piece| Piece {
                offset: piece.offset,
                chunk: piece.chunk,
            });
            self.picture.stitches.push(Stitch {
                id,
                address: stitch.at,
                bytes: stitch.bytes,
                pieces: pieces.collect(),
            });
        }
        for (&at, block) in &state.blocks {
            self.block(state, at, block);
        }
        for (at, small) in state.slabs.live() {
            self.small(state, at, &small);
        }
        let blocks = &mut self.picture.blocks;
        for ((bytes, _), windows) in &state.warm {
            let windows = windows.iter();
            blocks.extend(windows.map(|&(at, last)| free_block(at, *bytes, running(last))));
        }
        state.slabs.each_free(|at, bytes, last| {
            blocks.push(free_block(at, bytes, running(last)));
        });
    }

    fn block(&mut self, state: &State, address: Address, block: &Block) {
        let (held, padding) = match block.holder {
            Holder::Program if state.exports.is_parked(block.id) => {
                (picture::State::Parked, self.padding)
            }
            Holder::Program => (picture::State::Live, self.padding),
            Holder::Attached => (picture::State::Attached, 0),
            // What is inside, and what is warm, is told by itself.
            Holder::Slab | Holder::Warm => return,
        };
        let stream = self.stream(block.order);
        self.picture.blocks.push(picture::Block {
            address,
            bytes: block.window.bytes,
            asked_bytes: block.asked.saturating_sub(padding),
            state: held,
            owner: block.owner.into(),
            small: false,
            exported: state.exports.has(block.id),
            id: block.id,
            stream,
        });
    }

    fn small(&mut self, state: &State, address: Address, small: &Small) {
        let parked = state.exports.is_parked(small.id);
        let stream = self.stream(state.streams.order(small.stream, small.id));
        self.picture.blocks.push(picture::Block {
            address,
            bytes: slab::granted(small.bytes.into()),
            asked_bytes: u64::from(small.bytes).saturating_sub(self.padding),
            state: match parked {
                true => picture::State::Parked,
                false => picture::State::Live,
            },
            owner: small.owner.into(),
            small: true,
            exported: state.exports.has(small.id),
            id: small.id,
            stream,
        });
    }

    fn stream(&mut self, order: Order) -> Option<u32> {
        let Order::Stream(key) = order else {
            return None;
        };
        if let Some((latest, index)) = self.latest
            && latest == key
        {
            return Some(index);
        }
        let known = &mut self.picture.streams;
        let index = *self.streams.entry(key).or_insert_with(|| {
            known.push(key.into());
            (known.len() - 1) as u32
        });
        self.latest = Some((key, index));
        Some(index)
    }

    /// What needs no lock.
    fn finish(self, mut stats: Stats, held_ns: u64) -> picture::Pool {
        let mut picture = self.picture;
        picture.held_ns = held_ns;
        picture.blocks.sort_unstable_by_key(|block| block.address);
        let spans = picture.chunks.iter().flat_map(|chunk| &chunk.free);
        let spans = spans.filter(|span| span.pending).map(|span| span.bytes);
        let blocks = picture.blocks.iter();
        let freed = blocks.filter(|block| block.state == picture::State::Pending);
        // As of now; the counter is as of the last slow path.
        stats.pending_bytes = spans.chain(freed.map(|block| block.bytes)).sum();
        let counters = Stats::NAMES.iter().zip(stats.values());
        let counters = counters.map(|(name, value)| ((*name).to_owned(), value));
        picture.counters = counters.collect();
        picture
    }
}

/// A window or a cell that nobody has.
const fn free_block(address: Address, bytes: u64, pending: bool) -> picture::Block {
    picture::Block {
        address,
        bytes,
        asked_bytes: 0,
        state: match pending {
            true => picture::State::Pending,
            false => picture::State::Idle,
        },
        owner: picture::Owner::Context,
        small: bytes <= slab::SMALL_MAX,
        exported: false,
        id: 0,
        stream: None,
    }
}

impl From<Owner> for picture::Owner {
    fn from(owner: Owner) -> Self {
        match owner {
            Owner::Context => Self::Context,
            Owner::MemoryPool => Self::MemoryPool,
        }
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
