//! What is known of each stream's progress. A free is tagged with its place
//! in its stream ([`Use`]), which its front gives out. An event behind that place
//! ([`marks`]) tells when it was passed, and orders other streams behind it. It follows
//! the free at once where others look for memory, and on default streams; else it is
//! recorded when somebody needs to know, and a free and a hit make no driver call.
//! Who comes after whom is [`order`]'s.

mod marks;
mod order;
#[cfg(test)]
mod tests;

use super::front::{Fronts, Lane};
use super::health::Health;
use super::request::StreamKey;
use crate::driver::{Context, Driver, Event, Result, Stream};
pub use marks::Noted;
use marks::{Mark, Moment};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Index of a stream in [`Streams`]: another one for each stream, also where the
/// driver recycles the handle. It is used again once the stream has ended and
/// every use tagged with it is complete; places go on from there.
pub type StreamId = u32;

/// The last use of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// The stream, or [`Use::NOBODY`].
    pub stream: StreamId,
    /// The stitch through which it happened, or [`Use::MIXED`].
    pub alias: u32,
    /// Its place in the stream.
    pub seq: u64,
}

impl Use {
    /// No stream: complete.
    pub const NOBODY: StreamId = StreamId::MAX;
    /// More than one address.
    pub const MIXED: u32 = u32::MAX;
    /// Complete, or never used.
    pub const DONE: Use = Use {
        stream: Self::NOBODY,
        alias: Self::MIXED,
        seq: 0,
    };
}

/// The stream value that stands for a whole context.
const WHOLE_CONTEXT: Stream = Stream(u64::MAX);

/// How many streams that ended are asked at the end of one.
const ASKED: usize = 4;

struct Progress {
    key: StreamKey,
    /// Was the stream destroyed? Its handle may be another's by now.
    ended: bool,
    /// Has it uses of which nothing will tell when they end?
    lost: bool,
    /// Everything tagged with at most this is complete.
    done: u64,
    /// Everything tagged with at most this lies before an edge in the stream.
    edge: u64,
    marks: VecDeque<Mark>,
}

impl Progress {
    fn new(key: StreamKey) -> Self {
        Self {
            key,
            ended: false,
            lost: false,
            done: 0,
            edge: 0,
            marks: VecDeque::new(),
        }
    }

    /// Are there uses that are not known complete and that no event covers,
    /// where this is the latest tag?
    fn is_uncovered(&self, tagged: u64) -> bool {
        let covered = self.marks.back().map_or(0, |mark| mark.seq);
        tagged > covered.max(self.done)
    }

    /// Is every use known complete, where this is the latest tag?
    fn is_settled(&self, tagged: u64) -> bool {
        self.marks.is_empty() && tagged <= self.done && !self.lost
    }
}

/// All streams that have used pooled memory.
pub struct Streams {
    /// Where streams get their places.
    pub fronts: Arc<Fronts>,
    /// By index; a gap is an index that no stream has had.
    table: Vec<Option<Progress>>,
    /// Streams that ended and whose index is not yet another's.
    ended: Vec<StreamId>,
    spare: Vec<(Context, Event)>,
    /// Events that the host waits for without the lock, and the number of the wait: none of
    /// them may be recorded anew meanwhile, or the wait would be for something else.
    awaited: Vec<(u64, Context, Event)>,
    /// How many such waits have begun.
    waits: u64,
    /// Which contexts are broken: uses there never end.
    pub health: Health,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Streams {
    /// No stream yet.
    pub fn new(fronts: Arc<Fronts>) -> Self {
        Self {
            health: Health::new(Arc::clone(fronts.epoch())),
            fronts,
            table: Vec::new(),
            ended: Vec::new(),
            spare: Vec::new(),
            awaited: Vec::new(),
            waits: 0,
        }
    }

    fn progress(&self, id: StreamId) -> &Progress {
        let progress = self.table[id as usize].as_ref();
        progress.expect("a stream that was seen")
    }

    fn progress_mut(&mut self, id: StreamId) -> &mut Progress {
        let progress = self.table[id as usize].as_mut();
        progress.expect("a stream that was seen")
    }

    /// The indexes of all streams.
    fn ids(&self) -> impl Iterator<Item = StreamId> + use<> {
        let seen = self.table.iter().enumerate();
        let seen = seen.filter(|(_, progress)| progress.is_some());
        let ids: Vec<_> = seen.map(|(id, _)| id as StreamId).collect();
        ids.into_iter()
    }

    /// How many streams have a place of their own.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.ids().count()
    }

