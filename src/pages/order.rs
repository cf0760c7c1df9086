//! In which order pages are used. Who gives pages up has waited for all work on them,
//! or gives them up *in the order of a stream*: then an event stands for that work, and
//! whoever uses the same bytes next comes after it. The same stream at the same address
//! comes after it anyway, by another address it waits for the event. For another stream
//! the whole context waits on the device, where the process has no other one; else, and
//! for whoever unmaps or releases in truth, the host waits.
//!
//! State, and the event calls that it takes. Waits for nothing on the host.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use super::contexts::Contexts;
use super::runs::Home;
use crate::driver::{Address, Capture, Context, Driver, Event, Result};
use crate::pool::{CAPTURES, StreamKey};

/// How often the driver is asked that fails without a reason.
const TRIES: usize = 10;

/// A place in a stream: all work on it before then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Later places have higher ones.
    pub(super) number: u64,
    stream: StreamKey,
}

impl Mark {
    /// The context of the stream.
    pub(super) fn context(&self) -> Context {
        self.stream.context
    }
}

/// The last use of a page that was given up.
#[derive(Debug, Clone, Copy)]
pub struct Last {
    pub mark: Mark,
    /// The address by which it was used.
    pub at: Address,
}

/// How a user of a page comes after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Nothing had to be done.
    Anyway,
    /// The stream waits for its own work, done by another address, or all streams for
    /// another one's.
    ByEdge,
    /// The host must wait.
    Not,
}

struct Record {
    event: Event,
    stream: StreamKey,
    /// The stream was destroyed: its handle may be another's.
    ended: bool,
    /// Does the stream itself wait for it already?
    edge: bool,
    /// Do all streams, whoever else there is?
    everywhere: bool,
    /// Is it all that the stream had when it ended?
    end: bool,
}

impl Record {
    /// Its stream waits for it from now on; false where the driver does not let it.
    fn stream_waits<D: Driver>(&mut self, driver: &D) -> bool {
        let stream = self.stream;
        self.edge = CAPTURES.put(&stream, |_| {
            driver.capture(stream.context, stream.stream) == Ok(Capture::None)
                && driver
                    .wait(stream.context, stream.stream, self.event)
                    .is_ok()
        });
        self.edge
    }

    /// All streams of a context wait for it from now on; false where the driver does not
    /// let them, as in a capture, which that would end.
    fn context_waits<D: Driver>(&mut self, driver: &D, context: Context) -> bool {
        let waits = CAPTURES.exclude(|| driver.wait_context(context, self.event).is_ok());
        self.everywhere = waits == Some(true);
        self.everywhere
    }
}

fn mark_of((number, record): (&u64, &Record)) -> Mark {
    Mark {
        number: *number,
        stream: record.stream,
    }
}

/// What was recorded and is not known to be passed.
#[derive(Default)]
pub struct Orders {
    /// By the number of the mark.
    records: BTreeMap<u64, Record>,
    /// The stream in whose order a reservation is used, by its first address; `None` if
    /// there were several. One that gave nothing up in such an order is not known.
    streams: BTreeMap<Address, Option<StreamKey>>,
    spare: Vec<(Context, Event)>,
    /// Events that the host waits for without the lock: not recorded anew meanwhile.
    awaited: Vec<(Context, Event)>,
    /// Contexts that may be ending now: of their events nothing is asked.
    leaving: Vec<Context>,
    last: u64,
}

impl Orders {
    /// Marks the place that a stream has reached; `None` where it is capturing.
    ///
    /// # Errors
    /// The driver's code.
    pub fn mark<D: Driver>(&mut self, driver: &D, stream: StreamKey) -> Result<Option<Mark>> {
        if self.leaving.contains(&stream.context) {
            return Ok(None);
        }
        self.retire(driver);
        let event = match self.reusable(stream.context) {
            Some(event) => event,
            None => driver.create_event(stream.context)?,
        };
        let recorded = CAPTURES.put(&stream, |any| {
            let free = || Ok(driver.capture(stream.context, stream.stream)? == Capture::None);
            if any() || !free()? {
                return Ok(None);
            }
            driver.record(event, stream.context, stream.stream)?;
            Ok((!any() || free()?).then_some(()))
        });
        if recorded != Ok(Some(())) {
            self.spare.push((stream.context, event));
            return recorded.map(|_| None);
        }
        self.last += 1;
        let record = Record {
            event,
            stream,
            ended: false,
            edge: false,
            everywhere: false,
            end: false,
        };
        self.records.insert(self.last, record);
        Ok(Some(Mark {
            number: self.last,
            stream,
        }))
    }

