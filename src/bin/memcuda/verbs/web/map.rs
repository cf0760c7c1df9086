//! The map of a device's chunks, from a picture: what each byte is, in the order
//! of chunks, with as much detail as a page can show.

use memcuda::picture::layout::{Kind, Part};
use memcuda::picture::{Device, Picture, State};
use serde::Serialize;

use crate::pictures::reading::{Reading, What, Words, stream};

/// About so many parts are told; smaller ones are joined.
const DETAIL: u64 = 20_000;

/// A device's pool.
#[derive(Serialize)]
pub struct Map {
    taken_ms: u64,
    /// How long the pool stood still for the picture.
    held_ns: u64,
    uuid: String,
    name: String,
    total_bytes: u64,
    limit_bytes: Option<u64>,
    live_bytes: u64,
    pending_bytes: u64,
    idle_bytes: u64,
    held_bytes: u64,
    /// Of the live ones: others may have them open, or they are theirs.
    shared_bytes: u64,
    /// Runs of idle bytes inside chunks, and the longest.
    idle_runs: u64,
    largest_idle_bytes: u64,
    /// Lent beyond what was asked for: rounding.
    rounding_bytes: u64,
    /// Parts shorter than this are joined with their neighbours; 0: none are.
    joined_bytes: u64,
    streams: Vec<String>,
    holders: Vec<String>,
    chunks: Vec<MapChunk>,
}

#[derive(Serialize)]
struct MapChunk {
    id: u32,
    bytes: u64,
    /// Bytes and kind (0 live, 1 shared, 2 pending, 3 idle, 4 neither); of live
    /// and shared ones bytes of the whole block, its stream and who has it.
    parts: Vec<Vec<u64>>,
}

/// The map of the device with this ordinal.
pub fn draw(picture: &Picture, ordinal: u64) -> Option<Map> {
    let reading = Reading::of(picture);
    let (device, layout) =
        (reading.devices.iter()).find(|(device, _)| u64::from(device.ordinal) == ordinal)?;
    let sums = reading.sums(device, layout);
    let physical: u64 = device.pool.chunks.iter().map(|chunk| chunk.bytes).sum();
    let parts: usize = layout.chunks.iter().map(Vec::len).sum();
    let joined_bytes = if parts as u64 > DETAIL {
        physical / DETAIL
    } else {
        0
    };
    let mut artist = Artist {
        reading: &reading,
        device,
        streams: Words::default(),
        holders: Words::default(),
    };
    let mut map = Map {
        taken_ms: picture.taken_us / 1000,
        held_ns: device.pool.held_ns,
        uuid: device.uuid.clone(),
        name: device.name.clone(),
        total_bytes: device.total_bytes,
        limit_bytes: device.limit_bytes,
        live_bytes: sums.of(What::Live) + sums.of(What::Shared),
        pending_bytes: sums.of(What::Pending),
        idle_bytes: sums.of(What::Idle),
        held_bytes: sums.of(What::Held),
        shared_bytes: sums.of(What::Shared),
        idle_runs: sums.idle_runs,
        largest_idle_bytes: sums.largest_idle,
        rounding_bytes: 0,
        joined_bytes,
        streams: Vec::new(),
        holders: Vec::new(),
        chunks: Vec::new(),
    };
    for block in &device.pool.blocks {
        if block.state == State::Live {
            map.rounding_bytes += block.bytes.saturating_sub(block.asked_bytes);
        }
    }
    for (chunk, parts) in device.pool.chunks.iter().zip(&layout.chunks) {
        let parts = parts.iter().map(|part| artist.part(part)).collect();
        let parts = join(parts, joined_bytes);
        map.chunks.push(MapChunk {
            id: chunk.id,
            bytes: chunk.bytes,
            parts,
        });
    }
    map.streams = artist.streams.all;
    map.holders = artist.holders.all;
    Some(map)
}

struct Artist<'a> {
    reading: &'a Reading<'a>,
    device: &'a Device,
    streams: Words,
    holders: Words,
}

impl Artist<'_> {
    fn part(&mut self, part: &Part) -> Vec<u64> {
        let what = self.reading.what(self.device, part.kind);
        let Kind::Block(index) = part.kind else {
            return vec![part.bytes, what as u64];
        };
        if !matches!(what, What::Live | What::Shared) {
            return vec![part.bytes, what as u64];
        }
        let block = &self.device.pool.blocks[index];
        let stream = stream(self.device, block);
        let holder = self.reading.who(self.device, block).unwrap_or_default();
        let (stream, holder) = (self.streams.index(stream), self.holders.index(holder));
        vec![part.bytes, what as u64, block.bytes, stream, holder]
    }
}

