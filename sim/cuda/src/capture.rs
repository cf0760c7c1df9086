//! Stream capture: what becomes part of a graph, and which calls end it.

use std::collections::HashMap;

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::entry::{api, must_put, put};
use crate::graph::{Graph, Node};
use crate::order::{Order, merge};
use crate::state::{Sim, capture_mode, thread};
use crate::stream::{Effect, Kind};

const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;

/// `CUstreamCaptureStatus`.
const STATUS_NONE: u32 = 0;
const STATUS_ACTIVE: u32 = 1;
const STATUS_INVALIDATED: u32 = 2;

pub struct Capture {
    pub context: u64,
    mode: u32,
    /// The thread that began it.
    thread: u64,
    /// The stream that it began on.
    origin: u32,
    invalidated: bool,
    nodes: Vec<Node>,
    /// Each stream that takes part: what of every one comes before its next
    /// operation, itself included.
    members: HashMap<u32, Order>,
    pub graph: u64,
}

/// An event recorded on a capturing stream: a place in the graph to be.
#[derive(Clone)]
pub struct CapturedEvent {
    pub capture: u64,
    order: Order,
}

impl Sim {
    /// Work on a capturing stream becomes a node.
    pub fn capture_work(
        &mut self,
        capture: u64,
        id: u32,
        ns: u64,
        touches: &[Touch],
        effect: Effect,
    ) -> Answer {
        let context = self.streams[&id].context;
        let capture = self.active(capture)?;
        *capture
            .members
            .entry(id)
            .or_default()
            .entry(id)
            .or_insert(0) += 1;
        capture.nodes.push(Node {
            context,
            ns,
            touches: touches.to_vec(),
            effect,
        });
        Ok(())
    }

    /// An event recorded on a capturing stream.
    pub fn capture_event(&mut self, id: u32) -> Result<CapturedEvent, Code> {
        let number = self.streams[&id].capture.ok_or(Code::UNKNOWN)?;
        let capture = self.active(number)?;
        let order = capture.members.get(&id).cloned().unwrap_or_default();
        Ok(CapturedEvent {
            capture: number,
            order,
        })
    }

    /// A stream waits for an event, and one of them is part of a capture.
    /// `outside`: the event was recorded on a stream that does not capture.
    pub fn capture_wait(&mut self, id: u32, event: Option<CapturedEvent>, outside: bool) -> Answer {
        let own = self.streams[&id].capture;
        let Some(event) = event else {
            if let (Some(own), true) = (own, outside) {
                self.invalidate(own);
                return Err(Code::STREAM_CAPTURE_ISOLATION);
            }
            return own.map_or(Ok(()), |own| self.active(own).map(|_| ()));
        };
        if let Some(own) = own
            && own != event.capture
        {
            self.invalidate(own);
            self.invalidate(event.capture);
            return Err(Code::STREAM_CAPTURE_MERGE);
        }
        if !self.captures.contains_key(&event.capture) {
            return Err(Code::CAPTURED_EVENT);
        }
        if self.streams[&id].kind == Kind::Legacy {
            self.invalidate(event.capture);
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let order = self.active(event.capture)?.members.entry(id).or_default();
        merge(order, &event.order);
        // Joining counts as an operation: the stream must be joined back.
        *order.entry(id).or_insert(0) += 1;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.capture = Some(event.capture);
        }
        Ok(())
    }

    fn active(&mut self, capture: u64) -> Result<&mut Capture, Code> {
        match self.captures.get_mut(&capture) {
            Some(capture) if !capture.invalidated => Ok(capture),
            _ => Err(Code::STREAM_CAPTURE_INVALIDATED),
        }
    }

