//! The calling thread's stack, frame by frame, as far as unwinding information
//! reaches. Looks no symbol up and keeps nothing.

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// A call on the stack.
pub struct Frame {
    /// An address inside the call.
    pub at: usize,
    /// The first address behind what it called: where its own part of the stack
    /// begins.
    pub top: usize,
}

impl Frame {
    /// Where its return address lies, at `low` or above; `None` where that cannot
    /// be told.
    pub fn slot(&self, low: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        // SAFETY: between two frames of this thread's stack, which both live.
        let has = |slot: usize| unsafe { *(slot as *const usize) } == self.at + 1;
        if cfg!(target_arch = "x86_64") {
            let slot = self.top - WORD;
            return (slot >= low && has(slot)).then_some(slot);
        }
        let mut slots = (low.next_multiple_of(WORD)..self.top).step_by(WORD);
        let slot = slots.find(|slot| has(*slot))?;
        // Another one may be what was there before.
        slots.all(|slot| !has(slot)).then_some(slot)
    }
}

/// Who looks at frames; false ends the walk.
type Look<'a> = &'a mut dyn FnMut(Frame) -> bool;

/// Gives `look` an address inside each call on the stack, the innermost first,
/// until it says false.
pub fn walk(mut look: impl FnMut(usize) -> bool) {
    walk_frames(|frame| look(frame.at));
}

/// The same, with where each call lies.
pub fn walk_frames(mut look: impl FnMut(Frame) -> bool) {
    let mut look: Look<'_> = &mut look;
    // SAFETY: the callback keeps to the type of its data, which outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut look).cast()) };
}

unsafe extern "C" fn visit(frame: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: the caller's, which lives.
    let look = unsafe { &mut *data.cast::<Look<'_>>() };
    // SAFETY: the unwinder's own frame.
    let (returns_to, top) = unsafe { (_Unwind_GetIP(frame), _Unwind_GetCFA(frame)) };
    // What it returns to is behind the call; the outermost returns to nowhere.
    match returns_to.checked_sub(1) {
        Some(at) if look(Frame { at, top }) => GO_ON,
        _ => STOP,
    }
}

/// An address in this library's own code.
pub fn own() -> usize {
    visit as *const () as usize
}
