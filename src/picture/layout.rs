//! A pool put in order: every physical byte once, at one address. Bytes of a
//! block stand where the block is; free ones, which may be mapped at several
//! addresses, stand in the first stitch that shows their chunk. Total: a
//! picture that contradicts itself has an order too, if no useful one.

use std::collections::HashMap;

use super::{Block, Pool, State};

/// What some bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of the block with this index.
    Block(usize),
    /// Free, though uses of them may still run.
    Pending,
    /// Free.
    Idle,
    /// Neither: they are being lent or taken back at this moment, or they are
    /// the rest of attached memory.
    Held,
}

/// Bytes that are one thing, at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// What they are.
    pub kind: Kind,
}

/// Ranges that follow each other without a gap in one stitch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The number of the stitch.
    pub stitch: u32,
    /// The first address.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// What lies in it, by address; their lengths add up to its own.
    pub ranges: Vec<Range>,
}

/// Bytes of a chunk that are one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset in the chunk, in bytes.
    pub start: u64,
    /// Length.
    pub bytes: u64,
    /// What they are.
    pub kind: Kind,
}

/// A pool in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// By address; in all as many bytes as the chunks that are mapped.
    pub segments: Vec<Segment>,
    /// What the bytes of each chunk are, in the order of [`Pool::chunks`].
    pub chunks: Vec<Vec<Part>>,
}

/// What of a pool's bytes is what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Of blocks that somebody has.
    pub live: u64,
    /// Free, though uses of them may still run.
    pub pending: u64,
    /// Free.
    pub idle: u64,
    /// See [`Kind::Held`].
    pub held: u64,
}

impl Sums {
    /// Adds bytes of a kind.
    pub fn add(&mut self, pool: &Pool, kind: Kind, bytes: u64) {
        let sum = match kind {
            Kind::Block(index) => match pool.blocks.get(index).map(|block| block.state) {
                Some(State::Pending) => &mut self.pending,
                Some(State::Idle) => &mut self.idle,
                _ => &mut self.live,
            },
            Kind::Pending => &mut self.pending,
            Kind::Idle => &mut self.idle,
            Kind::Held => &mut self.held,
        };
        *sum = sum.saturating_add(bytes);
    }
}

impl Layout {
    /// Puts a pool in order.
    pub fn of(pool: &Pool) -> Self {
        let index: HashMap<u32, usize> = (pool.chunks.iter().enumerate())
            .map(|(at, chunk)| (chunk.id, at))
            .collect();
        let mut chunks: Vec<Vec<Part>> = pool.chunks.iter().map(free_parts).collect();
        let places = Places::of(pool, &index);
        let mut covered = vec![0_u64; pool.blocks.len()];
        for (chunk, at, part) in places.below(&pool.blocks) {
            covered[at] = covered[at].saturating_add(part.bytes);
            chunks[chunk].push(part);
        }
        for (parts, chunk) in chunks.iter_mut().zip(&pool.chunks) {
            *parts = tiled(std::mem::take(parts), chunk.bytes);
        }
        let segments = segments(ranges(pool, &chunks, &places, &covered));
        Self { segments, chunks }
    }

    /// What of the bytes is what.
    pub fn sums(&self, pool: &Pool) -> Sums {
        let mut sums = Sums::default();
        for part in self.chunks.iter().flatten() {
            sums.add(pool, part.kind, part.bytes);
        }
        sums
    }
}

fn free_parts(chunk: &super::Chunk) -> Vec<Part> {
    let kind = |pending| if pending { Kind::Pending } else { Kind::Idle };
    let part = |free: &super::Free| Part {
        start: free.start,
        bytes: free.bytes,
        kind: kind(free.pending),
    };
    chunk.free.iter().map(part).collect()
}

