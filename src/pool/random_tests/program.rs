//! One random program: what it has, and a step of each kind.

use super::device::Device;
use super::world::{Clock, merge};
use crate::driver::{Address, Code, Context, Driver, Stream};
use crate::pool::{
    CAPTURES, Effort, Order, Owner, Pool, Refusal, Release, Request, Settings, StreamKey,
};
use crate::random::Random;
use crate::units::MIB;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CONTEXTS: u64 = 3;
const THREADS: u64 = 3;

/// What the program has of an allocation.
struct Held {
    bytes: u64,
    id: u64,
    /// Whose completion ends its uses where a free says nothing of them.
    context: Context,
    owner: Owner,
    graph: bool,
    /// The lane of its last use, if the next one comes after it.
    lane: Option<usize>,
    /// The stream that it was asked for on, as long as that is there.
    order: Order,
}

pub struct Program {
    pub pool: Pool<Device>,
    random: Random,
    held: BTreeMap<Address, Held>,
    capturing: Vec<StreamKey>,
    lent: u64,
    numbers: BTreeSet<u64>,
    pub may_fail: bool,
}

impl Program {
    pub fn new(seed: u64, settings: Settings) -> Self {
        Self {
            pool: Pool::new(Device::new(192 * MIB, seed), 0, settings).unwrap(),
            random: Random::new(seed),
            held: BTreeMap::new(),
            capturing: Vec::new(),
            lent: 0,
            numbers: BTreeSet::new(),
            may_fail: false,
        }
    }

    /// A stream of a context, and its thread calls.
    fn stream_of(&mut self, context: Context) -> StreamKey {
        let thread = 1 + self.random.below(THREADS);
        let stream = match self.random.below(8) {
            0 => Stream::LEGACY,
            1 | 2 => Stream::PER_THREAD,
            some => Stream(some + 100),
        };
        self.pool.driver().world().thread = thread;
        StreamKey::new(context, stream, thread)
    }

    fn context(&mut self) -> Context {
        Context(1 + self.random.below(CONTEXTS))
    }

    /// Any stream, most often the same one.
    fn stream(&mut self) -> StreamKey {
        match self.random.below(2) {
            0 => StreamKey::new(Context(1), Stream(107), 0),
            _ => {
                let context = self.context();
                self.stream_of(context)
            }
        }
    }

    fn lane(&self, key: StreamKey) -> usize {
        self.pool.driver().world().lane(key.context, key.stream)
    }

    fn bytes(&mut self) -> u64 {
        const SIZES: [u64; 6] = [512, 100_000, 3 * MIB, 8 * MIB, 20 * MIB, 64 * MIB];
        match self.random.below(3) {
            0 => 1 + self.random.below(40 * MIB),
            _ => SIZES[self.random.index(SIZES.len())],
        }
    }

    fn alloc(&mut self) {
        let key = self.stream();
        if self.capturing.contains(&key) {
            return;
        }
        let owner = match self.random.below(2) {
            0 => Owner::Context,
            _ => Owner::MemoryPool,
        };
        let bytes = self.bytes();
        let request = Request {
            bytes,
            align: owner.alignment(bytes),
            order: match self.random.below(4) {
                0 => Order::Unknown,
                1 => Order::Segment(key),
                _ => Order::Stream(key),
            },
            context: key.context,
            owner,
            effort: match self.random.below(8) {
                0 => Effort::Window,
                _ => Effort::Growth,
            },
            graph: self.random.below(16) == 0,
        };
        let lane = self.lane(key);
        let known = self.pool.driver().world().reached(lane);
        let at = match self.pool.alloc(&request) {
            Ok(at) => at,
            Err(Refusal::NoWindow | Refusal::Driver(Code::OUT_OF_MEMORY)) => return,
            Err(Refusal::Driver(code)) => {
                let broken = self.pool.driver().check(key.context) == Err(code);
                return assert!(broken || self.may_fail, "{code:?}");
            }
        };
        let mut world = self.pool.driver().world();
        assert_eq!(world.check(key.context), Ok(()), "lent where nothing runs");
        match request.order {
            Order::Unknown => world.assert_ready(at, bytes, &Clock::new()),
            // Who came after this stream before came after that alone.
            Order::Segment(_) => world.assert_ready(at, bytes, &known),
            Order::Stream(_) => {}
        }
        self.lent += 1;
        world.run(lane, self.lent, at, bytes);
        drop(world);
        let held = Held {
            bytes,
            id: self.lent,
            context: key.context,
            owner,
            graph: request.graph,
            lane: (request.order != Order::Unknown).then_some(lane),
            order: request
                .order
                .stream()
                .map_or(Order::Unknown, |key| Order::Stream(*key)),
        };
        assert_eq!(at % request.align, 0);
        let number = self.pool.find(at).unwrap().id;
        assert!(self.numbers.insert(number), "a number of two blocks");
        assert!(self.held.insert(at, held).is_none());
    }

