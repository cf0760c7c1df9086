//! What is told of a stream capture. Changes none.

use crate::abi::{Answer, Code};
use crate::entry::{api, must_put, put};
use crate::state::Sim;
use crate::stream::{Kind, Stream};

/// `CUstreamCaptureStatus`.
const STATUS_NONE: u32 = 0;
const STATUS_ACTIVE: u32 = 1;
const STATUS_INVALIDATED: u32 = 2;

impl Sim {
    /// How many nodes the graph has that is captured.
    pub fn captured_so_far(&self, graph: u64) -> Option<usize> {
        let capture = self.captures.values().find(|it| it.graph == graph);
        capture.map(|capture| capture.nodes.len())
    }

    /// What is told of the legacy stream is refused beside a capture that it would join.
    fn refuse_beside_capture(&self, id: u32) -> Answer {
        let legacy = &self.streams[&id];
        let joined = |s: &Stream| {
            s.context == legacy.context && s.kind != Kind::NonBlocking && s.capture.is_some()
        };
        match legacy.kind == Kind::Legacy && self.streams.values().any(joined) {
            true => Err(Code::STREAM_CAPTURE_IMPLICIT),
            false => Ok(()),
        }
    }

    /// State, number and graph of the capture of a stream, by its handle.
    fn capture_of(&mut self, stream: u64) -> Result<(u32, u64, u64), Code> {
        let id = self.stream(stream)?;
        self.refuse_beside_capture(id)?;
        Ok(self.capture_status(id))
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

api! { streams STREAM_EXPORTS |sim|
    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz [stream] (stream: u64, out: *mut u32) {
        let (state, ..) = sim.capture_of(stream)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, state) }
    }
    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz [stream] (stream: u64, status: *mut u32, number: *mut u64) {
        let (state, capture, _) = sim.capture_of(stream)?;
        // SAFETY: the caller's pointers; the second may be null.
        unsafe {
            must_put(status, state)?;
            put(number, capture);
        }
        Ok(())
    }
    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz [stream] (stream: u64, status: *mut u32, number: *mut u64, graph: *mut u64, dependencies: *mut usize, count: *mut usize) {
        let (state, capture, under) = sim.capture_of(stream)?;
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
        let (state, capture, under) = sim.capture_of(stream)?;
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
