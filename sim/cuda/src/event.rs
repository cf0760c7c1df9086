//! Events: a place in the order of work, and the moment when it is reached.

use crate::abi::{Answer, Code};
use crate::capture::CapturedEvent;
use crate::check::misuse;
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::order::{Order, merge};
use crate::state::Sim;
use crate::stream::{Effect, Kind};

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`: a node of the graph that is
/// captured, which acts when it is launched.
const EXTERNAL: u32 = 1;

/// What handles of events begin with.
const HANDLES: u64 = 0x6500_0000_0000;

pub struct Event {
    pub context: u64,
    flags: u32,
    record: Option<Record>,
    /// Last recorded on a capturing stream.
    pub captured: Option<CapturedEvent>,
}

#[derive(Clone)]
struct Record {
    order: Order,
    /// When all of that is complete, in nanoseconds of the clock.
    at: u64,
}

impl Event {
    /// Moves what it stands for to another time.
    pub fn move_record(&mut self, moved: impl Fn(&mut u64)) {
        if let Some(record) = &mut self.record {
            moved(&mut record.at);
        }
    }
}

impl Sim {
    /// What is said of a handle that is no event's: one that was destroyed may be anything.
    fn no_event(&self, handle: u64) -> Code {
        if self.ended_events.contains(&handle) {
            return Code::CONTEXT_IS_DESTROYED;
        }
        if (HANDLES + 1..=self.last_number(HANDLES)).contains(&handle) {
            misuse(&format!(
                "{} of {handle:#x}, an event that was destroyed",
                self.call
            ));
        }
        Code::INVALID_HANDLE
    }

    fn event(&self, handle: u64) -> Result<&Event, Code> {
        let Some(event) = self.events.get(&handle) else {
            return Err(self.no_event(handle));
        };
        self.healthy(event.context)?;
        Ok(event)
    }

    fn record(&mut self, handle: u64, stream: u64, flags: u32) -> Answer {
        let context = self.event(handle)?.context;
        let id = self.stream(stream)?;
        match self.streams[&id].capture {
            None => self.joined_by_default(id).map(drop)?,
            Some(capture) => self.active(capture).map(drop)?,
        }
        if self.streams[&id].context != context {
            return Err(Code::INVALID_HANDLE);
        }
        self.refuse_external(id, flags)?;
        self.clock.charge(cost::EVENT_RECORD);
        if flags & EXTERNAL != 0 {
            return self.record_behind(id, handle);
        }
        if self.streams[&id].capture.is_some() {
            let captured = self.capture_event(id)?;
            if let Some(event) = self.events.get_mut(&handle) {
                event.captured = Some(captured);
                event.record = None;
            }
            return Ok(());
        }
        self.record_behind(id, handle)
    }

    fn refuse_external(&self, id: u32, flags: u32) -> Answer {
        match flags & EXTERNAL != 0 && self.streams[&id].capture.is_none() {
            true => Err(Code::ILLEGAL_STATE),
            false => Ok(()),
        }
    }

    /// A record in the order of a stream; of a graph's too, once it is launched. One
    /// that was destroyed before then is recorded nowhere.
    pub fn record_behind(&mut self, id: u32, handle: u64) -> Answer {
        if let Some(capture) = self.streams[&id].capture {
            return self.capture_work(capture, id, 0, &[], Effect::Record(handle));
        }
        self.join_default(id)?;
        let (order, ready) = self.position(id);
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.kind == Kind::Legacy
        {
            stream.fence = stream.count;
        }
        self.set_record(handle, order, ready);
        Ok(())
    }

    /// A wait in the order of a stream; of a graph's too: for what the event stands for
    /// when it is launched.
    pub fn await_behind(&mut self, id: u32, handle: u64) -> Answer {
        if let Some(capture) = self.streams[&id].capture {
            return self.capture_work(capture, id, 0, &[], Effect::Await(handle));
        }
        let event = self.events.get(&handle);
        if let Some(record) = event.and_then(|event| event.record.clone()) {
            self.join_default(id)?;
            self.order_behind(id, &record.order, record.at);
        }
        Ok(())
    }

    fn set_record(&mut self, handle: u64, order: Order, ready: u64) {
        let at = ready.max(self.clock.now());
        if let Some(event) = self.events.get_mut(&handle) {
            event.captured = None;
            event.record = Some(Record { order, at });
        }
    }

    /// A completion that is legal to ask for: what the event stands for.
    fn completion(&mut self, handle: u64) -> Result<Option<Record>, Code> {
        let event = self.event(handle)?;
        if let Some(captured) = &event.captured {
            let capture = captured.capture;
            if !self.captures.contains_key(&capture) {
                return Err(Code::INVALID_VALUE);
            }
            self.invalidate(capture);
            return Err(Code::CAPTURED_EVENT);
        }
        let record = event.record.clone();
        self.refuse_unsafe()?;
        Ok(record)
    }

    fn wait_event(&mut self, stream: u64, handle: u64, flags: u32) -> Answer {
        let id = self.stream(stream)?;
        let event = self.event(handle)?;
        let (captured, outside) = (event.captured.clone(), event.record.is_some());
        self.refuse_external(id, flags)?;
        let capturing = self.streams[&id].capture.is_some() || captured.is_some();
        if capturing && flags & EXTERNAL == 0 {
            return self.capture_wait(id, captured, outside);
        }
        self.joined_by_default(id)?;
        self.await_behind(id, handle)
    }
}

api! { plain EXPORTS |sim|
    fn cuEventCreate(out: *mut u64, flags: u32) {
        let context = sim.current()?;
        // One for other processes must not be timed.
        let timed = flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS;
        if out.is_null() || flags > 7 || timed {
            return Err(Code::INVALID_VALUE);
        }
        let handle = sim.number(HANDLES);
        sim.events.insert(handle, Event { context, flags, record: None, captured: None });
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }
    fn cuEventDestroy_v2(event: u64) {
        sim.event(event)?;
        sim.events.remove(&event);
        Ok(())
    }
    fn cuEventQuery(event: u64) {
        let record = sim.completion(event)?;
        sim.clock.charge(cost::EVENT_QUERY);
        sim.settle();
        sim.event(event)?;
        if let Some(record) = record {
            if record.at > sim.clock.now() {
                return Err(Code::NOT_READY);
            }
            sim.observe(&record.order);
        }
        Ok(())
    }
    fn cuEventSynchronize(event: u64) {
        let record = sim.completion(event)?;
        sim.clock.charge(cost::STREAM_SYNCHRONIZE);
        if let Some(record) = record {
            sim.wait(sim.event(event)?.context, record.order, record.at);
            sim.settle();
        }
        sim.event(event)?;
        sim.release_unused();
        Ok(())
    }
    fn cuEventElapsedTime(out: *mut f32, start: u64, end: u64) {
        // SAFETY: the caller's pointer.
        unsafe { elapsed(sim, out, start, end) }
    }
    fn cuEventElapsedTime_v2(out: *mut f32, start: u64, end: u64) {
        // SAFETY: the caller's pointer.
        unsafe { elapsed(sim, out, start, end) }
    }
    fn cuCtxRecordEvent(context: u64, event: u64) {
        let context = sim.context(context)?;
        if sim.event(event)?.context != context {
            return Err(Code::INVALID_HANDLE);
        }
        sim.refuse_context_capture(context)?;
        sim.clock.charge(cost::EVENT_RECORD);
        let mut order = Order::new();
        let mut ready = 0;
        for id in sim.streams_of(context) {
            let (before, end) = sim.position(id);
            ready = ready.max(end);
            merge(&mut order, &before);
        }
        sim.set_record(event, order, ready);
        Ok(())
    }
    fn cuCtxWaitEvent(context: u64, event: u64) {
        let context = sim.context(context)?;
        sim.refuse_context_capture(context)?;
        if let Some(record) = sim.event(event)?.record.clone() {
            sim.clock.charge(cost::CONTEXT_WAIT);
            sim.context_behind(context, &record.order, record.at);
        }
        Ok(())
    }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn elapsed(sim: &mut Sim, out: *mut f32, start: u64, end: u64) -> Answer {
    let moment = |event: &Event| match (&event.record, event.flags & DISABLE_TIMING) {
        (Some(record), 0) => Ok(record.at),
        _ => Err(Code::INVALID_HANDLE),
    };
    let (start, end) = (moment(sim.event(start)?)?, moment(sim.event(end)?)?);
    if start.max(end) > sim.clock.now() {
        return Err(Code::NOT_READY);
    }
    // SAFETY: by the function's own contract.
    unsafe { must_put(out, (end as f64 - start as f64) as f32 / 1e6) }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuEventRecord | cuEventRecord_ptsz [stream] (event: u64, stream: u64) {
        sim.record(event, stream, 0)
    }
    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz [stream] (event: u64, stream: u64, flags: u32) {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        sim.record(event, stream, flags)
    }
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz [stream] (stream: u64, event: u64, flags: u32) {
        sim.wait_event(stream, event, flags)
    }
}
