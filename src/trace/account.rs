//! Where the memory of a trace went: how much was live when, when it was most,
//! and what it was made of then. Counts what the trace says; what a pool would
//! hold of it is for [`super::replay`].

use std::collections::{BTreeMap, HashMap};

use super::{Event, Op, Owner, Reader, Shortfall, Use};
use crate::error::{Error, Result};
use crate::units::MIB;

/// Sizes of memory, each up to and with so many bytes.
pub const CLASSES: [(&str, u64); 5] = [
    ("up to 256 KiB", 256 << 10),
    ("to 1 MiB", MIB),
    ("to 20 MiB", 20 * MIB),
    ("to 256 MiB", 256 * MIB),
    ("above", u64::MAX),
];
/// How many of the largest allocations are named.
const LARGEST: usize = 10;
/// Most steps of a timeline.
const STEPS: usize = 1024;

/// A trace.
#[derive(Debug, Default)]
pub struct Account {
    /// Process id and command line, where the trace says them.
    pub process: Option<(u64, String)>,
    /// Events.
    pub events: u64,
    /// Microseconds from the first to the last event.
    pub duration_us: u64,
    /// What the trace lacks.
    pub shortfall: Shortfall,
    /// By device ordinal.
    pub devices: BTreeMap<u32, Device>,
}

/// A device of a trace.
#[derive(Debug, Default)]
pub struct Device {
    /// What the program asked for; what its own allocator did, where the trace
    /// has nothing else.
    pub program: Tally,
    /// Segments of the program's own allocator, where the trace has both.
    pub segments: Option<Tally>,
    /// What the program had when its segments were most, in bytes.
    pub live_at_segment_peak: u64,
    /// What the peak was made of.
    pub peak: Peak,
    /// How many of the program's allocations are pages that torch's own allocator
    /// mapped.
    pub pages: u64,
    /// Requests for which there was no memory, and which were not served when
    /// they were made again, and the largest of them in bytes.
    pub refused: (u64, u64),
    /// Is `program` what its own allocator did?
    of_segments: bool,
}

/// Allocations over time.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub allocs: u64,
    /// Sum of all that was asked for, in bytes.
    pub asked_bytes: u64,
    /// Most bytes that were live.
    pub peak_bytes: u64,
    /// When, in microseconds since the trace began.
    pub peak_us: u64,
    /// Bytes that were never freed.
    pub left_bytes: u64,
    /// What was live over time.
    pub timeline: Timeline,
    /// The event behind which the most was live, from 1.
    at: u64,
}

/// What was live at one moment. Parts are in order, the largest first.
#[derive(Debug, Default)]
pub struct Peak {
    /// By size, in the order of [`CLASSES`].
    pub sizes: Vec<Part>,
    /// By the library that asked.
    pub callers: Vec<Part>,
    /// By stream.
    pub streams: Vec<Part>,
    /// By thread.
    pub threads: Vec<Part>,
    /// By name of the memory.
    pub names: Vec<Part>,
    /// By what was called.
    pub stacks: Vec<Part>,
    /// The largest allocations.
    pub largest: Vec<Largest>,
}

/// A part of what was live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What they have in common; empty where it is unknown.
    pub what: String,
    /// Allocations.
    pub count: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

/// One allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Largest {
    /// When it was made, in microseconds since the trace began.
    pub t_us: u64,
    /// Its size.
    pub bytes: u64,
    /// Who asked: library, thread, stream, as far as they are known.
    pub who: [String; 3],
    /// Its name, if it has one.
    pub name: String,
}

type Live = [u64; CLASSES.len()];

/// What was live over time, by [`CLASSES`], in steps of one length: each as it
/// was when most was live in that step.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Microseconds of a step.
    pub step_us: u64,
    /// The steps, from the beginning of the trace on.
    pub steps: Vec<Live>,
    now: Live,
}

