//! Waits of the host: until when a call waits, and what the host knows once it has. Until
//! then that work is as unfinished as any, and other threads make their calls: nothing
//! here holds the lock while a thread sleeps.

use std::time::Duration;

use crate::abi::Answer;
use crate::held::HELD;
use crate::order::Order;
use crate::state::Sim;

/// How long the host sleeps before it looks again whether a word is there.
const LOOK: Duration = Duration::from_micros(50);

/// All that is waited for.
#[derive(Default)]
pub struct Waits {
    list: Vec<Wait>,
    /// The number of the call that runs.
    call: u64,
}

struct Wait {
    call: u64,
    /// Whose work it is: who waited is told of its error.
    context: u64,
    /// When the wait is over, in nanoseconds of the clock.
    at: u64,
    /// What the host knows to be complete then; nothing where the driver waits by itself.
    order: Order,
}

impl Waits {
    /// Another call begins; returns its number.
    pub fn begin(&mut self) -> u64 {
        self.call += 1;
        self.call
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.call
    }

    /// Moves the ends of waits to another time.
    pub fn move_ends(&mut self, moved: impl Fn(&mut u64)) {
        self.list.iter_mut().for_each(|wait| moved(&mut wait.at));
    }
}

impl Sim {
    /// The host waits for work of a context, all of which is complete at `until`.
    pub fn wait(&mut self, context: u64, order: Order, until: u64) {
        if until < HELD {
            self.clock.skips_to(until);
        }
        let call = self.waits.call;
        self.waits.list.push(Wait {
            call,
            context,
            at: until,
            order,
        });
    }

    /// The host knows what it has waited for.
    pub fn end_waits(&mut self) {
        let now = self.clock.now();
        let over = self.waits.list.extract_if(.., |wait| wait.at <= now);
        for wait in over.collect::<Vec<_>>() {
            self.observe(&wait.order);
        }
    }

    /// No word will come any more for which these waits stand: their context ends.
    pub fn end_held_waits(&mut self, context: u64) {
        let now = self.clock.now();
        let mut waits = std::mem::take(&mut self.waits.list);
        let held = |wait: &&mut Wait| wait.at >= HELD && self.whole(wait.context) == context;
        waits.iter_mut().filter(held).for_each(|wait| wait.at = now);
        self.waits.list = waits;
    }

    /// The contexts for which the caller still waits.
    pub fn waited_for(&self, call: u64) -> Vec<u64> {
        let its = |wait: &&Wait| wait.call == call && !wait.order.is_empty();
        let waits = self.waits.list.iter().filter(its);
        waits.map(|wait| self.whole(wait.context)).collect()
    }

    /// How long a call that waits sleeps before it looks again; none where it is over.
    pub fn rest(&mut self, call: u64) -> Option<Duration> {
        loop {
            self.settle();
            let waits = self.waits.list.iter().filter(|wait| wait.call == call);
            let until = waits.map(|wait| wait.at).max()?;
            // Where nothing that is planned helps, somebody else must.
            let next = match until >= HELD {
                true => self.next_moment().unwrap_or(0),
                false => until,
            };
            if !self.clock.skips_to(next) {
                let left = Duration::from_nanos(until.saturating_sub(self.clock.now()));
                return Some(if until >= HELD { LOOK } else { left });
            }
        }
    }

    /// What a call answers that has waited for these contexts.
    pub fn answer_of(&self, contexts: &[u64]) -> Answer {
        let known = contexts.iter().filter_map(|it| self.contexts.get(it));
        known.filter_map(|it| it.error).next().map_or(Ok(()), Err)
    }
}
