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
//! | 8 + 32 d | block of the d-th device: the fields of [`Counters`], then zeros |

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::pool::Stats;

/// Name of the memfd that holds a page.
pub const MEMFD_NAME: &str = "memcuda-stats";
/// Version of the layout.
pub const VERSION: u64 = 3;
/// Most devices that a page can hold.
pub const MAX_DEVICES: usize = 15;
/// 64-bit words of a page.
pub const WORDS: usize = HEADER + MAX_DEVICES * BLOCK;
/// Bytes of a page.
pub const BYTES: usize = WORDS * size_of::<u64>();

const MAGIC: u64 = u64::from_le_bytes(*b"memcuda1");
const HEADER: usize = 8;
const BLOCK: usize = 32;
const SEQUENCE: usize = 3;
const DEVICES: usize = 4;

const COUNTERS: usize = 2 + Stats::NAMES.len();

const _: () = assert!(COUNTERS <= BLOCK);
const _: () = assert!(BYTES == 3904 && BYTES <= 4096);

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
        // Last, so that a reader never takes a half-made header for a page.
        page[0].store(MAGIC, Ordering::Release);
        Self {
            page,
            turn: Mutex::new(()),
        }
    }

    /// Publishes the counters of a device, which is told by its ordinal.
    /// Devices beyond [`MAX_DEVICES`] are left out.
    pub fn publish(&self, counters: &Counters) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self.page[DEVICES].load(Ordering::Relaxed) as usize;
        let known =
            (0..used).find(|&d| self.page[block(d)].load(Ordering::Relaxed) == counters.ordinal);
        let device = known.unwrap_or(used);
        if device >= MAX_DEVICES {
            return;
        }
        let sequence = self.page[SEQUENCE].load(Ordering::Relaxed);
        self.page[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.page[block(device)..].iter().zip(counters.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.page[DEVICES].store(used.max(device + 1) as u64, Ordering::Relaxed);
        self.page[SEQUENCE].store(sequence.wrapping_add(2), Ordering::Release);
    }
}

fn block(device: usize) -> usize {
    HEADER + device * BLOCK
}

/// Reads a page: `copy` fills a buffer with the page's bytes as they are now
/// and returns how many there were. It is called again while the writer is at
/// work.
pub fn read(mut copy: impl FnMut(&mut [u8]) -> std::io::Result<usize>) -> Result<Vec<Counters>> {
    let mut bytes = [0u8; BYTES];
    for _ in 0..1000 {
        let before = fetch(&mut copy, &mut bytes)?;
        let after = fetch(&mut copy, &mut bytes)?;
        // Equal and even on both sides: the second copy began after a whole
        // publication and the next had not begun when the first one ended, so
        // words that differ cannot be mixed.
        if before == after && before[SEQUENCE] % 2 == 0 {
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
    bytes: &mut [u8; BYTES],
) -> Result<[u64; WORDS]> {
    let count =
        copy(bytes).map_err(|e| Error::new(format!("cannot read the statistics page: {e}")))?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight bytes"));
    }
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

fn decode(words: &[u64; WORDS]) -> Vec<Counters> {
    let device = |d| Counters::from_words(&words[block(d)..]);
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
    fn a_change_of_the_counters_is_another_version() {
        let names: Vec<&str> = Counters::default().fields().map(|(name, _)| name).collect();
        let known = "ordinal foreign_frees live_bytes granted_bytes pending_bytes idle_bytes \
            physical_bytes shared_bytes parked_bytes peak_live_bytes peak_physical_bytes requests \
            hits searches stitches growths handles_mapped frees waits edges host_waits \
            out_of_memory driver_ns chunks stalls stall_ns";
        assert_eq!((VERSION, names.join(" ")), (3, known.to_owned()));
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
