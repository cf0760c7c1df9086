//! Fills that a program adds to a graph and names no context for. The driver takes
//! the one whose memory is filled; of mapped memory, and so of ours, it knows none and
//! refuses. Then the fill is added once more, and the context of the allocation named.
//!
//! Stream-ordered memory has no context without this library either, so the refusal
//! stands there. Copies that name none the driver takes as they are.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::pool::Owner;

use crate::engine::Engine;
use crate::whose;

/// `CU_GRAPH_NODE_TYPE_MEMSET`.
const FILL: u32 = 2;

/// `CUDA_MEMSET_NODE_PARAMS`: rows of elements, pitch and elements in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Fill {
    at: Address,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    rows: usize,
}

/// `CUgraphNodeParams` of a fill.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Node {
    kind: u32,
    reserved: [i32; 3],
    fill: Fill,
    context: Context,
    rest: [u64; 24],
}

impl Fill {
    /// Bytes from the first to the last; none where there is no such range.
    fn bytes(&self) -> Option<u64> {
        let row = self.width.checked_mul(self.element as usize)?;
        let last = self.rows.checked_sub(1)?.checked_mul(self.pitch)?;
        u64::try_from(last.checked_add(row)?).ok()
    }
}

/// The context to be named for a fill of cudaMalloc's memory that was refused
/// without one.
fn missing(engine: &Engine, refused: Code, fill: &Fill, named: Context) -> Option<Context> {
    if refused != Code::INVALID_VALUE || named != Context::default() {
        return None;
    }
    let memory = whose::live(engine, fill.at)?;
    let inside = fill.bytes()? <= memory.bytes_from(fill.at);
    (inside && memory.block.owner == Owner::Context).then_some(memory.block.context)
}

/// The same of a node: adds it, and where it is such a fill once more, as one that names
/// the context.
///
/// # Safety
/// Null, or a whole structure.
unsafe fn add(engine: &Engine, node: *mut Node, real: impl Fn(*mut Node) -> Code) -> Code {
    let code = real(node);
    // SAFETY: by the function's own contract.
    let Some(told) = unsafe { node.as_ref() }.filter(|node| node.kind == FILL) else {
        return code;
    };
    match missing(engine, code, &told.fill, told.context) {
        Some(context) => real(&mut Node { context, ..*told }),
        None => code,
    }
}

hooks! {
    /// Real; a fill of the pool's memory that names no context once more, with it.
    cuGraphAddMemsetNode ["cuGraphAddMemsetNode" since 10000] (
        out: *mut u64, graph: u64, before: *const u64, count: usize,
        fill: *const Fill, context: Context,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on; the structure, if it passed one,
        // the driver has just read.
        unsafe {
            let code = real(out, graph, before, count, fill, context);
            match fill.as_ref().and_then(|told| missing(engine, code, told, context)) {
                Some(context) => real(out, graph, before, count, fill, context),
                None => code,
            }
        }
    }

    /// The same of a node of any kind.
    cuGraphAddNode ["cuGraphAddNode" since 12020] (
        out: *mut u64, graph: u64, before: *const u64, count: usize, node: *mut Node,
    ) |real, engine| {
        // SAFETY: as above.
        unsafe {
            add(engine, node, |node| real(out, graph, before, count, node))
        }
    }

    /// The same, with what the edges carry.
    cuGraphAddNode_v2 ["cuGraphAddNode" since 12030] (
        out: *mut u64, graph: u64, before: *const u64, edges: *const c_void, count: usize,
        node: *mut Node,
    ) |real, engine| {
        // SAFETY: as above.
        unsafe {
            add(engine, node, |node| real(out, graph, before, edges, count, node))
        }
    }

    /// The same, where a kernel's context has to be its function's.
    cuGraphAddNode_v3 ["cuGraphAddNode" since 13040] (
        out: *mut u64, graph: u64, before: *const u64, edges: *const c_void, count: usize,
        node: *mut Node,
    ) |real, engine| {
        // SAFETY: as above.
        unsafe {
            add(engine, node, |node| real(out, graph, before, edges, count, node))
        }
    }
}
