//! Green contexts: views of a device's primary context, with streams of their own. They get
//! no part of the device for themselves: work takes as long anywhere.

use crate::abi::Code;
use crate::entry::{api, must_put};
use crate::state::Sim;
use crate::stream::{Kind, NON_BLOCKING, create};

/// `CU_DEV_RESOURCE_TYPE_SM`, and how many an H200 has.
const MULTIPROCESSORS: u32 = 1;
const COUNT: u32 = 132;
/// `CU_GREEN_CTX_DEFAULT_STREAM`: the driver makes no other ones.
const DEFAULT_STREAM: u32 = 1;

/// The beginning of `CUdevResource`.
#[repr(C)]
pub struct Resource {
    kind: u32,
    padding: [u8; 92],
    count: u32,
}

impl Sim {
    /// The context that one is a view of, or itself.
    pub fn whole(&self, context: u64) -> u64 {
        let view = self.contexts.get(&context);
        view.and_then(|view| view.whole).unwrap_or(context)
    }

    /// The context that stands for a green one.
    fn view(&self, green: u64) -> Result<u64, Code> {
        let view = self.greens.get(&green).copied();
        view.ok_or(Code::INVALID_CONTEXT)
    }

    /// The green context that one stands for; 0 for none.
    pub fn green_of(&self, context: u64) -> u64 {
        let its = self.greens.iter().find(|(_, view)| **view == context);
        its.map_or(0, |(green, _)| *green)
    }

    /// The streams of a context and of its views.
    pub fn streams_of(&self, context: u64) -> Vec<u32> {
        let its = |id: &u64| *id == context || self.whole(*id) == context;
        let contexts = self.contexts.iter().filter(|(id, _)| its(id));
        contexts
            .flat_map(|(_, context)| context.streams.iter().copied())
            .collect()
    }

    /// Ends a view. What was queued on its streams runs on, but they answer nothing.
    fn end_view(&mut self, view: u64) {
        let whole = self.whole(view);
        let Some(ended) = self.contexts.remove(&view) else {
            return;
        };
        self.spare(view);
        self.captures.retain(|_, capture| capture.context != view);
        let its = |_: &u64, event: &mut crate::event::Event| event.context == view;
        let events: Vec<u64> = self.events.extract_if(its).map(|(it, _)| it).collect();
        self.ended_events.extend(events);
        for stream in self.streams.values_mut() {
            stream.capture = stream
                .capture
                .filter(|number| self.captures.contains_key(number));
        }
        for id in ended.streams {
            self.stream_handles.detach(id);
            if let Some(stream) = self.streams.get_mut(&id) {
                (stream.context, stream.kind, stream.destroyed) = (whole, Kind::NonBlocking, true);
            }
            if let Some(whole) = self.contexts.get_mut(&whole) {
                whole.streams.push(id);
            }
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuDeviceGetDevResource(device: i32, out: *mut Resource, kind: u32) {
        sim.device(device)?;
        if kind != MULTIPROCESSORS {
            return Err(Code::INVALID_RESOURCE_TYPE);
        }
        // SAFETY: the caller's pointer, to a structure that begins like this.
        unsafe { must_put(out, Resource { kind, padding: [0; 92], count: COUNT }) }
    }
    fn cuDevResourceGenerateDesc(out: *mut u64, resources: *const Resource, count: u32) {
        if resources.is_null() || count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.number(0x6400_0000_0000)) }
    }
    fn cuGreenCtxCreate(out: *mut u64, description: u64, device: i32, flags: u32) {
        let device = sim.device(device)?;
        if out.is_null() || description == 0 || flags != DEFAULT_STREAM {
            return Err(Code::INVALID_VALUE);
        }
        let primary = sim.retain_primary(device);
        let (view, green) = (sim.context_handle(), sim.number(0x7600_0000_0000));
        sim.add_context(view, device, 0, Some(primary));
        sim.greens.insert(green, view);
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, green) }
    }
    fn cuGreenCtxDestroy(green: u64) {
        let view = sim.view(green)?;
        let device = sim.contexts[&view].device as i32;
        sim.wait_for_last(sim.whole(view))?;
        sim.greens.remove(&green);
        sim.end_view(view);
        sim.primary_release(device)
    }
    fn cuCtxFromGreenCtx(out: *mut u64, green: u64) {
        let view = sim.view(green)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, view) }
    }
    fn cuGreenCtxStreamCreate(out: *mut u64, green: u64, flags: u32, priority: i32) {
        let view = sim.view(green)?;
        if flags != NON_BLOCKING {
            return Err(Code::INVALID_VALUE);
        }
        sim.healthy(view)?;
        // SAFETY: the caller's pointer.
        unsafe { create(sim, Some(view), out, flags, priority) }
    }
}
