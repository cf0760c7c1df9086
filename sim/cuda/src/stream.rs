//! Streams: ordered queues on the clock. All durations are known when work is
//! queued, so its end is too. What the program ordered is kept in `order`.

use crate::abi::{Answer, Code, HostFn};
use crate::check::Touch;
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::fill::Fill;
use crate::host_functions::is_inside;
use crate::order::Order;
use crate::state::{Sim, thread};
use crate::values::Until;

pub const LEGACY: u64 = 1;
pub const PER_THREAD: u64 = 2;
pub const NON_BLOCKING: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Legacy,
    /// The default stream of the thread with this number.
    PerThread(u64),
    /// Made by the program, ordered against the legacy stream.
    Blocking,
    NonBlocking,
}

pub struct Stream {
    pub context: u64,
    pub kind: Kind,
    pub priority: i32,
    /// Operations queued so far.
    pub count: u64,
    /// Operations that the host knows to be complete.
    pub observed: u64,
    /// Work of other streams that comes before the next operation.
    pub before: Order,
    /// Own operations behind which an event was recorded and waited for, on the legacy
    /// default stream recorded: what follows cannot have started early.
    pub fence: u64,
    /// When the last operation ends.
    pub ready: u64,
    /// The capture that this stream is part of.
    pub capture: Option<u64>,
    pub destroyed: bool,
    /// A branch of a graph that was launched; no handle stands for it.
    pub branch: bool,
}

/// A run of bytes that a copy moves.
#[derive(Clone, Copy)]
pub struct Row {
    pub to: u64,
    pub from: u64,
    pub bytes: u64,
}

/// What work does to the state when it ends.
#[derive(Clone)]
pub enum Effect {
    Nothing,
    Fill(Fill),
    /// Copies each of the rows.
    Copy(std::sync::Arc<[Row]>),
    /// Bytes that were taken from pageable host memory when the copy was asked
    /// for, row after row.
    Staged {
        rows: std::sync::Arc<[Row]>,
        bytes: std::sync::Arc<[u8]>,
    },
    /// Writes one word of 4 or 8 bytes, as a signal.
    Word {
        at: u64,
        bytes: u64,
        value: u64,
    },
    /// In a graph: what follows waits for a word.
    Wait(Until),
    /// In a graph: an event is recorded, or waited for.
    Record(u64),
    Await(u64),
    /// In a graph: memory of its own is the program's from here on, or is freed.
    Take(u64),
    Give(u64),
    /// In a graph: a function is called.
    Host(HostFn, usize),
    /// A stream-ordered free takes effect: an address, and which allocation there.
    Free(u64, u64),
    Crash(u64),
}

pub struct Pending {
    pub stream: u32,
    pub effect: Effect,
}

impl Sim {
    /// The stream that a handle names on the calling thread.
    pub fn stream(&mut self, handle: u64) -> Result<u32, Code> {
        let kind = match handle {
            0 | LEGACY => Kind::Legacy,
            PER_THREAD => Kind::PerThread(thread()),
            _ if self.stream_handles.is_detached(handle) => return Err(Code::STREAM_DETACHED),
            _ => {
                let id = self.stream_handles.stream(handle);
                let id = id.ok_or(Code::INVALID_HANDLE)?;
                let stream = self.streams.get(&id).ok_or(Code::INVALID_HANDLE)?;
                let context = stream.context;
                self.healthy(context)?;
                return Ok(id);
            }
        };
        // The thread of the host's functions has no context.
        if is_inside() {
            return Err(Code::NOT_PERMITTED);
        }
        let context = self.current()?;
        // A view has none for each thread.
        if kind != Kind::Legacy && self.contexts[&context].whole.is_some() {
            return Err(Code::INVALID_HANDLE);
        }
        let found = self.contexts[&context]
            .streams
            .iter()
            .find(|id| self.streams[*id].kind == kind);
        match found {
            Some(id) => Ok(*id),
            None => Ok(self.add_stream(context, kind, 0)),
        }
    }