    /// A page of this home was given up in the order of a stream.
    pub fn learn(&mut self, home: Home, mark: Mark) {
        let stream = Some(mark.stream);
        let known = self.streams.entry(home.reservation).or_insert(stream);
        if *known != stream {
            *known = None;
        }
    }

    /// The addresses may be somebody else's.
    pub fn unlearn(&mut self, at: Address, bytes: u64) {
        let within = at..at.saturating_add(bytes);
        self.streams.retain(|at, _| !within.contains(at));
    }

    /// Sees to it that what is used in this home, by this address, comes after the last
    /// use.
    pub fn follow<D: Driver>(
        &mut self,
        driver: &D,
        contexts: &Contexts,
        last: Last,
        at: Address,
        home: Home,
    ) -> Follows {
        let Some(record) = self.records.get_mut(&last.mark.number) else {
            return Follows::Anyway;
        };
        if self.leaving.contains(&record.stream.context) {
            return Follows::Not;
        }
        let user = self.streams.get(&home.reservation).copied().flatten();
        let is_own = user == Some(record.stream) && !record.ended;
        if is_own && (last.at == at || record.edge) {
            return Follows::Anyway;
        }
        // By another address the same stream may be too early, too: a kernel that became
        // resident early reads what lay there before (programmatic dependent launch).
        if is_own && record.stream_waits(driver) {
            return Follows::ByEdge;
        }
        // An event for another stream would not do: a program may have ordered a third one
        // behind that stream already, as it stands now, and use the page there.
        if !contexts.is_only(home.context) {
            return Follows::Not;
        }
        if record.everywhere {
            return Follows::Anyway;
        }
        match record.context_waits(driver, home.context) {
            true => Follows::ByEdge,
            false => Follows::Not,
        }
    }

    /// Places that all streams of the only context wait for, not known to be passed: who
    /// belongs to none of them does not wait.
    pub fn awaited_everywhere(&self) -> Vec<Mark> {
        let everywhere = self.records.iter().filter(|(_, record)| record.everywhere);
        everywhere.map(mark_of).collect()
    }

    /// Ends of streams that are not known to be passed: nobody can wait for these by their
    /// handles any more.
    pub fn ends(&self) -> impl Iterator<Item = Mark> {
        let ends = self.records.iter().filter(|(_, record)| record.end);
        ends.map(mark_of)
    }

    /// Was this place passed, as far as the driver can tell now?
    pub fn is_passed<D: Driver>(&self, driver: &D, mark: Mark) -> bool {
        let record = self.records.get(&mark.number);
        record.is_none_or(|record| {
            !self.leaves(record) && is_over(|| driver.is_complete(record.event))
        })
    }

    /// The numbers of the places that were not passed, as far as the driver can tell now. One
    /// that a stream has yet to reach tells of all behind it, but for what was a stream of
    /// the same handle.
    pub fn running<D: Driver>(&self, driver: &D) -> BTreeSet<u64> {
        let mut busy = Vec::new();
        let runs = |(_, record): &(&u64, &Record)| {
            if self.leaves(record) || !record.ended && busy.contains(&record.stream) {
                return true;
            }
            // An error says nothing of the places behind it.
            let is_told = Cell::new(false);
            let ask = || driver.is_complete(record.event);
            let over = is_over(|| ask().inspect(|over| is_told.set(!over)));
            if is_told.get() && !record.ended {
                busy.push(record.stream);
            }
            !over
        };
        let running = self.records.iter().filter(runs);
        running.map(|(number, _)| *number).collect()
    }

    /// All places that are not known to be passed, of the streams of a context.
    pub fn marks_in(&self, context: Context) -> Vec<Mark> {
        let marks = self.records.iter().map(mark_of);
        marks
            .filter(|mark| mark.stream.context == context)
            .collect()
    }

