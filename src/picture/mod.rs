//! A picture: what the pools of one process look like at one moment. Plain
//! values, made only when somebody asks ([`ask`]) or when an allocation fails,
//! written as bytes ([`bytes`]) and read by other processes, which put it in
//! order ([`layout`]). Never changes a pool; what comes from another process is
//! data, and any bytes are a picture or one clear error.

pub mod ask;
pub mod bytes;
pub mod layout;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The pools of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Picture {
    /// Whose they are.
    pub process: Process,
    /// When it was made, in microseconds of the Unix epoch.
    pub taken_us: u64,
    /// The allocation that failed, where that is why it was made.
    pub refused: Option<Refused>,
    /// The devices that have a pool, by ordinal.
    #[serde(deserialize_with = "bytes::devices")]
    pub devices: Vec<Device>,
    /// The named memory that is open here.
    pub names: Vec<Named>,
    /// The file to which the process records itself; empty where it does not.
    pub recording: String,
}

/// A process, as it knows itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its number in its own namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot; 0 where that is unknown.
    pub started_ticks: u64,
    /// Its command line, its arguments apart by spaces; cut where it is long.
    pub command: String,
    /// The version of its libmemcuda.so.
    pub library: String,
}

/// An allocation that failed for lack of memory, and what was done before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Refused {
    /// Ordinal of the device.
    pub device: u32,
    /// Bytes asked for.
    pub asked_bytes: u64,
    /// Where its first use would have been, as far as that is known.
    pub stream: Option<Stream>,
    /// The thread that asked, by the system's number.
    pub thread: u32,
    /// The name of that thread.
    pub thread_name: String,
    /// How often this thread has failed in a row to get as much: frameworks
    /// free what they cache and try again.
    pub tries: u32,
    /// Device memory free by the driver's account, in bytes; not asked for
    /// while a stream is captured.
    pub driver_free_bytes: Option<u64>,
    /// How often other processes were asked for idle memory.
    pub asked_others: u32,
    /// Microseconds for which others were asked and waited for.
    pub waited_us: u64,
    /// Allocations that have failed in this process so far, this one included.
    pub refusals: u64,
}

/// A device and its pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Device {
    /// Its ordinal, as the process sees it.
    pub ordinal: u32,
    /// Its UUID as tools write it (`GPU-...`); empty where the driver does not say.
    pub uuid: String,
    /// Its name; empty where the driver does not say.
    pub name: String,
    /// Its memory in bytes; 0 where the driver does not say.
    pub total_bytes: u64,
    /// Most bytes that the pool may hold (`MEMCUDA_LIMIT`).
    pub limit_bytes: Option<u64>,
    /// Its pool.
    pub pool: Pool,
}

/// A pool. Who reads it counts on nothing but the types: [`layout::Layout`]
/// puts it in order, whatever it says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pool {
    /// How long the pool stood still for this picture, in nanoseconds.
    pub held_ns: u64,
    /// Its counters by name ([`crate::pool::Stats`]).
    pub counters: BTreeMap<String, u64>,
    /// Its physical handles.
    pub chunks: Vec<Chunk>,
    /// Its ranges of addresses.
    pub stitches: Vec<Stitch>,
    /// Windows of these that somebody has or had a moment ago, by address.
    pub blocks: Vec<Block>,
    /// The streams that blocks were asked for on.
    pub streams: Vec<Stream>,
    /// The pool's last minute, in order, the present last; empty where it is not
    /// kept.
    pub before: Vec<Moment>,
}

impl Pool {
    /// A counter; 0 where the process does not have it.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Adds the tables of what lies beside it on the device (pages), whose numbers
    /// go on behind its own. Counters become sums.
    pub fn add(&mut self, other: Self) {
        let behind = |ids: &mut dyn Iterator<Item = u32>| ids.max().map_or(0, |last| last + 1);
        let chunks = behind(&mut self.chunks.iter().map(|chunk| chunk.id));
        let stitches = behind(&mut self.stitches.iter().map(|stitch| stitch.id));
        let moved = |chunk: Chunk| Chunk {
            id: chunk.id + chunks,
            ..chunk
        };
        self.chunks.extend(other.chunks.into_iter().map(moved));
        for mut stitch in other.stitches {
            stitch.id += stitches;
            stitch
                .pieces
                .iter_mut()
                .for_each(|piece| piece.chunk += chunks);
            self.stitches.push(stitch);
        }
        self.blocks.extend(other.blocks);
        self.blocks.sort_by_key(|block| block.address);
        self.held_ns += other.held_ns;
        for (name, value) in other.counters {
            *self.counters.entry(name).or_default() += value;
        }
        let before = std::mem::take(&mut self.before);
        self.before = together(&before, &other.before);
    }