/// Joins neighbours that are shorter than this; what most of their bytes are is
/// what they are shown as.
fn join(parts: Vec<Vec<u64>>, shortest: u64) -> Vec<Vec<u64>> {
    let mut joined: Vec<Vec<u64>> = Vec::new();
    let mut group: Vec<Vec<u64>> = Vec::new();
    let mut bytes = 0;
    for part in parts {
        if part[0] >= shortest {
            joined.extend(most(&mut group));
            joined.push(part);
            bytes = 0;
            continue;
        }
        bytes += part[0];
        group.push(part);
        if bytes >= shortest {
            joined.extend(most(&mut group));
            bytes = 0;
        }
    }
    joined.extend(most(&mut group));
    joined
}

/// A group as one part.
fn most(group: &mut Vec<Vec<u64>>) -> Option<Vec<u64>> {
    let bytes = group.iter().map(|part| part[0]).sum();
    let mut kinds = [0; 5];
    for part in group.iter() {
        kinds[part[1] as usize] += part[0];
    }
    let kind = (0..5).max_by_key(|&kind| kinds[kind as usize])?;
    let of_kind = group.drain(..).filter(|part| part[1] == kind);
    let mut shown = of_kind.max_by_key(|part| part[0])?;
    shown[0] = bytes;
    Some(shown)
}

#[cfg(test)]
mod tests {
    use memcuda::picture::{Block, Chunk, Free, Owner, Piece, Pool, Stitch, Stream};

    use super::*;

    const LIVE: u64 = What::Live as u64;
    const SHARED: u64 = What::Shared as u64;
    const IDLE: u64 = What::Idle as u64;

    /// A chunk a block of half its size, and idle bytes behind it.
    fn picture(chunks: u32, exported: bool) -> Picture {
        let (bytes, half) = (1 << 21, 1 << 20);
        let free = Free {
            start: half,
            bytes: half,
            pending: false,
        };
        let address = |at: u32| (1 << 30) + u64::from(at) * bytes;
        let pool = Pool {
            chunks: (0..chunks)
                .map(|id| Chunk {
                    page: false,
                    id,
                    bytes,
                    free: vec![free],
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
            blocks: (0..chunks)
                .map(|at| Block {
                    address: address(at),
                    bytes: half,
                    asked_bytes: half - 10,
                    state: State::Live,
                    owner: Owner::Context,
                    small: false,
                    exported: exported && at == 0,
                    id: 1,
                    stream: Some(0),
                })
                .collect(),
            streams: vec![Stream {
                context: 1,
                stream: 1,
                thread: 0,
            }],
            ..Pool::default()
        };
        let device = Device {
            ordinal: 3,
            pool,
            ..Device::default()
        };
        Picture {
            devices: vec![device],
            ..Picture::default()
        }
    }

    #[test]
    fn every_byte_is_on_the_map() {
        let map = draw(&picture(3, true), 3).unwrap();
        let mib = 1 << 20;
        assert_eq!(map.chunks.len(), 3);
        assert_eq!(
            map.chunks[0].parts,
            [vec![mib, SHARED, mib, 0, 0], vec![mib, IDLE]]
        );
        assert_eq!(
            map.chunks[2].parts,
            [vec![mib, LIVE, mib, 0, 1], vec![mib, IDLE]]
        );
        assert_eq!(map.holders, ["cudaMalloc, exported", "cudaMalloc"]);
        assert_eq!(map.streams, ["the legacy default stream"]);
        assert_eq!(
            (map.live_bytes, map.idle_bytes, map.shared_bytes),
            (3 * mib, 3 * mib, mib)
        );
        assert_eq!(
            (map.idle_runs, map.largest_idle_bytes, map.rounding_bytes),
            (3, mib, 30)
        );
        assert!(draw(&picture(1, false), 0).is_none());
    }

    #[test]
    fn joined_parts_keep_every_byte() {
        let parts: Vec<Vec<u64>> = (0..1000)
            .map(|at| vec![1 + at % 7, at % 5, 0, 0, 0])
            .collect();
        let all: u64 = parts.iter().map(|part| part[0]).sum();
        let joined = join(parts.clone(), 50);
        assert!(joined.len() < 100, "{}", joined.len());
        assert_eq!(joined.iter().map(|part| part[0]).sum::<u64>(), all);
        assert_eq!(join(parts.clone(), 0), parts);
    }
}
