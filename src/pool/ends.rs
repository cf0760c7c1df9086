//! Where a plan may begin and end: in free bytes at the ends of chunks that are in
//! use, or behind a stitch that ends in free bytes, which need not be mapped once
//! more. Makes no driver call.

use super::block::Need;
use super::chunk::{ChunkId, StitchId};
use super::chunks::Room;
use super::search::Usable;
use super::state::State;
use super::stitch::Stitch;
use crate::units::{HANDLE, align_up};

/// Addresses that a new stitch gets, as a multiple of its length: they cost nothing.
const ROOM: u64 = 2;
/// What a mapping that need not be made is worth, in bytes: little, since a stitch that
/// goes on where much is mapped often leaves a longer free end of a chunk alone.
pub const MAPPED: u64 = 128 << 10;
/// A free end of a chunk that is shorter than this is not worth a mapping.
const SHORTEST_END: u64 = 64 << 10;

/// What chunks offer for a window.
#[derive(Debug, Default)]
pub struct Offer {
    /// Bytes of those that are wholly free, the largest first: the price of a stitch is
    /// its number of handles.
    pub whole: Vec<(u64, ChunkId)>,
    /// Free beginnings of those in use, as far as they are worth a mapping.
    pub starts: Vec<(ChunkId, u64)>,
    /// The longest free end that is shorter than the window: a new stitch goes on
    /// where an old one ended, so that ends add up instead of being stranded one by one.
    pub head: Option<(ChunkId, u64)>,
}

/// The free bytes with which a stitch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The stitch.
    pub stitch: StitchId,
    /// Where they begin in it, in bytes.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
    /// How many of them are those of wholly free chunks.
    pub whole: u64,
}

/// Bytes of addresses for a new stitch of this length.
pub fn room(bytes: u64) -> u64 {
    bytes.saturating_mul(ROOM)
}

/// What the end of a stitch may be worth of which the longest free range has so many bytes.
fn worth_at_most(longest: u64) -> u64 {
    longest.saturating_add(longest / HANDLE * MAPPED)
}

impl State {
    /// What the chunks offer for a window. Those in use offer nothing while blocks go on
    /// growing: a block that shares no chunk is made longer by one mapping when it is free
    /// and the next one is a little longer; one that does is mapped anew as a whole. Nor to
    /// what may be exported: who shares no chunk can be left to those who have it open. What must lie
    /// in one page would have found it where those are mapped.
    pub fn offered(&self, need: Need, usable: Usable) -> Offer {
        let mut offer = Offer::default();
        let alone = need.alone || need.one_page || self.growing.goes_on();
        let whole = self.chunks.by_size().iter().copied();
        offer.whole.extend(
            whole.filter(|(bytes, id)| self.head(*id, self.chunks.room(*id), usable) == *bytes),
        );
        if alone {
            return offer;
        }
        for ends in self.chunks.end_groups() {
            for (id, room) in ends {
                if room.is_whole() {
                    continue;
                }
                let start = self.head(id, room, usable);
                if start >= SHORTEST_END {
                    offer.starts.push((id, start));
                }
                let from = align_up(room.bytes - self.tail(id, room, usable), need.align);
                let bytes = room.bytes.saturating_sub(from.unwrap_or(room.bytes));
                let longest = offer.head.map_or(SHORTEST_END, |(_, longest)| longest);
                if (longest..need.bytes).contains(&bytes) {
                    offer.head = Some((id, bytes));
                }
            }
        }
        offer
    }

    /// The usable bytes with which a chunk begins.
    fn head(&self, id: ChunkId, room: Room, usable: Usable) -> u64 {
        match self.is_usable_all(room.stream, usable) {
            true => room.head,
            false => self
                .chunk(id)
                .free_head(|last| self.is_usable(last, usable)),
        }
    }

    /// Those with which it ends.
    fn tail(&self, id: ChunkId, room: Room, usable: Usable) -> u64 {
        match self.is_usable_all(room.stream, usable) {
            true => room.tail,
            false => self
                .chunk(id)
                .free_tail(|last| self.is_usable(last, usable)),
        }
    }

    /// Of the free ends of stitches that can be made longer, and that are too short for
    /// this window, the two that spare most. A loop over all, which is quick by itself.
    #[inline(never)]
    pub fn best_ends(&self, need: Need, usable: Usable) -> impl Iterator<Item = End> + use<> {
        let mut best: [Option<(End, u64)>; 2] = [None; 2];
        let ranges = self.chunks.ranges();
        // In one that is full none is free.
        for group in ranges.groups() {
            for id in group {
                let least = best[1].map_or(0, |(_, least)| least);
                if worth_at_most(ranges.longest()[id as usize]) <= least {
                    continue;
                }
                let stitch = self.stitches.get(id);
                let Some(stitch) = stitch.filter(|it| self.end_at_most(it) > least) else {
                    continue;
                };
                let Some((end, worth)) = self.end_of(stitch, id, need, usable) else {
                    continue;
                };
                let better =
                    |other: &Option<(_, u64)>| other.is_none_or(|(_, least)| worth > least);
                if better(&best[0]) {
                    best = [Some((end, worth)), best[0]];
                } else if better(&best[1]) {
                    best[1] = Some((end, worth));
                }
            }
        }
        best.into_iter().flatten().map(|(end, _)| end)
    }

    /// What the free end of a stitch is worth at most, if it can be made longer: where it lies in one
    /// piece that is so many bytes. Else nobody knows.
    fn end_at_most(&self, stitch: &Stitch) -> u64 {
        let last = stitch.pieces.last().filter(|_| stitch.can_grow());
        last.map_or(0, |last| match self.chunks.room(last.chunk).tail {
            tail if tail < last.bytes => tail,
            _ => u64::MAX,
        })
    }

    /// The free end of a stitch that may have one, and what it is worth. Few have: a part of the
    /// loop over all, it would make that twice as slow.
    #[inline(never)]
    fn end_of(
        &self,
        stitch: &Stitch,
        id: StitchId,
        need: Need,
        usable: Usable,
    ) -> Option<(End, u64)> {
        let (mut from, mut whole, mut mapped) = (stitch.bytes, 0, 0);
        for piece in stitch.pieces.iter().rev() {
            // A gap, or a chunk whose end is in use.
            let room = self.chunks.room(piece.chunk);
            if piece.offset + piece.bytes != from || room.tail == 0 {
                break;
            }
            let free = self.tail(piece.chunk, room, usable);
            from -= free;
            if free < piece.bytes {
                break;
            }
            whole += free;
            mapped += 1;
        }
        let offset = align_up(from, need.align)?;
        let bytes = stitch.bytes.checked_sub(offset)?;
        let end = End {
            stitch: id,
            offset,
            bytes,
            whole,
        };
        (1..need.bytes)
            .contains(&bytes)
            .then_some((end, bytes + MAPPED * mapped))
    }
}
