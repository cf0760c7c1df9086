//! Where this library stands aside: it is turned off, or behind it another preloaded library
//! stands in for the driver, which answers lookups by a `dlsym` of its own. A limiter of a
//! container's memory is such a one: it has to see every call or none, and of two that swap
//! functions the first one would hide the driver from the second. Decided at the first lookup of
//! something hooked, by the files' tables, and kept. Or before this one lies a library whose
//! `dlsym` asks nobody behind it: then what is looked up is the driver's, and only what a program
//! is linked to is ours. Says nothing, and changes nothing.

use std::ffi::{CStr, c_char, c_void};

use once_cell::race::OnceBox;

use crate::libraries::dynamic::{self, Dynamic};
use crate::libraries::loader;
use crate::process::environment;

/// The other library. It was preloaded, so it is never unloaded.
pub struct Other {
    dynamic: Dynamic,
    /// Its file, as the loader knows it.
    pub path: &'static CStr,
}

/// Does this library hand out nothing of its own?
pub fn stands() -> bool {
    environment::disabled() || other().is_some()
}

/// The library that comes behind this one and stands in for the driver.
pub fn other() -> Option<&'static Other> {
    // Two threads may both look; one answer is kept.
    static OTHER: OnceBox<Option<Other>> = OnceBox::new();
    OTHER.get_or_init(|| Box::new(find())).as_ref()
}

/// Between this library and libc, as what is preloaded lies: the driver itself, which a program
/// may be linked to, has no `dlsym`; what hears of allocations alone, as a profiler, neither.
fn find() -> Option<Other> {
    let own = find as *const () as usize;
    let (mut is_behind, mut is_over) = (false, false);
    loader::find(|file| {
        if !is_behind {
            is_behind = file.code().is_some_and(|code| code.contains(&own));
            return None;
        }
        is_over |= file.file() == b"libc.so.6";
        let dynamic = Dynamic::of(file).filter(|_| !is_over)?;
        // SAFETY: the list is held, so it stays loaded.
        let has = |name: &CStr| unsafe { !dynamic::look_up(dynamic, name).is_null() };
        // SAFETY: the loader's string of a file that stays loaded.
        let path = unsafe { CStr::from_ptr(file.path().as_ptr()) };
        (has(c"cuMemAlloc_v2") && has(c"dlsym")).then_some(Other { dynamic, path })
    })
}

/// The file before this one by whose `dlsym` a program finds the driver's own function of this
/// name, which is hooked, `real`. Asked in the way that a program asks, where there is such a
/// file: one that asks on finds ours, and one that stands in for that function passes it on.
pub fn passed_by(driver: *mut c_void, name: &CStr, real: *mut c_void) -> Option<&'static CStr> {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let own = find as *const () as usize;
    let first = loader::find(|file| {
        if file.code().is_some_and(|code| code.contains(&own)) {
            return Some(None);
        }
        // SAFETY: the list is held, so it stays loaded.
        let found = unsafe { dynamic::look_up(Dynamic::of(file)?, c"dlsym") };
        // SAFETY: the loader's string of a file with which the program began, which stays.
        let path = || unsafe { CStr::from_ptr(file.path().as_ptr()) };
        (!found.is_null()).then(|| Some((found, path())))
    });
    let (dlsym, path) = first.flatten()?;
    // SAFETY: a function of this signature, as everybody calls it; the driver's handle.
    let found = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(dlsym)(driver, name.as_ptr()) };
    (!real.is_null() && found == real).then_some(path)
}

impl Other {
    /// Its function of this name; null where it has none.
    pub fn look_up(&self, name: &CStr) -> *mut c_void {
        // SAFETY: it stays loaded.
        unsafe { dynamic::look_up(self.dynamic, name) }
    }
}
