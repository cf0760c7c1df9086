//! Contexts: the stack of each thread, peers, destruction.

use crate::abi::{Answer, Code, MAP_HOST, SYNC_MEMOPS};
use crate::clock::cost;
use crate::entry::{api, must_put, put};
use crate::event::Event;
use crate::memory::{Allocation, Source};
use crate::order::Order;
use crate::state::{Sim, current_context, with_contexts};

pub struct Context {
    pub device: usize,
    /// No other context of the process has it, nor had it.
    id: u64,
    pub primary: bool,
    /// The one that it is a view of (a green one).
    pub whole: Option<u64>,
    pub flags: u32,
    /// By `cuCtxAttach`.
    pub references: u32,
    /// Its streams, the default ones as soon as they were used.
    pub streams: Vec<u32>,
    /// What each of them waits for, those to come as well: how much of other streams'
    /// work, and when that is complete.
    pub waits: (Order, u64),
    /// The error that stays: a kernel crashed.
    pub error: Option<Code>,
    /// Contexts of other devices whose memory this one may touch.
    pub peers: Vec<u64>,
}

/// Of the ways in which the host waits a context has one.
fn are_flags(flags: u32) -> Answer {
    match flags & 7 {
        0 | 1 | 2 | 4 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

impl Sim {
    pub fn add_context(&mut self, id: u64, device: usize, flags: u32, whole: Option<u64>) {
        let context = Context {
            device,
            id: self.number(0) >> 4,
            primary: id == self.devices[device].primary,
            whole,
            flags,
            references: 1,
            streams: Vec::new(),
            waits: Default::default(),
            error: None,
            peers: Vec::new(),
        };
        self.contexts.insert(id, context);
        self.ended.remove(&id);
        self.ledger.arrive(device);
    }

    /// Waits for a context that ends; what stands at a wait for a word alone is not waited for.
    pub fn drain_ending(&mut self, id: u64) -> Answer {
        match self.drain_context(id) {
            Err(Code::AGAIN) if self.next_moment().is_none() && !self.runs_functions() => Ok(()),
            waited => waited,
        }
    }

    /// Ends a context: its plain memory, streams and events go; memory of
    /// `cuMemCreate` and of pools stays.
    pub fn destroy_context(&mut self, id: u64) -> Answer {
        self.drain_ending(id)?;
        self.abandon(id);
        self.ended.insert(id, self.contexts[&id].device);
        for context in self.contexts.values_mut() {
            context.peers.retain(|peer| *peer != id);
        }
        let doomed: Vec<u64> = self
            .allocations
            .iter()
            .filter(|(_, a)| a.context == id && matches!(a.source, Source::Plain | Source::Managed))
            .map(|(base, _)| *base)
            .collect();
        for base in doomed {
            self.drop_claims(base, self.allocations[&base].bytes);
            self.discard(base);
        }
        let opened = |a: &Allocation| a.context == id && a.source == Source::Ipc;
        let doomed = self.allocations.iter().filter(|(_, a)| opened(a));
        for base in doomed.map(|(base, _)| *base).collect::<Vec<_>>() {
            self.close_ipc(base);
        }
        // What the host had registered there is registered no more.
        self.pinned.retain(|_, it| !it.is_registered_in(id));
        // Its views go with it.
        let is_it = |context: u64| {
            self.contexts
                .get(&context)
                .is_some_and(|c| c.whole == Some(id))
        };
        let gone: Vec<u64> = self
            .contexts
            .keys()
            .copied()
            .filter(|c| *c == id || is_it(*c))
            .collect();
        let theirs = |_: &u64, event: &mut Event| gone.contains(&event.context);
        let ended: Vec<u64> = self.events.extract_if(theirs).map(|(it, _)| it).collect();
        self.ended_events.extend(ended);
        self.captures
            .retain(|_, capture| !gone.contains(&capture.context));
        for (id, _) in self
            .streams
            .extract_if(|_, stream| gone.contains(&stream.context))
        {
            self.stream_handles.end_of(id);
        }
        self.contexts.retain(|context, _| !gone.contains(context));
        self.greens.retain(|_, view| !gone.contains(view));
        Ok(())
    }

    /// A handle for a context, or for a view of one: that of one that has ended, if any has.
    pub fn context_handle(&mut self) -> u64 {
        let spare = self.spare_contexts.pop();
        spare.unwrap_or_else(|| self.number(0x6300_0000_0000))
    }

    fn push_new(&mut self, out: *mut u64, flags: u32, device: i32) -> Answer {
        let device = self.device(device)?;
        are_flags(flags)?;
        let id = self.context_handle();
        self.add_context(id, device, flags, None);
        self.push(id);
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, id) }
    }

    fn push(&mut self, context: u64) {
        with_contexts(|stack| stack.push(context));
        *self.stacked.entry(context).or_insert(0) += 1;
    }

    fn pop(&mut self) -> Option<u64> {
        let context = with_contexts(Vec::pop)?;
        if let Some(count) = self.stacked.get_mut(&context) {
            *count -= 1;
            if *count == 0 {
                self.stacked.remove(&context);
                self.spare(context);
            }
        }
        Some(context)
    }

    /// The handle of a context that has ended may be another one's as soon as it is current
    /// nowhere.
    pub fn spare(&mut self, context: u64) {
        let is_used = self.stacked.contains_key(&context) || self.contexts.contains_key(&context);
        let is_primary = self.devices.iter().any(|it| it.primary == context);
        if !is_used && !is_primary && !self.spare_contexts.contains(&context) {
            self.spare_contexts.push(context);
        }
    }

    /// Ends a context that is nobody's primary one.
    fn end_context(&mut self, context: u64) -> Answer {
        match self.contexts.get(&context) {
            None if context == 0 => return Err(Code::INVALID_VALUE),
            None => return Err(Code::INVALID_CONTEXT),
            Some(c) if c.primary || c.whole.is_some() => return Err(Code::INVALID_CONTEXT),
            // It waits for all that the device does.
            Some(c) => self.drain_device(c.device)?,
        }
        self.destroy_context(context)?;
        if current_context() == Some(context) {
            self.pop();
        }
        self.spare(context);
        Ok(())
    }

    /// Is this handle a context's, or was it?
    fn was_context(&self, handle: u64) -> bool {
        self.contexts.contains_key(&handle) || self.ended.contains_key(&handle)
    }

    /// A context by its handle; 0 is the current one.
    pub fn context(&self, handle: u64) -> Result<u64, Code> {
        if handle == 0 {
            return self.current();
        }
        if !self.contexts.contains_key(&handle) {
            return Err(Code::INVALID_CONTEXT);
        }
        self.healthy(handle)?;
        Ok(handle)
    }
}

