//! The counters of a front: a line of words in the statistics page, or in
//! memory where there is none. Only who has the front's lock writes them, anyone
//! reads them; a sum over all fronts is what the pool says.
//!
//! The peaks of such sums need no counter that all threads write. A line has
//! *room*: what its front may lend more before a sum could exceed its peak.
//!
//! Invariant: the peak of a sum is the sum itself and the room of all lines.
//!
//! So a free adds to the room of its line, a request takes from it, and only
//! where there is too little, and none in other lines, the peak rises.

use super::super::request::{Owner, Request};
use super::super::stats::Stats;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 64-bit words of a line.
pub const WORDS: usize = 16;

/// The counters of one front. A front may free what another one lent, so that
/// only sums over all of them mean something; they wrap.
pub type Line = [AtomicU64; WORDS];

const REQUESTS: usize = 0;
const FREES: usize = 1;
/// Where the sums begin, the room below their peaks, and what lies on shelves:
/// small blocks, then windows.
const SUMS: usize = 2;
const ROOMS: usize = 8;
const SHELVED: usize = 12;

/// A sum whose peak is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// Bytes asked for and not freed.
    Live,
    /// Bytes lent for them; its peak is that since [`Pool::least_idle`](crate::pool::Pool::least_idle).
    Granted,
    /// Live bytes of the device's memory pool; its peak is that since
    /// [`Pool::restart_pooled`](crate::pool::Pool::restart_pooled).
    Pooled,
}

impl Sum {
    /// All of them.
    pub const ALL: [Sum; 3] = [Sum::Live, Sum::Granted, Sum::Pooled];

    /// The sum.
    pub fn of(self, line: &Line) -> u64 {
        line[SUMS + self as usize].load(Relaxed)
    }

    /// What it may rise by, in this line, below its peak.
    pub fn room(self, line: &Line) -> u64 {
        line[ROOMS + self as usize].load(Relaxed)
    }

    /// Sets the room below its peak.
    pub fn set_room(self, line: &Line, bytes: u64) {
        line[ROOMS + self as usize].store(bytes, Relaxed);
    }
}

/// What a block adds to each sum.
pub type Weights = [u64; Sum::ALL.len()];

/// What the block that answers a request adds to the sums.
pub fn weights(asked: u64, granted: u64, owner: Owner) -> Weights {
    let pooled = if owner == Owner::MemoryPool { asked } else { 0 };
    [asked, granted, pooled]
}

/// The same, for a request that gets so many bytes.
pub fn weights_of(request: &Request, granted: u64) -> Weights {
    weights(request.bytes, granted, request.owner)
}

fn add(word: &AtomicU64, by: u64) {
    word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
}

/// A request came.
pub fn count_request(line: &Line) {
    add(&line[REQUESTS], 1);
}

/// So many more blocks, or fewer, lie on the shelf for small ones or windows.
pub fn count_shelved(line: &Line, small: bool, more: i64) {
    add(&line[SHELVED + usize::from(!small)], more as u64);
}

/// How many lie there.
pub fn shelved(line: &Line, small: bool) -> u64 {
    line[SHELVED + usize::from(!small)].load(Relaxed)
}

/// An allocation was freed.
pub fn count_free(line: &Line) {
    add(&line[FREES], 1);
}

/// May a block be lent without a new peak, as far as this line can tell?
pub fn has_room(line: &Line, weights: Weights) -> bool {
    let all = Sum::ALL.into_iter().zip(weights);
    all.fold(true, |fits, (sum, bytes)| fits & (sum.room(line) >= bytes))
}

/// A block is lent. Where there is too little room the peak rises.
pub fn rise(line: &Line, weights: Weights) {
    for (sum, bytes) in Sum::ALL.into_iter().zip(weights) {
        add(&line[SUMS + sum as usize], bytes);
        sum.set_room(line, sum.room(line).saturating_sub(bytes));
    }
}

/// A block is not lent any more.
pub fn fall(line: &Line, weights: Weights) {
    for (sum, bytes) in Sum::ALL.into_iter().zip(weights) {
        add(&line[SUMS + sum as usize], bytes.wrapping_neg());
        sum.set_room(line, sum.room(line) + bytes);
    }
}

impl Stats {
    /// Adds what a front counted to what the rest of the pool did, which counts
    /// as hits, below 0, what is none.
    pub fn add_line(&mut self, line: &Line) {
        let add = |into: &mut u64, by: u64| *into = into.wrapping_add(by);
        let (live, granted) = (Sum::Live.of(line), Sum::Granted.of(line));
        add(&mut self.requests, line[REQUESTS].load(Relaxed));
        add(&mut self.hits, line[REQUESTS].load(Relaxed));
        add(&mut self.frees, line[FREES].load(Relaxed));
        add(&mut self.live_bytes, live);
        add(&mut self.granted_bytes, granted);
        add(&mut self.idle_bytes, granted.wrapping_neg());
        add(&mut self.peak_live_bytes, live);
        add(&mut self.peak_live_bytes, Sum::Live.room(line));
    }

    /// After all lines were added: a line may have been read in the middle of a
    /// change, or a block's free without its lending; no sum is below 0.
    pub fn settle(&mut self) {
        for bytes in [
            &mut self.live_bytes,
            &mut self.granted_bytes,
            &mut self.idle_bytes,
        ] {
            *bytes = (*bytes as i64).max(0) as u64;
        }
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
    }
}
