//! What goes on at a time that is not known as it is queued: behind a wait for a word, behind
//! a function of the host. It is planned in a time of its own, later than all others, and
//! moved to the clock's once it may go on. Knows nothing of order, only of time.

use crate::abi::HostFn;
use crate::state::Sim;
use crate::values::Until;

/// The first moment of the first such time, and how long one is, in
/// nanoseconds: the clock reaches neither.
pub const HELD: u64 = 1 << 62;
const SPAN: u64 = 1 << 50;
/// How many there are.
const SPANS: u64 = (u64::MAX - HELD) / SPAN;

/// Where something stands.
pub struct Held {
    /// The stream that stands there, if it is one.
    pub stream: Option<u32>,
    pub why: Why,
    /// Once all of these are past it is there.
    starts: Vec<u64>,
    /// Where its own time begins.
    from: u64,
}

/// What it waits for there.
pub enum Why {
    Word(Until),
    /// A function of the host, by a number of its own.
    Function {
        function: HostFn,
        data: usize,
        number: u64,
        stage: Stage,
    },
    /// Nothing but its starts, which lie in different times.
    Starts,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Stage {
    Queued,
    Runs,
    Returned,
}

impl Held {
    /// Is it there?
    pub fn is_there(&self, now: u64) -> bool {
        self.starts.iter().all(|start| *start <= now)
    }
}

impl Sim {
    /// A stream stands, for this reason.
    pub fn hold_stream(&mut self, id: u32, why: Why) {
        let start = self.streams[&id].ready;
        let from = self.hold(Some(id), vec![start], why);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ready = from;
        }
    }

    /// Begins another time, and answers its first moment.
    fn hold(&mut self, stream: Option<u32>, starts: Vec<u64>, why: Why) -> u64 {
        let last = self.held.last().map_or(SPANS, |held| span(held.from));
        let next = (1..=SPANS).map(|step| HELD + (last + step) % SPANS * SPAN);
        let used = |from: &u64| self.held.iter().any(|held| held.from == *from);
        let from = next.into_iter().find(|from| !used(from));
        let from = from.unwrap_or_else(|| panic!("over {SPANS} waits at once"));
        self.held.push(Held {
            stream,
            why,
            starts,
            from,
        });
        from
    }

    /// The later one of two moments; where neither is known to be, a time of its own, which
    /// begins once both are past.
    pub fn later(&mut self, one: u64, other: u64, stream: Option<u32>) -> u64 {
        let (first, last) = (one.min(other), one.max(other));
        let apart = first < HELD || span(first) != span(last);
        match last >= HELD && first > self.clock.now() && apart {
            true => self.hold(stream, vec![first, last], Why::Starts),
            false => last,
        }
    }

    /// Lets go on what may; is there anything?
    pub fn let_go(&mut self) -> bool {
        let mut any = false;
        let now = self.clock.now();
        let goes = |sim: &Self, held: &Held| match &held.why {
            _ if !held.is_there(now) => false,
            Why::Word(until) => until.holds(sim.read_word(until)),
            Why::Function { stage, .. } => *stage == Stage::Returned,
            Why::Starts => true,
        };
        while let Some(index) = self.held.iter().position(|held| goes(self, held)) {
            let held = self.held.remove(index);
            self.move_time(held.from, now);
            any = true;
        }
        any
    }

    /// What was planned in the time that begins at `from` begins at `now`.
    fn move_time(&mut self, from: u64, now: u64) {
        let moved = |at: &mut u64| {
            if (from..from + SPAN).contains(at) {
                *at = now + (*at - from);
            }
        };
        let pending = std::mem::take(&mut self.pending);
        self.pending = pending
            .into_iter()
            .map(|((mut end, order), work)| {
                moved(&mut end);
                ((end, order), work)
            })
            .collect();
        self.streams.values_mut().for_each(|s| moved(&mut s.ready));
        let starts = self.held.iter_mut().flat_map(|held| &mut held.starts);
        starts.for_each(moved);
        let records = self.events.values_mut();
        records.for_each(|event| event.move_record(moved));
        let graphs = self.graphs.values_mut();
        graphs.for_each(|graph| graph.move_launch(moved));
        let contexts = self.contexts.values_mut();
        contexts.for_each(|context| moved(&mut context.waits.1));
        self.waits.move_ends(moved);
    }

    /// These streams end: nothing holds them any more, nor what stands behind them.
    pub fn forget_held(&mut self, streams: &[u32]) {
        let now = self.clock.now();
        let theirs = |held: &mut Held| held.stream.is_some_and(|id| streams.contains(&id));
        let over: Vec<Held> = self.held.extract_if(.., theirs).collect();
        for held in over {
            self.move_time(held.from, now);
        }
        for id in streams {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.ready = stream.ready.min(now);
            }
        }
    }

    /// The next moment at which something happens that is planned.
    pub fn next_moment(&mut self) -> Option<u64> {
        let now = self.clock.now();
        let work = self.pending.keys().next().map(|(end, _)| *end);
        let starts = self
            .held
            .iter()
            .flat_map(|held| held.starts.iter().copied());
        starts
            .chain(work)
            .filter(|at| (now + 1..HELD).contains(at))
            .min()
    }
}

/// Which of the times that are not known.
fn span(at: u64) -> u64 {
    (at - HELD) / SPAN
}