impl Timeline {
    fn change(&mut self, t_us: u64, change: impl FnOnce(&mut Live)) {
        self.step_us = self.step_us.max(1);
        while t_us / self.step_us >= STEPS as u64 {
            self.step_us *= 2;
            let pairs = self.steps.chunks(2);
            let more =
                pairs.map(|pair| *pair.iter().max_by_key(|s| sum(&s[..])).expect("one or two"));
            self.steps = more.collect();
        }
        let at = (t_us / self.step_us) as usize;
        while self.steps.len() <= at {
            self.steps.push(self.now);
        }
        change(&mut self.now);
        if sum(&self.now) > sum(&self.steps[at]) {
            self.steps[at] = self.now;
        }
    }
}

fn sum(parts: &[u64]) -> u64 {
    parts.iter().sum()
}

fn class(bytes: u64) -> usize {
    let at = CLASSES.iter().position(|(_, most)| bytes <= *most);
    at.unwrap_or(CLASSES.len() - 1)
}

impl Tally {
    fn live(&self) -> u64 {
        sum(&self.timeline.now)
    }

    fn alloc(&mut self, t_us: u64, bytes: u64, event: u64) {
        self.allocs += 1;
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
        self.timeline.change(t_us, |now| now[class(bytes)] += bytes);
        if self.live() > self.peak_bytes {
            (self.peak_bytes, self.peak_us, self.at) = (self.live(), t_us, event);
        }
    }

    fn free(&mut self, t_us: u64, bytes: u64) {
        self.timeline.change(t_us, |now| now[class(bytes)] -= bytes);
    }
}

/// Reads a trace twice: `open` begins at its beginning.
pub fn account<'a>(open: impl Fn() -> Result<Reader<'a>>) -> Result<Account> {
    let mut reader = open()?;
    let mut account = sums(&mut reader)?;
    account.shortfall = reader.shortfall();
    let process = reader.process();
    account.process = process.map(|(pid, command)| (pid, command.to_owned()));
    if account.devices.is_empty() {
        return Err(Error::new("the trace has no allocation"));
    }
    peaks(&mut open()?, &mut account)?;
    Ok(account)
}

/// Memory of the program, or a segment of its own allocator; device and id.
type Key = (bool, u32, u64);

/// Is it a segment, and does it begin? `None` for what is neither.
fn kind(op: Op) -> Option<(bool, bool)> {
    match op {
        Op::Alloc => Some((false, true)),
        Op::Free => Some((false, false)),
        Op::SegmentAlloc => Some((true, true)),
        Op::SegmentFree => Some((true, false)),
        Op::FreeDone | Op::Refused | Op::Lost => None,
    }
}

fn wrong(event: &Event, what: &str) -> Error {
    Error::new(format!("line {}: {:x} {what}", event.line, event.id))
}

/// How much was live when.
fn sums(reader: &mut Reader<'_>) -> Result<Account> {
    let mut account = Account::default();
    let mut live: HashMap<Key, u64> = HashMap::new();
    let mut refused: HashMap<(u32, u32), u64> = HashMap::new();
    let mut first_us = None;
    for event in reader {
        let event = event?;
        account.events += 1;
        let first_us = *first_us.get_or_insert(event.t_us);
        account.duration_us = event.t_us.saturating_sub(first_us);
        let (at, t_us) = (account.events, account.duration_us);
        let who = (event.device, event.thread);
        if event.op == Op::Refused {
            let before = refused.insert(who, event.bytes);
            if let Some(before) = before.filter(|before| *before != event.bytes) {
                account.refuse(event.device, before);
            }
        }
        let Some((segment, begins)) = kind(event.op) else {
            continue;
        };
        if begins && refused.get(&who) == Some(&event.bytes) {
            refused.remove(&who);
        }
        let device = account.devices.entry(event.device).or_default();
        device.pages += u64::from(begins && event.owner == Some(Owner::Page));
        let Device {
            program, segments, ..
        } = device;
        let tally = match segment {
            true => segments.get_or_insert_default(),
            false => program,
        };
        let key = (segment, event.device, event.id);
        if begins {
            if live.insert(key, event.bytes).is_some() {
                return Err(wrong(&event, "is allocated, but was not freed before"));
            }
            // All other sums are of parts of this one.
            if tally.live().checked_add(event.bytes).is_none() {
                return Err(wrong(
                    &event,
                    "is more than there can be beside what is live",
                ));
            }
            tally.alloc(t_us, event.bytes, at);
        } else {
            let bytes = live.remove(&key);
            let bytes = bytes.ok_or_else(|| wrong(&event, "is freed, but not allocated"))?;
            tally.free(t_us, bytes);
        }
        let (live, most) = (device.program.live(), device.segments.as_ref());
        if begins && segment && most.is_some_and(|s| s.at == at) {
            device.live_at_segment_peak = live;
        }
    }
    for ((device, _), bytes) in refused {
        account.refuse(device, bytes);
    }
    for device in account.devices.values_mut() {
        device.finish();
    }
    Ok(account)
}