    fn any_held(&mut self) -> Option<Address> {
        let place = self.random.index(self.held.len().max(1));
        self.held.keys().nth(place).copied()
    }

    /// Work on a block: on any stream, which the program orders behind the one before.
    fn work(&mut self) {
        let Some(at) = self.any_held() else { return };
        let key = match self.held[&at].graph {
            true => self.stream_of(self.held[&at].context),
            false => self.stream(),
        };
        let lane = self.lane(key);
        let held = self.held.get_mut(&at).expect("one of them");
        let mut world = self.pool.driver().world();
        if world.is_capturing(lane) || world.check(key.context).is_err() {
            return;
        }
        if let Some(before) = held.lane.replace(lane) {
            let reached = world.reached(before);
            world.order(lane, &reached);
        }
        world.run(lane, held.id, at, held.bytes);
    }

    fn free(&mut self) {
        let Some(at) = self.any_held() else { return };
        let key = self.stream();
        let lane = self.lane(key);
        let held = &self.held[&at];
        let found = self.pool.find(at).unwrap();
        assert_eq!((found.bytes, found.order), (held.bytes, held.order));
        let mut world = self.pool.driver().world();
        let mut uses = world.uses_of(held.id);
        if let Some(lane) = held.lane.filter(|lane| world.is_broken(*lane)) {
            // What crashed there may have waited for others, which still run.
            merge(&mut uses, &world.reached(lane));
        }
        let is_of_one = world.is_used_in(held.id, held.context);
        let is_captured = world.is_capturing(lane);
        let release = match self.random.below(8) {
            0 if is_of_one => {
                drop(world);
                Release::Unknown
            }
            1 => {
                world.finish(&uses);
                drop(world);
                Release::Complete
            }
            2 if is_of_one || self.knows_all() => {
                drop(world);
                match self.pool.synchronize_own(held.context, false) {
                    Ok(release) if is_of_one || release != Release::Unknown => release,
                    Err(_) if is_of_one => Release::Unknown,
                    _ => return,
                }
            }
            _ if is_captured => return,
            _ if held.graph && !is_of_one => return,
            _ => {
                // What a graph did there nobody orders.
                if !held.graph {
                    world.order(lane, &uses);
                }
                drop(world);
                Release::Stream(key)
            }
        };
        self.held.remove(&at);
        self.pool.free(at, release).unwrap();
    }

    /// Does the pool know that there may be work in every context?
    fn knows_all(&self) -> bool {
        let known = self.pool.lock().streams.health.contexts();
        known.len() as u64 == CONTEXTS
    }

    fn end_stream(&mut self) {
        let key = self.stream();
        if key.stream.is_default() || self.capturing.contains(&key) {
            return;
        }
        self.pool.stream_ends(key.context, key.stream);
        self.gone(key);
    }

    /// A stream is no more: its handle may come back.
    fn gone(&mut self, key: StreamKey) {
        self.pool.driver().world().end_stream(key);
        self.end_captures(|captures| *captures == key);
        for held in self.held.values_mut() {
            if held.order == Order::Stream(key) {
                held.order = Order::Unknown;
            }
        }
    }

    fn end_thread(&mut self) {
        let thread = 1 + self.random.below(THREADS);
        for context in (1..=CONTEXTS).map(Context) {
            self.gone(StreamKey::new(context, Stream::PER_THREAD, thread));
        }
        self.pool.threads_end(&[thread]);
    }

