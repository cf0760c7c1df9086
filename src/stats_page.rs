//! The statistics page: a small shared mapping (a memfd named
//! `memcuda-stats`) in which a preloaded process publishes its counters and
//! from which other processes read them. Lays out and checks the page; never
//! maps memory and never looks for processes.
//!
//! The page is an array of native-endian 64-bit words:
//!
//! | word | content |
//! |---|---|
//! | 0 | magic, the bytes `memcuda1` |
//! | 1 | version of this layout |
//! | 2 | size of the page, in bytes |
//! | 3 | seqlock: odd while the writer is at work |
//! | 4 | how many device blocks are in use |
//! | 5 | how many lines a device has, each of 16 words |
//! | 8 + 32 d | block of the d-th device: the fields of [`Counters`], then zeros |
//! | 1024 + 1040 d | lines of the d-th device: what its fronts count, as threads are at work |
//!
//! A counter is what the block says and all lines together ([`Stats::add_line`]).
//! The seqlock guards the blocks; a line may be read in the middle of a change.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::pool::{FRONTS, LINE_WORDS, Line, Stats};

/// Name of the memfd that holds a page.
pub const MEMFD_NAME: &str = "memcuda-stats";
/// Version of the layout.
pub const VERSION: u64 = 5;
/// Most devices that a page can hold, as the largest hosts have them. A limit of files
/// (`ulimit -f`) is one of the page, too: it is no longer than it has to be.
pub const MAX_DEVICES: usize = 16;
/// 64-bit words of a page.
pub const WORDS: usize = LINES + MAX_DEVICES * DEVICE_LINES;
/// Bytes of a page.
pub const BYTES: usize = WORDS * size_of::<u64>();

const MAGIC: u64 = u64::from_le_bytes(*b"memcuda1");
const HEADER: usize = 8;
const BLOCK: usize = 32;
const SEQUENCE: usize = 3;
const DEVICES: usize = 4;
const LINES_EACH: usize = 5;
/// The first word behind the blocks: of a page of memory of its own.
const LINES: usize = 1024;
const DEVICE_LINES: usize = FRONTS * LINE_WORDS;

const COUNTERS: usize = 2 + Stats::NAMES.len();

const _: () = assert!(COUNTERS <= BLOCK && HEADER + MAX_DEVICES * BLOCK <= LINES);
const _: () = assert!(DEVICE_LINES == 1040 && BYTES == 141_312);

/// The counters of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Device ordinal, as the process sees it.
    pub ordinal: u64,
    /// Frees of addresses that are not the pool's, passed to the driver.
    pub foreign_frees: u64,
    /// The pool's own counters.
    pub pool: Stats,
}

impl Counters {
    /// Every counter with its name, in the order of the page.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ["ordinal", "foreign_frees"].iter().chain(Stats::NAMES);
        names.copied().zip(self.to_words())
    }

    fn to_words(self) -> [u64; COUNTERS] {
        let mut words = [self.ordinal; COUNTERS];
        words[1] = self.foreign_frees;
        words[2..].copy_from_slice(&self.pool.values());
        words
    }

    fn from_words(words: &[u64]) -> Self {
        let mut pool = Stats::default().values();
        pool.copy_from_slice(&words[2..COUNTERS]);
        Self {
            ordinal: words[0],
            foreign_frees: words[1],
            pool: Stats::from_values(pool),
        }
    }
}

/// As an object: each counter by its name.
impl serde::Serialize for Counters {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_map(self.fields())
    }
}

/// The one writer of a page.
pub struct Writer {
    page: &'static [AtomicU64; WORDS],
    turn: Mutex<()>,
}

impl Writer {
    /// Lays the header out in `page`, which is zeroed and shared with readers.
    pub fn new(page: &'static [AtomicU64; WORDS]) -> Self {
        page[1].store(VERSION, Ordering::Relaxed);
        page[2].store(BYTES as u64, Ordering::Relaxed);
        page[LINES_EACH].store(FRONTS as u64, Ordering::Relaxed);
        // Last, so that a reader never takes a half-made header for a page.
        page[0].store(MAGIC, Ordering::Release);
        Self {
            page,
            turn: Mutex::new(()),
        }
    }

