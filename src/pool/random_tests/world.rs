//! In which order work runs, by vector clocks: the order that was asked for and no other. Ends
//! the test where work uses what other work may still use.

use super::super::StreamKey;
use crate::driver::{Address, Code, Context, Event, Handle, Result, Stream};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// How far each lane was, in the order of their numbers; those that lack are at 0.
pub type Clock = Vec<u64>;

/// What runs in order: a stream as long as it lives.
#[derive(Default)]
pub struct Lane {
    context: Context,
    /// Pieces of work that were queued, and that are over.
    pub queued: u64,
    pub done: u64,
    /// What the work that is queued next comes after.
    behind: Clock,
    is_capturing: bool,
}

/// A use of bytes of a handle by a piece of work.
struct Use {
    handle: Handle,
    bytes: Range<u64>,
    mapping: Address,
    block: u64,
    lane: usize,
    place: u64,
    /// The work itself and what it came after.
    reached: Clock,
}

pub struct World {
    pub lanes: Vec<Lane>,
    streams: HashMap<StreamKey, usize>,
    events: HashMap<Event, (Context, Clock)>,
    mappings: BTreeMap<Address, (u64, Handle)>,
    uses: Vec<Use>,
    gone: BTreeSet<Context>,
    broken: BTreeSet<Context>,
    /// The thread that calls.
    pub thread: u64,
    random: Random,
    /// Of so many calls one fails; none if it is 0.
    pub fails: u64,
    pub has_context_events: bool,
}

fn at(clock: &Clock, lane: usize) -> u64 {
    clock.get(lane).copied().unwrap_or(0)
}

/// Both.
pub fn merge(into: &mut Clock, from: &Clock) {
    into.resize(into.len().max(from.len()), 0);
    into.iter_mut()
        .zip(from)
        .for_each(|(into, from)| *into = (*into).max(*from));
}