    fn end_context(&mut self, context: Context) {
        let its = |held: &Held| held.context == context && held.owner == Owner::Context;
        // Its memory ends with it, whoever uses it.
        for held in self.held.values().filter(|held| its(held)) {
            let world = &mut *self.pool.driver().world();
            world.finish(&world.uses_of(held.id));
        }
        self.held.retain(|_, held| !its(held));
        self.pool.context_leaves(context);
        self.pool.driver().world().end_context(context);
        self.pool.context_ends(context);
        self.end_captures(|captures| captures.context == context);
        self.pool.driver().world().begin_context(context);
        // What is left is another context's, as the shim says when it is freed.
        let heir = Context(1 + context.0 % CONTEXTS);
        for (at, held) in &mut self.held {
            if held
                .order
                .stream()
                .is_some_and(|key| key.context == context)
            {
                held.order = Order::Unknown;
            }
            if held.context == context {
                held.context = heir;
                self.pool.adopt(*at, heir);
            }
        }
    }

    /// What captured there is no more.
    fn end_captures(&mut self, of: impl Fn(&StreamKey) -> bool) {
        let ended = self.capturing.extract_if(.., |key| of(key));
        ended.for_each(|_| CAPTURES.ended());
    }

    fn capture(&mut self) {
        if let Some(key) = self.capturing.pop() {
            self.pool.driver().world().thread = key.thread;
            let lane = self.lane(key);
            self.pool.driver().world().capture(lane, false);
            return CAPTURES.ended();
        }
        let key = self.stream();
        if key.stream == Stream::LEGACY {
            return;
        }
        // Of a stream that joins the capture of another one nobody is told.
        let begins = self.random.below(2) == 0;
        begins.then(|| self.pool.capture_begins(key.context, key.stream));
        let lane = self.lane(key);
        let beginning = CAPTURES.begin(&key);
        self.pool.driver().world().capture(lane, true);
        beginning.succeeded();
        self.capturing.push(key);
    }

    pub fn step(&mut self) {
        match self.random.below(1000) {
            0..300 => self.alloc(),
            300..500 => self.work(),
            500..800 => self.free(),
            800..900 => self.pool.driver().world().go_on(self.random.next()),
            900..930 => self.end_stream(),
            930..950 => self.end_thread(),
            950..958 => {
                let context = self.context();
                let broken = self.pool.driver().check(context).is_err();
                match broken || self.random.below(3) > 0 {
                    true => self.end_context(context),
                    false => self.pool.driver().world().break_context(context),
                }
            }
            958..975 => self.capture(),
            975..980 => drop(self.pool.trim()),
            _ => {
                let most = self.random.below(64) * MIB;
                self.pool.give_back(most, Duration::ZERO);
            }
        }
    }

    /// All that there is goes back.
    pub fn end(mut self) {
        while !self.capturing.is_empty() {
            self.capture();
        }
        // In a broken one uses never end.
        (1..=CONTEXTS).for_each(|context| self.end_context(Context(context)));
        let world = || self.pool.driver().world();
        world().fails = 0;
        for (at, held) in std::mem::take(&mut self.held) {
            let uses = world().uses_of(held.id);
            world().finish(&uses);
            self.pool.free(at, Release::Complete).unwrap();
        }
        self.pool.trim();
        assert!(self.lent > 40, "hardly anything was lent");
        assert_eq!(self.pool.stats().live_bytes, 0);
        assert_eq!(self.pool.physical(), self.pool.idle());
        if !self.may_fail {
            assert_eq!(self.pool.physical(), 0);
            assert_eq!(self.pool.driver().leftovers(), (0, 0));
        }
    }

    /// The pool has so many bytes of addresses, and gets no others.
    pub fn addresses(&self, bytes: u64) {
        let at = self.pool.driver().reserve(bytes).unwrap();
        self.pool.lock().arena.give(at, bytes);
        self.pool.bounds.fill();
    }

    /// What was wanted longest ago goes all the time.
    pub fn keep_few_mappings(&self) {
        self.pool.lock().retired.most = 8;
    }
}
