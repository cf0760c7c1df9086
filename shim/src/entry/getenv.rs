//! The `getenv` hook: answers torch's own configuration library with a merged
//! value and everybody else as before. Before this library is relocated it has no
//! value for anybody, as libc has none before it has started.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::engine::boundary;
use crate::libraries::dynamic;
use crate::process::environment;
use crate::torch;

crate::pass_caller_once_relocated! {
    /// `getenv(name)`.
    getenv, answer, "rsi", "x1"
}

/// Variables that the torch module may have something to say about begin so.
const MERGED: [&[u8]; 2] = [b"PYTORCH_", b"TORCH_CUDA_"];

unsafe extern "C" fn answer(name: *const c_char, caller: usize) -> *const c_char {
    if name.is_null() {
        return ptr::null();
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

/// The next getenv of the process: another interposer's, or libc's.
fn real(name: &CStr) -> *const c_char {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = REAL.load(Ordering::Acquire);
    if found.is_null() {
        found = dynamic::behind(getenv as *const c_void, c"getenv");
        REAL.store(found, Ordering::Release);
    }
    // SAFETY: null is `None`; anything else is a function of this signature.
    match unsafe { std::mem::transmute::<*mut c_void, Option<Getenv>>(found) } {
        // SAFETY: a string.
        Some(getenv) => unsafe { getenv(name.as_ptr()) },
        None => environment::raw(name).map_or(ptr::null(), CStr::as_ptr),
    }
}
