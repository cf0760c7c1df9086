//! A picture as PyTorch's memory viewer takes it: the structure that
//! `torch.cuda.memory._snapshot()` returns. The blocks of a segment tile it;
//! what happened before is for `events`.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use memcuda::picture::layout::{Kind, Range, Segment};
use memcuda::picture::{Block, Device, State, Stitch};

use super::events;
use super::frame::{frame, number};
use super::pickle::Pickle;
use crate::pictures::history::History;
use crate::pictures::reading::{Reading, stream as stream_of};

/// Chunks that the text of a segment names.
const CHUNKS: usize = 32;

/// Writes it as a pickle, with what happened before as far as that is known.
pub fn write(reading: &Reading<'_>, history: Option<&History>, into: &mut dyn Write) -> Result<()> {
    let segments = reading.devices.iter().flat_map(|(device, layout)| {
        let index = device.pool.stitches.iter();
        let index: HashMap<u32, &Stitch> = index.map(|stitch| (stitch.id, stitch)).collect();
        let segments = layout.segments.iter();
        segments.map(move |segment| (*device, segment, index.get(&segment.stitch).copied()))
    });
    let mut pickle = Pickle::begin(into)?;
    pickle.dict(|p| {
        p.text("segments")?;
        p.list(segments, |p, (device, segment, stitch)| {
            write_segment(p, (reading, history), device, segment, stitch)
        })?;
        p.text("device_traces")?;
        events::write(p, reading, history)?;
        p.text("allocator_settings")?;
        p.dict(write_settings)?;
        p.text("external_annotations")?;
        p.list(None::<()>, |_, ()| Ok(()))
    })?;
    Ok(pickle.end()?)
}

/// What a range is for the viewer: its state, and the bytes asked for of it.
fn state(device: &Device, range: &Range) -> (&'static str, u64) {
    match range.kind {
        Kind::Block(index) => {
            let block = &device.pool.blocks[index];
            let state = match block.state {
                State::Live | State::Attached => "active_allocated",
                State::Parked | State::Pending => "active_pending_free",
                State::Idle => "inactive",
            };
            (state, block.asked_bytes.min(range.bytes))
        }
        Kind::Held => ("active_allocated", range.bytes),
        Kind::Pending => ("active_pending_free", 0),
        Kind::Idle => ("inactive", 0),
    }
}

fn write_segment(
    p: &mut Pickle<'_>,
    (reading, history): (&Reading<'_>, Option<&History>),
    device: &Device,
    segment: &Segment,
    stitch: Option<&Stitch>,
) -> std::io::Result<()> {
    let (mut allocated, mut active, mut requested) = (0, 0, 0);
    for range in &segment.ranges {
        let (state, asked) = state(device, range);
        if state != "inactive" {
            active += range.bytes;
        }
        if state == "active_allocated" {
            allocated += range.bytes;
            requested += asked;
        }
    }
    let small = |range: &Range| {
        let block = block(device, range);
        block.is_some_and(|block| block.small)
    };
    let all_small = segment.ranges.iter().all(small);
    p.dict(|p| {
        p.numbers(&[
            ("device", device.ordinal.into()),
            ("address", segment.address),
            ("total_size", segment.bytes),
            ("allocated_size", allocated),
            ("active_size", active),
            ("requested_size", requested),
            ("stream", stream(device, segment)),
        ])?;
        p.texts(&[("segment_type", if all_small { "small" } else { "large" })])?;
        p.text("segment_pool_id")?;
        p.pair((0, 0))?;
        p.text("is_expandable")?;
        p.boolean(false)?;
        p.text("frames")?;
        let chunks = stitch.map_or_else(String::new, |stitch| chunks(stitch, segment));
        p.list([chunks], |p, chunks| {
            frame(p, &chunks, &format!("stitch {}", segment.stitch))
        })?;
        p.text("blocks")?;
        p.list(&segment.ranges, |p, range| {
            write_block(p, (reading, history), device, range)
        })
    })
}

fn write_block(
    p: &mut Pickle<'_>,
    (reading, history): (&Reading<'_>, Option<&History>),
    device: &Device,
    range: &Range,
) -> std::io::Result<()> {
    let (state, asked) = state(device, range);
    p.dict(|p| {
        p.numbers(&[
            ("address", range.address),
            ("size", range.bytes),
            ("requested_size", asked),
        ])?;
        p.texts(&[("state", state)])?;
        p.text("frames")?;
        let told = tell(reading, device, range);
        let made = told.as_ref().and(history);
        let made = made.and_then(|h| h.live(device.ordinal, range.address));
        let frames = told.into_iter().chain(made.into_iter().flatten());
        p.list(frames, |p, (name, place)| frame(p, &name, &place))
    })
}

fn block<'a>(device: &'a Device, range: &Range) -> Option<&'a Block> {
    match range.kind {
        Kind::Block(index) => Some(&device.pool.blocks[index]),
        _ => None,
    }
}

/// The stream of every live block of a segment, 0 where they differ.
fn stream(device: &Device, segment: &Segment) -> u64 {
    let blocks = segment.ranges.iter().filter_map(|r| block(device, r));
    let mut streams = blocks.filter_map(|block| device.pool.stream(block));
    let first = streams.next();
    match first {
        Some(first) if streams.all(|other| other == first) => number(first.stream),
        _ => 0,
    }
}

/// The chunks below a segment.
fn chunks(stitch: &Stitch, segment: &Segment) -> String {
    let from = segment.address.saturating_sub(stitch.address);
    let to = from.saturating_add(segment.bytes);
    let first = stitch.pieces.partition_point(|piece| piece.offset <= from);
    let below = stitch.pieces[first.saturating_sub(1)..].iter();
    let below = below.take_while(|piece| piece.offset < to);
    let mut numbers: Vec<String> = below.map(|piece| piece.chunk.to_string()).collect();
    if numbers.len() > CHUNKS {
        let more = numbers.len() - CHUNKS;
        numbers.truncate(CHUNKS);
        numbers.push(format!("and {more} more"));
    }
    format!("chunks {}", numbers.join(" "))
}

/// What is said of a range, as name and place of a frame.
fn tell(reading: &Reading<'_>, device: &Device, range: &Range) -> Option<(String, String)> {
    let name = match range.kind {
        Kind::Held => "being lent or taken back, or the rest of attached memory",
        Kind::Pending | Kind::Idle => return None,
        Kind::Block(_) => {
            let block = block(device, range)?;
            return Some((reading.who(device, block)?, stream_of(device, block)));
        }
    };
    Some((name.to_owned(), "memcuda".to_owned()))
}

fn write_settings(p: &mut Pickle<'_>) -> std::io::Result<()> {
    p.texts(&[("PYTORCH_CUDA_ALLOC_CONF", "")])?;
    p.text("max_split_size")?;
    p.integer(-1)?;
    p.text("garbage_collection_threshold")?;
    p.float(0.0)?;
    for key in ["expandable_segments", "release_lock_on_cudamalloc"] {
        p.text(key)?;
        p.boolean(false)?;
    }
    Ok(())
}