/// Fills gaps, and cuts what overlaps or lies outside.
fn tiled(mut parts: Vec<Part>, whole: u64) -> Vec<Part> {
    parts.sort_by_key(|part| part.start);
    let mut tiles = Vec::with_capacity(parts.len());
    let mut reached = 0;
    let mut push = |start: u64, end: u64, kind| {
        if start < end {
            let bytes = end - start;
            tiles.push(Part { start, bytes, kind });
        }
    };
    for part in parts {
        let end = part.start.saturating_add(part.bytes).min(whole);
        let start = part.start.max(reached);
        if start >= end {
            continue;
        }
        push(reached, start, Kind::Held);
        push(start, end, part.kind);
        reached = end;
    }
    push(reached, whole, Kind::Held);
    tiles
}

/// Where chunks are mapped.
struct Places {
    /// By address: first address, length, stitch, and the chunk as an index.
    mapped: Vec<(u64, u64, u32, usize)>,
    /// Of each chunk the first address and the stitch in which it stands.
    home: Vec<Option<(u64, u32)>>,
}

impl Places {
    fn of(pool: &Pool, index: &HashMap<u32, usize>) -> Self {
        let mut mapped = Vec::new();
        let mut home: Vec<Option<(u64, u32)>> = vec![None; pool.chunks.len()];
        for stitch in &pool.stitches {
            for piece in &stitch.pieces {
                let Some(&chunk) = index.get(&piece.chunk) else {
                    continue;
                };
                let Some(at) = stitch.address.checked_add(piece.offset) else {
                    continue;
                };
                mapped.push((at, pool.chunks[chunk].bytes, stitch.id, chunk));
                let known = &mut home[chunk];
                if known.is_none_or(|(_, first)| stitch.id < first) {
                    *known = Some((at, stitch.id));
                }
            }
        }
        mapped.sort_unstable();
        Self { mapped, home }
    }

    /// The parts of chunks below blocks, with the indices of the chunk and of the block.
    fn below(&self, blocks: &[Block]) -> Vec<(usize, usize, Part)> {
        let mut below = Vec::with_capacity(blocks.len());
        // Where a picture is right neither two blocks overlap nor two mappings, so that
        // each look but one goes beyond the end of either. Of others no more is looked at.
        let mut looks = 2 * blocks.len() + self.mapped.len();
        for (index, block) in blocks.iter().enumerate() {
            let (from, end) = (block.address, block.address.saturating_add(block.bytes));
            let behind =
                |&(at, bytes, ..): &(u64, u64, u32, usize)| at.saturating_add(bytes) > from;
            let first = self.mapped.partition_point(|mapping| !behind(mapping));
            let overlapping = self.mapped[first..].iter().take(looks);
            for &(at, bytes, _, chunk) in overlapping.take_while(|(at, ..)| *at < end) {
                looks -= 1;
                let (start, stop) = (from.max(at), end.min(at.saturating_add(bytes)));
                if start < stop {
                    let part = Part {
                        start: start - at,
                        bytes: stop - start,
                        kind: Kind::Block(index),
                    };
                    below.push((chunk, index, part));
                }
            }
        }
        below
    }

    /// The stitch at an address.
    fn stitch(&self, address: u64) -> Option<u32> {
        let behind = self.mapped.partition_point(|(at, ..)| *at <= address);
        let &(_, _, stitch, _) = self.mapped.get(behind.checked_sub(1)?)?;
        Some(stitch)
    }
}

/// What stands where, each with its stitch, in the order of the addresses; of blocks those
/// of which all is covered by chunks.
fn ranges(
    pool: &Pool,
    chunks: &[Vec<Part>],
    places: &Places,
    covered: &[u64],
) -> Vec<(u32, Range)> {
    let mut ranges: Vec<(u32, Range)> = Vec::new();
    for (parts, home) in chunks.iter().zip(&places.home) {
        let Some((home, stitch)) = *home else {
            continue;
        };
        for part in parts {
            let address = home.saturating_add(part.start);
            let (bytes, kind) = (part.bytes, part.kind);
            if !matches!(kind, Kind::Block(_)) {
                let range = Range {
                    address,
                    bytes,
                    kind,
                };
                ranges.push((stitch, range));
            }
        }
    }
    for (at, block) in pool.blocks.iter().enumerate() {
        if let Some(stitch) = places.stitch(block.address)
            && covered[at] == block.bytes
        {
            let range = Range {
                address: block.address,
                bytes: block.bytes,
                kind: Kind::Block(at),
            };
            ranges.push((stitch, range));
        }
    }
    ranges.retain(|(_, range)| range.bytes > 0 && range.address.checked_add(range.bytes).is_some());
    ranges.sort_unstable_by_key(|(stitch, range)| (range.address, *stitch));
    ranges
}

