//! The environment, read and never changed: no lock, and no allocation but
//! for the text of a variable of the shim's own.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU8, Ordering};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// All of it, `NAME=VALUE` each.
pub fn entries() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: `environ` is null or an array of strings that ends in null; who
    // changes it while others read breaks C's own rule for getenv as well.
    let mut entry = unsafe { environ };
    std::iter::from_fn(move || {
        // SAFETY: as above; nothing is read behind the null.
        unsafe {
            if entry.is_null() || (*entry).is_null() {
                return None;
            }
            let text = CStr::from_ptr(*entry);
            entry = entry.add(1);
            Some(text)
        }
    })
}

/// The value of a variable in this process, as C's `getenv` finds it.
pub fn raw(name: &CStr) -> Option<&'static CStr> {
    entries().find_map(|entry| {
        let rest = entry.to_bytes_with_nul().strip_prefix(name.to_bytes())?;
        CStr::from_bytes_with_nul(rest.strip_prefix(b"=")?).ok()
    })
}

/// The names of all variables.
pub fn names() -> impl Iterator<Item = &'static str> {
    entries().filter_map(|entry| {
        let name = entry.to_bytes().split(|&byte| byte == b'=').next()?;
        std::str::from_utf8(name).ok()
    })
}

/// The value of one of the shim's own variables, as bytes: it may be a path.
pub fn variable(name: &str) -> Option<OsString> {
    let name = CString::new(name).ok()?;
    raw(&name).map(|value| OsStr::from_bytes(value.to_bytes()).to_owned())
}

/// The same as text; what is not UTF-8 is none.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// `MEMCUDA_DISABLE=1`: hand out nothing of ours. Read at the first lookup of
/// something hooked and kept, so that a program gets all of it or none.
pub fn disabled() -> bool {
    static DISABLED: AtomicU8 = AtomicU8::new(u8::MAX);
    match DISABLED.load(Ordering::Relaxed) {
        u8::MAX => {
            let value = raw(c"MEMCUDA_DISABLE").map(|value| value.to_bytes().trim_ascii());
            let disabled = value == Some(b"1");
            DISABLED.store(disabled.into(), Ordering::Relaxed);
            disabled
        }
        known => known != 0,
    }
}
