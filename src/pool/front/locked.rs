//! What changes in a locked front together with its counters: blocks are lent
//! from shelves, taken back onto them, and come and go.

use super::super::request::{BlockInfo, Order, Request};
use super::super::streams::StreamId;
use super::blocks::{Front, Hands, Lent, NO_LANE};
use super::lane::is_small;
use super::line::{self, Line, fall, has_room, rise, weights_of};
use crate::driver::Address;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

/// A front and its counters, locked.
pub struct Locked<'a> {
    front: MutexGuard<'a, Front>,
    line: &'a Line,
}

impl<'a> Locked<'a> {
    /// A front with its line.
    pub fn new(front: MutexGuard<'a, Front>, line: &'a Line) -> Self {
        Self { front, line }
    }

    /// Its line.
    pub fn line(&self) -> &Line {
        self.line
    }

    /// Takes all small blocks, or all windows, off the shelves and out of the
    /// front: address, what it was, stream and place.
    pub fn clear(&mut self, small: bool, mut taken: impl FnMut(Address, Lent, StreamId, u64)) {
        let front = &mut *self.front;
        for lane in &mut front.lanes {
            let id = lane.id;
            lane.clear(small, |at, place| {
                let block = front.lent.remove(&at);
                let block = block.expect("a shelved block is at home here");
                line::count_shelved(self.line, small, -1);
                taken(at, block, id, place);
            });
        }
    }

    /// Takes a block off a shelf and out of the front, for another one.
    pub fn give_away(&mut self, lane: usize, bytes: u64, align: u64) -> Option<(Address, Lent)> {
        let at = self.front.lanes[lane].take(bytes, align)?;
        line::count_shelved(self.line, is_small(bytes), -1);
        let lent = self.front.lent.remove(&at);
        Some((at, lent.expect("a shelved block is at home here")))
    }

    /// May so many bytes be lent without a new peak, as far as this front knows?
    #[inline]
    pub fn has_room(&self, request: &Request, bytes: u64) -> bool {
        has_room(self.line, weights_of(request, bytes))
    }

    /// Lends a block from a shelf as it is. Where there is too little room, once
    /// all was collected that there is, the peaks rise.
    #[inline]
    pub fn lend(&mut self, lane: usize, request: &Request, bytes: u64) -> Option<Address> {
        let front = &mut *self.front;
        let at = front.lanes[lane].take(bytes, request.align)?;
        line::count_shelved(self.line, is_small(bytes), -1);
        let id = front.next_id();
        let lent = front.lent.get_mut(&at);
        let lent = lent.expect("a shelved block is at home here");
        *lent = Lent {
            id,
            lane: lane_number(request, lane),
            ..Lent::new(request, bytes, lent.small)
        };
        rise(self.line, weights_of(request, bytes));
        Some(at)
    }

    /// Enters a block that the program has from now on.
    pub fn enter(&mut self, at: Address, lent: Lent, order: &Order) {
        let lane = order.stream().and_then(|key| self.front.find(key));
        let lane = lane.map_or(NO_LANE, |lane| lane as u32);
        let id = self.front.next_id();
        self.front.lent.insert(at, Lent { id, lane, ..lent });
        if !lent.attached {
            rise(self.line, lent.weights());
        }
    }

    /// Takes a block back onto the shelf of the stream on which it was freed,
    /// and gives that use its place. `None` where it is not the program's, not
    /// at home here, or more has to be known than that `complete` or not.
    #[inline]
    pub fn take_back(&mut self, at: Address, lane: usize, complete: bool) -> Option<BlockInfo> {
        let front = &mut *self.front;
        let lent = front.lent.get_mut(&at)?;
        let plain = lent.hands == Hands::Program && !lent.exported && !lent.attached;
        if !plain || (lent.graph && !complete) {
            return None;
        }
        lent.hands = Hands::Shelf;
        let lent = *lent;
        let lane = &mut front.lanes[lane];
        let place = match complete {
            true => lane.now,
            false => lane.place_of_free(lent.granted),
        };
        lane.tagged = place;
        lane.put(lent.granted, at, place);
        line::count_shelved(self.line, is_small(lent.granted), 1);
        line::count_free(self.line);
        fall(self.line, lent.weights());
        Some(front.describe(at, &lent))
    }

    /// Takes a block that the program has out of its hands: it is free.
    pub fn set_aside(&mut self, at: Address) {
        self.park(at);
        self.unpark(at);
    }

    /// The same, but others may have it open.
    pub fn park(&mut self, at: Address) {
        if let Some(lent) = self.front.lent.get_mut(&at) {
            lent.hands = Hands::Parked;
            let [asked, _, pooled] = lent.weights();
            line::count_free(self.line);
            fall(self.line, [asked, 0, pooled]);
        }
    }

    /// A block that was parked is free.
    pub fn unpark(&mut self, at: Address) {
        if let Some(lent) = self.front.lent.get_mut(&at) {
            lent.hands = Hands::Aside;
            fall(self.line, [0, lent.granted, 0]);
        }
    }

    /// Puts a block that was set aside, here or in another front, on a shelf.
    pub fn shelve(&mut self, at: Address, lent: Lent, lane: usize, place: u64) {
        let front = &mut *self.front;
        front.lanes[lane].put(lent.granted, at, place);
        line::count_shelved(self.line, is_small(lent.granted), 1);
        let hands = Hands::Shelf;
        front.lent.insert(at, Lent { hands, ..lent });
    }

    /// Counts a request.
    pub fn count_request(&self) {
        line::count_request(self.line);
    }
}

impl Deref for Locked<'_> {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Front {
        &mut self.front
    }
}

fn lane_number(request: &Request, lane: usize) -> u32 {
    match request.order.stream() {
        Some(_) => lane as u32,
        None => NO_LANE,
    }
}