    /// The stream that a block was asked for on.
    pub fn stream(&self, block: &Block) -> Option<Stream> {
        self.streams.get(block.stream? as usize).copied()
    }
}

/// What two tables were together: at each moment of one of them the latest of both.
fn together(one: &[Moment], other: &[Moment]) -> Vec<Moment> {
    let mut all: Vec<(&Moment, bool)> = Vec::with_capacity(one.len() + other.len());
    all.extend(one.iter().map(|moment| (moment, false)));
    all.extend(other.iter().map(|moment| (moment, true)));
    all.sort_by_key(|(moment, _)| std::cmp::Reverse(moment.before_us));
    let mut latest = [Moment::default(); 2];
    let sums = all.into_iter().map(|(moment, which)| {
        latest[usize::from(which)] = *moment;
        let [a, b] = latest;
        Moment {
            before_us: moment.before_us,
            used_bytes: a.used_bytes + b.used_bytes,
            physical_bytes: a.physical_bytes + b.physical_bytes,
            requests: a.requests + b.requests,
            failures: a.failures + b.failures,
        }
    });
    sums.collect()
}

/// What a pool was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moment {
    /// How long before the picture, in microseconds.
    pub before_us: u64,
    /// Most bytes that were in use since the moment before, or a little longer:
    /// lent, or attached.
    pub used_bytes: u64,
    /// Physical bytes held.
    pub physical_bytes: u64,
    /// Allocations asked for so far.
    pub requests: u64,
    /// Allocations that have failed so far for lack of memory.
    pub failures: u64,
}

/// A physical handle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chunk {
    /// Its number in the pool; used again after it went.
    pub id: u32,
    /// Its size.
    pub bytes: u64,
    /// Is it a page of torch's expandable segments? Then it is free as a whole or not
    /// at all.
    pub page: bool,
    /// Its free bytes. What is neither free nor below a block is being lent or
    /// taken back at this moment, or the rest of attached memory.
    pub free: Vec<Free>,
}

/// Free bytes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Free {
    /// Offset in the chunk, in bytes.
    pub start: u64,
    /// Length.
    pub bytes: u64,
    /// May uses of them still run?
    pub pending: bool,
}

/// A range of addresses onto which chunks are mapped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stitch {
    /// Its number in the pool; used again after it went.
    pub id: u32,
    /// Its first address.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// What is mapped, in order of addresses.
    pub pieces: Vec<Piece>,
}

/// A chunk, whole, in a stitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Piece {
    /// Offset in the stitch, in bytes.
    pub offset: u64,
    /// The chunk's number.
    pub chunk: u32,
}

/// Who has a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The program.
    Live,
    /// The program, of memory that is not the pool's own: named, or another
    /// process's.
    Attached,
    /// Others: it was freed while they had it open.
    Parked,
    /// Nobody; uses of it may still run.
    Pending,
    /// Nobody.
    Idle,
}

/// Whose memory a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The context's: `cudaMalloc` and its like.
    Context,
    /// The device's memory pool: `cudaMallocAsync`.
    MemoryPool,
    /// Torch's: a page of its expandable segments.
    Page,
}

/// A window that somebody has, or had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its first address.
    pub address: u64,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Bytes asked for; 0 where nobody has it.
    pub asked_bytes: u64,
    /// Who has it.
    pub state: State,
    /// Whose memory it is.
    pub owner: Owner,
    /// Does it lie in a slab, with other small ones?
    pub small: bool,
    /// May others have it open?
    pub exported: bool,
    /// Number of the allocation, which no other one of the pool has; it does not tell which
    /// came first. 0 where nobody has it.
    pub id: u64,
    /// The stream it was asked for on, as an index of [`Pool::streams`].
    pub stream: Option<u32>,
}

/// A stream, by the driver's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Stream {
    /// Its context (`CUcontext`).
    pub context: u64,
    /// The stream (`CUstream`); 1 is the legacy default one, 2 a thread's own.
    pub stream: u64,
    /// A number of the thread whose own default stream it is, else 0.
    pub thread: u64,
}

/// Named memory that is open in a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Ordinal of the device whose pool has the address.
    pub device: u32,
    /// Its first address here.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// May it be written here?
    pub write: bool,
    /// Which allocation has the name: 32 hexadecimal digits.
    pub generation: String,
}

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.stream {
            1 => f.write_str("the legacy default stream"),
            2 => write!(f, "the default stream of thread {}", self.thread),
            stream => write!(f, "stream {stream:#x}"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