impl Account {
    fn refuse(&mut self, device: u32, bytes: u64) {
        let (count, largest) = &mut self.devices.entry(device).or_default().refused;
        *count += 1;
        *largest = bytes.max(*largest);
    }
}

impl Device {
    fn finish(&mut self) {
        self.of_segments = self.program.allocs == 0 && self.segments.is_some();
        if self.of_segments {
            self.program = self.segments.take().unwrap_or_default();
        }
        for tally in self.segments.iter_mut().chain([&mut self.program]) {
            tally.left_bytes = tally.live();
        }
    }
}

/// What the peaks were made of.
fn peaks(reader: &mut Reader<'_>, account: &mut Account) -> Result<()> {
    let mut live: HashMap<Key, Event> = HashMap::new();
    let (mut at, mut first_us) = (0, None);
    while let Some(event) = reader.next() {
        let event = event?;
        at += 1;
        let first_us = *first_us.get_or_insert(event.t_us);
        let Some((segment, begins)) = kind(event.op) else {
            continue;
        };
        let key = (segment, event.device, event.id);
        match begins {
            true => live.insert(key, event),
            false => live.remove(&key),
        };
        let device = account.devices.get_mut(&event.device);
        let device = device.filter(|device| begins && device.program.at == at);
        if let Some(device) = device {
            let of = |key: &Key| key.0 == device.of_segments && key.1 == event.device;
            let had = live.iter().filter(|(key, _)| of(key));
            device.peak = Peak::of(had.map(|(_, event)| event), reader, first_us);
        }
    }
    Ok(())
}

impl Peak {
    fn of<'e>(live: impl Iterator<Item = &'e Event>, reader: &Reader<'_>, first_us: u64) -> Self {
        let mut live: Vec<&Event> = live.collect();
        live.sort_by_key(|event| (std::cmp::Reverse(event.bytes), event.line));
        let word = |number: u32| reader.word(number).to_owned();
        let stream = |event: &Event| match event.uses {
            Some(Use::Any) => "any stream".to_owned(),
            _ if event.stream == 0 => "the default stream".to_owned(),
            _ => format!("stream {}", event.stream),
        };
        let mut sizes = parts(&live, |event| CLASSES[class(event.bytes)].0.to_owned());
        sizes.sort_by_key(|part| CLASSES.iter().position(|(name, _)| *name == part.what));
        let largest = live.iter().take(LARGEST).map(|event| Largest {
            t_us: event.t_us.saturating_sub(first_us),
            bytes: event.bytes,
            who: [word(event.caller), word(event.thread), stream(event)],
            name: word(event.name),
        });
        Self {
            sizes,
            callers: parts(&live, |event| word(event.caller)),
            streams: parts(&live, stream),
            threads: parts(&live, |event| word(event.thread)),
            names: parts(&live, |event| word(event.name)),
            stacks: parts(&live, |event| word(event.stack)),
            largest: largest.collect(),
        }
    }
}

fn parts(live: &[&Event], what: impl Fn(&Event) -> String) -> Vec<Part> {
    let mut parts: HashMap<String, (u64, u64)> = HashMap::new();
    for event in live {
        let (count, bytes) = parts.entry(what(event)).or_default();
        *count += 1;
        *bytes += event.bytes;
    }
    let part = |(what, (count, bytes))| Part { what, count, bytes };
    let mut parts: Vec<Part> = parts.into_iter().map(part).collect();
    parts.sort_by(|a, b| (b.bytes, &a.what).cmp(&(a.bytes, &b.what)));
    parts
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
