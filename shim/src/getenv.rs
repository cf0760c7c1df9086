//! The `getenv` hook: answers torch's own configuration library with a merged
//! value and everybody else as before.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{boundary, environment, resolve, torch};

crate::pass_caller! {
    /// `getenv(name)`.
    getenv, answer, "rsi", "x1"
}

/// Variables that the torch module may have something to say about begin so.
const MERGED: [&[u8]; 2] = [b"PYTORCH_", b"TORCH_CUDA_"];

unsafe extern "C" fn answer(name: *const c_char, caller: usize) -> *const c_char {
    if name.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller passes a string, as getenv demands.
    let name = unsafe { CStr::from_ptr(name) };
    let value = real(name);
    if !MERGED
        .iter()
        .any(|start| name.to_bytes().starts_with(start))
    {
        return value;
    }
    boundary::or_else("getenv", || torch::merged_env(caller, name, value), || None).unwrap_or(value)
}

/// The next getenv of the process: libc's, or another interposer's.
fn real(name: &CStr) -> *const c_char {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    /// Being looked up, on some thread: the lookup itself may call getenv.
    const BUSY: usize = 1;
    static REAL: AtomicUsize = AtomicUsize::new(0);

    let first = REAL.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Acquire);
    if first.is_ok() {
        REAL.store(resolve::next(c"getenv") as usize, Ordering::Release);
    }
    match REAL.load(Ordering::Acquire) {
        0 | BUSY => environment::raw(name).map_or(std::ptr::null(), CStr::as_ptr),
        // SAFETY: the address of a function of this signature, looked up by name.
        found => unsafe { std::mem::transmute::<usize, Getenv>(found)(name.as_ptr()) },
    }
}
