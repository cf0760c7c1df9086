//! The environment, read and never changed: no lock, and no allocation but
//! for the text of a variable of the shim's own.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, Ordering};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The value of a variable in this process, as C's `getenv` finds it.
pub fn raw(name: &CStr) -> Option<&'static CStr> {
    let name = name.to_bytes();
    // SAFETY: `environ` is null or an array of strings that ends in null; who
    // changes it while others read breaks C's own rule for getenv as well.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry);
            if let Some([b'=', ..]) = text.to_bytes().strip_prefix(name) {
                return Some(CStr::from_ptr(text.as_ptr().add(name.len() + 1)));
            }
            entry = entry.add(1);
        }
    }
    None
}

/// The value of one of the shim's own variables. Text that is not UTF-8 is
/// shown with replacement characters, so that it is refused as a wrong value.
pub fn variable(name: &str) -> Option<String> {
    let name = std::ffi::CString::new(name).ok()?;
    raw(&name).map(|value| value.to_string_lossy().into_owned())
}

/// `MEMCUDA_DISABLE=1`: hand out nothing of ours. Read at the first lookup of
/// something hooked and kept, so that a program gets all of it or none.
pub fn disabled() -> bool {
    static DISABLED: AtomicU8 = AtomicU8::new(u8::MAX);
    match DISABLED.load(Ordering::Relaxed) {
        u8::MAX => {
            let value = raw(c"MEMCUDA_DISABLE").map(CStr::to_bytes);
            let disabled = value == Some(b"1");
            DISABLED.store(disabled.into(), Ordering::Relaxed);
            disabled
        }
        known => known != 0,
    }
}