    pub fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalidated = true;
        }
    }

    /// A call that may not run while this thread (or, in global mode, any
    /// thread) captures: it ends those captures and fails.
    pub fn refuse_unsafe(&mut self) -> Answer {
        let (mode, thread) = (capture_mode(None), thread());
        if mode == RELAXED || self.captures.is_empty() {
            return Ok(());
        }
        self.refuse(|capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            own || (mode == GLOBAL && capture.mode == GLOBAL)
        })
    }

    /// A call over a whole context: no capture in which a stream of it takes part
    /// survives, in any mode, wherever that capture began.
    pub fn refuse_context_capture(&mut self, context: u64) -> Answer {
        let streams = self.streams_of(context);
        self.refuse(|capture| streams.iter().any(|id| capture.members.contains_key(id)))
    }

    /// Ends the captures that a call hits; it fails if there is one.
    fn refuse(&mut self, hit: impl Fn(&Capture) -> bool) -> Answer {
        let mut answer = Ok(());
        for capture in self.captures.values_mut().filter(|c| hit(c)) {
            capture.invalidated = true;
            answer = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        answer
    }

    /// A call that a capturing stream cannot take.
    pub fn refuse_captured(&mut self, id: u32) -> Answer {
        match self.streams[&id].capture {
            None => Ok(()),
            Some(capture) => {
                self.invalidate(capture);
                Err(Code::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// The legacy stream would have to wait for a capturing stream.
    pub fn check_implicit_join(&mut self, others: &[u32]) -> Answer {
        let captured: Vec<u64> = others
            .iter()
            .filter_map(|id| self.streams[id].capture)
            .collect();
        if captured.is_empty() {
            return Ok(());
        }
        captured
            .into_iter()
            .for_each(|capture| self.invalidate(capture));
        Err(Code::STREAM_CAPTURE_IMPLICIT)
    }

    fn begin_capture(&mut self, stream: u64, mode: u32) -> Answer {
        let id = self.stream(stream)?;
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        if self.streams[&id].kind == Kind::Legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.streams[&id].capture.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        let number = self.number(0);
        let graph = self.number(0x6700_0000_0000);
        let capture = Capture {
            context: self.streams[&id].context,
            mode,
            thread: thread(),
            origin: id,
            invalidated: false,
            nodes: Vec::new(),
            members: HashMap::from([(id, Order::new())]),
            graph,
        };
        self.captures.insert(number, capture);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.capture = Some(number);
        }
        Ok(())
    }

    /// Takes a capture away from the streams that take part.
    fn take_capture(&mut self, number: u64) -> Option<Capture> {
        let members = self.streams.values_mut();
        members
            .filter(|stream| stream.capture == Some(number))
            .for_each(|stream| stream.capture = None);
        self.captures.remove(&number)
    }

    /// A stream is destroyed: the capture that began on it is over, with no graph;
    /// one that it only takes part in is lost.
    pub fn leave_capture(&mut self, id: u32) {
        let Some(number) = self.streams[&id].capture else {
            return;
        };
        if self.captures.get(&number).is_some_and(|it| it.origin != id) {
            return self.invalidate(number);
        }
        if let Some(capture) = self.take_capture(number) {
            self.free_graph_memory(capture.graph);
        }
    }

    /// Ends a capture; its graph, or why there is none.
    fn end_capture(&mut self, stream: u64) -> Result<u64, Code> {
        let id = self.stream(stream)?;
        let number = self.streams[&id].capture.ok_or(Code::INVALID_VALUE)?;
        let Some(capture) = self.captures.get(&number) else {
            return Err(Code::INVALID_VALUE);
        };
        if capture.mode != RELAXED && capture.thread != thread() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        if capture.origin != id {
            self.invalidate(number);
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        let capture = self.take_capture(number).ok_or(Code::INVALID_VALUE)?;
        let joined = &capture.members[&id];
        let all_joined = capture.members.iter().all(|(member, order)| {
            let count = order.get(member).copied().unwrap_or(0);
            joined.get(member).copied().unwrap_or(0) >= count
        });
        let result = if capture.invalidated {
            Err(Code::STREAM_CAPTURE_INVALIDATED)
        } else if !all_joined {
            Err(Code::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(capture.graph)
        };
        match result {
            Ok(graph) => {
                self.graphs.insert(graph, Graph::new(capture.nodes));
            }
            Err(_) => self.free_graph_memory(capture.graph),
        }
        result
    }

    fn capture_status(&self, id: u32) -> (u32, u64, u64) {
        let Some(number) = self.streams[&id].capture else {
            return (STATUS_NONE, 0, 0);
        };
        match self.captures.get(&number) {
            Some(capture) if capture.invalidated => (STATUS_INVALIDATED, number, 0),
            Some(capture) => (STATUS_ACTIVE, number, capture.graph),
            None => (STATUS_NONE, 0, 0),
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        if mode.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller's variable.
        let wanted = unsafe { mode.read() };
        if wanted > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as above.
        unsafe { mode.write(capture_mode(Some(wanted))) };
        Ok(())
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz [stream] (stream: u64, mode: u32) {
        sim.begin_capture(stream, mode)
    }
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz [stream] (stream: u64) {
        sim.begin_capture(stream, GLOBAL)
    }
    fn cuStreamEndCapture | cuStreamEndCapture_ptsz [stream] (stream: u64, out: *mut u64) {
        let result = sim.end_capture(stream);
        // SAFETY: the caller's pointer; a failed capture leaves a null graph.
        unsafe { must_put(out, result.unwrap_or(0))? };
        result.map(|_| ())
    }
    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz [stream] (stream: u64, out: *mut u32) {
        let id = sim.stream(stream)?;
        if sim.streams[&id].kind == Kind::Legacy {
            let context = sim.streams[&id].context;
            let blocking = |s: &crate::stream::Stream| {
                s.context == context && s.kind != Kind::NonBlocking && s.capture.is_some()
            };
            if sim.streams.values().any(blocking) {
                return Err(Code::STREAM_CAPTURE_IMPLICIT);
            }
        }
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.capture_status(id).0) }
    }
    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz [stream] (stream: u64, status: *mut u32, number: *mut u64) {
        let id = sim.stream(stream)?;
        let (state, capture, _) = sim.capture_status(id);
        // SAFETY: the caller's pointers; the second may be null.
        unsafe {
            must_put(status, state)?;
            put(number, capture);
        }
        Ok(())
    }
    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz [stream] (stream: u64, status: *mut u32, number: *mut u64, graph: *mut u64, dependencies: *mut usize, count: *mut usize) {
        let id = sim.stream(stream)?;
        let (state, capture, under) = sim.capture_status(id);
        // SAFETY: the caller's pointers; all but the first may be null.
        unsafe {
            must_put(status, state)?;
            put(number, capture);
            put(graph, under);
            put(dependencies, 0);
            put(count, 0);
        }
        Ok(())
    }
    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz [stream] (stream: u64, status: *mut u32, number: *mut u64, graph: *mut u64, dependencies: *mut usize, edges: *mut usize, count: *mut usize) {
        let id = sim.stream(stream)?;
        let (state, capture, under) = sim.capture_status(id);
        // SAFETY: the caller's pointers; all but the first may be null.
        unsafe {
            must_put(status, state)?;
            put(number, capture);
            put(graph, under);
            put(dependencies, 0);
            put(edges, 0);
            put(count, 0);
        }
        Ok(())
    }
}