    /// Works on what a stream's front knows of it.
    fn at_front<T>(&self, id: StreamId, work: impl FnOnce(&mut Lane) -> T) -> T {
        let (front, lane) = Fronts::place_of(id);
        work(self.fronts.lock(front).lane(lane))
    }

    /// The latest tag that a stream has given.
    fn tagged(&self, id: StreamId) -> u64 {
        self.at_front(id, |lane| lane.tagged)
    }

    /// Are there uses on a stream that are not known complete and that no event
    /// covers?
    fn is_uncovered(&self, id: StreamId) -> bool {
        self.progress(id).is_uncovered(self.tagged(id))
    }

    /// Ends the place that a stream has reached, and returns it: what is freed
    /// from now on has a later one.
    fn turn(&self, id: StreamId) -> u64 {
        self.at_front(id, |lane| {
            lane.now += 1;
            lane.freed = 0;
            lane.now - 1
        })
    }

    /// See [`Lane::part`].
    pub fn part(&self, id: StreamId) {
        self.at_front(id, Lane::part);
    }

    /// The stream's index.
    pub fn id(&mut self, key: StreamKey) -> StreamId {
        let number = Fronts::of_stream(&key);
        let mut front = self.fronts.lock(number);
        let known = front.find(&key).map(|lane| front.lane(lane).id);
        drop(front);
        known.unwrap_or_else(|| self.enter(key, number))
    }

    /// Gives a stream that was not seen before its index.
    fn enter(&mut self, key: StreamKey, number: usize) -> StreamId {
        let again = self.ended.iter().position(|&id| {
            Fronts::place_of(id).0 == number && self.progress(id).is_settled(self.tagged(id))
        });
        let again = again.map(|at| self.ended.swap_remove(at));
        let lane = again.map(|id| Fronts::place_of(id).1);
        self.fronts.use_front(number);
        let id = self.fronts.lock(number).add_lane(key, lane);
        if again.is_some() {
            let stream = self.progress_mut(id);
            (stream.key, stream.ended) = (key, false);
        } else {
            let streams = self.table.len().max(id as usize + 1);
            self.table.resize_with(streams, || None);
            self.table[id as usize] = Some(Progress::new(key));
        }
        match self.table.iter().flatten().take(3).count() {
            1 => {}
            // Each may look for what the other one frees, and so may all that follow.
            2 => self.ids().for_each(|id| self.watch(id)),
            _ => self.watch(id),
        }
        id
    }

    /// A use that could not be tagged: nothing tells when it ends.
    pub fn lose(&mut self, id: StreamId, alias: u32) -> Use {
        self.progress_mut(id).lost = true;
        Use {
            stream: id,
            alias,
            seq: u64::MAX,
        }
    }

    /// The index that stands for all streams of a context.
    pub fn whole_context(&mut self, context: Context) -> StreamId {
        self.id(StreamKey {
            context,
            stream: WHOLE_CONTEXT,
            thread: 0,
        })
    }

    /// Does this index stand for all streams of a context?
    pub fn is_whole_context(&self, id: StreamId) -> bool {
        id != Use::NOBODY && self.progress(id).key.stream == WHOLE_CONTEXT
    }

    /// Tags uses that lie before this moment in the stream.
    pub fn tag<D: Driver>(&mut self, driver: &D, id: StreamId, alias: u32) -> Result<Use> {
        let seq = self.at_front(id, |lane| lane.now);
        let key = self.progress(id).key;
        if key.stream == Stream::PER_THREAD {
            // Only its own thread can name this stream, so record at once, or
            // leave it to an event of the whole context.
            match self.mark(driver, id, Moment::Free) {
                Ok(Some(_)) => {}
                Err(code) if code.is_sticky() => return Err(code),
                Ok(None) | Err(_) => {
                    let whole = self.whole_context(key.context);
                    return self.tag(driver, whole, alias);
                }
            }
        }
        self.at_front(id, |lane| lane.tagged = lane.tagged.max(seq));
        Ok(Use {
            stream: id,
            alias,
            seq,
        })
    }

