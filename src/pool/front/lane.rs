//! What a front knows of one stream: its next place, and the shelves with the
//! blocks that were freed on it, which are kept whole for the next request of
//! their length. Makes no driver call.

use super::super::hash::FastMap;
use super::super::request::StreamKey;
use super::super::slab::SMALL_MAX;
use super::super::streams::StreamId;
use crate::driver::{Address, Stream};
use crate::units::MIB;

/// Bytes freed on a stream whose last one an event follows at once.
const DUE: u64 = 512 * MIB;
/// Frees of a stream that events follow since somebody else last looked.
const WATCHED: u32 = 1 << 15;

/// Most small blocks on a shelf: to settle them takes about 0.1 ms.
const MOST_SMALL: usize = 1024;

/// Blocks that are at hand before the shelves are.
const LATEST: usize = 4;
/// Lengths that a shelf has room for from the beginning: what threads write is
/// seldom at the edge of its memory, beside another thread's.
const LENGTHS: usize = 28;

/// Blocks by their length in bytes: addresses, and places of the last uses.
type Shelf = FastMap<u64, Vec<(Address, u64)>>;

/// One stream, or all memory whose uses are complete. Aligned, so that no two
/// fronts write one cache line.
#[repr(align(128))]
pub struct Lane {
    /// The stream.
    pub key: StreamKey,
    /// Its index.
    pub id: StreamId,
    /// The place of what is freed from now on.
    pub now: u64,
    /// The latest place given, 0 for none.
    pub tagged: u64,
    /// The latest place that the program itself has waited for on the host.
    pub awaited: u64,
    /// Bytes freed at the present place.
    pub freed: u64,
    /// An event follows so many more frees: others look for memory that was freed here.
    pub watched: u32,
    /// Has what was freed last an event to follow it, alone?
    alone: bool,
    /// Nothing is lent from the shelves until the event of the last free was recorded.
    pub closed: bool,
    /// The last allocation before the stream was first seen; [`Lane::ENDED`]
    /// once it was destroyed.
    pub since: u64,
    /// The epoch in which the stream's context was last found whole.
    pub known: u64,
    /// The blocks that came last, before they lie on a shelf: most requests find
    /// theirs here, in the lane's own cache lines.
    latest: [Freed; LATEST],
    /// Where the next one goes.
    next: usize,
    small: Shelf,
    small_blocks: usize,
    windows: Shelf,
}

/// A block that was freed; of 0 bytes where there is none.
#[derive(Clone, Copy, Default)]
struct Freed {
    bytes: u64,
    at: Address,
    place: u64,
}

/// Does a block of this length lie on the shelf for small ones?
pub fn is_small(bytes: u64) -> bool {
    bytes <= SMALL_MAX
}

impl Lane {
    /// After every allocation.
    pub const ENDED: u64 = u64::MAX;

    /// A stream that was not seen before the allocation `since`.
    pub fn new(key: StreamKey, id: StreamId, since: u64) -> Self {
        Self {
            key,
            id,
            now: 1,
            tagged: 0,
            awaited: 0,
            freed: 0,
            watched: 0,
            alone: false,
            closed: false,
            since,
            known: 0,
            latest: [Freed::default(); LATEST],
            next: 0,
            small: Shelf::with_capacity_and_hasher(LENGTHS, Default::default()),
            small_blocks: 0,
            windows: Shelf::with_capacity_and_hasher(LENGTHS, Default::default()),
        }
    }

    fn shelf(&mut self, small: bool) -> &mut Shelf {
        match small {
            true => &mut self.small,
            false => &mut self.windows,
        }
    }

    /// Puts a block of so many bytes on its shelf.
    #[inline]
    pub fn put(&mut self, bytes: u64, at: Address, place: u64) {
        self.small_blocks += usize::from(is_small(bytes));
        let freed = Freed { bytes, at, place };
        let before = std::mem::replace(&mut self.latest[self.next % LATEST], freed);
        self.next = (self.next + 1) % LATEST;
        if before.bytes > 0 {
            self.lay(before);
        }
    }

    fn lay(&mut self, freed: Freed) {
        let blocks = self.shelf(is_small(freed.bytes));
        let blocks = blocks.entry(freed.bytes).or_default();
        blocks.push((freed.at, freed.place));
    }

