//! A picture as a page that shows it by itself: the data inside, no request to
//! anywhere, light and dark (`page.html`).

use std::io::{self, Write};

use anyhow::{Result, anyhow};
use memcuda::picture::layout::{Kind, Layout, Range, Sums};
use memcuda::picture::{Device, Process, Refused};
use serde::Serialize;

use crate::pictures::reading::{Reading, What, Words, stream};

/// The page; the picture goes where the mark is.
const PAGE: &str = include_str!("page.html");
const MARK: &str = "\"the picture\"";

#[derive(Serialize)]
struct Shown<'a> {
    process: &'a Process,
    taken_us: u64,
    refused: &'a Option<Refused>,
    devices: Vec<ShownDevice<'a>>,
}

#[derive(Serialize)]
struct ShownDevice<'a> {
    ordinal: u32,
    uuid: &'a str,
    name: &'a str,
    total_bytes: u64,
    limit_bytes: Option<u64>,
    held_ns: u64,
    counters: &'a std::collections::BTreeMap<String, u64>,
    live_bytes: u64,
    pending_bytes: u64,
    idle_bytes: u64,
    held_bytes: u64,
    /// What streams and holders are called; ranges have indices of it.
    words: Vec<String>,
    segments: Vec<ShownSegment>,
}

#[derive(Serialize)]
struct ShownSegment {
    /// In hexadecimal: a browser's numbers have 53 bits.
    address: String,
    stitch: u32,
    bytes: u64,
    /// Of each range: bytes, kind (0 live, 1 pending, 2 idle, 3 held), and of
    /// live ones bytes asked for, number, who and stream as words.
    ranges: Vec<Vec<u64>>,
}

/// Writes the page.
pub fn write(reading: &Reading<'_>, into: &mut dyn Write) -> Result<()> {
    let (before, behind) = PAGE
        .split_once(MARK)
        .ok_or_else(|| anyhow!("the page has no place for a picture"))?;
    let devices = reading.devices.iter();
    let shown = Shown {
        process: &reading.picture.process,
        taken_us: reading.picture.taken_us,
        refused: &reading.picture.refused,
        devices: devices
            .map(|(device, layout)| show(reading, device, layout))
            .collect(),
    };
    into.write_all(before.as_bytes())?;
    serde_json::to_writer(Inside(into), &shown).map_err(io::Error::from)?;
    Ok(into.write_all(behind.as_bytes())?)
}

fn show<'a>(reading: &Reading<'_>, device: &'a Device, layout: &Layout) -> ShownDevice<'a> {
    let pool = &device.pool;
    let Sums {
        live,
        pending,
        idle,
        held,
    } = layout.sums(pool);
    let mut words = Words::default();
    let segments = layout.segments.iter().map(|segment| ShownSegment {
        address: format!("{:#x}", segment.address),
        stitch: segment.stitch,
        bytes: segment.bytes,
        ranges: segment
            .ranges
            .iter()
            .map(|range| numbers(reading, device, range, &mut words))
            .collect(),
    });
    let segments = segments.collect();
    ShownDevice {
        ordinal: device.ordinal,
        uuid: &device.uuid,
        name: &device.name,
        total_bytes: device.total_bytes,
        limit_bytes: device.limit_bytes,
        held_ns: pool.held_ns,
        counters: &pool.counters,
        live_bytes: live,
        pending_bytes: pending,
        idle_bytes: idle,
        held_bytes: held,
        words: words.all,
        segments,
    }
}

/// A range as [`ShownSegment::ranges`] has it.
fn numbers(reading: &Reading<'_>, device: &Device, range: &Range, words: &mut Words) -> Vec<u64> {
    const LIVE: u64 = 0;
    const PENDING: u64 = 1;
    const IDLE: u64 = 2;
    const HELD: u64 = 3;
    let block = match (reading.what(device, range.kind), range.kind) {
        (What::Live | What::Shared, Kind::Block(index)) => &device.pool.blocks[index],
        (What::Pending, _) => return vec![range.bytes, PENDING],
        (What::Idle, _) => return vec![range.bytes, IDLE],
        _ => return vec![range.bytes, HELD],
    };
    let who = reading.who(device, block).unwrap_or_default();
    let (who, stream) = (words.index(who), words.index(stream(device, block)));
    vec![range.bytes, LIVE, block.asked_bytes, block.id, who, stream]
}

/// Writes JSON inside a page: no text of it can end the element that it is in.
struct Inside<'a>(&'a mut dyn Write);

impl Write for Inside<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'<') {
            match part.split_last() {
                Some((b'<', text)) => {
                    self.0.write_all(text)?;
                    // Outside its texts JSON has no such character.
                    self.0.write_all(b"\\u003c")?;
                }
                _ => self.0.write_all(part)?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