    /// Tags bytes that a stream is given, behind whatever it was ordered behind for them.
    /// On the legacy default stream, where an event would be a barrier, that is its own frees
    /// alone, unless this is a `late` one; each of them left an event.
    pub fn tag_given<D: Driver>(
        &mut self,
        driver: &D,
        id: StreamId,
        alias: u32,
        late: bool,
    ) -> Result<Use> {
        if late || self.progress(id).key.stream != Stream::LEGACY {
            return self.tag(driver, id, alias);
        }
        Ok(Use {
            stream: id,
            alias,
            seq: self.tagged(id),
        })
    }

    /// Are these uses known to be complete on the host?
    pub fn is_done(&self, last: Use) -> bool {
        last.stream == Use::NOBODY || last.seq <= self.progress(last.stream).done
    }

    /// May a request of this stream take the bytes without waiting?
    pub fn is_ready(&self, last: Use, stream: Option<StreamId>) -> bool {
        Some(last.stream) == stream || self.is_done(last)
    }

    /// Will nobody be told that these uses are over, as their context is broken?
    pub fn is_endless(&self, last: Use) -> bool {
        self.health.is_any_broken()
            && !self.is_done(last)
            && self.health.error(self.context(last.stream)).is_some()
    }

    /// The context of a stream.
    pub fn context(&self, id: StreamId) -> Context {
        self.progress(id).key.context
    }

    /// The stream is destroyed; its handle may come back as another stream.
    pub fn forget(&mut self, context: Context, stream: Stream) {
        self.end(StreamKey::new(context, stream, 0));
    }

    /// Asks of streams that ended whether all is over: those whose index the next stream with the
    /// handle of this one may have. Programs make streams for a moment, and nobody else may ask.
    pub fn poll_ended<D: Driver>(&mut self, driver: &D, context: Context, stream: Stream) {
        let front = Fronts::of_stream(&StreamKey::new(context, stream, 0));
        let its = self
            .ended
            .iter()
            .filter(|id| Fronts::place_of(**id).0 == front);
        for id in its.copied().take(ASKED).collect::<Vec<_>>() {
            let _ = self.unless_broken(id, |streams| streams.poll_one(driver, id));
        }
    }

    /// These threads have ended: their default streams are nobody's.
    pub fn forget_threads(&mut self, threads: &[u64]) {
        // There may be thousands of both.
        let threads: BTreeSet<_> = threads.iter().collect();
        for id in self.ids() {
            let key = self.progress(id).key;
            if key.stream == Stream::PER_THREAD && threads.contains(&key.thread) {
                self.end(key);
            }
        }
    }

    fn end(&mut self, key: StreamKey) {
        let id = self.fronts.lock(Fronts::of_stream(&key)).end_lane(&key);
        if let Some(id) = id {
            self.progress_mut(id).ended = true;
            self.ended.push(id);
        }
    }

    /// The context is destroyed: nothing of it runs any more, and its events
    /// went with it.
    pub fn forget_context(&mut self, context: Context) {
        self.spare.retain(|(owner, _)| *owner != context);
        self.awaited.retain(|(_, owner, _)| *owner != context);
        self.health.forget(context);
        for id in self.ids() {
            let key = self.progress(id).key;
            if key.context != context {
                continue;
            }
            self.fronts.lock(Fronts::of_stream(&key)).end_lane(&key);
            let reached = self.turn(id);
            let stream = self.progress_mut(id);
            stream.marks.clear();
            // What was lost is complete as well, and no place goes on from there.
            stream.done = if stream.lost { u64::MAX } else { reached };
            if !stream.ended {
                stream.ended = true;
                self.ended.push(id);
            }
        }
    }
}
