//! Fronts: where a hit is served and a free taken, each with a lock of its own,
//! so that threads with different streams meet nowhere. A front knows its
//! streams' shelves and every block that is *at home* in it, lent or on a shelf.
//! What lies on a shelf is not free in the eyes of the rest of the pool, which
//! settles the shelves before it looks for memory elsewhere.
//!
//! Under a front's lock no other lock is taken and no driver call made; blocks
//! come and go between fronts under the state lock only.

mod blocks;
mod lane;
mod line;
mod locked;

pub use blocks::{Front, Lent};
pub use lane::{Lane, is_small};
pub use line::{Line, Sum, WORDS, weights_of};
pub use locked::Locked;

use super::request::{Order, StreamKey};
use super::stats::Stats;
use super::streams::{StreamId, Use};
use crate::lock;
use line::{Weights, has_room, shelved};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Fronts that streams are spread over.
const STREAMED: usize = 64;
/// The front of memory that is lent and freed without a stream.
pub const COMMON: usize = STREAMED;
/// Number of fronts, and of their lines.
pub const FRONTS: usize = STREAMED + 1;

/// Keeps what different threads write on different cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// A front, and where it counts.
struct Place {
    front: Mutex<Front>,
    own: Line,
    shared: Option<&'static Line>,
}

impl Place {
    fn line(&self) -> &Line {
        self.shared.unwrap_or(&self.own)
    }
}

/// All fronts of a pool.
pub struct Fronts {
    all: Box<[Apart<Place>]>,
    /// A bit for each front that a stream was seen in.
    used: AtomicU64,
    epoch: Arc<Epoch>,
}

/// Counts what changes the health of contexts: what was known of it in an
/// earlier epoch is not known any more. All requests read it.
#[derive(Default)]
pub struct Epoch(Apart<AtomicU64>);

impl Epoch {
    /// The present one; never 0.
    pub fn now(&self) -> u64 {
        self.0.0.load(Ordering::Acquire) + 1
    }

    /// Begins the next one.
    pub fn end(&self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Default for Fronts {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Fronts {
    /// Fronts that count in these lines, or in memory of their own.
    pub fn new(lines: Option<&'static [Line]>) -> Self {
        let lines = lines.filter(|lines| lines.len() >= FRONTS);
        let place = |number| {
            Apart(Place {
                front: Mutex::new(Front::new(number)),
                own: [const { AtomicU64::new(0) }; WORDS],
                shared: lines.map(|lines| &lines[number]),
            })
        };
        Self {
            all: (0..FRONTS).map(place).collect(),
            used: AtomicU64::new(0),
            epoch: Arc::default(),
        }
    }

    /// The epoch of what is known of contexts.
    pub fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    /// The present epoch.
    pub fn now(&self) -> u64 {
        self.epoch.now()
    }

    /// Is this the present epoch?
    pub fn is_now(&self, epoch: u64) -> bool {
        self.now() == epoch
    }

    /// The front of a stream.
    pub fn of_stream(key: &StreamKey) -> usize {
        let word = key.stream.0 ^ key.context.0.rotate_left(32) ^ key.thread.rotate_left(16);
        // An odd constant close to 2^64 divided by the golden ratio: handles a
        // constant distance apart are spread evenly.
        (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
    }

    /// Was this stream seen, and has it not ended since?
    pub fn know(&self, key: &StreamKey) -> bool {
        self.lock(Self::of_stream(key)).find(key).is_some()
    }

    /// The front of an order.
    pub fn of(order: &Order) -> usize {
        order.stream().map_or(COMMON, Self::of_stream)
    }

    /// The front and the lane of a stream's index.
    pub fn place_of(id: StreamId) -> (usize, usize) {
        match id {
            Use::NOBODY => (COMMON, 0),
            id => (id as usize % STREAMED, id as usize / STREAMED),
        }
    }

    /// The index of the stream in a lane of a front.
    fn id_of(front: usize, lane: usize) -> StreamId {
        (lane * STREAMED + front) as StreamId
    }

    /// Locks a front.
    #[inline]
    pub fn lock(&self, number: usize) -> Locked<'_> {
        let place = &self.all[number].0;
        let front = lock::lock(&place.front);
        Locked::new(front, place.line())
    }

    /// Locks all fronts that have anything, for a moment in which nothing moves.
    /// The caller holds the state lock: nobody else waits for a front with
    /// another one locked.
    pub fn lock_all(&self) -> Vec<Locked<'_>> {
        self.used().map(|number| self.lock(number)).collect()
    }

    fn line(&self, number: usize) -> &Line {
        self.all[number].0.line()
    }

    /// The fronts that have anything.
    pub fn used(&self) -> impl Iterator<Item = usize> + use<> {
        let mut used = self.used.load(Ordering::Acquire);
        let streamed = std::iter::from_fn(move || {
            let next = (used != 0).then(|| used.trailing_zeros() as usize);
            used &= used.wrapping_sub(1);
            next
        });
        streamed.chain([COMMON])
    }

    /// Do small blocks, or windows, lie on a shelf of this front? Another thread
    /// may be about to put one there.
    pub fn has_shelved(&self, number: usize, small: bool) -> bool {
        shelved(self.line(number), small) > 0
    }

    /// How many blocks are at home in any front; those that come and go meanwhile may be
    /// among them or not.
    pub fn blocks(&self) -> usize {
        self.used().map(|number| self.lock(number).blocks()).sum()
    }

    /// A sum over all fronts.
    pub fn sum(&self, sum: Sum) -> u64 {
        let all = self.used().map(|number| sum.of(self.line(number)));
        all.fold(0, u64::wrapping_add)
    }

    /// The peak of a sum.
    pub fn peak(&self, sum: Sum) -> u64 {
        let rooms = self.used().map(|number| sum.room(self.line(number)));
        rooms.fold(self.sum(sum), u64::wrapping_add)
    }

    /// Starts the peak of a sum anew from what it is now.
    pub fn restart(&self, sum: Sum) {
        for number in self.used() {
            sum.set_room(self.lock(number).line(), 0);
        }
    }

    /// Adds what the fronts counted.
    pub fn add_to(&self, stats: &mut Stats) {
        for number in 0..FRONTS {
            stats.add_line(self.line(number));
        }
        stats.settle();
    }

    /// Gets a front the room for a block from others, as far as they have it.
    /// The caller holds the state lock, so that no two do this at once.
    pub fn collect_room(&self, home: usize, weights: Weights) {
        let line = self.line(home);
        if has_room(line, weights) {
            return;
        }
        for (sum, bytes) in Sum::ALL.into_iter().zip(weights) {
            let mut missing = bytes.saturating_sub(sum.room(line));
            let mut found = 0;
            for other in self.used().filter(|other| *other != home) {
                if missing == 0 {
                    break;
                }
                if sum.room(self.line(other)) == 0 {
                    continue;
                }
                let other = self.lock(other);
                let room = sum.room(other.line());
                // More than is missing, so that it will not be asked again soon.
                let taken = missing.max(room / 2).min(room);
                sum.set_room(other.line(), room - taken);
                found += taken;
                missing = missing.saturating_sub(taken);
            }
            if found > 0 {
                let home = self.lock(home);
                sum.set_room(home.line(), sum.room(home.line()) + found);
            }
        }
    }

    /// Notes that a front has a stream.
    pub fn use_front(&self, number: usize) {
        if number < STREAMED {
            self.used.fetch_or(1 << number, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests;
