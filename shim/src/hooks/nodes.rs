//! Fills and copies that a program adds to a graph. Of a fill without a context the driver takes
//! the one whose memory is filled; of mapped memory, and so of ours, it knows none and
//! refuses. Then the fill is added once more, and the context of the allocation named. Memory of
//! another device is filled and copied all the same, whichever context is named; mapped memory
//! is where it was opened to that device, so ours is opened for good, as it is for captured copies.
//!
//! Stream-ordered memory has no context without this library either, and is opened to nobody, so
//! the refusal stands there.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::pool::Owner;

use crate::carry;
use crate::driver::shapes::Block;
use crate::engine::Engine;
use crate::engine::boundary::answered;
use crate::whose;

/// `CU_GRAPH_NODE_TYPE_MEMCPY`.
const COPY: u32 = 1;
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

/// `CUgraphNodeParams` of a copy.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyNode {
    kind: u32,
    reserved: [i32; 3],
    flags: [u32; 2],
    context: Context,
    copy: Block,
    rest: [u64; 3],
}
const _: () = assert!(size_of::<CopyNode>() == 256 && size_of::<Node>() == 256);

impl Fill {
    /// Bytes from the first to the last; none where there is no such range.
    fn bytes(&self) -> Option<u64> {
        let row = self.width.checked_mul(self.element as usize)?;
        let last = self.rows.checked_sub(1)?.checked_mul(self.pitch)?;
        u64::try_from(last.checked_add(row)?).ok()
    }
}

/// A fill that the driver has refused, once more where the pool is why: with the context that
/// it takes by itself of cudaMalloc's memory, or with the memory opened to the device of the one
/// that was named, which plain memory need not be.
fn fill_again(
    engine: &Engine,
    refused: Code,
    fill: &Fill,
    named: Context,
    add: impl FnOnce(Context) -> Code,
) -> Code {
    let memory = whose::live(engine, fill.at).filter(|memory| {
        let inside = fill
            .bytes()
            .is_some_and(|bytes| bytes <= memory.bytes_from(fill.at));
        inside && memory.block.owner == Owner::Context
    });
    match memory {
        Some(memory) if refused == Code::INVALID_VALUE => match named == Context::default() {
            true => add(memory.block.context),
            false if carry::open_for_graph(engine, [fill.at], named) => add(named),
            false => refused,
        },
        _ => refused,
    }
}

/// Adds a copy. What lies elsewhere than the device that makes it is opened to that first: once
/// added, a node that names no context stays refused. Nor does one take mapped memory on several
/// handles; it is added once more, and the current context named.
fn copied(engine: &Engine, copy: &Block, named: Context, add: impl Fn(Context) -> Code) -> Code {
    let is_named = named != Context::default();
    let context = match is_named {
        true => named,
        false => engine.calls.current().unwrap_or_default(),
    };
    carry::open_for_graph(engine, copy.places(), context);
    let code = answered(add(named));
    let is_ours = || copy.places().any(|at| whose::is_ours(engine, at));
    match code == Code::INVALID_VALUE && !is_named && is_ours() {
        true => add(context),
        false => code,
    }
}

/// The same of a node of either kind.
///
/// # Safety
/// Null, or a whole structure.
unsafe fn add(engine: &Engine, node: *mut Node, real: impl Fn(*mut Node) -> Code) -> Code {
    // SAFETY: by the function's own contract.
    match unsafe { node.as_ref() } {
        Some(told) if told.kind == FILL => {
            fill_again(engine, real(node), &told.fill, told.context, |context| {
                real(&mut Node { context, ..*told })
            })
        }
        Some(told) if told.kind == COPY => {
            // SAFETY: of this kind the structure is a copy's, as long as a node's.
            let copy = unsafe { *node.cast::<CopyNode>() };
            copied(engine, &copy.copy, copy.context, |context| {
                real((&mut CopyNode { context, ..copy } as *mut CopyNode).cast())
            })
        }
        _ => real(node),
    }
}

hooks! {
    /// Real; a fill of the pool's memory that is refused once more.
    cuGraphAddMemsetNode ["cuGraphAddMemsetNode" since 10000] (
        out: *mut u64, graph: u64, before: *const u64, count: usize,
        fill: *const Fill, context: Context,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on; the structure, if it passed one,
        // the driver has just read.
        unsafe {
            let add = |context| real(out, graph, before, count, fill, context);
            let code = add(context);
            match fill.as_ref() {
                Some(told) => fill_again(engine, code, told, context, add),
                None => code,
            }
        }
    }

    /// Real, once what of a copy is the pool's is open to whoever makes it.
    cuGraphAddMemcpyNode ["cuGraphAddMemcpyNode" since 10000] (
        out: *mut u64, graph: u64, before: *const u64, count: usize,
        copy: *const Block, context: Context,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on; null, or a whole structure.
        unsafe {
            let add = |context| real(out, graph, before, count, copy, context);
            match copy.as_ref() {
                Some(told) => copied(engine, told, context, add),
                None => add(context),
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
