//! Marks: events recorded at places of streams, by which it is learned whether
//! those were passed. One covers every use before it.
//!
//! Never records on a capturing stream: that would become part of a graph.

use super::{StreamId, Streams, Use, WHOLE_CONTEXT};
use crate::driver::{Capture, Code, Context, Driver, Event, Result, Stream};
use crate::pool::captures::CAPTURES;
use crate::pool::front::{Fronts, Lane};
use crate::pool::request::StreamKey;

/// Marks of a stream that are kept whether or not they were passed.
const KEPT: usize = 8;
/// Most marks of a stream that were not passed.
const MOST: usize = 256;

/// An event behind everything that is tagged with at most `seq`.
pub struct Mark {
    pub seq: u64,
    event: Event,
    moment: Moment,
}

/// When an event is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As the use that it covers ends: other streams may be ordered behind it.
    Free,
    /// Whenever somebody has to know. The program may have given the stream more work
    /// since, even such as waits for what would then wait for it.
    Later,
}

/// What is known of the work in a context when it was noted.
pub enum Noted {
    /// It is over.
    Over,
    /// An event will tell when it is.
    Running,
    /// There is no event: a capture or the end of the context is under way, the driver has
    /// none of that kind, or it failed.
    Nothing,
}

impl Streams {
    /// Learns which recorded places were passed, and records one where a
    /// stream has uses that no event covers. A stream of which nothing can be
    /// learned stops no other one; the first such failure is the answer.
    pub fn poll<D: Driver>(&mut self, driver: &D) -> Result<()> {
        let mut polled = Ok(());
        for id in self.ids() {
            let one = self.unless_broken(id, |streams| streams.poll_one(driver, id));
            polled = polled.and(one);
        }
        polled
    }

    pub(super) fn poll_one<D: Driver>(&mut self, driver: &D, id: StreamId) -> Result<()> {
        let (tagged, awaited) = self.at_front(id, |lane| (lane.tagged, lane.awaited));
        self.passed(id, awaited);
        if self.progress(id).is_uncovered(tagged) {
            self.mark(driver, id, Moment::Later)?;
        }
        while let Some(mark) = self.progress(id).marks.front() {
            if !driver.is_complete(mark.event)? {
                break;
            }
            self.retire(id);
        }
        Ok(())
    }

    /// Notes what runs in a whole context now, by a place that an event tells of; of what runs
    /// in a broken one nothing needs to be told.
    pub fn note<D: Driver>(&mut self, driver: &D, context: Context) -> Noted {
        let id = self.whole_context(context);
        let last = self.tag(driver, id, Use::MIXED);
        let last = last.inspect(|last| self.mark_free(driver, *last));
        // What fails is found uncovered.
        let _ = self.unless_broken(id, |streams| streams.poll_one(driver, id));
        let over = |last: Use| self.is_done(last) || self.health.error(context).is_some();
        match last {
            Ok(last) if over(last) => Noted::Over,
            Ok(_) if !self.is_uncovered(id) => Noted::Running,
            _ => Noted::Nothing,
        }
    }

    /// What was noted of whole contexts but this one, as far as it may still run.
    pub fn noted_elsewhere(&self, context: Context) -> Vec<Use> {
        let mut uses = self.last_uses();
        uses.retain(|last| {
            let of = self.context(last.stream);
            let noted = of != context && self.is_whole_context(last.stream);
            noted && self.health.error(of).is_none()
        });
        uses
    }

    /// Events that together cover every outstanding use of which one can be
    /// had ([`Streams::uncovered_contexts`] has the others), for a wait on the
    /// host, and the number of that wait; [`Streams::passed`] takes each back after it,
    /// and [`Streams::end_wait`] all of them.
    pub fn outstanding<D: Driver>(&mut self, driver: &D) -> (u64, Vec<(StreamId, u64, Event)>) {
        let mut events = Vec::new();
        for id in self.ids() {
            let _ = self.unless_broken(id, |streams| {
                if streams.is_uncovered(id) {
                    streams.mark(driver, id, Moment::Later)?;
                }
                if let Some(mark) = streams.progress(id).marks.back() {
                    events.push((id, mark.seq, mark.event));
                }
                Ok(())
            });
        }
        self.waits += 1;
        let wait = self.waits;
        let of = |(id, _, event): &(StreamId, u64, Event)| (wait, self.context(*id), *event);
        let awaited: Vec<_> = events.iter().map(of).collect();
        self.awaited.extend(awaited);
        (wait, events)
    }

