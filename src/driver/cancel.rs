//! The cancelling of threads (`pthread_cancel`), held back where a call may write, wait or
//! call the driver. A thread that is cancelled ends inside such a call of libc, by an
//! unwinding that ends the process where it comes to a frame of Rust; held back, it ends at
//! the program's own next such call. Never on the path of a hit.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives its thread is not cancelled.
pub struct Held {
    before: c_int,
    /// It is a thread's own.
    of_thread: PhantomData<*const ()>,
}

/// Holds it back on this thread.
pub fn hold() -> Held {
    let mut before = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    Held {
        before,
        of_thread: PhantomData,
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the state that the thread had; null is legal.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}
