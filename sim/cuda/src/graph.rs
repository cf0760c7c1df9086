//! Graphs: their operations as they were captured or added. What was captured on one stream
//! is a lane; launched, the lanes are ordered by the events between them alone.

use std::collections::HashMap;
use std::sync::Arc;

use crate::abi::{Answer, Code};
use crate::check::Touch;
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::memory::Source;
use crate::nodes::BY_NODE;
use crate::order::Order;
use crate::state::{Sim, current_context};
use crate::stream::Effect;

#[derive(Clone)]
pub struct Node {
    /// Of the stream that it was captured on, or as it was added.
    pub context: u64,
    /// The stream that it was captured on; behind its nodes before, with no event between.
    pub lane: u32,
    /// The nodes behind which events put it.
    pub after: Vec<usize>,
    pub ns: u64,
    pub touches: Vec<Touch>,
    pub effect: Effect,
}

/// A graph, or one made executable.
pub struct Graph {
    nodes: Arc<[Node]>,
    /// The lane that is the launching stream's.
    origin: u32,
    /// The graph whose memory this one uses.
    of: Option<u64>,
    /// The last launch, behind which the next one comes, on whichever stream.
    last: Option<Launch>,
}

#[derive(Clone)]
struct Launch {
    stream: u32,
    order: Order,
    ready: u64,
}

impl Graph {
    pub fn new(nodes: Vec<Node>, origin: u32) -> Graph {
        Graph {
            nodes: nodes.into(),
            origin,
            of: None,
            last: None,
        }
    }

    /// Moves the end of the last launch to another time.
    pub fn move_launch(&mut self, moved: impl Fn(&mut u64)) {
        if let Some(last) = &mut self.last {
            moved(&mut last.ready);
        }
    }

    /// Puts an operation behind all others.
    pub fn add(&mut self, mut node: Node) {
        node.lane = self.origin;
        node.after = (0..self.nodes.len()).collect();
        self.nodes = self.nodes.iter().cloned().chain([node]).collect();
    }
}

