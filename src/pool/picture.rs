//! A picture of the pool: its tables, written down under the state lock, with all
//! fronts locked, into memory that was there before, so that the pool stands
//! still for as short as can be. Makes no driver call and changes nothing.

use std::time::Instant;

use super::front::{Lent, Locked};
use super::hash::FastMap;
use super::request::{BlockInfo, Order, Owner, StreamKey};
use super::slab;
use super::state::State;
use super::streams::Use;
use super::{Pool, Stats};
use crate::driver::{Address, Driver};
use crate::picture::{self, Chunk, Free, Piece, Stitch};

impl<D: Driver> Pool<D> {
    /// The pool as it is now. Whoever allocates meanwhile waits for
    /// [`held_ns`](picture::Pool::held_ns).
    pub fn picture(&self) -> picture::Pool {
        let mut writer = Writer::with_room_for(self.fronts.blocks(), self.padding());
        let state = self.lock();
        let began = Instant::now();
        let fronts = self.fronts.lock_all();
        writer.write(&state, &fronts);
        let stats = self.counters(&state);
        writer.picture.before = state.timeline();
        drop(fronts);
        let (held, opened) = (began.elapsed(), state.opened);
        drop(state);
        let counters = &mut writer.picture.counters;
        counters.insert("opened_bytes".to_owned(), opened);
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
    /// Room for so many blocks, and a little more. It is touched here: the
    /// system gives memory when it is first written.
    fn with_room_for(blocks: usize, padding: u64) -> Self {
        const NOTHING: picture::Block = free_block(0, 0, false);
        let mut blocks = vec![NOTHING; blocks + blocks / 4 + 1024];
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

    fn write(&mut self, state: &State, fronts: &[Locked<'_>]) {
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
                page: false,
                free: free.collect(),
            });
        }
        for (id, stitch) in state.stitches.iter() {
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
        for front in fronts {
            for (info, lent) in front.each_held() {
                self.block(&info, lent, state.exports.has(info.id));
            }
            let aside = front.each_aside();
            let aside = aside.map(|(at, bytes)| free_block(at, bytes, true));
            self.picture.blocks.extend(aside);
            for (stream, at, bytes, seq) in front.each_shelved() {
                let alias = Use::MIXED;
                let last = Use { stream, alias, seq };
                let free = free_block(at, bytes, running(last));
                self.picture.blocks.push(free);
            }
        }
        let blocks = &mut self.picture.blocks;
        state.slabs.each_free(|at, bytes, last| {
            blocks.push(free_block(at, bytes, running(last)));
        });
    }

    fn block(&mut self, info: &BlockInfo, lent: &Lent, exported: bool) {
        let (state, bytes, padding) = match info.attached {
            true => (picture::State::Attached, info.bytes, 0),
            false if info.parked => (picture::State::Parked, lent.granted, self.padding),
            false => (picture::State::Live, lent.granted, self.padding),
        };
        let stream = self.stream(info.order);
        self.picture.blocks.push(picture::Block {
            address: info.base,
            bytes,
            asked_bytes: info.bytes.saturating_sub(padding),
            state,
            owner: info.owner.into(),
            small: lent.small,
            exported,
            id: info.id,
            stream,
        });
    }

    fn stream(&mut self, order: Order) -> Option<u32> {
        let key = *order.stream()?;
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
        picture.counters.extend(stats.by_name());
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
