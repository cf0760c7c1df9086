//! The order of work that the program made by events, waits and default
//! streams, as vector clocks: `check` holds every access against it. What the
//! clock happened to give is no order.

use std::collections::BTreeMap;

use crate::abi::{Answer, Code};
use crate::state::Sim;
use crate::stream::Effect;

/// For each stream, how much of its work comes before.
pub type Order = BTreeMap<u32, u64>;

/// Adds what comes before by another way.
pub fn merge(order: &mut Order, other: &Order) {
    for (id, count) in other {
        let known = order.entry(*id).or_insert(0);
        *known = (*known).max(*count);
    }
}

/// A stream that knows more than this many others forgets the complete ones.
pub const MANY: usize = 32;

impl Sim {
    /// All work of a stream so far: what comes before its end, and when it ends.
    pub fn position(&self, id: u32) -> (Order, u64) {
        let stream = &self.streams[&id];
        let mut order = stream.before.clone();
        order.insert(id, stream.count);
        (order, stream.ready)
    }

    /// Later work of a stream comes after `order`, which is complete at `ready`.
    pub fn order_behind(&mut self, id: u32, order: &Order, ready: u64) {
        let live: Vec<(u32, u64)> = order
            .iter()
            .filter(|(other, count)| !self.is_observed(**other, **count))
            .map(|(other, count)| (*other, *count))
            .collect();
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let ready = self.later(stream.ready, ready, Some(id));
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        for (other, count) in live {
            if other == id {
                stream.fence = stream.fence.max(count);
            } else {
                let known = stream.before.entry(other).or_insert(0);
                *known = (*known).max(count);
            }
        }
        stream.ready = ready;
        if stream.before.len() > MANY {
            let mut before = std::mem::take(&mut stream.before);
            before.retain(|other, count| !self.is_observed(*other, *count));
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.before = before;
            }
        }
    }

    /// Later work of a context comes after `order`, on streams to come as well.
    pub fn context_behind(&mut self, context: u64, order: &Order, ready: u64) {
        for id in self.streams_of(context) {
            self.order_behind(id, order, ready);
        }
        let mut waits = self.contexts[&context].waits.clone();
        merge(&mut waits.0, order);
        waits.0.retain(|id, count| !self.is_observed(*id, *count));
        waits.1 = self.later(waits.1, ready, None);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.waits = waits;
        }
    }

    /// Does the host know that the first `count` operations are complete?
    pub fn is_observed(&self, id: u32, count: u64) -> bool {
        self.streams
            .get(&id)
            .is_none_or(|stream| stream.observed >= count)
    }

    /// The host has seen this work complete.
    pub fn observe(&mut self, order: &Order) {
        for (id, count) in order {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.observed = stream.observed.max(*count);
            }
        }
        for id in order.keys() {
            self.forget_stream(*id);
        }
    }

    /// Forgets a destroyed stream once all of its work is known complete: what
    /// it waits for is work, too, and a context-wide event stands behind it.
    fn forget_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let waits_for = |(id, count): (&u32, &u64)| !self.is_observed(*id, *count);
        if !stream.destroyed
            || stream.observed < stream.count
            || stream.before.iter().any(waits_for)
        {
            return;
        }
        let context = stream.context;
        self.streams.remove(&id);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.streams.retain(|other| *other != id);
        }
    }

    /// The host waits for a stream.
    pub fn wait_for(&mut self, id: u32) {
        let (order, ready) = self.position(id);
        self.wait(self.streams[&id].context, order, ready);
    }

    /// The host waits for every stream of a context.
    pub fn wait_for_context(&mut self, context: u64) {
        for id in self.streams_of(context) {
            self.wait_for(id);
        }
    }

    /// The driver waits for every stream of a context, to take away what they used: where
    /// time must pass the call is to be made again.
    pub fn drain_context(&mut self, context: u64) -> Answer {
        let streams = self.streams_of(context);
        for id in &streams {
            let (_, ready) = self.position(*id);
            self.wait(context, Order::new(), ready);
        }
        self.settle();
        let now = self.clock.now();
        let ready = |id: &u32| {
            self.streams
                .get(id)
                .is_none_or(|stream| stream.ready <= now)
        };
        if !streams.iter().all(ready) {
            return Err(Code::AGAIN);
        }
        for id in streams {
            if self.streams.contains_key(&id) {
                let (order, _) = self.position(id);
                self.observe(&order);
            }
        }
        Ok(())
    }

    /// The driver waits so for every context of a device.
    pub fn drain_device(&mut self, device: usize) -> Answer {
        let on_device = |(id, context): (&u64, &crate::context::Context)| {
            (context.device == device).then_some(*id)
        };
        let contexts: Vec<u64> = self.contexts.iter().filter_map(on_device).collect();
        contexts
            .into_iter()
            .try_for_each(|context| self.drain_context(context))
    }

    /// Ends a context's work without an effect (it crashed, or goes away).
    pub fn abandon(&mut self, context: u64) {
        let streams = self.streams_of(context);
        self.pending.retain(|_, work| {
            !streams.contains(&work.stream) || matches!(work.effect, Effect::Free(..))
        });
        self.forget_held(&streams);
        self.end_held_waits(context);
        for id in streams {
            let order = Order::from([(id, self.streams.get(&id).map_or(0, |s| s.count))]);
            self.observe(&order);
        }
    }
}
