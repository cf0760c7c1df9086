//! Carries out queued work when the clock has passed its end, in the order of
//! the ends: bytes really move, so wrongly ordered reuse really corrupts.

use crate::abi::Code;
use crate::state::Sim;
use crate::stream::Effect;

impl Sim {
    /// Does everything that is due.
    pub fn settle(&mut self) {
        let now = self.clock.now();
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let work = entry.remove();
            self.perform(work.effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
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
            Effect::Copy { to, from, bytes } => {
                // SAFETY: the ranges were checked when the work was queued, and
                // memory under unfinished work cannot be unmapped.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
            }
            Effect::Staged { to, bytes } => {
                // SAFETY: as above; the source is our own.
                unsafe { std::ptr::copy(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            }
            Effect::Host(function, data) => self.callbacks.push((function, data)),
            Effect::Free(base) => self.finish_free(base),
            Effect::Crash(context) => self.crash(context, Code::ILLEGAL_ADDRESS),
        }
    }

    fn fill(&self, at: u64, pattern: u32, element: u64, count: u64) {
        let bytes = count * element;
        if pattern == 0 && bytes >= 1 << 20 && self.clear_pages(at, bytes) {
            return;
        }
        // SAFETY: as for a copy; elements are aligned because the call refused
        // others.
        unsafe {
            match element {
                1 => std::slice::from_raw_parts_mut(at as *mut u8, count as usize)
                    .fill(pattern as u8),
                2 => std::slice::from_raw_parts_mut(at as *mut u16, count as usize)
                    .fill(pattern as u16),
                _ => std::slice::from_raw_parts_mut(at as *mut u32, count as usize).fill(pattern),
            }
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
        self.abandon(context);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.error.get_or_insert(code);
        }
    }
}
