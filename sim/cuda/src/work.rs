//! Carries out queued work when the clock has passed its end, in the order of
//! the ends: bytes really move, so wrongly ordered reuse really corrupts.

use std::slice::from_raw_parts_mut;

use crate::abi::Code;
use crate::memory::holding;
use crate::state::Sim;
use crate::stream::Effect;

impl Sim {
    /// Does everything that is due.
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
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            // What follows a wait is planned behind it; at its end nothing happens.
            Effect::Nothing | Effect::Wait(_) => {}
            Effect::Fill {
                at,
                pattern,
                element,
                width,
                rows,
                pitch,
            } => {
                for row in 0..rows {
                    self.fill(at + row * pitch, pattern, element, width);
                }
            }
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
            Effect::Host(function, data) => self.callbacks.push((function, data)),
            Effect::Free(base) => self.finish_free(base),
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

    fn fill(&self, mut at: u64, pattern: u32, element: u64, count: u64) {
        let mut bytes = count * element;
        if pattern == 0 && bytes >= 1 << 20 && self.clear_pages(at, bytes) {
            return;
        }
        while bytes > 0 {
            let (into, room) = self.reach(at);
            let part = bytes.min(room);
            let count = (part / element) as usize;
            // SAFETY: as for a copy; elements are aligned because the call
            // refused others, and do not cross mappings.
            unsafe {
                match element {
                    1 => from_raw_parts_mut(into as *mut u8, count).fill(pattern as u8),
                    2 => from_raw_parts_mut(into as *mut u16, count).fill(pattern as u16),
                    _ => from_raw_parts_mut(into as *mut u32, count).fill(pattern),
                }
            }
            (at, bytes) = (at + part, bytes - part);
        }
    }

    /// Zeroes by dropping pages, where the range is one piece of a device.
    fn clear_pages(&self, at: u64, bytes: u64) -> bool {
        let Ok(pieces) = self.resolve(at, bytes) else {
            return false;
        };
        let [piece] = pieces.as_slice() else {
            return false;
        };
        match self.devices.get(piece.object as usize) {
            Some(device) => {
                device.arena.clear(piece.offset, bytes);
                true
            }
            None => false,
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

    /// A kernel faulted: the context is lost.
    pub fn crash(&mut self, context: u64, code: Code) {
        let context = self.whole(context);
        self.abandon(context);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.error.get_or_insert(code);
        }
    }
}
