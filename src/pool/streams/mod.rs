//! What is known of each stream's progress. A free is tagged with its place
//! in its stream ([`Use`]); whether that place was passed is learned lazily
//! ([`marks`]), when somebody needs to know, so a free and a hit on the same
//! stream make no driver call.

mod marks;

use super::hash::FastMap;
use super::health::Health;
use super::request::{Order, StreamKey};
use crate::driver::{Code, Context, Driver, Event, Result, Stream};
use marks::Mark;
use std::collections::VecDeque;

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

struct Progress {
    key: StreamKey,
    /// Tag for frees from now on.
    now: u64,
    /// The latest tag given, 0 for none.
    tagged: u64,
    /// Was the stream destroyed? Its handle may be another's by now.
    ended: bool,
    /// Has it uses of which nothing will tell when they end?
    lost: bool,
    /// The last allocation before the stream was first seen.
    since: u64,
    /// Everything tagged with at most this is complete.
    done: u64,
    /// Everything tagged with at most this lies before an edge in the stream.
    edge: u64,
    marks: VecDeque<Mark>,
}

impl Progress {
    /// Are there uses that are not known complete and that no event covers?
    fn is_uncovered(&self) -> bool {
        let covered = self.marks.back().map_or(0, |mark| mark.seq);
        self.tagged > covered.max(self.done)
    }

    /// Is every use known complete?
    fn is_settled(&self) -> bool {
        self.marks.is_empty() && self.tagged <= self.done && !self.lost
    }
}

/// All streams that have used pooled memory.
#[derive(Default)]
pub struct Streams {
    table: Vec<Progress>,
    ids: FastMap<StreamKey, StreamId>,
    /// Streams that ended and whose index is not yet another's.
    ended: Vec<StreamId>,
    latest: Option<(StreamKey, StreamId)>,
    spare: Vec<(Context, Event)>,
    /// Events that the host waits for without the lock: none of them may be
    /// recorded anew meanwhile, or the wait would be for something else.
    awaited: Vec<Event>,
    /// Which contexts are broken: uses there never end.
    pub health: Health,
    /// Number of the last allocation.
    pub last_lent: u64,
}

impl Streams {
    /// The stream's index.
    pub fn id(&mut self, key: StreamKey) -> StreamId {
        if let Some((latest, id)) = self.latest
            && latest == key
        {
            return id;
        }
        let id = match self.ids.get(&key) {
            Some(&id) => id,
            None => self.enter(key),
        };
        self.latest = Some((key, id));
        id
    }

    /// Gives a stream that was not seen before its index.
    fn enter(&mut self, key: StreamKey) -> StreamId {
        let since = self.last_lent;
        let settled = |&id: &StreamId| self.table[id as usize].is_settled();
        let id = match self.ended.iter().position(settled) {
            Some(at) => {
                let id = self.ended.swap_remove(at);
                let stream = &mut self.table[id as usize];
                (stream.key, stream.since, stream.ended) = (key, since, false);
                id
            }
            None => {
                self.table.push(Progress {
                    key,
                    now: 1,
                    tagged: 0,
                    ended: false,
                    lost: false,
                    since,
                    done: 0,
                    edge: 0,
                    marks: VecDeque::new(),
                });
                (self.table.len() - 1) as StreamId
            }
        };
        self.ids.insert(key, id);
        id
    }

    /// The order in which an allocation of this number was asked for on a
    /// stream: none is left where that ended.
    pub fn order(&self, id: StreamId, allocation: u64) -> Order {
        match self.table.get(id as usize) {
            Some(stream) if !stream.ended && stream.since < allocation => Order::Stream(stream.key),
            _ => Order::Unknown,
        }
    }

    /// A use that could not be tagged: nothing tells when it ends.
    pub fn lose(&mut self, id: StreamId, alias: u32) -> Use {
        self.table[id as usize].lost = true;
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

    /// Tags uses that lie before this moment in the stream.
    pub fn tag<D: Driver>(&mut self, driver: &D, id: StreamId, alias: u32) -> Result<Use> {
        let stream = &mut self.table[id as usize];
        let (key, seq) = (stream.key, stream.now);
        if key.stream == Stream::PER_THREAD {
            // Only its own thread can name this stream, so record at once, or
            // leave it to an event of the whole context.
            match self.mark(driver, id) {
                Ok(Some(_)) => {}
                Err(code) if code.is_sticky() => return Err(code),
                Ok(None) | Err(_) => {
                    let whole = self.whole_context(key.context);
                    return self.tag(driver, whole, alias);
                }
            }
        }
        self.table[id as usize].tagged = seq;
        Ok(Use {
            stream: id,
            alias,
            seq,
        })
    }

    /// Are these uses known to be complete on the host?
    pub fn is_done(&self, last: Use) -> bool {
        last.stream == Use::NOBODY || last.seq <= self.table[last.stream as usize].done
    }

    /// May a request of this stream take the bytes without waiting?
    pub fn is_ready(&self, last: Use, stream: Option<StreamId>) -> bool {
        Some(last.stream) == stream || self.is_done(last)
    }

    /// Does a use through another address on the same stream need an edge?
    /// A kernel that became resident early (programmatic dependent launch)
    /// may otherwise read what lay there before the last write.
    pub fn needs_edge(&self, last: Use, alias: u32) -> bool {
        !self.is_done(last)
            && last.alias != alias
            && last.seq > self.table[last.stream as usize].edge
    }

    /// Orders the later work of stream `id` behind its own earlier work.
    pub fn make_edge<D: Driver>(&mut self, driver: &D, id: StreamId) -> Result<()> {
        let (seq, event) = self.mark(driver, id)?.ok_or(Code::NOT_READY)?;
        let stream = &mut self.table[id as usize];
        driver.wait(stream.key.context, stream.key.stream, event)?;
        stream.edge = seq;
        Ok(())
    }

    /// Orders the later work of `waiter` behind a use. `NOT_READY` where the
    /// user's stream is capturing and no event covers the use.
    pub fn order_behind<D: Driver>(
        &mut self,
        driver: &D,
        waiter: StreamId,
        last: Use,
    ) -> Result<()> {
        let event = self.cover(driver, last)?.ok_or(Code::NOT_READY)?;
        let waiter = self.table[waiter as usize].key;
        driver.wait(waiter.context, waiter.stream, event)
    }

    /// The context of a stream.
    pub fn context(&self, id: StreamId) -> Context {
        self.table[id as usize].key.context
    }

    /// The stream is destroyed; its handle may come back as another stream.
    pub fn forget(&mut self, context: Context, stream: Stream) {
        if let Some(id) = self.ids.remove(&StreamKey::new(context, stream, 0)) {
            self.table[id as usize].ended = true;
            self.ended.push(id);
        }
        self.latest = None;
    }

    /// The context is destroyed: nothing of it runs any more, and its events
    /// went with it.
    pub fn forget_context(&mut self, context: Context) {
        self.ids.retain(|key, _| key.context != context);
        self.spare.retain(|(owner, _)| *owner != context);
        self.health.forget(context);
        self.latest = None;
        for (id, stream) in self.table.iter_mut().enumerate() {
            if stream.key.context != context {
                continue;
            }
            stream.marks.clear();
            // What was lost is complete as well, and no place goes on from there.
            stream.done = if stream.lost { u64::MAX } else { stream.now };
            stream.now += 1;
            if !stream.ended {
                stream.ended = true;
                self.ended.push(id as StreamId);
            }
        }
    }
}
