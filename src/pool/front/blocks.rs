//! What a front has: the blocks that are at home in it, and its streams. A
//! request takes a block from a shelf, a free puts it on one; everything else
//! comes from behind the state lock.

use super::super::hash::FastMap;
use super::super::request::{BlockInfo, Order, Owner, Request, StreamKey};
use super::super::streams::{StreamId, Use};
use super::lane::{Lane, is_small};
use super::line::{self, Line, Weights, fall, has_room, rise, weights, weights_of};
use super::{COMMON, FRONTS, Fronts};
use crate::driver::{Address, Context, Stream};
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

/// No lane: the block was asked for without a stream.
const NO_LANE: u32 = u32::MAX;

/// In whose hands a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hands {
    /// The program's.
    Program,
    /// Nobody's: the next request of its length gets it as it is.
    Shelf,
    /// Nobody's, and it is not to be lent, as it was exported, or not yet.
    Aside,
}

/// A block that is at home in a front.
#[derive(Debug, Clone, Copy)]
pub struct Lent {
    asked: u64,
    /// Bytes lent for it; 0 of attached memory.
    pub granted: u64,
    id: u64,
    context: Context,
    lane: u32,
    owner: Owner,
    hands: Hands,
    graph: bool,
    exported: bool,
    attached: bool,
    /// A block of a slab.
    pub small: bool,
}

/// One front.
pub struct Front {
    number: usize,
    lent: FastMap<Address, Lent>,
    lanes: Vec<Lane>,
    ids: FastMap<StreamKey, usize>,
    latest: Option<(StreamKey, usize)>,
    last_lent: u64,
}

/// A front and its counters, locked.
pub struct Locked<'a> {
    front: MutexGuard<'a, Front>,
    line: &'a Line,
}

impl Lent {
    /// The block of so many bytes that answers a request.
    pub fn new(request: &Request, granted: u64, small: bool) -> Self {
        Self {
            asked: request.bytes,
            granted,
            id: 0,
            context: request.context,
            lane: NO_LANE,
            owner: request.owner,
            hands: Hands::Program,
            graph: request.graph,
            exported: false,
            attached: false,
            small,
        }
    }

    /// Attached memory of so many bytes.
    pub fn attached(bytes: u64, context: Context) -> Self {
        Self {
            asked: bytes,
            granted: 0,
            id: 0,
            context,
            lane: NO_LANE,
            owner: Owner::Context,
            hands: Hands::Program,
            graph: false,
            exported: false,
            attached: true,
            small: false,
        }
    }

    /// What it adds to the sums.
    pub fn weights(&self) -> Weights {
        weights(self.asked, self.granted, self.owner)
    }
}

impl Front {
    /// The front with this number.
    pub fn new(number: usize) -> Self {
        // Nobody's uses are complete; their lane has no place and no end.
        let key = StreamKey::new(Context::default(), Stream::default(), 0);
        let nobody = (number == COMMON).then(|| Lane::new(key, Use::NOBODY, 0));
        Self {
            number,
            lent: FastMap::default(),
            lanes: nobody.into_iter().collect(),
            ids: FastMap::default(),
            latest: None,
            last_lent: 0,
        }
    }

    /// The lane of a stream, if it is known.
    pub fn find(&mut self, key: &StreamKey) -> Option<usize> {
        if let Some((latest, lane)) = &self.latest
            && latest == key
        {
            return Some(*lane);
        }
        let lane = *self.ids.get(key)?;
        self.latest = Some((*key, lane));
        Some(lane)
    }

    /// The lane of an order; the common one where it names no stream.
    pub fn lane_of(&mut self, order: &Order) -> Option<usize> {
        match order {
            Order::Stream(key) => self.find(key),
            Order::Unknown => Some(0),
        }
    }

    /// A lane.
    pub fn lane(&mut self, lane: usize) -> &mut Lane {
        &mut self.lanes[lane]
    }

    /// A lane's context, or that of a request without a stream, is known to be
    /// whole: in this epoch nobody else needs to be asked but the driver.
    pub fn vouch(&mut self, lane: usize, context: Context, epoch: u64) {
        let common = self.number == COMMON;
        let lane = &mut self.lanes[lane];
        if common {
            lane.key.context = context;
        }
        if lane.key.context == context {
            lane.known = epoch;
        }
    }

    /// The number of the last block that was lent here. Numbers rise in a
    /// front, and no two fronts have the same.
    pub fn last_id(&self) -> u64 {
        self.last_lent * FRONTS as u64 + self.number as u64
    }

    fn next_id(&mut self) -> u64 {
        self.last_lent += 1;
        self.last_id()
    }

    /// The block with this address, if the program has it.
    pub fn info(&self, at: Address) -> Option<BlockInfo> {
        let lent = self.lent.get(&at)?;
        (lent.hands == Hands::Program).then(|| self.describe(at, lent))
    }

    fn describe(&self, at: Address, lent: &Lent) -> BlockInfo {
        let lane = self.lanes.get(lent.lane as usize);
        BlockInfo {
            base: at,
            bytes: lent.asked,
            id: lent.id,
            context: lent.context,
            owner: lent.owner,
            graph: lent.graph,
            // None is left where the stream ended.
            order: match lane {
                Some(lane) if lane.since < lent.id => Order::Stream(lane.key),
                _ => Order::Unknown,
            },
            attached: lent.attached,
            parked: false,
            overrun: false,
            error: None,
        }
    }