    fn add_stream(&mut self, context: u64, kind: Kind, priority: i32) -> u32 {
        let id = (self.number(0) >> 4) as u32;
        let stream = Stream {
            context,
            kind,
            priority,
            count: 0,
            observed: 0,
            before: Order::new(),
            fence: 0,
            ready: 0,
            capture: None,
            destroyed: false,
            branch: false,
        };
        self.streams.insert(id, stream);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.streams.push(id);
        }
        for context in [context, self.whole(context)] {
            let (order, ready) = self.contexts[&context].waits.clone();
            self.order_behind(id, &order, ready);
        }
        id
    }

    /// A stream for a branch of a graph, forgotten once its work is known complete.
    pub fn add_branch(&mut self, context: u64) -> u32 {
        let id = self.add_stream(context, Kind::NonBlocking, 0);
        if let Some(stream) = self.streams.get_mut(&id) {
            (stream.destroyed, stream.branch) = (true, true);
        }
        id
    }

    /// What a message calls a stream.
    pub fn stream_name(&self, id: u32) -> String {
        match self.streams.get(&id).map(|s| s.kind) {
            Some(Kind::Legacy) => "the legacy default stream".to_owned(),
            Some(Kind::PerThread(thread)) => format!("the default stream of thread {thread}"),
            _ => match self.stream_handles.of(id) {
                Some(handle) => format!("stream {handle:#x}"),
                None if self.streams.get(&id).is_some_and(|s| s.branch) => {
                    format!("branch {id} of a graph")
                }
                None => format!("destroyed stream {id}"),
            },
        }
    }

    /// The handle goes; what was queued runs on.
    fn destroy_stream(&mut self, stream: u64) -> Answer {
        if stream <= PER_THREAD {
            return Err(Code::INVALID_HANDLE);
        }
        if self.stream_handles.is_detached(stream) {
            self.stream_handles.end(stream);
            return Ok(());
        }
        let id = self.stream(stream)?;
        self.leave_capture(id);
        self.stream_handles.end(stream);
        let order = self.streams.get_mut(&id).map(|s| {
            s.destroyed = true;
            s.observed
        });
        // Work goes on; the stream is forgotten once it is known complete.
        self.observe(&Order::from([(id, order.unwrap_or(0))]));
        Ok(())
    }

    /// Queues work: its accesses are checked, its effect comes at its end.
    pub fn submit(&mut self, id: u32, ns: u64, touches: &[Touch], effect: Effect) -> Answer {
        if let Some(capture) = self.streams[&id].capture {
            return self.capture_work(capture, id, ns, touches, effect);
        }
        self.join_default(id)?;
        let now = self.clock.now();
        let ns = self.clock.duration(ns);
        let stream = self.streams.get_mut(&id).ok_or(Code::INVALID_HANDLE)?;
        let start = stream.ready.max(now);
        stream.ready = start + ns;
        stream.count += 1;
        let end = stream.ready;
        for touch in touches {
            self.check_touch(id, touch);
        }
        if !matches!(effect, Effect::Nothing) {
            let order = self.number(0);
            self.pending
                .insert((end, order), Pending { stream: id, effect });
        }
        Ok(())
    }

    /// The legacy stream waits for every blocking stream of its context, and
    /// they for it.
    pub fn join_default(&mut self, id: u32) -> Answer {
        for other in self.joined_by_default(id)? {
            let (order, ready) = self.position(other);
            self.order_behind(id, &order, ready);
        }
        Ok(())
    }

    /// The streams that work of this one would join; fails where one captures that may not.
    pub fn joined_by_default(&mut self, id: u32) -> Result<Vec<u32>, Code> {
        let (context, kind) = (self.streams[&id].context, self.streams[&id].kind);
        if kind == Kind::NonBlocking {
            return Ok(Vec::new());
        }
        let streams = self.contexts[&context].streams.iter().copied();
        let others = streams.filter(|other| {
            let other_kind = self.streams[other].kind;
            *other != id
                && other_kind != Kind::NonBlocking
                && (kind == Kind::Legacy || other_kind == Kind::Legacy)
        });
        let others: Vec<u32> = others.collect();
        if kind == Kind::Legacy {
            self.check_implicit_join(&others)?;
        }
        Ok(others)
    }

    /// Waiting for the legacy stream waits for every blocking stream too.
    fn join_blocking(&mut self, id: u32) -> Answer {
        match self.streams[&id].kind {
            Kind::Legacy => self.join_default(id),
            _ => Ok(()),
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuStreamCreate(out: *mut u64, flags: u32) {
        // SAFETY: the caller's pointer.
        unsafe { create(sim, None, out, flags, 0) }
    }
    fn cuStreamCreateWithPriority(out: *mut u64, flags: u32, priority: i32) {
        // SAFETY: the caller's pointer.
        unsafe { create(sim, None, out, flags, priority) }
    }
    fn cuStreamDestroy_v2(stream: u64) {
        sim.destroy_stream(stream)
    }
    fn cuStreamDestroy(stream: u64) {
        sim.destroy_stream(stream)
    }
}

/// `cuStreamCreate` in both forms, in the current context, and `cuGreenCtxStreamCreate`.
///
/// # Safety
/// `out` is null or valid for a write.
pub unsafe fn create(
    sim: &mut Sim,
    context: Option<u64>,
    out: *mut u64,
    flags: u32,
    priority: i32,
) -> Answer {
    if flags > NON_BLOCKING || out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let context = context.map_or_else(|| sim.current(), Ok)?;
    let kind = if flags == NON_BLOCKING {
        Kind::NonBlocking
    } else {
        Kind::Blocking
    };
    let id = sim.add_stream(context, kind, priority);
    // SAFETY: by the function's own contract.
    unsafe { must_put(out, sim.stream_handles.give(id)) }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz [stream] (stream: u64) {
        let id = sim.stream(stream)?;
        sim.refuse_captured(id)?;
        sim.joined_by_default(id)?;
        sim.refuse_unsafe()?;
        sim.clock.charge(cost::STREAM_SYNCHRONIZE);
        sim.join_blocking(id)?;
        sim.wait_for(id);
        sim.settle();
        sim.release_unused();
        let context = sim.streams.get(&id).map(|s| s.context);
        context.map_or(Ok(()), |context| sim.healthy(context))
    }
    fn cuStreamQuery | cuStreamQuery_ptsz [stream] (stream: u64) {
        let id = sim.stream(stream)?;
        sim.refuse_captured(id)?;
        sim.joined_by_default(id)?;
        sim.refuse_unsafe()?;
        sim.clock.charge(cost::EVENT_QUERY);
        sim.settle();
        sim.join_blocking(id)?;
        let (_, ready) = sim.position(id);
        if ready > sim.clock.now() {
            return Err(Code::NOT_READY);
        }
        let context = sim.streams[&id].context;
        sim.healthy(context)?;
        sim.wait_for(id);
        Ok(())
    }
    fn cuStreamGetCtx | cuStreamGetCtx_ptsz [stream] (stream: u64, out: *mut u64) {
        let id = sim.stream(stream)?;
        sim.joined_by_default(id)?;
        if let Some(capture) = sim.streams[&id].capture {
            sim.active(capture)?;
        }
        let context = sim.streams[&id].context;
        sim.lacks.context_of_stream(sim.green_of(context) != 0)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, context) }
    }
    fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz [stream] (stream: u64, out: *mut u64, green: *mut u64) {
        let id = sim.stream(stream)?;
        let context = sim.streams[&id].context;
        // SAFETY: the caller's pointers.
        unsafe {
            must_put(out, sim.whole(context))?;
            must_put(green, sim.green_of(context))
        }
    }
    fn cuStreamGetFlags | cuStreamGetFlags_ptsz [stream] (stream: u64, out: *mut u32) {
        let id = sim.stream(stream)?;
        sim.joined_by_default(id)?;
        let non_blocking = sim.streams[&id].kind == Kind::NonBlocking;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, u32::from(non_blocking)) }
    }
    fn cuStreamGetPriority | cuStreamGetPriority_ptsz [stream] (stream: u64, out: *mut i32) {
        let id = sim.stream(stream)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.streams[&id].priority) }
    }
    fn cuStreamGetId | cuStreamGetId_ptsz [stream] (stream: u64, out: *mut u64) {
        let id = sim.stream(stream)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, u64::from(id)) }
    }
    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz [stream] (stream: u64, function: Option<HostFn>, data: usize) {
        let id = sim.stream(stream)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        sim.function_behind(id, function, data)
    }
}