    /// The wait for one of them begins; false where its context is being ended, or has.
    pub fn begin_wait(&mut self, wait: u64, context: Context, event: Event) -> bool {
        self.awaited.contains(&(wait, context, event)) && self.health.begin_wait(context)
    }

    /// The host waits for none of that wait's [`Streams::outstanding`] any more.
    pub fn end_wait(&mut self, wait: u64) {
        self.awaited.retain(|(of, ..)| *of != wait);
    }

    /// Contexts with uses that no event covers, because the driver has no
    /// context-wide event, a capture was under way or it failed.
    pub fn uncovered_contexts(&self) -> Vec<Context> {
        let uncovered = self.ids().filter(|id| self.is_uncovered(*id));
        let contexts = uncovered.map(|id| self.context(id));
        let whole = |context: &Context| self.health.error(*context).is_none();
        let mut contexts: Vec<_> = contexts.filter(whole).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    /// The latest use of each stream, as far as any is not known complete.
    pub fn last_uses(&self) -> Vec<Use> {
        let last = |stream| Use {
            stream,
            alias: Use::MIXED,
            seq: match self.progress(stream).lost {
                true => u64::MAX,
                false => self.tagged(stream),
            },
        };
        let uses = self.ids().map(last);
        uses.filter(|last| !self.is_done(*last)).collect()
    }

    /// May anything still run in a context?
    pub fn has_uses_in(&self, context: Context) -> bool {
        let uses = self.last_uses();
        uses.iter().any(|last| self.context(last.stream) == context)
    }

    /// Contexts that a call may be ending, and in which something may run.
    pub fn used_and_leaving(&self) -> Vec<Context> {
        let mut contexts = self.health.all_leaving();
        contexts.retain(|context| self.has_uses_in(*context));
        contexts
    }

    /// The host has waited for this place.
    pub fn passed(&mut self, id: StreamId, seq: u64) {
        while let Some(mark) = self.progress(id).marks.front()
            && mark.seq <= seq
        {
            self.retire(id);
        }
        let stream = self.progress_mut(id);
        stream.done = stream.done.max(seq);
    }

    /// The place that every stream of a context has reached, to be taken
    /// before the host waits for the context and given to
    /// [`Streams::passed`] after it.
    pub fn places(&mut self, context: Context) -> Vec<(StreamId, u64)> {
        let mut places = Vec::new();
        for id in self.ids() {
            let stream = self.progress(id);
            if stream.key.context == context && stream.done < self.tagged(id) {
                places.push((id, self.turn(id)));
            }
        }
        places
    }

    /// Before the stream is destroyed, or begins a capture: its last place
    /// must be recorded now or never.
    pub fn settle<D: Driver>(
        &mut self,
        driver: &D,
        context: Context,
        stream: Stream,
    ) -> Result<()> {
        let key = StreamKey::new(context, stream, 0);
        let mut front = self.fronts.lock(Fronts::of_stream(&key));
        let known = front.find(&key).map(|lane| front.lane(lane).id);
        drop(front);
        if let Some(id) = known
            && self.is_uncovered(id)
        {
            // There is no other moment for it, so it is worth a second try.
            let mut mark = || self.mark(driver, id, Moment::Later);
            mark().or_else(|_| mark())?;
        }
        Ok(())
    }

    /// Records an event behind what was just freed, with this last use. Where that is impossible
    /// or fails, or another thread has freed something there since, those who must know record
    /// one later.
    pub fn mark_free<D: Driver>(&mut self, driver: &D, last: Use) {
        let id = last.stream;
        if self.tagged(id) == last.seq && self.is_uncovered(id) {
            let _ = self.unless_broken(id, |streams| {
                streams.mark(driver, id, Moment::Free).map(|_| ())
            });
        }
    }

    /// The event that was recorded as this use ended, or a `late` one.
    pub(super) fn event_of<D: Driver>(
        &mut self,
        driver: &D,
        last: Use,
        late: bool,
    ) -> Result<Option<Event>> {
        if self.health.is_leaving(self.context(last.stream)) {
            return Ok(None);
        }
        let marks = &self.progress(last.stream).marks;
        let covering = marks.partition_point(|mark| mark.seq < last.seq);
        if let Some(mark) = marks.get(covering)
            && (late || mark.seq == last.seq && mark.moment == Moment::Free)
        {
            return Ok(Some(mark.event));
        }
        if late {
            let made = self.mark(driver, last.stream, Moment::Later)?;
            return Ok(made.map(|(_, event)| event));
        }
        self.poll_one(driver, last.stream)?;
        Ok(None)
    }

    /// From now on an event follows each free on this stream.
    pub fn watch(&self, id: StreamId) {
        self.at_front(id, Lane::watch);
    }

    /// The same of all streams but this one whose memory may still be in use.
    pub fn watch_others(&self, own: Option<StreamId>) {
        let others = self.ids().filter(|id| Some(*id) != own);
        others
            .filter(|id| self.tagged(*id) > self.progress(*id).done)
            .for_each(|id| self.watch(id));
    }

    /// The latest place of a stream that an event in it followed, of those not known passed.
    pub(super) fn marked(&self, id: StreamId) -> Option<u64> {
        let mut marks = self.progress(id).marks.iter();
        let latest = marks.rfind(|mark| mark.moment == Moment::Free);
        latest.map(|mark| mark.seq)
    }

    /// Records an event that covers everything tagged so far; `None` where
    /// that is impossible because of a capture, or of the end of its context.
    pub(super) fn mark<D: Driver>(
        &mut self,
        driver: &D,
        id: StreamId,
        moment: Moment,
    ) -> Result<Option<(u64, Event)>> {
        let key = self.progress(id).key;
        if self.health.is_leaving(key.context) {
            return Ok(None);
        }
        let event = self.event(driver, key.context)?;
        // Between the program's own calls an event on the legacy default stream would be a
        // barrier that nobody asked for; one of the whole context is none.
        let barrier = key.stream == Stream::LEGACY && moment == Moment::Later;
        let whole = key.stream == WHOLE_CONTEXT || barrier || self.progress(id).ended;
        // Ended before the record is made: a front gives places out meanwhile,
        // and what has this one was used before.
        let seq = self.turn(id);
        let recorded = match whole {
            true => CAPTURES.exclude(|| driver.record_context(event, key.context)),
            // A capture of it that begins between the question and the record would
            // get the record into its graph, or be lost to it.
            false => CAPTURES.put(&key, |any| {
                record_outside(driver, key, event, any).transpose()
            }),
        };
        match recorded {
            Some(Ok(())) => {}
            // A driver older than 12.5 has no context-wide event: only a wait
            // on the host tells then.
            None | Some(Err(Code::NOT_FOUND)) => {
                self.spare.push((key.context, event));
                return Ok(None);
            }
            Some(Err(code)) => {
                self.spare.push((key.context, event));
                return Err(code);
            }
        }
        let stream = self.progress_mut(id);
        stream.marks.push_back(Mark { seq, event, moment });
        self.shed(driver, id);
        Ok(Some((seq, event)))
    }

    /// Takes back marks that were passed, where there are many; where there are too many,
    /// the oldest: a newer one covers what it covers.
    fn shed<D: Driver>(&mut self, driver: &D, id: StreamId) {
        while let marks = &self.progress(id).marks
            && marks.len() > KEPT
            && driver.is_complete(marks[0].event) == Ok(true)
        {
            self.retire(id);
        }
        let stream = self.progress_mut(id);
        if stream.marks.len() > MOST {
            let context = stream.key.context;
            let oldest = stream.marks.pop_front().expect("too many");
            self.spare.push((context, oldest.event));
        }
    }

    fn event<D: Driver>(&mut self, driver: &D, context: Context) -> Result<Event> {
        let awaited = |event| self.awaited.iter().any(|&(_, of, its)| (of, its) == event);
        let free = |spare: &(Context, Event)| spare.0 == context && !awaited(*spare);
        match self.spare.iter().rposition(free) {
            Some(at) => Ok(self.spare.swap_remove(at).1),
            None => driver.create_event(context),
        }
    }

    fn retire(&mut self, id: StreamId) {
        let stream = self.progress_mut(id);
        if let Some(mark) = stream.marks.pop_front() {
            stream.done = stream.done.max(mark.seq);
            let context = stream.key.context;
            self.spare.push((context, mark.event));
        }
    }
}

/// Records an event on a stream; `None` where the stream captures. While a
/// capture is under way a stream joins it by a mere wait, which nothing holds
/// back, so the stream is asked again: an event that a capture got ends that
/// capture when somebody asks whether it is complete.
fn record_outside<D: Driver>(
    driver: &D,
    key: StreamKey,
    event: Event,
    any: &dyn Fn() -> bool,
) -> Result<Option<()>> {
    let captures = || Ok(driver.capture(key.context, key.stream)? == Capture::Active);
    if captures()? {
        return Ok(None);
    }
    driver.record(event, key.context, key.stream)?;
    Ok((!any() || !captures()?).then_some(()))
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
