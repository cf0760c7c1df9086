//! What happened, as PyTorch's memory viewer takes it: `device_traces`, a list
//! for every device number. The viewer goes backwards from the segments that
//! there are at the end, and needs one below every block at every moment. Bytes
//! of the pool are seen at several addresses, so blocks have been where no
//! segment is now: such a place is mapped just before its block is made, and
//! unmapped once that is freed.

use std::io::Result;

use memcuda::picture::layout::Layout;
use memcuda::picture::{Device, Refused};
use memcuda::trace::{Event, Op};

use super::frame::{frame, number};
use super::pickle::Pickle;
use crate::pictures::history::History;
use crate::pictures::reading::Reading;

/// One entry of a list.
enum Entry<'a> {
    /// Memory was given out or came back.
    Block(&'static str, &'a Event),
    /// Addresses that have a segment from now on, or none: first one, length.
    Place(&'static str, &'a Event, (u64, u64)),
    /// The allocation that failed, where that is why there is a picture.
    Refused(&'a Refused),
}

/// Writes the lists.
pub fn write(p: &mut Pickle<'_>, reading: &Reading<'_>, history: Option<&History>) -> Result<()> {
    let shown = reading.devices.iter().map(|(device, _)| device.ordinal);
    let shown = shown.max().map_or(0, |last| last.saturating_add(1));
    let devices = shown.max(history.map_or(0, History::devices));
    // No machine has more; a damaged picture may say so.
    let ended_us = history.map_or(reading.picture.taken_us, |h| h.ended_us(reading.picture));
    p.list(0..devices.min(1024), |p, ordinal| {
        let layout = reading.devices.iter().find(|(d, _)| d.ordinal == ordinal);
        let mut entries = Vec::new();
        if let Some(history) = history {
            let segments = layout.map_or_else(Vec::new, segments);
            for event in history.events(ordinal) {
                happened(event, !history.stays(event), &segments, &mut entries);
            }
        }
        let refused = reading.picture.refused.iter();
        entries.extend(refused.filter(|r| r.device == ordinal).map(Entry::Refused));
        p.list(entries, |p, entry| {
            p.dict(|p| match (entry, history) {
                (Entry::Refused(refused), _) => failed(p, refused, ended_us),
                (Entry::Block(action, event), Some(history)) => {
                    write_block(p, action, event, history)
                }
                (Entry::Place(action, event, at), Some(history)) => {
                    one(p, action, event, at, history)?;
                    p.text("frames")?;
                    p.list(None::<()>, |_, ()| Ok(()))
                }
                (_, None) => Ok(()),
            })
        })
    })
}

fn write_block(p: &mut Pickle<'_>, action: &str, event: &Event, history: &History) -> Result<()> {
    one(p, action, event, (event.id, event.bytes), history)?;
    p.text("frames")?;
    let owner = event.owner.map_or(0, |owner| owner as u32 + 1);
    let op = event.op as u32 * 4 + owner;
    let who = [event.name, event.caller, event.thread, event.stack, op];
    p.shared(who, |p| {
        let frames = history.frames(event);
        p.list(frames, |p, (name, place)| frame(p, &name, &place))
    })
}

/// Where segments are: first addresses and the ones behind them.
fn segments((_, layout): &(&Device, Layout)) -> Vec<(u64, u64)> {
    let segments = layout.segments.iter();
    segments.map(|s| (s.address, s.address + s.bytes)).collect()
}

/// What of an event the viewer needs; of memory that stays and has no segment
/// no place is told.
fn happened<'a>(
    event: &'a Event,
    placed: bool,
    segments: &[(u64, u64)],
    entries: &mut Vec<Entry<'a>>,
) {
    let places = uncovered(segments, event.id, event.bytes);
    let places = places.into_iter().filter(|_| placed);
    if event.op == Op::Alloc {
        entries.extend(places.map(|at| Entry::Place("segment_map", event, at)));
        entries.push(Entry::Block("alloc", event));
    } else {
        entries.push(Entry::Block("free_requested", event));
        entries.push(Entry::Block("free_completed", event));
        entries.extend(places.map(|at| Entry::Place("segment_unmap", event, at)));
    }
}

/// What of some addresses no segment has.
fn uncovered(segments: &[(u64, u64)], address: u64, bytes: u64) -> Vec<(u64, u64)> {
    let end = address.saturating_add(bytes);
    let first = segments.partition_point(|(_, end)| *end <= address);
    let (mut reached, mut places) = (address, Vec::new());
    for &(start, stop) in segments[first..].iter().take_while(|(at, _)| *at < end) {
        if start > reached {
            places.push((reached, start - reached));
        }
        reached = stop;
    }
    if reached < end {
        places.push((reached, end - reached));
    }
    places
}

fn one(
    p: &mut Pickle<'_>,
    action: &str,
    event: &Event,
    (address, bytes): (u64, u64),
    history: &History,
) -> Result<()> {
    p.texts(&[("action", action)])?;
    p.numbers(&[
        ("addr", address),
        ("size", bytes),
        ("stream", number(history.stream(event))),
        ("time_us", history.time_us(event)),
    ])
}

fn failed(p: &mut Pickle<'_>, refused: &Refused, time_us: u64) -> Result<()> {
    p.texts(&[("action", "oom")])?;
    p.numbers(&[
        ("device_free", refused.driver_free_bytes.unwrap_or(0)),
        ("size", refused.asked_bytes),
        (
            "stream",
            refused.stream.map_or(0, |stream| number(stream.stream)),
        ),
        ("time_us", time_us),
    ])?;
    p.text("frames")?;
    p.list([&refused.thread_name], |p, name| frame(p, name, "thread"))
}

#[cfg(test)]
mod tests {
    use super::uncovered;

    #[test]
    fn places_without_a_segment_are_told() {
        let segments = [(100, 200), (200, 250), (300, 400)];
        let of = |address, bytes| uncovered(&segments, address, bytes);
        assert_eq!(of(100, 150), []);
        assert_eq!(of(50, 50), [(50, 50)]);
        assert_eq!(of(90, 400), [(90, 10), (250, 50), (400, 90)]);
        assert_eq!(of(260, 10), [(260, 10)]);
        assert_eq!(of(500, 10), [(500, 10)]);
    }
}
