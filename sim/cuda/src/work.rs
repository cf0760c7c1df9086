//! Carries out queued work when the clock has passed its end, in the order of
//! the ends: bytes really move, so wrongly ordered reuse really corrupts.

use crate::abi::Code;
use crate::context::Context;
use crate::memory::holding;
use crate::state::Sim;
use crate::stream::Effect;

impl Sim {
    /// Does everything that is due, and ends the waits that are over.
    pub fn settle(&mut self) {
        loop {
            let now = self.clock.now();
            while let Some(entry) = self.pending.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                let work = entry.remove();
                self.perform(work.effect);
            }
            if self.held.is_empty() || !self.let_go() {
                break;
            }
        }
        self.end_waits();
        self.wake_host_thread();
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            // What follows a wait is planned behind it, and an event has its place when it is
            // queued; at the end nothing happens.
            Effect::Nothing
            | Effect::Wait(_)
            | Effect::Record(_)
            | Effect::Await(_)
            | Effect::Take(_)
            | Effect::Give(_)
            | Effect::Host(..) => {}
            Effect::Fill(fill) => self.perform_fill(&fill),
            Effect::Copy(rows) => {
                for row in rows.iter() {
                    self.copy_bytes(row.to, row.from, row.bytes);
                }
            }
            Effect::Staged { rows, bytes } => {
                let mut from = bytes.as_ptr() as u64;
                for row in rows.iter() {
                    self.copy_bytes(row.to, from, row.bytes);
                    from += row.bytes;
                }
            }
            Effect::Word { at, bytes, value } => self.write_word(at, bytes, value),
            Effect::Free(base, id) => self.finish_free(base, id),
            Effect::Crash(context) => self.crash(context, Code::ILLEGAL_ADDRESS),
        }
    }

    /// Where this process reads and writes an address, and how many bytes on.
    /// Mapped handles are reached in their arena, which does not depend on how
    /// many mappings the kernel still grants.
    pub fn reach(&self, at: u64) -> (u64, u64) {
        let found = holding(&self.mappings, at, |m| m.bytes);
        let Some((base, mapping)) = found else {
            return (at, u64::MAX);
        };
        let rest = base + mapping.bytes - at;
        let handle = &self.handles[&mapping.handle];
        match self.devices.get(handle.object as usize) {
            Some(device) => (device.arena.base + handle.offset + (at - base), rest),
            None => (at, rest),
        }
    }

    fn copy_bytes(&self, mut to: u64, mut from: u64, mut bytes: u64) {
        while bytes > 0 {
            let ((into, room), (source, left)) = (self.reach(to), self.reach(from));
            let part = bytes.min(room).min(left);
            // SAFETY: the ranges were checked when the work was queued, and
            // memory under unfinished work cannot be unmapped.
            unsafe { std::ptr::copy(source as *const u8, into as *mut u8, part as usize) };
            (to, from, bytes) = (to + part, from + part, bytes - part);
        }
    }

    /// An injected fault that would stay with the context does.
    pub fn injected(&mut self, code: Code) {
        if code.is_sticky()
            && let Ok(context) = self.current()
        {
            self.crash(context, code);
        }
    }

    /// A kernel faulted: all contexts are lost that the process has on the device.
    pub fn crash(&mut self, context: u64, code: Code) {
        let Some(device) = self.contexts.get(&context).map(|it| it.device) else {
            return;
        };
        let on_device = |(_, it): &(&u64, &Context)| it.device == device;
        let lost = self.contexts.iter().filter(on_device).map(|(id, _)| *id);
        for context in lost.collect::<Vec<_>>() {
            self.abandon(context);
            if let Some(context) = self.contexts.get_mut(&context) {
                context.error.get_or_insert(code);
            }
        }
    }
}