api! { plain EXPORTS |sim|
    fn cuCtxCreate(out: *mut u64, flags: u32, device: i32) {
        sim.push_new(out, flags, device)
    }
    fn cuCtxCreate_v2(out: *mut u64, flags: u32, device: i32) {
        sim.push_new(out, flags, device)
    }
    fn cuCtxCreate_v3(out: *mut u64, _affinity: usize, _count: i32, flags: u32, device: i32) {
        sim.push_new(out, flags, device)
    }
    fn cuCtxCreate_v4(out: *mut u64, _parameters: usize, flags: u32, device: i32) {
        sim.push_new(out, flags, device)
    }
    fn cuCtxDestroy_v2(context: u64) {
        sim.end_context(context)
    }
    fn cuCtxDestroy(context: u64) {
        sim.end_context(context)
    }
    fn cuCtxAttach(out: *mut u64, flags: u32) {
        let current = sim.current()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(context) = sim.contexts.get_mut(&current) {
            context.references += 1;
        }
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, current) }
    }
    fn cuCtxDetach(context: u64) {
        if sim.current()? != context {
            return Err(Code::INVALID_CONTEXT);
        }
        let Some(attached) = sim.contexts.get_mut(&context) else {
            return Err(Code::INVALID_CONTEXT);
        };
        if attached.references <= 1 {
            return sim.end_context(context);
        }
        attached.references -= 1;
        Ok(())
    }
    fn cuCtxPushCurrent_v2(context: u64) {
        if !sim.was_context(context) {
            return Err(Code::INVALID_CONTEXT);
        }
        sim.push(context);
        Ok(())
    }
    fn cuCtxPopCurrent_v2(out: *mut u64) {
        let popped = sim.pop().ok_or(Code::INVALID_CONTEXT)?;
        // SAFETY: the caller's pointer; null is legal.
        unsafe { put(out, popped) };
        Ok(())
    }
    fn cuCtxSetCurrent(context: u64) {
        if context != 0 && !sim.was_context(context) {
            return Err(Code::INVALID_CONTEXT);
        }
        // The new one first: it may be the old one, of which nothing else is left.
        if context != 0 {
            *sim.stacked.entry(context).or_insert(0) += 1;
        }
        sim.pop();
        if context != 0 {
            with_contexts(|stack| stack.push(context));
        }
        Ok(())
    }
    fn cuCtxGetCurrent(out: *mut u64) {
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, current_context().unwrap_or(0)) }
    }
    fn cuCtxGetDevice(out: *mut i32) {
        let context = current_context().ok_or(Code::INVALID_CONTEXT)?;
        // One that has ended answers, too.
        let device = sim.contexts.get(&context).map(|it| it.device);
        let device = device.or(sim.ended.get(&context).copied());
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, device.ok_or(Code::CONTEXT_IS_DESTROYED)? as i32) }
    }
    fn cuCtxGetDevice_v2(out: *mut i32, context: u64) {
        let context = match context {
            0 => current_context().ok_or(Code::INVALID_CONTEXT)?,
            context => context,
        };
        let context = sim.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, context.device as i32) }
    }
    fn cuCtxGetId(context: u64, out: *mut u64) {
        let context = sim.context(context)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.contexts[&context].id) }
    }
    fn cuCtxGetFlags(out: *mut u32) {
        // A broken one answers, too; one that has ended has none left.
        let context = current_context().ok_or(Code::INVALID_CONTEXT)?;
        let flags = sim.contexts.get(&context).map_or(0, |context| context.flags);
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, flags) }
    }
    fn cuCtxSetFlags(flags: u32) {
        let context = sim.current()?;
        are_flags(flags)?;
        let before = sim.contexts.get(&context).map_or(0, |context| context.flags);
        // Copies from now on are synchronous: those of before are waited for, with all else.
        if flags & !before & SYNC_MEMOPS != 0 {
            sim.synchronize_context(context)?;
        }
        if let Some(context) = sim.contexts.get_mut(&context) {
            context.flags = flags | (before & MAP_HOST);
        }
        Ok(())
    }
    fn cuCtxGetApiVersion(context: u64, out: *mut u32) {
        // A broken one answers, too.
        match context {
            0 => current_context().map(drop),
            other => sim.contexts.contains_key(&other).then_some(()),
        }
        .ok_or(Code::INVALID_CONTEXT)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, 3020) }
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        sim.current()?;
        // SAFETY: the caller's pointers; null is legal.
        unsafe {
            put(least, 0);
            put(greatest, -5);
        }
        Ok(())
    }
    fn cuCtxSetLimit(limit: u32, _value: usize) {
        sim.current()?;
        if limit > 6 { Err(Code::UNSUPPORTED_LIMIT) } else { Ok(()) }
    }
    fn cuCtxSynchronize() {
        let context = sim.current()?;
        sim.synchronize_context(context)
    }
    fn cuCtxSynchronize_v2(context: u64) {
        let context = sim.context(context)?;
        sim.synchronize_context(context)
    }
}

impl Sim {
    fn synchronize_context(&mut self, context: u64) -> Answer {
        self.refuse_context_capture(context)?;
        self.clock.charge(cost::CONTEXT_SYNCHRONIZE);
        self.wait_for_context(context);
        self.settle();
        self.release_unused();
        self.healthy(context)
    }
}
