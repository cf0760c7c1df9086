//! Copies and fills: work that really moves bytes.

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::clock::cost;
use crate::entry::api;
use crate::memory::holding;
use crate::state::Sim;
use crate::stream::Effect;

/// When the call returns.
#[derive(PartialEq)]
enum Return {
    Complete,
    Queued,
}

impl Sim {
    fn touch(&self, base: u64, bytes: u64, write: bool) -> Option<Touch> {
        let call = self.call;
        self.is_device_address(base).then_some(Touch {
            base,
            bytes,
            write,
            call,
        })
    }

    /// Copies between any two addresses, of the host or of devices.
    fn copy(&mut self, to: u64, from: u64, bytes: u64, stream: u64, mut when: Return) -> Answer {
        let id = self.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        if to == 0 || from == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (into, out_of) = (self.touch(to, bytes, true), self.touch(from, bytes, false));
        let host = if into.is_none() { to } else { from };
        let pinned = holding(&self.pinned, host, |bytes| *bytes).is_some();
        let ns = match (&into, &out_of) {
            (Some(_), Some(_)) => cost::device_copy(bytes),
            (None, None) => 1_000,
            _ => cost::host_copy(bytes, pinned),
        };
        let mut effect = Effect::Copy { to, from, bytes };
        if out_of.is_none() && !pinned && when == Return::Queued {
            // The driver stages pageable memory before it returns.
            // SAFETY: the program says that these bytes may be read.
            let staged = unsafe { std::slice::from_raw_parts(from as *const u8, bytes as usize) };
            effect = Effect::Staged {
                to,
                bytes: staged.into(),
            };
        } else if into.is_none() && !pinned && self.streams[&id].capture.is_none() {
            // It returns from a copy into pageable memory when that is done.
            when = Return::Complete;
        }
        if when == Return::Complete {
            self.refuse_captured(id)?;
        }
        self.clock.charge(cost::LAUNCH);
        let touches: Vec<Touch> = out_of.into_iter().chain(into).collect();
        self.submit(id, ns, &touches, effect)?;
        if when == Return::Complete {
            self.wait_for(id);
            self.settle();
            let context = self.streams[&id].context;
            self.healthy(context)?;
        }
        Ok(())
    }

    /// Fills `rows` rows of `width` elements.
    #[allow(
        clippy::too_many_arguments,
        reason = "the union of the driver's fill calls"
    )]
    fn set(
        &mut self,
        at: u64,
        pattern: u32,
        element: u64,
        width: u64,
        rows: u64,
        pitch: u64,
        stream: u64,
    ) -> Answer {
        let id = self.stream(stream)?;
        if width == 0 || rows == 0 {
            return Ok(());
        }
        if at == 0 || !at.is_multiple_of(element) {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = width * element;
        let call = self.call;
        let touches: Vec<Touch> = if pitch == bytes || rows == 1 {
            vec![Touch {
                base: at,
                bytes: bytes * rows,
                write: true,
                call,
            }]
        } else {
            let row = |row| Touch {
                base: at + row * pitch,
                bytes,
                write: true,
                call,
            };
            (0..rows).map(row).collect()
        };
        self.clock.charge(cost::LAUNCH);
        let effect = Effect::Fill {
            at,
            pattern,
            element,
            width,
            rows,
            pitch,
        };
        self.submit(id, cost::fill(bytes * rows), &touches, effect)
    }
}

api! { defaults EXPORTS |sim|
    fn cuMemcpy | cuMemcpy_ptds [stream] (to: u64, from: u64, bytes: usize) {
        sim.copy(to, from, bytes as u64, stream, Return::Complete)
    }
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds [stream] (to: u64, from: u64, bytes: usize) {
        sim.copy(to, from, bytes as u64, stream, Return::Complete)
    }
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds [stream] (to: u64, from: u64, bytes: usize) {
        sim.copy(to, from, bytes as u64, stream, Return::Complete)
    }
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds [stream] (to: u64, from: u64, bytes: usize) {
        // Between two addresses of a device it is queued, though it names no stream.
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyPeer | cuMemcpyPeer_ptds [stream] (to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds [stream] (at: u64, value: u8, count: usize) {
        sim.set(at, u32::from(value), 1, count as u64, 1, count as u64, stream)
    }
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds [stream] (at: u64, value: u16, count: usize) {
        sim.set(at, u32::from(value), 2, count as u64, 1, 2 * count as u64, stream)
    }
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds [stream] (at: u64, value: u32, count: usize) {
        sim.set(at, value, 4, count as u64, 1, 4 * count as u64, stream)
    }
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds [stream] (at: u64, pitch: usize, value: u8, width: usize, height: usize) {
        sim.set(at, u32::from(value), 1, width as u64, height as u64, pitch as u64, stream)
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz [stream] (to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz [stream] (at: u64, value: u8, count: usize, stream: u64) {
        sim.set(at, u32::from(value), 1, count as u64, 1, count as u64, stream)
    }
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz [stream] (at: u64, value: u16, count: usize, stream: u64) {
        sim.set(at, u32::from(value), 2, count as u64, 1, 2 * count as u64, stream)
    }
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz [stream] (at: u64, value: u32, count: usize, stream: u64) {
        sim.set(at, value, 4, count as u64, 1, 4 * count as u64, stream)
    }
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz [stream] (at: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        sim.set(at, u32::from(value), 1, width as u64, height as u64, pitch as u64, stream)
    }
}
