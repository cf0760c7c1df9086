//! Nodes that a program adds to a graph by itself: fills.

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::entry::{api, must_put};
use crate::fill::Fill;
use crate::graph::Graph;
use crate::memory::Source;
use crate::state::Sim;

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

/// `CUgraphNodeParams`, as long as it is a fill.
#[repr(C)]
pub struct AnyNode {
    kind: u32,
    reserved: [i32; 3],
    fill: FillNode,
    context: u64,
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
        let node = self.fill_node(fill, context)?;
        let may = |touch: &Touch| {
            let is_there = self.resolve(touch.base, touch.bytes).is_ok();
            is_there && (own != 0 || self.fills_reach(context, touch))
        };
        if !node.touches.iter().all(may) {
            return Err(Code::INVALID_VALUE);
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
        let node = unsafe { node.as_ref() }.filter(|node| node.kind == FILL);
        let node = node.ok_or(Code::INVALID_VALUE)?;
        self.add_fill(out, graph, node.fill, node.context)
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