impl World {
    /// Nothing was asked for yet; which calls fail is told by a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            lanes: Vec::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            mappings: BTreeMap::new(),
            uses: Vec::new(),
            gone: BTreeSet::new(),
            broken: BTreeSet::new(),
            thread: 1,
            random: Random::new(seed),
            fails: 0,
            has_context_events: true,
        }
    }

    /// The lane of a stream, of the calling thread where it is its own.
    pub fn lane(&mut self, context: Context, stream: Stream) -> usize {
        let key = StreamKey::new(context, stream, self.thread);
        let fresh = self.lanes.len();
        let lane = *self.streams.entry(key).or_insert(fresh);
        if lane == fresh {
            self.lanes.push(Lane {
                context,
                ..Lane::default()
            });
        }
        lane
    }

    /// The stream is no more; what it runs goes on.
    pub fn end_stream(&mut self, key: StreamKey) {
        if let Some(lane) = self.streams.remove(&key) {
            self.lanes[lane].is_capturing = false;
        }
    }

    /// The context is no more; what ran in it, and what that came after, was waited for.
    pub fn end_context(&mut self, context: Context) {
        self.streams.retain(|key, _| key.context != context);
        let reached = self.reached_in(context);
        self.finish(&reached);
        let its = self.lanes.iter_mut().filter(|lane| lane.context == context);
        its.for_each(|lane| lane.is_capturing = false);
        self.events.retain(|_, (of, _)| *of != context);
        self.broken.remove(&context);
        self.gone.insert(context);
    }

    /// A kernel of the context crashes: nothing of it runs any more, and all calls say so.
    pub fn break_context(&mut self, context: Context) {
        let its = self.lanes.iter_mut().filter(|lane| lane.context == context);
        its.for_each(|lane| lane.done = lane.queued);
        self.broken.insert(context);
    }

    /// Fails where the context is broken.
    pub fn check(&self, context: Context) -> Result<()> {
        match self.broken.contains(&context) {
            true => Err(Code::ILLEGAL_ADDRESS),
            false => Ok(()),
        }
    }

    /// Is the context of a lane broken?
    pub fn is_broken(&self, lane: usize) -> bool {
        self.broken.contains(&self.lanes[lane].context)
    }

    /// Fails where the context of an event is broken.
    pub fn check_event(&self, event: Event) -> Result<()> {
        self.check(self.events.get(&event).expect("an event that exists").0)
    }

    /// Another context gets the handle of one that is gone.
    pub fn begin_context(&mut self, context: Context) {
        self.gone.remove(&context);
    }

    /// The stream begins or ends a capture.
    pub fn capture(&mut self, lane: usize, captures: bool) {
        self.lanes[lane].is_capturing = captures;
    }

    /// Does a lane of a context capture? What all of the context is asked for ends that.
    pub fn captures_in(&self, context: Context) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.context == context && lane.is_capturing)
    }

    pub fn is_capturing(&self, lane: usize) -> bool {
        self.lanes[lane].is_capturing
    }

    /// What was queued on a lane so far, and what that came after.
    pub fn reached(&self, lane: usize) -> Clock {
        let mut reached = self.lanes[lane].behind.clone();
        reached.resize(reached.len().max(lane + 1), 0);
        reached[lane] = self.lanes[lane].queued;
        reached
    }

    /// The same of all lanes of a context.
    pub fn reached_in(&self, context: Context) -> Clock {
        let mut all = Clock::new();
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].context == context {
                merge(&mut all, &self.reached(lane));
            }
        }
        all
    }

    /// The program lets a lane wait for what another one has reached.
    pub fn order(&mut self, lane: usize, behind: &Clock) {
        merge(&mut self.lanes[lane].behind, behind);
    }

    /// The host has waited for this.
    pub fn finish(&mut self, clock: &Clock) {
        for (lane, &place) in self.lanes.iter_mut().zip(clock) {
            lane.done = lane.done.max(place);
        }
    }

    /// Is all of this over?
    pub fn is_over(&self, clock: &Clock) -> bool {
        let lanes = self.lanes.iter().zip(clock);
        lanes.into_iter().all(|(lane, &place)| lane.done >= place)
    }

    /// What lies below a range: mappings, and the bytes of handles that they show.
    fn below(&self, address: Address, bytes: u64) -> Vec<(Address, Handle, Range<u64>)> {
        let (end, mut reached) = (address + bytes, address);
        let first = self.mappings.range(..=address).next_back();
        let (first, _) = first.expect("nothing is mapped here");
        let mut below = Vec::new();
        for (&mapping, &(size, handle)) in self.mappings.range(first..&end) {
            assert!(mapping <= reached, "a hole in a block");
            let to = end.min(mapping + size);
            below.push((mapping, handle, reached - mapping..to - mapping));
            reached = to;
        }
        assert_eq!(reached, end, "a block beyond what is mapped");
        below
    }

    /// The work that may be under way on bytes of a handle.
    fn users(&self, handle: Handle, bytes: &Range<u64>) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(move |used| {
            let meets = used.bytes.start < bytes.end && bytes.start < used.bytes.end;
            meets && used.handle == handle && self.lanes[used.lane].done < used.place
        })
    }

    /// Queues work on a lane that uses these bytes of a block. Ends the test where they may
    /// be in use by a block that was there before.
    pub fn run(&mut self, lane: usize, block: u64, address: Address, bytes: u64) {
        self.lanes[lane].queued += 1;
        let reached = self.reached(lane);
        self.uses
            .retain(|used| self.lanes[used.lane].done < used.place);
        for (mapping, handle, bytes) in self.below(address, bytes) {
            let others = self.users(handle, &bytes);
            for used in others.filter(|used| used.block != block) {
                // The stream itself is no order where the address is another one.
                let same = used.lane == lane && used.mapping == mapping;
                assert!(
                    same || at(&self.lanes[lane].behind, used.lane) >= used.place,
                    "lane {lane} uses what lane {} still uses",
                    used.lane
                );
            }
            self.uses.push(Use {
                handle,
                bytes,
                mapping,
                block,
                lane,
                place: self.lanes[lane].queued,
                reached: reached.clone(),
            });
        }
    }

    /// All uses of a block, and what they came after.
    pub fn uses_of(&self, block: u64) -> Clock {
        let mut clock = Clock::new();
        let uses = self.uses.iter().filter(|used| used.block == block);
        uses.for_each(|used| merge(&mut clock, &used.reached));
        clock
    }

    /// Is a block used in this context alone?
    pub fn is_used_in(&self, block: u64, context: Context) -> bool {
        let mut uses = self.uses.iter().filter(|used| used.block == block);
        uses.all(|used| self.lanes[used.lane].context == context)
    }

    /// Some work is over, and what it came after.
    pub fn go_on(&mut self, any: u64) {
        if !self.uses.is_empty() {
            let some = any as usize % self.uses.len();
            let reached = self.uses[some].reached.clone();
            self.finish(&reached);
        }
    }

    /// Ends the test where bytes may be in use by more than this.
    pub fn assert_ready(&self, address: Address, bytes: u64, by: &Clock) {
        for (_, handle, bytes) in self.below(address, bytes) {
            for used in self.users(handle, &bytes) {
                let is_known = at(by, used.lane) >= used.place;
                assert!(is_known, "lane {} uses what is lent for all", used.lane);
            }
        }
    }

    /// Fails where the test wants it.
    pub fn may_fail(&mut self) -> Result<()> {
        match self.fails != 0 && self.random.below(self.fails) == 0 {
            true => Err(Code::UNKNOWN),
            false => Ok(()),
        }
    }
}

impl World {
    /// An event was made, and stands for nothing.
    pub fn event_made(&mut self, event: Event, context: Context) {
        assert!(!self.gone.contains(&context), "a context that is gone");
        self.events.insert(event, (context, Clock::new()));
    }

    pub fn event_gone(&mut self, event: Event) {
        self.events.remove(&event);
    }

    /// It is recorded behind this, in its own context.
    pub fn record(&mut self, event: Event, context: Context, reached: Clock) {
        let known = self.events.get_mut(&event);
        let (of, clock) = known.expect("an event that exists");
        assert_eq!(*of, context, "an event of another context");
        *clock = reached;
    }

    pub fn clock(&self, event: Event) -> &Clock {
        &self.events.get(&event).expect("an event that exists").1
    }

    pub fn mapped(&mut self, at: Address, bytes: u64, handle: Handle) {
        self.mappings.insert(at, (bytes, handle));
    }

    pub fn is_mapped(&self, handle: Handle) -> bool {
        self.mappings.values().any(|(_, mapped)| *mapped == handle)
    }

    /// Ends the test where work runs there.
    pub fn unmapped(&mut self, at: Address, bytes: u64) {
        let gone = at..at + bytes;
        for used in self.uses.iter().filter(|used| gone.contains(&used.mapping)) {
            let is_over = self.lanes[used.lane].done >= used.place;
            assert!(is_over, "unmapped while lane {} uses it", used.lane);
        }
        self.mappings.retain(|mapping, _| !gone.contains(mapping));
    }
}