    fn leaves(&self, record: &Record) -> bool {
        self.leaving.contains(&record.stream.context)
    }

    /// The event to wait for until this place is passed, kept as it is until
    /// [`Orders::waited`]; `None` if it was, or nothing may be asked now.
    pub fn await_event(&mut self, mark: Mark) -> Option<Event> {
        let record = self.records.get(&mark.number)?;
        if self.leaves(record) {
            return None;
        }
        let event = record.event;
        self.awaited.push((mark.context(), event));
        Some(event)
    }

    /// A wait for a whole context begins; false where nothing may be asked of it now.
    pub fn await_context(&mut self, context: Context) -> bool {
        let begins = !self.leaving.contains(&context);
        let its = (context, Event::default());
        self.awaited.extend(begins.then_some(its));
        begins
    }

    /// The host has waited for a context.
    pub fn waited_for(&mut self, context: Context) {
        self.end_wait((context, Event::default()));
    }

    fn end_wait(&mut self, its: (Context, Event)) {
        let at = self.awaited.iter().position(|awaited| *awaited == its);
        at.map(|at| self.awaited.swap_remove(at));
    }

    /// Does the host wait for anything of this context?
    pub fn is_awaited(&self, context: Context) -> bool {
        self.awaited.iter().any(|(owner, _)| *owner == context)
    }

    /// The host has waited for this place, in vain if it is not `over`.
    pub fn waited(&mut self, mark: Mark, event: Event, over: bool) {
        self.end_wait((mark.context(), event));
        if !over {
            return;
        }
        if let Some(record) = self.records.remove(&mark.number) {
            self.spare.push((record.stream.context, record.event));
        }
    }

    /// The stream is destroyed; its handle may come back as another stream. All that it had
    /// lies before the mark.
    pub fn stream_ends(&mut self, stream: StreamKey, last: Option<Mark>) {
        let last = last.and_then(|mark| self.records.get_mut(&mark.number));
        if let Some(record) = last {
            record.end = true;
        }
        self.streams.retain(|_, known| *known != Some(stream));
        for record in self.records.values_mut() {
            record.ended |= record.stream == stream;
        }
    }

    /// The context may be ending now, and its events with it.
    pub fn context_leaves(&mut self, context: Context) {
        self.leaving.push(context);
    }

    /// It did not end.
    pub fn context_stays(&mut self, context: Context) {
        let place = self.leaving.iter().position(|leaving| *leaving == context);
        place.map(|at| self.leaving.swap_remove(at));
    }

    /// It has ended: nothing of it runs any more, and its events are gone.
    pub fn context_ends(&mut self, context: Context) {
        self.leaving.retain(|leaving| *leaving != context);
        let is_its = |stream: &StreamKey| stream.context == context;
        self.records.retain(|_, record| !is_its(&record.stream));
        self.spare.retain(|(owner, _)| *owner != context);
        self.streams
            .retain(|_, known| known.as_ref().is_none_or(|known| !is_its(known)));
    }

    /// Forgets what was passed.
    fn retire<D: Driver>(&mut self, driver: &D) {
        let running = self.running(driver);
        let passed = self
            .records
            .keys()
            .filter(|number| !running.contains(number));
        let passed: Vec<_> = passed.copied().collect();
        for number in passed {
            let record = self.records.remove(&number).expect("a record");
            self.spare.push((record.stream.context, record.event));
        }
    }

    /// An event of this context to record, if one is to spare.
    fn reusable(&mut self, context: Context) -> Option<Event> {
        let free = |spare: &(Context, Event)| spare.0 == context && !self.awaited.contains(spare);
        let at = self.spare.iter().position(free)?;
        Some(self.spare.swap_remove(at).1)
    }
}

/// Is what an event stands for over? An error that stays is the context's: nothing of it
/// runs any more. Any other says nothing, and the driver is asked again.
pub fn is_over(mut ask: impl FnMut() -> Result<bool>) -> bool {
    let answer = |_| match ask() {
        Err(code) if !code.is_sticky() => None,
        answer => Some(answer.unwrap_or(true)),
    };
    (0..TRIES).find_map(answer).unwrap_or(false)
}