    /// Takes the block of exactly this length that came last, if it is aligned.
    #[inline]
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<Address> {
        let small = is_small(bytes);
        for back in 1..=LATEST {
            let index = (self.next + LATEST - back) % LATEST;
            let freed = &mut self.latest[index];
            if freed.bytes == bytes {
                if freed.at & (align - 1) != 0 {
                    return None;
                }
                freed.bytes = 0;
                self.next = index;
                self.small_blocks -= usize::from(small);
                return Some(freed.at);
            }
        }
        let blocks = self.shelf(small).get_mut(&bytes)?;
        let (at, _) = blocks.pop_if(|(at, _)| *at & (align - 1) == 0)?;
        self.small_blocks -= usize::from(small);
        Some(at)
    }

    /// Does an event have to follow what was just freed? On the legacy default stream always:
    /// there the driver's own free is a barrier to other streams, and so is an event.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.watched > 0 || self.freed >= DUE || self.key.stream == Stream::LEGACY
    }

    /// The place of a free of so many bytes.
    #[inline]
    pub fn place_of_free(&mut self, bytes: u64) -> u64 {
        self.freed += bytes;
        self.watched = self.watched.saturating_sub(1);
        let due = self.is_due();
        if due || self.alone {
            self.part();
        }
        self.alone = due;
        self.now
    }

    /// What is freed from now on has another place than what was freed before: an event may
    /// follow the one and not the other.
    pub fn part(&mut self) {
        self.now += u64::from(self.tagged == self.now);
    }

    /// Was the stream destroyed?
    pub fn is_ended(&self) -> bool {
        self.since == Self::ENDED
    }

    /// Another stream looks for memory.
    pub fn watch(&mut self) {
        self.watched = WATCHED;
    }

    /// Are there more small blocks than should be?
    pub fn is_full(&self) -> bool {
        self.small_blocks > MOST_SMALL
    }

    /// Takes all small blocks, or all windows, off their shelf: address and place.
    pub fn clear(&mut self, small: bool, mut taken: impl FnMut(Address, u64)) {
        if small {
            self.small_blocks = 0;
        }
        for (at, place) in self.shelf(small).drain().flat_map(|(_, blocks)| blocks) {
            taken(at, place);
        }
        // The oldest first, so that the latest are remembered best.
        for index in (self.next..LATEST).chain(0..self.next) {
            let freed = self.latest[index];
            if freed.bytes > 0 && is_small(freed.bytes) == small {
                self.latest[index].bytes = 0;
                taken(freed.at, freed.place);
            }
        }
    }

    /// Every block on the shelves: length, address and place.
    pub fn each(&self) -> impl Iterator<Item = (u64, Address, u64)> {
        let shelves = self.small.iter().chain(&self.windows);
        let on_shelves = shelves
            .flat_map(|(bytes, blocks)| blocks.iter().map(|(at, place)| (*bytes, *at, *place)));
        let latest = self.latest.iter().filter(|freed| freed.bytes > 0);
        on_shelves.chain(latest.map(|freed| (freed.bytes, freed.at, freed.place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Context, Stream};

    #[test]
    fn a_block_that_is_not_aligned_stays_on_its_shelf() {
        let key = StreamKey::new(Context(1), Stream(9), 0);
        for bytes in [4096, SMALL_MAX + 512] {
            let mut lane = Lane::new(key, 0, 0);
            // More than are at hand before the shelf is.
            let all = 1..=2 * LATEST as u64;
            all.clone().for_each(|n| lane.put(bytes, n * 512, n));
            assert_eq!(lane.take(bytes, 1 << 20), None);
            for n in all.rev() {
                assert_eq!(lane.take(bytes, 512), Some(n * 512), "the latest first");
                assert_eq!(lane.take(bytes, 1 << 20), None);
            }
        }
    }

    #[test]
    fn what_follows_a_free_that_an_event_follows_has_another_place() {
        let mut lane = Lane::new(StreamKey::new(Context(1), Stream(9), 0), 0, 0);
        let free = |lane: &mut Lane| {
            lane.tagged = lane.place_of_free(512);
            (lane.tagged, lane.is_due())
        };
        lane.watched = 2;
        assert_eq!(free(&mut lane), (1, true));
        assert_eq!(free(&mut lane), (2, false));
        assert_eq!(free(&mut lane), (2, false));
    }
}
