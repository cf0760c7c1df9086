//! Nodes that a program adds to a graph by itself: fills and copies.

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::fill::Fill;
use crate::graph::{Graph, Node};
use crate::memory::Source;
use crate::rows::Copy3D;
use crate::state::Sim;
use crate::stream::{Effect, Row};

/// What touches memory by such a node: who reaches what was asked when the graph was made
/// executable.
pub const BY_NODE: &str = "a graph's node";

/// `CU_GRAPH_NODE_TYPE_MEMCPY`.
const COPY: u32 = 1;
/// `CU_GRAPH_NODE_TYPE_MEMSET`.
const FILL: u32 = 2;

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FillNode {
    at: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    rows: usize,
}

/// `CUgraphNodeParams` of a fill.
#[repr(C)]
pub struct AnyNode {
    kind: u32,
    reserved: [i32; 3],
    fill: FillNode,
    context: u64,
}

/// `CUgraphNodeParams` of a copy.
#[repr(C)]
struct AnyCopy {
    kind: u32,
    reserved: [i32; 3],
    flags: [u32; 2],
    context: u64,
    copy: Copy3D,
}

impl Sim {
    fn create_graph(&mut self, out: *mut u64, flags: u32) -> Answer {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = self.number(0x6700_0000_0000);
        self.graphs.insert(handle, Graph::new(Vec::new(), 0));
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, handle) }
    }

    /// Without a context that of the memory is taken; mapped and stream-ordered memory
    /// has none (docs/measurements/driver-h200.md), and is filled by whom it is opened to alone.
    fn add_fill(&mut self, out: *mut u64, graph: u64, told: FillNode, context: u64) -> Answer {
        let own = match self.allocation_at(told.at) {
            Some((_, found)) if matches!(found.source, Source::Plain | Source::Managed) => {
                found.context
            }
            _ => 0,
        };
        let context = if context == 0 { own } else { context };
        let is_element = matches!(told.element, 1 | 2 | 4);
        if !is_element || told.width == 0 || told.rows == 0 || !self.contexts.contains_key(&context)
        {
            return Err(Code::INVALID_VALUE);
        }
        let fill = Fill {
            at: told.at,
            pattern: told.value,
            element: told.element.into(),
            width: told.width as u64,
            rows: told.rows as u64,
            pitch: told.pitch as u64,
        };
        let mut node = self.fill_node(fill, context)?;
        let may = |touch: &Touch| {
            let is_there = self.resolve(touch.base, touch.bytes).is_ok();
            is_there && (own != 0 || self.fills_reach(context, touch))
        };
        if !node.touches.iter().all(may) {
            return Err(Code::INVALID_VALUE);
        }
        if own != 0 {
            // Whoever is named: its own device makes it (docs/measurements/h100.md).
            node.context = own;
        }
        self.add_node(out, graph, node)
    }

    /// Who is named reaches both ends. Where nobody is, each lies on one mapping or on none, and a
    /// node whose ends the current context does not reach yet is never made executable.
    fn add_copy(&mut self, out: *mut u64, graph: u64, copy: &Copy3D, named: u64) -> Answer {
        let rows = self.rows_of(copy)?;
        let context = match named {
            0 => self.current()?,
            named => self.context(named)?,
        };
        let known = |at| at != 0 && (!self.is_device_address(at) || self.resolve(at, 1).is_ok());
        if rows.is_empty() || !rows.iter().all(|row| known(row.to) && known(row.from)) {
            return Err(Code::INVALID_VALUE);
        }
        let is_reached = self.node_reaches(context, &rows);
        let is_taken = match named {
            0 => self.are_on_one(&rows),
            _ => is_reached,
        };
        if !is_taken {
            return Err(Code::INVALID_VALUE);
        }
        let node = Node {
            context: if is_reached { context } else { 0 },
            lane: 0,
            after: Vec::new(),
            ns: cost::device_copy(rows.iter().map(|row| row.bytes).sum()),
            touches: self.touches_of(&rows),
            effect: Effect::Copy(rows.into()),
        };
        self.add_node(out, graph, node)
    }

    /// Does the device of a context reach both ends of all that a node copies?
    pub fn node_reaches(&self, context: u64, rows: &[Row]) -> bool {
        let device = self.contexts.get(&context).map(|context| context.device);
        device.is_some() && rows.iter().all(|row| self.reaches([device; 2], row))
    }

    fn add_node(&mut self, out: *mut u64, graph: u64, mut node: Node) -> Answer {
        for touch in &mut node.touches {
            touch.call = BY_NODE;
        }
        let graph = self.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
        graph.add(node);
        let handle = self.number(0x6900_0000_0000);
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, handle) }
    }

    /// # Safety
    /// `node` is null or points to a whole structure.
    unsafe fn add(&mut self, out: *mut u64, graph: u64, node: *const AnyNode) -> Answer {
        // SAFETY: by the function's own contract.
        let told = unsafe { node.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        match told.kind {
            FILL => self.add_fill(out, graph, told.fill, told.context),
            COPY => {
                // SAFETY: of this kind it is a copy's, and whole.
                let told = unsafe { &*node.cast::<AnyCopy>() };
                self.add_copy(out, graph, &told.copy, told.context)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuGraphCreate(out: *mut u64, flags: u32) {
        sim.create_graph(out, flags)
    }
    fn cuGraphAddMemsetNode(out: *mut u64, graph: u64, _before: *const u64, _count: usize, fill: *const FillNode, context: u64) {
        // SAFETY: the caller's pointer.
        let fill = unsafe { fill.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        sim.add_fill(out, graph, *fill, context)
    }
    fn cuGraphAddMemcpyNode(out: *mut u64, graph: u64, _before: *const u64, _count: usize, copy: *const Copy3D, context: u64) {
        // SAFETY: the caller's pointer.
        let copy = unsafe { copy.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        sim.add_copy(out, graph, copy, context)
    }
    fn cuGraphAddNode(out: *mut u64, graph: u64, _before: *const u64, _count: usize, node: *mut AnyNode) {
        // SAFETY: the caller's pointer.
        unsafe { sim.add(out, graph, node) }
    }
    fn cuGraphAddNode_v2(out: *mut u64, graph: u64, _before: *const u64, _edges: usize, _count: usize, node: *mut AnyNode) {
        // SAFETY: the caller's pointer.
        unsafe { sim.add(out, graph, node) }
    }
    fn cuGraphAddNode_v3(out: *mut u64, graph: u64, _before: *const u64, _edges: usize, _count: usize, node: *mut AnyNode) {
        // SAFETY: the caller's pointer.
        unsafe { sim.add(out, graph, node) }
    }
}
