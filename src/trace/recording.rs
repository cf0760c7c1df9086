//! Reads what a process recorded of itself. Frames that were not written whole
//! are passed over and counted, and what is missing is mended, so that the events
//! never contradict each other: whatever was cut, lost or killed, the rest can be
//! replayed.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, ErrorKind, Read};

use super::reader::{Shortfall, Words};
use super::{Event, Op, Owner};
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::frames::{
    FRAME_BYTES, Frame, HEADER_BYTES, Kind, MOST_TEXT, Piece, Record, Use, VERSION, WORDS, Word,
    decode, header,
};

/// A recording, a frame after the other.
pub struct Recording<'a> {
    input: Box<dyn BufRead + 'a>,
    pid: u64,
    began_us: u64,
    command: u32,
    /// Frames that were begun, and events that were lost, by the header.
    begun: u64,
    lost: u64,
    place: u64,
    torn: u64,
    cut: bool,
    mended: u64,
    last_us: u64,
    over: bool,
    live: HashMap<u64, Live>,
    /// The numbers of streams, but for those that are 0.
    streams: HashMap<(u64, u64, u32), u64>,
    /// By device, the context whose legacy stream is 0.
    contexts: HashMap<u8, u64>,
    /// The streams by number, as the driver has them.
    handles: Vec<u64>,
    texts: HashMap<(Word, u32), (u32, Vec<u8>)>,
    ready: VecDeque<Event>,
}

/// Memory that the process has.
struct Live {
    event: Event,
    context: u64,
}

impl<'a> Recording<'a> {
    /// Reads the header.
    pub fn new(mut input: Box<dyn BufRead + 'a>) -> Result<Self> {
        let mut bytes = vec![0; HEADER_BYTES];
        input.read_exact(&mut bytes).map_err(|error| {
            Error::new(match error.kind() {
                ErrorKind::UnexpectedEof => {
                    "line 1: the recording is cut off in its header".to_owned()
                }
                _ => format!("line 1: {error}; the file is damaged or truncated"),
            })
        })?;
        let word = |at: usize| {
            let bytes = bytes[8 * at..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        if word(header::VERSION) != VERSION || word(header::FRAME) != FRAME_BYTES as u64 {
            return Err(Error::new(format!(
                "line 1: recording of version {} with frames of {} bytes; this memcuda reads version {VERSION} with {FRAME_BYTES}",
                word(header::VERSION),
                word(header::FRAME)
            )));
        }
        Ok(Self {
            input,
            pid: word(header::PID),
            began_us: word(header::STARTED_US),
            command: 0,
            begun: word(header::BEGUN),
            lost: word(header::LOST),
            place: 0,
            torn: 0,
            cut: false,
            mended: 0,
            last_us: 0,
            over: false,
            live: HashMap::new(),
            streams: HashMap::new(),
            contexts: HashMap::new(),
            handles: vec![0],
            texts: HashMap::new(),
            ready: VecDeque::new(),
        })
    }

    /// Process id, and the word that is its command line.
    pub fn process(&self) -> (u64, u32) {
        (self.pid, self.command)
    }

    /// When recording began, in microseconds of the Unix epoch.
    pub fn began_us(&self) -> u64 {
        self.began_us
    }

    /// The driver's value (`CUstream`) of a stream by its number; 0 of the
    /// default one.
    pub fn driver_stream(&self, number: u64) -> u64 {
        let at = usize::try_from(number).ok();
        let known = at.and_then(|at| self.handles.get(at));
        known.copied().unwrap_or(0)
    }

    /// What is missing so far.
    pub fn shortfall(&self) -> Shortfall {
        let unread = if self.cut { self.begun - self.place } else { 0 };
        Shortfall {
            lost: self.lost.saturating_add(self.torn).saturating_add(unread),
            cut: self.cut.then_some((self.place, self.begun)),
            mended: self.mended,
        }
    }

    /// The next event; `None` at the end.
    pub fn event(&mut self, words: &mut Words) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            match self.frame()? {
                Some(Frame::Event(record)) => self.happened(&record, words),
                Some(Frame::Text(piece)) => self.word(piece, words),
                None if self.over => self.end(),
                None => self.torn += 1,
            }
        }
    }