    /// Publishes the counters of a device, but for what its lines say; it is
    /// told by its ordinal. Devices beyond [`MAX_DEVICES`] are left out.
    pub fn publish(&self, counters: &Counters) {
        let words = counters.to_words();
        self.write(counters.ordinal, |block| {
            for (word, value) in block.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    /// Publishes how many frees of a device the driver got.
    pub fn publish_foreign_frees(&self, ordinal: u64, frees: u64) {
        self.write(ordinal, |block| {
            block[0].store(ordinal, Ordering::Relaxed);
            block[1].fetch_max(frees, Ordering::Relaxed);
        });
    }

    /// The lines of a device; `None` beyond [`MAX_DEVICES`].
    pub fn lines(&self, ordinal: u64) -> Option<&'static [Line]> {
        let device = self.write(ordinal, |block| {
            block[0].store(ordinal, Ordering::Relaxed);
        })?;
        let (lines, _) = self.page[first_line(device)..].as_chunks();
        Some(&lines[..FRONTS])
    }

    /// Changes the block of a device, its index; the next one is a new device's.
    fn write(&self, ordinal: u64, change: impl FnOnce(&[AtomicU64])) -> Option<usize> {
        let _turn = lock(&self.turn);
        let used = self.page[DEVICES].load(Ordering::Relaxed) as usize;
        let known = (0..used).find(|&d| self.page[block(d)].load(Ordering::Relaxed) == ordinal);
        let device = known.unwrap_or(used);
        if device >= MAX_DEVICES {
            return None;
        }
        let sequence = self.page[SEQUENCE].load(Ordering::Relaxed);
        self.page[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        change(&self.page[block(device)..][..BLOCK]);
        self.page[DEVICES].store(used.max(device + 1) as u64, Ordering::Relaxed);
        self.page[SEQUENCE].store(sequence.wrapping_add(2), Ordering::Release);
        Some(device)
    }
}

fn block(device: usize) -> usize {
    HEADER + device * BLOCK
}

fn first_line(device: usize) -> usize {
    LINES + device * DEVICE_LINES
}

/// Reads a page: `copy` fills a buffer with the page's bytes as they are now
/// and returns how many there were. It is called again while the writer is at
/// work.
pub fn read(mut copy: impl FnMut(&mut [u8]) -> std::io::Result<usize>) -> Result<Vec<Counters>> {
    let mut bytes = vec![0u8; BYTES];
    for _ in 0..1000 {
        let before = fetch(&mut copy, &mut bytes)?;
        let after = fetch(&mut copy, &mut bytes)?;
        // Equal and even on both sides: the second copy began after a whole
        // publication and the next had not begun when the first one ended, so
        // words that differ cannot be mixed.
        if before[..LINES] == after[..LINES] && before[SEQUENCE] % 2 == 0 {
            return Ok(decode(&after));
        }
        std::thread::yield_now();
    }
    Err(Error::new(
        "the statistics page never came to rest; its process may have stopped in the middle of a write",
    ))
}

fn fetch(
    copy: &mut impl FnMut(&mut [u8]) -> std::io::Result<usize>,
    bytes: &mut [u8],
) -> Result<Vec<u64>> {
    let count =
        copy(bytes).map_err(|e| Error::new(format!("cannot read the statistics page: {e}")))?;
    let (words, _) = bytes.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    if count < 3 * size_of::<u64>() || words[0] != MAGIC {
        return Err(Error::new("not a memcuda statistics page"));
    }
    if words[1] != VERSION {
        return Err(Error::new(format!(
            "statistics page of version {}; this memcuda reads version {VERSION}: use the memcuda command that belongs to the process's libmemcuda.so",
            words[1]
        )));
    }
    if words[2] != BYTES as u64 || count < BYTES || words[DEVICES] > MAX_DEVICES as u64 {
        return Err(Error::new(format!(
            "damaged statistics page: {count} bytes read, {} stated, {BYTES} expected, {} devices",
            words[2], words[DEVICES]
        )));
    }
    Ok(words)
}

fn decode(words: &[u64]) -> Vec<Counters> {
    let device = |d| {
        let mut counters = Counters::from_words(&words[block(d)..]);
        let (lines, _) = words[first_line(d)..].as_chunks();
        for line in &lines[..FRONTS] {
            counters.pool.add_line(&line.map(AtomicU64::new));
        }
        counters.pool.settle();
        counters
    };
    (0..words[DEVICES] as usize).map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> &'static [AtomicU64; WORDS] {
        Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS]))
    }

    fn copy(page: &[AtomicU64; WORDS], bytes: &mut [u8]) -> std::io::Result<usize> {
        for (word, into) in page.iter().zip(bytes.chunks_exact_mut(8)) {
            into.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        Ok(BYTES)
    }

    fn counters(ordinal: u64, live_bytes: u64) -> Counters {
        let chunks = live_bytes;
        Counters {
            ordinal,
            foreign_frees: live_bytes,
            pool: Stats {
                live_bytes,
                peak_live_bytes: live_bytes,
                chunks,
                ..Stats::default()
            },
        }
    }

    #[test]
    fn what_is_published_is_read() {
        let page = page();
        let writer = Writer::new(page);
        assert_eq!(read(|b| copy(page, b)), Ok(vec![]));
        writer.publish(&counters(1, 7));
        writer.publish(&counters(0, 5));
        writer.publish(&counters(1, 9));
        let expected = vec![counters(1, 9), counters(0, 5)];
        assert_eq!(read(|b| copy(page, b)), Ok(expected));
    }

    #[test]
    fn each_of_sixteen_devices_has_its_place() {
        let page = page();
        let writer = Writer::new(page);
        let all = (0..16).map(|ordinal| counters(ordinal, ordinal + 1));
        let all: Vec<_> = all.collect();
        for counters in &all {
            writer.publish(counters);
            assert!(writer.lines(counters.ordinal).is_some());
        }
        assert_eq!(read(|b| copy(page, b)), Ok(all));
    }

    #[test]
    fn what_the_fronts_of_a_pool_count_is_read_without_a_publication() {
        use crate::driver::model::Model;
        use crate::driver::{Context, Stream};
        use crate::pool::{Effort, Order, Owner, Pool, Release, Request, Settings, StreamKey};
        let page = page();
        let writer = Box::leak(Box::new(Writer::new(page)));
        writer.publish(&counters(3, 0));
        let settings = Settings {
            lines: writer.lines(7),
            publish: Some(Box::new(|stats, _| {
                writer.publish(&Counters {
                    ordinal: 7,
                    foreign_frees: 0,
                    pool: *stats,
                });
            })),
            ..Settings::default()
        };
        let pool = Pool::new(Model::new(1 << 34), 0, settings).unwrap();
        let key = StreamKey::new(Context(1), Stream(9), 0);
        let request = Request {
            bytes: 3 << 20,
            align: 512,
            order: Order::Stream(key),
            context: Context(1),
            owner: Owner::Context,
            effort: Effort::Growth,
            graph: false,
        };
        for requests in 1..10 {
            let at = pool.alloc(&request).unwrap();
            let seen = read(|b| copy(page, b)).unwrap()[1].pool;
            assert_eq!((seen.live_bytes, seen.requests), (3 << 20, requests));
            assert_eq!((seen.idle_bytes, seen.peak_live_bytes), (1 << 20, 3 << 20));
            pool.free(at, Release::Stream(key)).unwrap();
            let seen = read(|b| copy(page, b)).unwrap()[1].pool;
            assert_eq!((seen.live_bytes, seen.frees), (0, requests));
            assert_eq!((seen.granted_bytes, seen.idle_bytes), (0, 4 << 20));
        }
        let mut known = pool.stats();
        known.pending_bytes = 0;
        assert_eq!(read(|b| copy(page, b)).unwrap()[1].pool, known);
    }

    #[test]
    fn a_change_of_the_counters_is_another_version() {
        let names: Vec<&str> = Counters::default().fields().map(|(name, _)| name).collect();
        let known = "ordinal foreign_frees live_bytes granted_bytes pending_bytes idle_bytes \
            physical_bytes shared_bytes parked_bytes peak_live_bytes peak_physical_bytes requests \
            hits searches stitches growths handles_mapped frees waits edges host_waits \
            out_of_memory driver_ns chunks stalls stall_ns";
        assert_eq!((VERSION, names.join(" ")), (5, known.to_owned()));
    }

    #[test]
    fn a_reader_never_sees_half_a_publication() {
        let page = page();
        let writer = Writer::new(page);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20_000 {
                    writer.publish(&counters(0, n));
                    if n % 8 == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(1));
                    }
                }
            });
            let mut seen = 0;
            while seen < 500 {
                let Ok(devices) = read(|b| copy(page, b)) else {
                    continue;
                };
                for device in devices {
                    assert_eq!(device, counters(0, device.pool.live_bytes));
                }
                seen += 1;
            }
        });
    }

    #[test]
    fn other_pages_are_refused_with_the_reason() {
        let message = |page: &[AtomicU64; WORDS]| read(|b| copy(page, b)).unwrap_err().to_string();
        let page = page();
        assert!(message(page).contains("not a memcuda statistics page"));
        Writer::new(page);
        page[1].store(9, Ordering::Relaxed);
        assert!(message(page).contains("version 9"));
        page[1].store(VERSION, Ordering::Relaxed);
        page[DEVICES].store(99, Ordering::Relaxed);
        assert!(message(page).contains("99 devices"));
        page[DEVICES].store(0, Ordering::Relaxed);
        page[SEQUENCE].store(1, Ordering::Relaxed);
        assert!(message(page).contains("never came to rest"));
    }
}
