//! A picture of the pages, as of a pool: a page is a chunk, wholly idle or in use;
//! mappings that touch are a stitch; what the program has mapped is a block. A page
//! that was asked for and is mapped nowhere yet is neither. Makes no driver call and
//! changes nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Pages;
use super::books::Books;
use super::page::{Kind, PageId};
use crate::driver::{Address, Driver};
use crate::picture::{self, Block, Chunk, Free, Owner, Piece, State, Stitch};
use crate::pool::Stats;

impl<D: Driver> Pages<D> {
    /// Keeps the last minute from now on, for pictures of an allocation that failed.
    pub fn keep_timeline(&self) {
        self.lock().watch.timeline.get_or_insert_default();
    }

    /// The pages as they are now. Who maps one meanwhile waits for
    /// [`held_ns`](picture::Pool::held_ns).
    pub fn picture(&self) -> picture::Pool {
        let books = self.lock();
        let began = Instant::now();
        let mut picture = drawn(&books);
        let totals = books.totals();
        let line = books.watch.timeline.as_ref();
        picture.before = line.map_or_else(Vec::new, |line| line.told(totals.now()));
        picture.held_ns = began.elapsed().as_nanos() as u64;
        drop(books);
        let mut stats = Stats::default();
        totals.add_to(&mut stats);
        picture.counters = stats.by_name();
        picture
    }
}

fn drawn(books: &Books) -> picture::Pool {
    let mut numbers: BTreeMap<PageId, u32> = BTreeMap::new();
    let mut picture = picture::Pool::default();
    let mut promised: BTreeMap<Kind, usize> = BTreeMap::new();
    for ((id, page), number) in books.pages.iter().zip(0..) {
        numbers.insert(*id, number);
        let bytes = page.kind.bytes;
        // Which page a promise will be kept by is not known before it is mapped.
        let promised = promised
            .entry(page.kind)
            .or_insert_with(|| books.promised(page.kind));
        let is_free = page.is_idle() && *promised == 0;
        *promised -= usize::from(page.is_idle() && !is_free);
        let all = Free {
            start: 0,
            bytes,
            pending: false,
        };
        picture.chunks.push(Chunk {
            id: number,
            bytes,
            page: true,
            free: if is_free { vec![all] } else { Vec::new() },
        });
    }
    for (&address, mapping) in &books.mappings {
        let bytes = mapping.bytes;
        let chunk = numbers[&mapping.page];
        join(&mut picture.stitches, address, bytes, chunk);
        if mapping.used {
            picture.blocks.push(Block {
                address,
                bytes,
                asked_bytes: bytes,
                state: State::Live,
                owner: Owner::Page,
                small: false,
                exported: books.pages[&mapping.page].shared,
                id: mapping.number,
                stream: None,
            });
        }
    }
    picture
}

/// Adds a mapping to the stitch that ends where it begins, or to a new one.
fn join(stitches: &mut Vec<Stitch>, at: Address, bytes: u64, chunk: u32) {
    let id = stitches.len() as u32;
    match stitches.last_mut() {
        Some(last) if last.address + last.bytes == at => {
            let offset = last.bytes;
            last.pieces.push(Piece { offset, chunk });
            last.bytes += bytes;
        }
        _ => stitches.push(Stitch {
            id,
            address: at,
            bytes,
            pieces: vec![Piece { offset: 0, chunk }],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Device, LARGE};
    use crate::picture::layout::Layout;
    use crate::units::{GIB, MIB};

    #[test]
    fn the_last_minute_is_kept_where_it_is_asked_for() {
        let device = Device::new(GIB);
        device.map(LARGE, 0);
        assert!(device.pages.picture().before.is_empty());
        device.pages.keep_timeline();
        let leases = [1, 2].map(|place| device.map(LARGE, place));
        device.unmap(LARGE, 2, leases[1]);
        let before = device.pages.picture().before;
        let held = before.iter().map(|moment| moment.physical_bytes);
        assert!(held.is_sorted(), "{before:?}");
        let now = before.last().unwrap();
        assert_eq!((now.before_us, now.physical_bytes), (0, 36 * MIB));
        assert_eq!((now.used_bytes, now.requests), (24 * MIB, 3));
        let most = before.iter().map(|moment| moment.used_bytes).max();
        assert_eq!(most, Some(36 * MIB));
    }

    #[test]
    fn every_page_stands_once_where_it_is_used_or_else_mapped() {
        let device = Device::new(GIB);
        let leases = [0, 1, 5].map(|place| device.map(LARGE, place));
        device.unmap(LARGE, 5, leases[2]);
        let picture = device.pages.picture();
        assert_eq!((picture.chunks.len(), picture.stitches.len()), (3, 2));
        assert_eq!((picture.blocks.len(), picture.blocks[1].id), (2, 2));
        let sums = Layout::of(&picture).sums(&picture);
        assert_eq!((sums.live, sums.idle), (24 * MIB, 12 * MIB));
        assert_eq!(picture.counter("physical_bytes"), 36 * MIB);
        assert_eq!(picture.counter("live_bytes"), 24 * MIB);
        assert_eq!(picture.counter("requests"), 3);
        // One that is promised is not idle, whichever it is.
        let lease = device.create(LARGE).unwrap();
        let picture = device.pages.picture();
        let sums = Layout::of(&picture).sums(&picture);
        assert_eq!((sums.held, sums.idle), (12 * MIB, 0));
        assert!(device.pages.release(lease));
        // The idle one goes elsewhere, and is still mapped where it was.
        device.map(LARGE, 2);
        let picture = device.pages.picture();
        let layout = Layout::of(&picture);
        let shown: u64 = layout.segments.iter().map(|segment| segment.bytes).sum();
        assert_eq!((shown, layout.segments[0].bytes), (36 * MIB, 36 * MIB));
        assert_eq!(picture.stitches.len(), 2, "two places, one page");
        let exported = |at: usize| device.pages.picture().blocks[at].exported;
        assert!(device.pages.share(leases[0]).is_some());
        assert!(exported(0) && !exported(1));
    }
}