    /// The next frame; `None` where it was not written whole, and at the end.
    fn frame(&mut self) -> Result<Option<Frame>> {
        if self.place == self.begun {
            self.over = true;
            return Ok(None);
        }
        let mut bytes = [0; FRAME_BYTES];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                (self.over, self.cut) = (true, true);
                return Ok(None);
            }
            Err(error) => {
                let frame = self.place + 1;
                let text = format!("frame {frame}: {error}; the file is damaged or truncated");
                return Err(Error::new(text));
            }
        }
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        self.place += 1;
        Ok(decode(&words, self.place - 1))
    }

    /// What is missing is the last event.
    fn end(&mut self) {
        let lost = self.shortfall().lost;
        if lost > 0 {
            let event = Event {
                op: Op::Lost,
                bytes: lost,
                ..self.blank()
            };
            self.ready.push_back(event);
        }
    }

    fn blank(&self) -> Event {
        Event {
            line: self.place,
            t_us: self.last_us,
            op: Op::Lost,
            id: 0,
            bytes: 0,
            stream: 0,
            device: 0,
            uses: None,
            owner: None,
            thread: 0,
            caller: 0,
            name: 0,
            stack: 0,
        }
    }

    fn happened(&mut self, record: &Record, words: &mut Words) {
        // Threads note the time and take their place in two steps.
        self.last_us = self.last_us.max(record.time_ns / 1000);
        let mut number = |word, number: u32| match number {
            0 => 0,
            _ => {
                self.texts
                    .entry((word, number))
                    .or_insert_with(|| (words.open(), Vec::new()))
                    .0
            }
        };
        let (thread, caller) = (
            number(Word::Thread, record.thread),
            number(Word::Caller, record.caller.into()),
        );
        let (name, stack) = (
            number(Word::Name, record.name.into()),
            number(Word::Stack, record.stack),
        );
        let event = Event {
            id: record.address,
            bytes: record.bytes,
            stream: self.stream(record),
            device: record.device.into(),
            uses: Some(record.uses),
            thread,
            caller,
            name,
            stack,
            ..self.blank()
        };
        match record.kind {
            Kind::Alloc => self.alloc(event, record),
            Kind::Free => self.free(event, record.plain),
            Kind::ContextEnd => self.context_ended(event, record.context),
            Kind::Refused => self.ready.push_back(Event {
                op: Op::Refused,
                ..event
            }),
            Kind::Nothing => {}
        }
    }

    /// Streams by number: the legacy default one is 0, on each device that of one
    /// context at a time; others in the order in which they come.
    fn stream(&mut self, record: &Record) -> u64 {
        if record.uses != Use::Stream {
            return 0;
        }
        let own = record.stream == Stream::PER_THREAD.0;
        let thread = if own { record.thread } else { 0 };
        let key = (record.context, record.stream, thread);
        if let Some(known) = self.streams.get(&key) {
            return *known;
        }
        let context = record.context;
        let legacy = record.stream == Stream::LEGACY.0;
        if legacy && *self.contexts.entry(record.device).or_insert(context) == context {
            return 0;
        }
        let next = self.handles.len() as u64;
        self.handles.push(record.stream);
        self.streams.insert(key, next);
        next
    }

    fn alloc(&mut self, event: Event, record: &Record) {
        let owner = match (record.page, record.of_context) {
            (true, _) => Owner::Page,
            (false, true) => Owner::Context,
            (false, false) => Owner::MemoryPool,
        };
        let event = Event {
            op: Op::Alloc,
            owner: Some(owner),
            ..event
        };
        if event.bytes == 0 {
            self.mended += 1;
            return;
        }
        let live = Live {
            event,
            context: record.context,
        };
        if let Some(before) = self.live.insert(event.id, live) {
            self.mended += 1;
            self.give(
                before.event,
                Event {
                    uses: Some(Use::Any),
                    ..event
                },
            );
        }
        self.ready.push_back(event);
    }

    fn free(&mut self, event: Event, plain: bool) {
        match self.live.remove(&event.id) {
            Some(live) => self.give(live.event, event),
            // The driver frees what was never recorded, too.
            None if plain => {}
            None => self.mended += 1,
        }
    }

    fn context_ended(&mut self, event: Event, context: u64) {
        self.contexts.retain(|_, first| *first != context);
        let of_it =
            |live: &Live| live.context == context && live.event.owner == Some(Owner::Context);
        let mut ended: Vec<Event> = self
            .live
            .values()
            .filter(|l| of_it(l))
            .map(|l| l.event)
            .collect();
        ended.sort_by_key(|event| event.id);
        for was in ended {
            self.live.remove(&was.id);
            self.give(
                was,
                Event {
                    uses: Some(Use::Complete),
                    ..event
                },
            );
        }
    }

    /// Memory comes back: `was` as it was given, `now` who freed it.
    fn give(&mut self, was: Event, now: Event) {
        for op in [Op::Free, Op::FreeDone] {
            self.ready.push_back(Event {
                op,
                id: was.id,
                bytes: was.bytes,
                device: was.device,
                name: was.name,
                owner: was.owner,
                ..now
            });
        }
    }

    fn word(&mut self, piece: Piece, words: &mut Words) {
        let key = (piece.word, piece.number);
        let entry = self.texts.entry(key);
        let (number, text) = entry.or_insert_with(|| (words.open(), Vec::new()));
        if piece.first {
            text.clear();
        } else if text.len() >= MOST_TEXT {
            return;
        }
        text.extend_from_slice(&piece.text);
        words.set(*number, String::from_utf8_lossy(text).into_owned());
        if piece.word == Word::Process {
            self.command = *number;
        }
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
