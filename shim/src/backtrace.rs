//! The calling thread's stack, frame by frame, as far as unwinding information
//! reaches. Looks no symbol up and keeps nothing.

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// Who looks at frames; false ends the walk.
type Look<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Gives `look` an address inside each call on the stack, the innermost first,
/// until it says false.
pub fn walk(mut look: impl FnMut(usize) -> bool) {
    let mut look: Look<'_> = &mut look;
    // SAFETY: the callback keeps to the type of its data, which outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut look).cast()) };
}

unsafe extern "C" fn visit(frame: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: the caller's, which lives.
    let look = unsafe { &mut *data.cast::<Look<'_>>() };
    // SAFETY: the unwinder's own frame.
    let returns_to = unsafe { _Unwind_GetIP(frame) };
    // What it returns to is behind the call; the outermost returns to nowhere.
    match returns_to.checked_sub(1) {
        Some(at) if look(at) => GO_ON,
        _ => STOP,
    }
}

/// An address in this library's own code.
pub fn own() -> usize {
    visit as *const () as usize
}