    /// The blocks that the program has: address and what is known of each.
    pub fn live(&self) -> impl Iterator<Item = BlockInfo> {
        let live = self.lent.iter();
        let live = live.filter(|(_, lent)| lent.hands == Hands::Program);
        live.map(|(at, lent)| self.describe(*at, lent))
    }

    /// Gives a block to another context.
    pub fn adopt(&mut self, at: Address, context: Context) {
        if let Some(lent) = self.lent.get_mut(&at) {
            lent.context = context;
        }
    }

    /// No block here is of this context any more.
    pub fn disown(&mut self, context: Context) {
        let all = self.lent.values_mut();
        for lent in all.filter(|lent| lent.context == context) {
            lent.context = Context::default();
        }
    }

    /// A block may be open in other processes: its free is not taken here.
    pub fn mark_exported(&mut self, at: Address) {
        if let Some(lent) = self.lent.get_mut(&at) {
            lent.exported = true;
        }
    }

    /// Every block on a shelf: the stream of its last use, address, length and
    /// the place.
    pub fn each_shelved(&self) -> impl Iterator<Item = (StreamId, Address, u64, u64)> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|lane| {
            let all = lane.each();
            all.map(|(bytes, at, place)| (lane.id, at, bytes, place))
        })
    }

    /// Every block on no shelf, those among them that are parked told so.
    pub fn each_held(&self) -> impl Iterator<Item = (BlockInfo, &Lent)> {
        let held = self.lent.iter();
        let held = held.filter(|(_, lent)| lent.hands != Hands::Shelf);
        held.map(|(at, lent)| {
            let parked = lent.hands == Hands::Aside;
            let info = self.describe(*at, lent);
            (BlockInfo { parked, ..info }, lent)
        })
    }

    /// Takes a block out that lies on no shelf.
    pub fn remove(&mut self, at: Address) -> Option<Lent> {
        self.lent.remove(&at)
    }

    /// Adds a lane for a stream, or makes one that has ended the stream's.
    pub fn add_lane(&mut self, key: StreamKey, ended: Option<usize>) -> StreamId {
        let since = self.last_id();
        let lane = match ended {
            Some(lane) => {
                let again = &mut self.lanes[lane];
                (again.key, again.since, again.known) = (key, since, 0);
                lane
            }
            None => {
                let id = Fronts::id_of(self.number, self.lanes.len());
                self.lanes.push(Lane::new(key, id, since));
                self.lanes.len() - 1
            }
        };
        self.ids.insert(key, lane);
        self.lanes[lane].id
    }

    /// The stream has ended: its handle may come back as another one.
    pub fn end_lane(&mut self, key: &StreamKey) -> Option<StreamId> {
        self.latest = None;
        let lane = self.ids.remove(key)?;
        let lane = &mut self.lanes[lane];
        lane.since = Lane::ENDED;
        Some(lane.id)
    }
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

    /// Lends a block from a shelf as it is, if no peak rises by it.
    pub fn lend_below_peaks(
        &mut self,
        lane: usize,
        request: &Request,
        bytes: u64,
    ) -> Option<Address> {
        let fits = has_room(self.line, weights_of(request, bytes));
        fits.then(|| self.lend(lane, request, bytes))?
    }

    /// Lends a block from a shelf as it is. The caller has collected all room that
    /// there is: what is missing raises the peaks.
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
        let lane = match order {
            Order::Stream(key) => self.front.find(key).map_or(NO_LANE, |lane| lane as u32),
            Order::Unknown => NO_LANE,
        };
        let id = self.front.next_id();
        self.front.lent.insert(at, Lent { id, lane, ..lent });
        if !lent.attached {
            rise(self.line, lent.weights());
        }
    }

    /// Takes a block back onto the shelf of the stream on which it was freed,
    /// and gives that use its place. `None` where it is not the program's, not
    /// at home here, or more has to be known than that `complete` or not.
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
        lane.tagged = lane.now;
        lane.put(lent.granted, at, lane.now);
        line::count_shelved(self.line, is_small(lent.granted), 1);
        line::count_free(self.line);
        fall(self.line, lent.weights());
        Some(front.describe(at, &lent))
    }

    /// Takes a block that the program has out of its hands.
    pub fn set_aside(&mut self, at: Address) {
        if let Some(lent) = self.front.lent.get_mut(&at) {
            lent.hands = Hands::Aside;
            let [asked, _, pooled] = lent.weights();
            line::count_free(self.line);
            fall(self.line, [asked, 0, pooled]);
        }
    }

    /// A block that was set aside is lent no more, and goes onto no shelf.
    pub fn count_given(&self, lent: &Lent) {
        fall(self.line, [0, lent.granted, 0]);
    }

    /// Puts a block that was set aside, here or in another front, on a shelf.
    pub fn shelve(&mut self, at: Address, lent: Lent, lane: usize, place: u64) {
        self.count_given(&lent);
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
    match request.order {
        Order::Stream(_) => lane as u32,
        Order::Unknown => NO_LANE,
    }
}
