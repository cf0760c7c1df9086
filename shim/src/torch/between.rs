//! Does another library stand in for cudaMalloc, between torch's allocator and the runtime?
//! Those that count or keep torch's memory do: they see segments, and no page, and what torch
//! asks through them is not known for its own. Looks, once; calls nothing.

use std::ffi::{CStr, c_void};

use super::library::Library;
use crate::libraries::{aimdo, dynamic, loader, resolve};

const NAME: &CStr = c"cudaMalloc";

/// Why torch is not asked, and has no pages, which would be hidden from a library that stands there.
pub fn obstacle(allocator: &Library) -> Option<&'static str> {
    if aimdo::is_loaded() {
        return Some("comfy-aimdo hears of cudaMalloc");
    }
    (is_before() || is_behind(allocator)).then_some("another library stands in for cudaMalloc")
}

/// Is the first definition, but the program's and runtimes', another library's than this?
fn is_before() -> bool {
    let other = |file: &[u8]| !file.is_empty() && !resolve::is_runtime(file);
    let first = dynamic::find(other, NAME);
    let own = own() as usize;
    let ours = |file: &loader::File<'_>| {
        let code = file.code().filter(|code| code.contains(&own))?;
        Some(code.contains(&(first as usize)))
    };
    !first.is_null() && loader::find(ours) == Some(false)
}

/// Is it another library's that torch's would reach behind this one? A runtime that is not
/// loaded yet is none.
fn is_behind(allocator: &Library) -> bool {
    let code = |file: &loader::File<'_>| (file.base() == allocator.base).then(|| file.code())?;
    let caller = loader::find(code).map_or(allocator.start, |code| code.start);
    let found = resolve::runtime(caller, NAME, own());
    !found.is_null() && !resolve::is_of_runtime(found)
}

/// Code of this library's, which has a cudaMalloc as well.
fn own() -> *const c_void {
    obstacle as *const c_void
}
