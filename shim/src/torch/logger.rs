//! Torch's own lines about a request that failed softly. Releases from 2.13 on
//! write a warning for each; what is a step of the library's is none to the user.
//! While a thread is on a ladder of ours its warnings are made informations, which
//! torch writes only where it was told to (`TORCH_CPP_LOG_LEVEL=INFO`).
//!
//! The constructor is known by its mangled name, so with these types. Its place in
//! the code is an argument that is passed beside the registers (x86-64) or as one
//! of them (aarch64) and stays as it is; nothing else of it is known here. Only a
//! severity that is exactly a warning's is changed.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::reclaim;
use crate::asm::Next;
use crate::dynamic;

/// `c10::GLOG_INFO` and `c10::GLOG_WARNING`.
const INFO: usize = 0;
const WARNING: usize = 1;

crate::tail_jump_with! {
    /// `c10::MessageLogger::MessageLogger(c10::SourceLocation, int severity, bool)`.
    _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib, on_message, "rsi", "x2"
}

unsafe extern "C" fn on_message(_logger: usize, second: usize, third: usize) -> Next {
    let severity = match cfg!(target_arch = "aarch64") {
        true => third,
        false => second,
    };
    let quiet = severity == WARNING && reclaim::is_on_ladder();
    Next::jump_with(real(), if quiet { INFO } else { severity })
}

/// Torch's own. It is in the way of nobody's lookup, who calls it has it loaded.
fn real() -> *mut c_void {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let known = REAL.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let name = c"_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib";
    let found = dynamic::find(|file| file == b"libc10.so", name);
    REAL.store(found, Ordering::Release);
    found
}
