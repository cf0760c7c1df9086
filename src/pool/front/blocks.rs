//! What a front has: the blocks that are at home in it, and its streams. What
//! changes together with its counters is in [`locked`](super::locked).

use super::super::hash::FastMap;
use super::super::request::{BlockInfo, Order, Owner, Request, StreamKey};
use super::super::streams::{StreamId, Use};
use super::lane::Lane;
use super::line::{Weights, weights};
use super::{COMMON, FRONTS, Fronts};
use crate::driver::{Address, Context, Stream};

/// Blocks that a front has room for from the beginning, so that what its threads
/// write is seldom at the edge of its memory, beside another front's.
const BLOCKS: usize = 56;
/// No lane: the block was asked for without a stream.
pub(super) const NO_LANE: u32 = u32::MAX;

/// In whose hands a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hands {
    /// The program's.
    Program,
    /// Nobody's: the next request of its length gets it as it is.
    Shelf,
    /// Nobody's, and not to be lent: others may have it open.
    Parked,
    /// Nobody's, and free; not to be lent yet.
    Aside,
}

/// A block that is at home in a front.
#[derive(Debug, Clone, Copy)]
pub struct Lent {
    pub(super) asked: u64,
    /// Bytes lent for it; 0 of attached memory.
    pub granted: u64,
    pub(super) id: u64,
    pub(super) context: Context,
    pub(super) lane: u32,
    pub(super) owner: Owner,
    pub(super) hands: Hands,
    pub(super) graph: bool,
    pub(super) exported: bool,
    pub(super) attached: bool,
    /// A block of a slab.
    pub small: bool,
}

/// One front.
pub struct Front {
    pub(super) number: usize,
    pub(super) lent: FastMap<Address, Lent>,
    pub(super) lanes: Vec<Lane>,
    pub(super) ids: FastMap<StreamKey, usize>,
    pub(super) latest: Option<(StreamKey, usize)>,
    pub(super) last_lent: u64,
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

    /// How many blocks are at home here.
    pub fn blocks(&self) -> usize {
        self.lent.len()
    }

    /// The lane of a stream, if it is known.
    #[inline]
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
        match order.stream() {
            Some(key) => self.find(key),
            None => Some(0),
        }
    }

    /// A lane.
    pub fn lane(&mut self, lane: usize) -> &mut Lane {
        &mut self.lanes[lane]
    }

    /// All lanes.
    pub fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut()
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

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_lent += 1;
        self.last_id()
    }

    /// The block with this address, if the program has it.
    pub fn info(&self, at: Address) -> Option<BlockInfo> {
        let lent = self.lent.get(&at)?;
        (lent.hands == Hands::Program).then(|| self.describe(at, lent))
    }

    #[inline]
    pub(super) fn describe(&self, at: Address, lent: &Lent) -> BlockInfo {
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

    /// Bytes of a block that is at home here.
    pub fn granted(&self, at: Address) -> u64 {
        self.lent.get(&at).map_or(0, |lent| lent.granted)
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

    /// All blocks here of one context are another one's from now on.
    pub fn hand_over(&mut self, context: Context, to: Context) {
        let all = self.lent.values_mut();
        for lent in all.filter(|lent| lent.context == context) {
            lent.context = to;
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

    /// Every block that stays aside until it can be lent: address and length.
    pub fn each_aside(&self) -> impl Iterator<Item = (Address, u64)> {
        let aside = self.lent.iter();
        let aside = aside.filter(|(_, lent)| lent.hands == Hands::Aside);
        aside.map(|(at, lent)| (*at, lent.granted))
    }

    /// Every block that is not free, those among them that are parked told so.
    pub fn each_held(&self) -> impl Iterator<Item = (BlockInfo, &Lent)> {
        let held = self.lent.iter();
        let held = held.filter(|(_, lent)| matches!(lent.hands, Hands::Program | Hands::Parked));
        held.map(|(at, lent)| {
            let parked = lent.hands == Hands::Parked;
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
        self.lent.reserve(BLOCKS);
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
