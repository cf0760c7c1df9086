//! Words in memory as signals between streams, processes and the host
//! (`cuStreamWriteValue*`, `cuStreamWaitValue*`). When such a wait ends is not
//! known as it is queued: what follows it is held (`held`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Release};

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::entry::api;
use crate::held::Why;
use crate::host::Pinned;
use crate::memory::holding;
use crate::order::Order;
use crate::state::Sim;
use crate::stream::Effect;

/// How long a write or a look takes.
const NS: u64 = 500;
/// Writes of a word that are remembered, for the order that they make.
const REMEMBERED: usize = 16;

/// What a stream waits for.
#[derive(Clone, Copy)]
pub struct Until {
    at: u64,
    bytes: u64,
    value: u64,
    /// `CUstreamWaitValue_flags` without the flush.
    how: u32,
}

impl Until {
    pub fn holds(&self, word: u64) -> bool {
        let (word, value) = (word, self.value);
        match (self.how, self.bytes) {
            (0, 4) => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            (0, _) => word.wrapping_sub(value) as i64 >= 0,
            (1, _) => word == value,
            (2, _) => word & value != 0,
            (_, 4) => !(word as u32 | value as u32) != 0,
            _ => !(word | value) != 0,
        }
    }
}

/// A write that was queued.
pub struct Signal {
    at: u64,
    value: u64,
    order: Order,
}

impl Sim {
    /// Is this word page-locked host memory or memory of a device?
    fn check_word(&self, at: u64, bytes: u64) -> Answer {
        let pinned = |(base, it): (u64, &Pinned)| at + bytes <= base + it.bytes;
        let known = holding(&self.pinned, at, |it| it.bytes).is_some_and(pinned);
        match at.is_multiple_of(bytes) && (known || self.resolve(at, bytes).is_ok()) {
            true => Ok(()),
            false => Err(Code::INVALID_VALUE),
        }
    }

    fn touch_of(&self, at: u64, bytes: u64, write: bool) -> Vec<Touch> {
        let call = self.call;
        let touch = Touch {
            base: at,
            bytes,
            write,
            call,
        };
        // The checker knows device memory only.
        let of_device = self.is_device_address(at);
        of_device.then_some(touch).into_iter().collect()
    }

    pub fn read_word(&self, until: &Until) -> u64 {
        let (at, _) = self.reach(until.at);
        // SAFETY: aligned and there when the wait was queued; memory below
        // work that has not ended is not taken away.
        unsafe {
            match until.bytes {
                4 => u64::from(AtomicU32::from_ptr(at as *mut u32).load(Acquire)),
                _ => AtomicU64::from_ptr(at as *mut u64).load(Acquire),
            }
        }
    }

    /// A queued write takes effect.
    pub fn write_word(&self, at: u64, bytes: u64, value: u64) {
        let (at, _) = self.reach(at);
        // SAFETY: as for a read.
        unsafe {
            match bytes {
                4 => AtomicU32::from_ptr(at as *mut u32).store(value as u32, Release),
                _ => AtomicU64::from_ptr(at as *mut u64).store(value, Release),
            }
        }
    }

    fn queue_write(&mut self, id: u32, at: u64, bytes: u64, value: u64, flags: u32) -> Answer {
        const NO_MEMORY_BARRIER: u32 = 1;
        if flags > NO_MEMORY_BARRIER {
            return Err(Code::INVALID_VALUE);
        }
        self.check_word(at, bytes)?;
        self.write_behind(id, at, bytes, value)
    }

    /// A write in the order of a stream; of a graph's too, once it is launched.
    pub fn write_behind(&mut self, id: u32, at: u64, bytes: u64, value: u64) -> Answer {
        let touches = self.touch_of(at, bytes, true);
        self.submit(id, NS, &touches, Effect::Word { at, bytes, value })?;
        if self.streams[&id].capture.is_some() {
            return Ok(());
        }
        let (order, _) = self.position(id);
        if self.signals.len() == REMEMBERED {
            self.signals.pop_front();
        }
        self.signals.push_back(Signal { at, value, order });
        Ok(())
    }

    fn queue_wait(&mut self, id: u32, at: u64, bytes: u64, value: u64, flags: u32) -> Answer {
        const FLUSH: u32 = 1 << 30;
        let how = flags & !FLUSH;
        if how > 3 {
            return Err(Code::INVALID_VALUE);
        }
        self.check_word(at, bytes)?;
        let until = Until {
            at,
            bytes,
            value,
            how,
        };
        self.wait_behind(id, until)
    }

    /// A wait in the order of a stream; of a graph's too, once it is launched.
    pub fn wait_behind(&mut self, id: u32, until: Until) -> Answer {
        let touches = self.touch_of(until.at, until.bytes, false);
        if self.streams[&id].capture.is_some() {
            return self.submit(id, NS, &touches, Effect::Wait(until));
        }
        self.join_default(id)?;
        let signals = self.signals.iter().rev();
        let signal = signals
            .into_iter()
            .find(|signal| signal.at == until.at && until.holds(signal.value));
        if let Some(order) = signal.map(|signal| signal.order.clone()) {
            self.order_behind(id, &order, 0);
        }
        self.submit(id, NS, &touches, Effect::Nothing)?;
        let now = self.clock.now();
        let start = self.streams[&id].ready;
        if start <= now && until.holds(self.read_word(&until)) {
            return Ok(());
        }
        self.hold_stream(id, Why::Word(until));
        Ok(())
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuStreamWriteValue32 | cuStreamWriteValue32_ptsz [stream] (stream: u64, at: u64, value: u32, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_write(id, at, 4, u64::from(value), flags)
    }
    fn cuStreamWriteValue64 | cuStreamWriteValue64_ptsz [stream] (stream: u64, at: u64, value: u64, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_write(id, at, 8, value, flags)
    }
    fn cuStreamWaitValue32 | cuStreamWaitValue32_ptsz [stream] (stream: u64, at: u64, value: u32, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_wait(id, at, 4, u64::from(value), flags)
    }
    fn cuStreamWaitValue64 | cuStreamWaitValue64_ptsz [stream] (stream: u64, at: u64, value: u64, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_wait(id, at, 8, value, flags)
    }
    fn cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz [stream] (stream: u64, at: u64, value: u32, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_write(id, at, 4, u64::from(value), flags)
    }
    fn cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz [stream] (stream: u64, at: u64, value: u64, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_write(id, at, 8, value, flags)
    }
    fn cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz [stream] (stream: u64, at: u64, value: u32, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_wait(id, at, 4, u64::from(value), flags)
    }
    fn cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz [stream] (stream: u64, at: u64, value: u64, flags: u32) {
        let id = sim.stream(stream)?;
        sim.queue_wait(id, at, 8, value, flags)
    }
}
