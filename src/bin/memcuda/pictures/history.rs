//! What happened before a picture, from a trace of the same process: its events
//! up to that moment, so that they end with what the picture shows. Events and
//! picture are made at two moments; what happened between them is taken from the
//! trace as far as the picture knows of it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::path::Path;

use anyhow::Result;
use memcuda::error::Error;
use memcuda::picture::{Picture, State};
use memcuda::trace::{Event, Op, Owner, Reader};

use crate::verbs::trace;

/// How far behind a picture's time its events are looked for: it is taken a
/// device after the other, and a thread may be late to write its own.
const LATE_US: u64 = 10_000_000;

/// Memory: device and address.
type Key = (u32, u64);

/// The events before a picture.
pub struct History {
    reader: Reader<'static>,
    began_us: u64,
    events: VecDeque<Event>,
    most: usize,
    /// How many came before those that are kept.
    left_out: u64,
    live: HashMap<Key, Event>,
}

impl History {
    /// The events before a report: of the trace that is named, or of the file to
    /// which its process recorded itself, if it is there and still the same.
    pub fn of_report(picture: &Picture, named: Option<&Path>, most: usize) -> Result<Option<Self>> {
        if let Some(path) = named {
            let file = File::open(path).map_err(|error| Error::of_file(path, error))?;
            return Self::told(path, file, picture, most).map(Some);
        }
        let path = Path::new(&picture.recording);
        let is_file = path.is_absolute() && fs::metadata(path).is_ok_and(|about| about.is_file());
        let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else {
            return Ok(None);
        };
        let reader = trace::begin(file);
        let same = |reader: &Reader<'_>| {
            let process = reader.process().map(|(pid, _)| pid);
            let before = reader
                .began_us()
                .is_some_and(|began| began <= picture.taken_us);
            process == Some(picture.process.pid.into()) && before
        };
        match reader.ok().filter(same) {
            Some(reader) => Ok(Some(Self::read(reader, picture, most)?)),
            None => Ok(None),
        }
    }

    /// The events before a picture, from an open file. What of them is missing is
    /// said.
    pub fn told(path: &Path, file: File, picture: &Picture, most: usize) -> Result<Self> {
        let reader = trace::begin(file);
        let history = reader.and_then(|reader| Self::read(reader, picture, most));
        let history = history.map_err(|error| Error::of_file(path, error))?;
        trace::say(path, history.reader.shortfall());
        Ok(history)
    }

    /// Reads the events of a picture's process; keeps the `most` latest of them.
    fn read(
        reader: Reader<'static>,
        picture: &Picture,
        most: usize,
    ) -> memcuda::error::Result<Self> {
        let unknown = || Error::new("the trace does not say when it was recorded");
        let began_us = reader.began_us().ok_or_else(unknown)?;
        let of = reader.process().map_or(0, |(pid, _)| pid);
        if of != u64::from(picture.process.pid) {
            let pid = picture.process.pid;
            let text = format!("the trace is of process {of}, the picture of process {pid}");
            return Err(Error::new(text));
        }
        let mut history = Self {
            reader,
            began_us,
            events: VecDeque::new(),
            most,
            left_out: 0,
            live: HashMap::new(),
        };
        let mut next = history.reader.next().transpose()?;
        while let Some(event) = next
            && history.time_us(&event) <= picture.taken_us
        {
            history.add(event);
            next = history.reader.next().transpose()?;
        }
        history.settle(next, picture)?;
        Ok(history)
    }

    /// Goes on with what the picture knows already, from the first event behind
    /// its time.
    fn settle(&mut self, mut next: Option<Event>, picture: &Picture) -> memcuda::error::Result<()> {
        let has = held(picture);
        let mut open: HashSet<Key> = has
            .keys()
            .chain(self.live.keys())
            .filter(|key| !self.agrees(&has, key))
            .copied()
            .collect();
        let end = picture.taken_us.saturating_add(LATE_US);
        while let Some(event) = next
            && !open.is_empty()
            && self.time_us(&event) <= end
        {
            if open.contains(&key(&event)) {
                self.add(event);
                if self.agrees(&has, &key(&event)) {
                    open.remove(&key(&event));
                }
            }
            next = self.reader.next().transpose()?;
        }
        // Of the pool's own memory the picture knows who has it: what is live by
        // the trace alone was freed, and that event is missing, or is being
        // written.
        let mut freed: Vec<Event> = open
            .iter()
            .filter(|key| in_stitch(picture, **key))
            .filter_map(|key| self.live.get(key).copied())
            .collect();
        freed.sort_by_key(|event| event.line);
        // What was taken from behind the picture's time is not before it.
        let t_us = self.ended_us(picture).saturating_sub(self.began_us);
        for event in freed {
            self.add(Event {
                op: Op::Free,
                t_us,
                thread: 0,
                caller: 0,
                stack: 0,
                ..event
            });
        }
        Ok(())
    }

    /// Do trace and picture say the same of what is at an address?
    fn agrees(&self, has: &HashMap<Key, Option<u64>>, key: &Key) -> bool {
        match (self.live.get(key), has.get(key)) {
            (Some(event), Some(bytes)) => bytes.is_none_or(|bytes| bytes == event.bytes),
            (live, has) => live.is_none() && has.is_none(),
        }
    }

    fn add(&mut self, event: Event) {
        match event.op {
            Op::Alloc => drop(self.live.insert(key(&event), event)),
            Op::Free => drop(self.live.remove(&key(&event))),
            _ => return,
        }
        self.events.push_back(event);
        if self.events.len() > self.most {
            self.events.pop_front();
            self.left_out += 1;
        }
    }

    /// The allocations and frees of a device, in order.
    pub fn events(&self, device: u32) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |e| e.device == device)
    }

    /// Most device ordinals that events have.
    pub fn devices(&self) -> u32 {
        let devices = self.events.iter().map(|e| e.device.saturating_add(1));
        devices.max().unwrap_or(0)
    }

    /// Is this allocation live at the end?
    pub fn stays(&self, event: &Event) -> bool {
        let live = self.live.get(&key(event));
        event.op == Op::Alloc && live.is_some_and(|live| live.line == event.line)
    }

    /// How many events came before those that are kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// When an event happened, in microseconds of the Unix epoch.
    pub fn time_us(&self, event: &Event) -> u64 {
        self.began_us.saturating_add(event.t_us)
    }

    /// When all that is told had happened: the time of the picture or of the
    /// last event, in microseconds of the Unix epoch.
    pub fn ended_us(&self, picture: &Picture) -> u64 {
        let last = self.events.back().map_or(0, |event| self.time_us(event));
        last.max(picture.taken_us)
    }

    /// The driver's value of the stream of an event.
    pub fn stream(&self, event: &Event) -> u64 {
        self.reader.driver_stream(event.stream)
    }

    /// Who asked for the memory that is live at an address, as frames.
    pub fn live(&self, device: u32, address: u64) -> Option<Vec<(String, String)>> {
        let event = self.live.get(&(device, address))?;
        Some(self.frames(event))
    }

    /// Who asked for memory, in one word: the innermost call on its stack that is
    /// not CUDA's, or else the library.
    pub fn asked(&self, event: &Event) -> String {
        if event.name != 0 {
            return format!("name {}", self.reader.word(event.name));
        }
        let of_cuda = |call: &&str| call.is_empty() || call.starts_with("libcuda");
        let mut calls = self.reader.word(event.stack).split(';');
        let call = calls.find(|call| !of_cuda(call));
        match call.unwrap_or_else(|| self.reader.word(event.caller)) {
            "" => "whoever: it is not recorded".to_owned(),
            asked => asked.to_owned(),
        }
    }

    /// Who made an event, as frames: what was called, and where.
    pub fn frames(&self, event: &Event) -> Vec<(String, String)> {
        let word = |number: u32| self.reader.word(number);
        let mut frames = Vec::new();
        if event.name != 0 {
            frames.push((format!("name {}", word(event.name)), "memcuda".to_owned()));
        }
        if event.stack != 0 {
            let calls = word(event.stack).split(';');
            frames.extend(calls.map(|call| {
                let unnamed = || call.split_once('+').unwrap_or((call, ""));
                let (place, name) = call.split_once('!').unwrap_or_else(unnamed);
                (name.to_owned(), place.to_owned())
            }));
        } else if event.caller != 0 {
            let call = match (event.op, event.owner) {
                (Op::Alloc, Some(Owner::Context)) => "cudaMalloc",
                (Op::Alloc, Some(Owner::Page)) => "cuMemMap",
                (_, Some(Owner::Page)) => "cuMemUnmap",
                (Op::Alloc, _) => "cudaMallocAsync",
                _ => "free",
            };
            frames.push((call.to_owned(), word(event.caller).to_owned()));
        }
        if event.thread != 0 {
            frames.push((word(event.thread).to_owned(), "thread".to_owned()));
        }
        frames
    }
}

fn key(event: &Event) -> Key {
    (event.device, event.id)
}

/// What the program has, by the picture: bytes asked for, where the pool knows.
fn held(picture: &Picture) -> HashMap<Key, Option<u64>> {
    let devices = picture.devices.iter();
    let blocks = devices.flat_map(|d| d.pool.blocks.iter().map(move |b| (d.ordinal, b)));
    let has = blocks.filter_map(|(device, block)| {
        let bytes = match block.state {
            State::Live => Some(block.asked_bytes),
            State::Attached => None,
            _ => return None,
        };
        Some(((device, block.address), bytes))
    });
    has.collect()
}

fn in_stitch(picture: &Picture, (device, address): Key) -> bool {
    let devices = picture.devices.iter().filter(|d| d.ordinal == device);
    let mut stitches = devices.flat_map(|d| &d.pool.stitches);
    stitches.any(|s| (s.address..s.address.saturating_add(s.bytes)).contains(&address))
}