/// Ranges of one stitch that touch are a segment.
fn segments(ranges: Vec<(u32, Range)>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for (stitch, range) in ranges {
        let reached = segments
            .last()
            .map(|last| (last.stitch, last.address + last.bytes));
        match segments.last_mut() {
            Some(last) if reached == Some((stitch, range.address)) => {
                last.bytes += range.bytes;
                last.ranges.push(range);
            }
            // Two things at one address, or behind the last one.
            _ if reached.is_some_and(|(_, end)| range.address < end) => {}
            _ => segments.push(Segment {
                stitch,
                address: range.address,
                bytes: range.bytes,
                ranges: vec![range],
            }),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::{example, random_picture};
    use crate::random::Random;

    #[test]
    fn every_physical_byte_stands_once() {
        let picture = example();
        let pool = &picture.devices[0].pool;
        let layout = Layout::of(pool);
        let shown: Vec<_> = (layout.segments.iter())
            .map(|segment| (segment.stitch, segment.address, segment.bytes))
            .collect();
        // Half of the second chunk is a block's, seen through the second stitch;
        // the other half stands in the first one.
        let first = [(0, 0x1000, 100), (0, 0x1096, 50)];
        let second = [(1, 0x9000, 50), (1, 0x9064, 100)];
        assert_eq!(shown, [first, second].concat());
        let kinds: Vec<_> = layout.segments.iter().flat_map(|s| &s.ranges).collect();
        let kind = |at: usize| (kinds[at].bytes, kinds[at].kind);
        assert_eq!(kind(0), (60, Kind::Block(0)));
        assert_eq!(kind(1), (40, Kind::Pending));
        assert_eq!(kind(2), (50, Kind::Held));
        assert_eq!(kind(3), (50, Kind::Block(1)));
        assert_eq!(kind(4), (100, Kind::Block(2)));
        let sums = layout.sums(pool);
        assert_eq!(
            sums,
            Sums {
                live: 160,
                pending: 40,
                idle: 50,
                held: 50
            }
        );
    }

    #[test]
    fn whatever_a_picture_says_segments_are_tiled_and_apart() {
        let mut random = Random(99);
        for _ in 0..5000 {
            for device in random_picture(&mut random).devices {
                let layout = Layout::of(&device.pool);
                let mut reached = 0;
                for segment in &layout.segments {
                    assert!(segment.address >= reached);
                    reached = segment.address;
                    for range in &segment.ranges {
                        assert_eq!(range.address, reached);
                        reached += range.bytes;
                    }
                    assert_eq!(reached, segment.address + segment.bytes);
                }
                for (parts, chunk) in layout.chunks.iter().zip(&device.pool.chunks) {
                    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
                    assert_eq!(bytes, chunk.bytes);
                }
            }
        }
    }

    #[test]
    fn where_all_lies_upon_all_no_more_is_made_of_it_than_there_is() {
        let mut pool = example().devices.remove(0).pool;
        let many = 10_000;
        pool.stitches[0].pieces = vec![pool.stitches[0].pieces[0]; many];
        pool.blocks = vec![pool.blocks[0]; many];
        let index = pool.chunks.iter().enumerate();
        let index = index.map(|(at, chunk)| (chunk.id, at)).collect();
        let places = Places::of(&pool, &index);
        assert!(places.below(&pool.blocks).len() <= 4 * many);
    }
}
