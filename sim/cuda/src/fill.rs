//! Fills: rows of one value.

use std::slice::from_raw_parts_mut;

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::clock::cost;
use crate::entry::api;
use crate::graph::Node;
use crate::state::Sim;
use crate::stream::Effect;

/// `rows` rows of `width` elements, `pitch` bytes apart.
#[derive(Clone)]
pub struct Fill {
    pub at: u64,
    pub pattern: u32,
    pub element: u64,
    pub width: u64,
    pub rows: u64,
    pub pitch: u64,
}

impl Fill {
    fn line<T: Into<u32>>(at: u64, value: T, count: usize) -> Self {
        Self::rows(at, value, count, 1, 0)
    }

    fn rows<T: Into<u32>>(at: u64, value: T, width: usize, rows: usize, pitch: usize) -> Self {
        Self {
            at,
            pattern: value.into(),
            element: size_of::<T>() as u64,
            width: width as u64,
            rows: rows as u64,
            pitch: pitch as u64,
        }
    }

    /// The bytes of a row, and from the first to the last of all; `None` where there is
    /// no such range.
    fn bytes(&self) -> Option<(u64, u64)> {
        let bytes = self.width.checked_mul(self.element)?;
        if self.rows > 1 && (self.pitch < bytes || !self.pitch.is_multiple_of(self.element)) {
            return None;
        }
        let last = (self.rows - 1).checked_mul(self.pitch)?;
        Some((bytes, last.checked_add(bytes)?))
    }
}

/// Below it the system maps nothing, and no memory of a device lies.
const LOWEST: u64 = 1 << 16;

impl Sim {
    /// What a fill writes, and how long that takes; refused where it is no range.
    fn writes(&self, fill: &Fill) -> Result<(Vec<Touch>, u64), Code> {
        let (bytes, span) = fill.bytes().ok_or(Code::INVALID_VALUE)?;
        if fill.at < LOWEST
            || !fill.at.is_multiple_of(fill.element)
            || !self.is_range(fill.at, span)
        {
            return Err(Code::INVALID_VALUE);
        }
        let (call, write) = (self.call, true);
        let touch = |base, bytes| Touch {
            base,
            bytes,
            write,
            call,
        };
        let touches: Vec<Touch> = match fill.pitch == bytes || fill.rows == 1 {
            true => vec![touch(fill.at, bytes * fill.rows)],
            false => (0..fill.rows)
                .map(|row| touch(fill.at + row * fill.pitch, bytes))
                .collect(),
        };
        Ok((touches, cost::fill(bytes * fill.rows)))
    }

    /// A fill as a program adds it to a graph.
    pub fn fill_node(&self, fill: Fill, context: u64) -> Result<Node, Code> {
        let (touches, ns) = self.writes(&fill)?;
        Ok(Node {
            context,
            lane: 0,
            after: Vec::new(),
            ns,
            touches,
            effect: Effect::Fill(fill),
        })
    }

    fn fill(&mut self, fill: Fill, stream: u64) -> Answer {
        let id = self.stream(stream)?;
        if fill.width == 0 || fill.rows == 0 {
            return Ok(());
        }
        let (touches, ns) = self.writes(&fill)?;
        // What a capture holds is looked at when its graph is made executable.
        let reached = |touch: &Touch| self.fills_reach(self.streams[&id].context, touch);
        if self.streams[&id].capture.is_none() && !touches.iter().all(reached) {
            return Err(Code::INVALID_VALUE);
        }
        self.clock.charge(cost::LAUNCH);
        self.submit(id, ns, &touches, Effect::Fill(fill))
    }

    pub fn perform_fill(&self, fill: &Fill) {
        for row in 0..fill.rows {
            self.fill_row(fill, fill.at + row * fill.pitch);
        }
    }

    fn fill_row(&self, fill: &Fill, mut at: u64) {
        let &Fill {
            pattern, element, ..
        } = fill;
        let mut bytes = fill.width * element;
        if pattern == 0 && bytes >= 1 << 20 && self.clear_pages(at, bytes) {
            return;
        }
        while bytes > 0 {
            let (into, room) = self.reach(at);
            let part = bytes.min(room);
            let count = (part / element) as usize;
            // SAFETY: as for a copy; elements are aligned because the call
            // refused others, and do not cross mappings.
            unsafe {
                match element {
                    1 => from_raw_parts_mut(into as *mut u8, count).fill(pattern as u8),
                    2 => from_raw_parts_mut(into as *mut u16, count).fill(pattern as u16),
                    _ => from_raw_parts_mut(into as *mut u32, count).fill(pattern),
                }
            }
            (at, bytes) = (at + part, bytes - part);
        }
    }

    /// Zeroes by dropping pages, where the range is one piece of a device.
    fn clear_pages(&self, at: u64, bytes: u64) -> bool {
        let Ok(pieces) = self.resolve(at, bytes) else {
            return false;
        };
        let [piece] = pieces.as_slice() else {
            return false;
        };
        match self.devices.get(piece.object as usize) {
            Some(device) => {
                device.arena.clear(piece.offset, bytes);
                true
            }
            None => false,
        }
    }
}

api! { defaults EXPORTS |sim|
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds [stream] (at: u64, value: u8, count: usize) {
        sim.fill(Fill::line(at, value, count), stream)
    }
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds [stream] (at: u64, value: u16, count: usize) {
        sim.fill(Fill::line(at, value, count), stream)
    }
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds [stream] (at: u64, value: u32, count: usize) {
        sim.fill(Fill::line(at, value, count), stream)
    }
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds [stream] (at: u64, pitch: usize, value: u8, width: usize, height: usize) {
        sim.fill(Fill::rows(at, value, width, height, pitch), stream)
    }
    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds [stream] (at: u64, pitch: usize, value: u16, width: usize, height: usize) {
        sim.fill(Fill::rows(at, value, width, height, pitch), stream)
    }
    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds [stream] (at: u64, pitch: usize, value: u32, width: usize, height: usize) {
        sim.fill(Fill::rows(at, value, width, height, pitch), stream)
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz [stream] (at: u64, value: u8, count: usize, stream: u64) {
        sim.fill(Fill::line(at, value, count), stream)
    }
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz [stream] (at: u64, value: u16, count: usize, stream: u64) {
        sim.fill(Fill::line(at, value, count), stream)
    }
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz [stream] (at: u64, value: u32, count: usize, stream: u64) {
        sim.fill(Fill::line(at, value, count), stream)
    }
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz [stream] (at: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        sim.fill(Fill::rows(at, value, width, height, pitch), stream)
    }
    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz [stream] (at: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) {
        sim.fill(Fill::rows(at, value, width, height, pitch), stream)
    }
    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz [stream] (at: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        sim.fill(Fill::rows(at, value, width, height, pitch), stream)
    }
}
