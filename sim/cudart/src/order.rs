//! Streams, events, capture and graphs.

use std::ffi::c_void;

use crate::runtime;
use crate::state::check;

runtime! { with_context |driver|
    fn cudaStreamCreate(out: *mut u64) {
        check((driver.stream_create)(out, 0))
    }
    fn cudaStreamCreateWithFlags(out: *mut u64, flags: u32) {
        check((driver.stream_create)(out, flags))
    }
    fn cudaStreamCreateWithPriority(out: *mut u64, flags: u32, priority: i32) {
        check((driver.stream_create_priority)(out, flags, priority))
    }
    fn cudaStreamDestroy(stream: u64) {
        check((driver.stream_destroy)(stream))
    }
    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz (stream: u64) {
        check((driver.stream_synchronize)(stream))
    }
    fn cudaStreamQuery | cudaStreamQuery_ptsz (stream: u64) {
        check((driver.stream_query)(stream))
    }
    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz (stream: u64, event: u64, flags: u32) {
        check((driver.stream_wait)(stream, event, flags))
    }
    fn cudaStreamGetFlags | cudaStreamGetFlags_ptsz (stream: u64, out: *mut u32) {
        check((driver.stream_flags)(stream, out))
    }
    fn cudaStreamGetPriority | cudaStreamGetPriority_ptsz (stream: u64, out: *mut i32) {
        check((driver.stream_priority)(stream, out))
    }
    fn cudaStreamIsCapturing | cudaStreamIsCapturing_ptsz (stream: u64, out: *mut i32) {
        check((driver.stream_is_capturing)(stream, out))
    }
    // As of CUDA 13; before that this name was a call of three arguments.
    fn cudaStreamGetCaptureInfo | cudaStreamGetCaptureInfo_ptsz (stream: u64, status: *mut u32, number: *mut u64, graph: *mut u64, dependencies: *mut *mut c_void, edges: *mut *mut c_void, count: *mut usize) {
        check((driver.capture_info)(stream, status, number, graph, dependencies, edges, count))
    }
    // Of CUDA 12, for programs that were built for it.
    fn cudaStreamGetCaptureInfo_v2 | cudaStreamGetCaptureInfo_v2_ptsz (stream: u64, status: *mut u32, number: *mut u64, graph: *mut u64, dependencies: *mut *mut c_void, count: *mut usize) {
        check((driver.capture_info_v2)(stream, status, number, graph, dependencies, count))
    }
    fn cudaStreamGetCaptureInfo_v3 | cudaStreamGetCaptureInfo_v3_ptsz (stream: u64, status: *mut u32, number: *mut u64, graph: *mut u64, dependencies: *mut *mut c_void, edges: *mut *mut c_void, count: *mut usize) {
        check((driver.capture_info)(stream, status, number, graph, dependencies, edges, count))
    }
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz (stream: u64, mode: i32) {
        check((driver.stream_begin_capture)(stream, mode))
    }
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz (stream: u64, out: *mut u64) {
        check((driver.stream_end_capture)(stream, out))
    }
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut i32) {
        check((driver.exchange_capture_mode)(mode))
    }
    fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz (stream: u64, function: *mut c_void, data: *mut c_void) {
        check((driver.host_func)(stream, function, data))
    }
    fn cudaEventCreate(out: *mut u64) {
        check((driver.event_create)(out, 0))
    }
    fn cudaEventCreateWithFlags(out: *mut u64, flags: u32) {
        check((driver.event_create)(out, flags))
    }
    fn cudaEventDestroy(event: u64) {
        check((driver.event_destroy)(event))
    }
    fn cudaEventRecord | cudaEventRecord_ptsz (event: u64, stream: u64) {
        check((driver.event_record)(event, stream))
    }
    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz (event: u64, stream: u64, flags: u32) {
        check((driver.event_record_flags)(event, stream, flags))
    }
    fn cudaEventQuery(event: u64) {
        check((driver.event_query)(event))
    }
    fn cudaEventSynchronize(event: u64) {
        check((driver.event_synchronize)(event))
    }
    fn cudaEventElapsedTime(out: *mut f32, start: u64, end: u64) {
        check((driver.event_elapsed)(out, start, end))
    }
    fn cudaGraphInstantiate(out: *mut u64, graph: u64, flags: u64) {
        check((driver.graph_instantiate)(out, graph, flags))
    }
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz (graph: u64, stream: u64) {
        check((driver.graph_launch)(graph, stream))
    }
    fn cudaGraphDestroy(graph: u64) {
        check((driver.graph_destroy)(graph))
    }
    fn cudaGraphExecDestroy(graph: u64) {
        check((driver.graph_exec_destroy)(graph))
    }
}
