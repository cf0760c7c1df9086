//! Stream capture: what becomes part of a graph, and which calls end it.

use std::collections::{BTreeSet, HashMap};

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::entry::{api, must_put};
use crate::graph::{Graph, Node};
use crate::order::{Order, merge};
use crate::state::{Sim, capture_mode, thread};
use crate::stream::{Effect, Kind};

const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;

pub struct Capture {
    pub context: u64,
    mode: u32,
    /// The thread that began it.
    thread: u64,
    /// The stream that it began on.
    origin: u32,
    pub invalidated: bool,
    pub nodes: Vec<Node>,
    /// Each stream that takes part.
    members: HashMap<u32, Member>,
    pub graph: u64,
}

#[derive(Default)]
struct Member {
    /// What of every member comes before its next operation, itself included.
    order: Order,
    /// Its last node, and those of others, and of its own by an event, behind which the next
    /// one comes.
    last: Option<usize>,
    after: Vec<usize>,
}

/// An event recorded on a capturing stream: a place in the graph to be.
#[derive(Clone)]
pub struct CapturedEvent {
    pub capture: u64,
    order: Order,
    /// The nodes behind which it comes.
    nodes: Vec<usize>,
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
        let member = capture.members.entry(id).or_default();
        *member.order.entry(id).or_insert(0) += 1;
        member.last = Some(capture.nodes.len());
        capture.nodes.push(Node {
            context,
            lane: id,
            after: std::mem::take(&mut member.after),
            ns,
            touches: touches.to_vec(),
            effect,
        });
        Ok(())
    }

    /// The operations of a graph become nodes, its branches side by side.
    pub fn capture_graph(&mut self, id: u32, nodes: &[Node], origin: u32) -> Answer {
        let lanes: BTreeSet<u32> = nodes.iter().map(|node| node.lane).collect();
        let lanes: HashMap<u32, u32> = lanes
            .into_iter()
            .map(|lane| match lane == origin {
                true => (lane, id),
                false => (lane, (self.number(0) >> 4) as u32),
            })
            .collect();
        let number = self.streams[&id].capture.ok_or(Code::UNKNOWN)?;
        let capture = self.active(number)?;
        let (base, member) = (capture.nodes.len(), capture.members.entry(id).or_default());
        *member.order.entry(id).or_insert(0) += 1;
        let before: Vec<usize> = member.after.drain(..).chain(member.last).collect();
        for node in nodes {
            let mut node = node.clone();
            node.lane = lanes[&node.lane];
            node.after.iter_mut().for_each(|index| *index += base);
            node.after.extend(&before);
            capture.nodes.push(node);
        }
        member.after.extend(base..capture.nodes.len());
        Ok(())
    }

    /// An event recorded on a capturing stream.
    pub fn capture_event(&mut self, id: u32) -> Result<CapturedEvent, Code> {
        let number = self.streams[&id].capture.ok_or(Code::UNKNOWN)?;
        let capture = self.active(number)?;
        let member = capture.members.entry(id).or_default();
        Ok(CapturedEvent {
            capture: number,
            order: member.order.clone(),
            nodes: member.after.iter().copied().chain(member.last).collect(),
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
            return Err(Code::INVALID_VALUE);
        }
        if self.streams[&id].kind == Kind::Legacy {
            self.invalidate(event.capture);
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let member = self.active(event.capture)?.members.entry(id).or_default();
        merge(&mut member.order, &event.order);
        member.after.extend(event.nodes);
        // Joining counts as an operation: the stream must be joined back.
        *member.order.entry(id).or_insert(0) += 1;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.capture = Some(event.capture);
        }
        Ok(())
    }

    /// A capture, where it has not failed.
    pub fn active(&mut self, capture: u64) -> Result<&mut Capture, Code> {
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

    /// The same of a default stream, where the thread's own one captures.
    pub fn refuse_capturing(&mut self, stream: u64) -> Answer {
        let id = self.stream(stream)?;
        self.refuse_captured(id)
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
            self.joined_by_default(id)?;
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.streams[&id].capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
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
            members: HashMap::from([(id, Member::default())]),
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
    /// one that it only takes part in is lost, where it has work there.
    pub fn leave_capture(&mut self, id: u32) {
        let Some(number) = self.streams[&id].capture else {
            return;
        };
        if let Some(capture) = self.captures.get_mut(&number)
            && capture.origin != id
        {
            match capture.members.get(&id) {
                Some(member) if member.last.is_none() => _ = capture.members.remove(&id),
                _ => capture.invalidated = true,
            }
            return;
        }
        if let Some(capture) = self.take_capture(number) {
            self.free_graph_memory(capture.graph);
        }
    }

    /// Ends a capture; its graph, or why there is none.
    fn end_capture(&mut self, stream: u64) -> Result<u64, Code> {
        let id = self.stream(stream)?;
        self.joined_by_default(id)?;
        let number = self.streams[&id].capture.ok_or(Code::ILLEGAL_STATE)?;
        let Some(capture) = self.captures.get(&number) else {
            return Err(Code::ILLEGAL_STATE);
        };
        if !capture.invalidated && capture.mode != RELAXED && capture.thread != thread() {
            // It is over all the same.
            if let Some(capture) = self.take_capture(number) {
                self.free_graph_memory(capture.graph);
            }
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        if capture.origin != id {
            self.invalidate(number);
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        let capture = self.take_capture(number).ok_or(Code::INVALID_VALUE)?;
        let joined = &capture.members[&id].order;
        let all_joined = capture.members.iter().all(|(id, member)| {
            let count = member.order.get(id).copied().unwrap_or(0);
            joined.get(id).copied().unwrap_or(0) >= count
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
                self.graphs.insert(graph, Graph::new(capture.nodes, id));
            }
            Err(_) => self.free_graph_memory(capture.graph),
        }
        result
    }
}

api! { plain EXPORTS |sim|
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        if mode.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller's variable.
        let wanted = unsafe { mode.read() };
        // One that is none is taken, too.
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
}