impl Sim {
    fn instantiate(&mut self, out: *mut u64, graph: u64) -> Answer {
        self.refuse_unsafe()?;
        let source = self.graphs.get(&graph).filter(|g| g.of.is_none());
        let source = source.ok_or(Code::INVALID_VALUE)?;
        let (nodes, origin) = (source.nodes.clone(), source.origin);
        // Memory of a graph is there once.
        let takes = nodes
            .iter()
            .any(|node| matches!(node.effect, Effect::Take(_)));
        if takes && self.graphs.values().any(|it| it.of == Some(graph)) {
            return Err(Code::NOT_SUPPORTED);
        }
        let reached = |node: &Node| match &node.effect {
            Effect::Fill(_) => {
                let mut touches = node.touches.iter();
                touches.all(|touch| self.fills_reach(node.context, touch))
            }
            Effect::Copy(rows) if node.touches.iter().any(|touch| touch.call == BY_NODE) => {
                self.node_reaches(node.context, rows)
            }
            _ => true,
        };
        if !nodes.iter().all(reached) {
            return Err(Code::INVALID_VALUE);
        }
        let handle = self.number(0x6700_0000_0000);
        self.graphs.insert(
            handle,
            Graph {
                nodes,
                origin,
                of: Some(graph),
                last: None,
            },
        );
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, handle) }
    }

    fn destroy_graph(&mut self, handle: u64, executable: bool) -> Answer {
        let found = self
            .graphs
            .get(&handle)
            .is_some_and(|g| g.of.is_some() == executable);
        if !found {
            return Err(Code::INVALID_VALUE);
        }
        let of = self
            .graphs
            .remove(&handle)
            .and_then(|g| g.of)
            .unwrap_or(handle);
        let used = self.graphs.contains_key(&of) || self.graphs.values().any(|g| g.of == Some(of));
        if !used {
            self.free_graph_memory(of);
        }
        Ok(())
    }

    /// Queues the operations of an executable graph: behind what is on the stream, and
    /// behind its own last launch. In a capture they become nodes, and nothing is launched.
    fn launch(&mut self, handle: u64, stream: u64) -> Answer {
        let id = self.stream(stream)?;
        let graph = self.graphs.get(&handle).filter(|g| g.of.is_some());
        let graph = graph.ok_or(Code::INVALID_VALUE)?;
        let (nodes, origin, last) = (graph.nodes.clone(), graph.origin, graph.last.clone());
        self.clock.charge(cost::LAUNCH);
        if self.streams[&id].capture.is_some() {
            return self.capture_graph(id, &nodes, origin);
        }
        nodes
            .iter()
            .try_for_each(|node| self.healthy(node.context))?;
        let left = |node: &Node| matches!(node.effect, Effect::Take(at) if self.graph_memory.contains(&at));
        if nodes.iter().any(left) {
            return Err(Code::INVALID_VALUE);
        }
        // On one stream it is behind anyway, and no event is waited for.
        if let Some(last) = last.filter(|last| last.stream != id) {
            self.order_behind(id, &last.order, last.ready);
        }
        self.join_default(id)?;
        self.run_lanes(id, &nodes, origin)?;
        let (order, ready) = self.position(id);
        if let Some(graph) = self.graphs.get_mut(&handle) {
            graph.last = Some(Launch {
                stream: id,
                order,
                ready,
            });
        }
        Ok(())
    }

    /// Queues operations on a stream for each lane; `id` goes on behind them all.
    fn run_lanes(&mut self, id: u32, nodes: &[Node], origin: u32) -> Answer {
        let (begin, at) = self.position(id);
        let home = self.streams[&id].context;
        let mut lanes = HashMap::new();
        let mut ends: Vec<(Order, u64)> = Vec::new();
        for node in nodes.iter() {
            let lane = match node.lane == origin && node.context == home {
                true => id,
                false => *lanes.entry(node.lane).or_insert_with(|| {
                    let lane = self.add_branch(node.context);
                    self.order_behind(lane, &begin, at);
                    lane
                }),
            };
            for (order, ready) in node.after.iter().map(|index| &ends[*index]) {
                self.order_behind(lane, order, *ready);
            }
            self.run_node(lane, node)?;
            ends.push(self.position(lane));
        }
        for lane in lanes.into_values() {
            let (order, ready) = self.position(lane);
            self.order_behind(id, &order, ready);
        }
        Ok(())
    }

    fn run_node(&mut self, id: u32, node: &Node) -> Answer {
        match node.effect.clone() {
            Effect::Word { at, bytes, value } => self.write_behind(id, at, bytes, value),
            Effect::Wait(until) => self.wait_behind(id, until),
            Effect::Record(event) => self.record_behind(id, event),
            Effect::Await(event) => self.await_behind(id, event),
            Effect::Host(function, data) => self.function_behind(id, function, data),
            Effect::Take(at) => {
                self.graph_memory.insert(at);
                Ok(())
            }
            Effect::Give(at) => self.give_graph_memory(at),
            effect => self.submit(id, node.ns, &node.touches, effect),
        }
    }

    /// The program frees what a launch left to it; its place stays the graph's.
    pub fn give_graph_memory(&mut self, base: u64) -> Answer {
        match self.graph_memory.remove(&base) {
            true => Ok(()),
            false => Err(Code::INVALID_VALUE),
        }
    }

    /// Memory of a graph's allocation nodes goes with its last user.
    pub fn free_graph_memory(&mut self, graph: u64) {
        let of_graph = |a: &crate::memory::Allocation| a.source == Source::Graph(graph);
        let doomed: Vec<u64> = self
            .allocations
            .iter()
            .filter(|(_, a)| of_graph(a))
            .map(|(base, _)| *base)
            .collect();
        for base in doomed {
            self.check_unused(
                &Sim::piece_of(base, &self.allocations[&base]),
                None,
                "frees",
            );
            self.graph_memory.remove(&base);
            self.discard(base);
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuGraphInstantiateWithFlags(out: *mut u64, graph: u64, _flags: u64) {
        // One that has ended is enough.
        current_context().ok_or(Code::INVALID_CONTEXT)?;
        sim.instantiate(out, graph)
    }
    fn cuGraphInstantiate_v2(out: *mut u64, graph: u64, _node: usize, _log: usize, _length: usize) {
        sim.instantiate(out, graph)
    }
    fn cuGraphInstantiateWithParams(out: *mut u64, graph: u64, parameters: usize) {
        if parameters == 0 {
            return Err(Code::INVALID_VALUE);
        }
        sim.instantiate(out, graph)
    }
    fn cuGraphDestroy(graph: u64) {
        sim.destroy_graph(graph, false)
    }
    fn cuGraphExecDestroy(graph: u64) {
        sim.refuse_unsafe()?;
        sim.destroy_graph(graph, true)
    }
    fn cuGraphGetNodes(graph: u64, _nodes: *mut u64, count: *mut usize) {
        let whole = sim.graphs.get(&graph).map(|it| it.nodes.len());
        let length = whole.or_else(|| sim.captured_so_far(graph)).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(count, length) }
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuGraphUpload | cuGraphUpload_ptsz [stream] (graph: u64, stream: u64) {
        sim.stream(stream)?;
        let executable = sim.graphs.get(&graph).is_some_and(|g| g.of.is_some());
        if executable { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
    fn cuGraphLaunch | cuGraphLaunch_ptsz [stream] (graph: u64, stream: u64) {
        sim.launch(graph, stream)
    }
}
