//! The unwinder, which the standard library's panics need, looked up when it is
//! needed: without this, libgcc_s would be loaded into every preloaded process,
//! a sixth of a small program's start-up more (docs/measurements/startup.md).
//! Only the functions that the standard library and `backtrace` call, and under hidden names:
//! the host's own unwinding never comes here, and both use the one libgcc_s
//! that the process has.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use crate::libraries::resolve;

const LIBRARY: &CStr = c"libgcc_s.so.1";

/// `_URC_END_OF_STACK`: with this answer to `_Unwind_RaiseException` a panic
/// ends the process.
const END_OF_STACK: c_int = 5;

extern "C" fn absent() -> c_int {
    END_OF_STACK
}

/// False where the process can have no unwinder. Looks every function up, so that a later panic
/// takes no lock of the loader; but where none is loaded yet it stays so: what the program
/// loads later may bring a newer one of its own, and a process has only one of that name.
pub fn prepare() -> bool {
    if !resolve::loaded(LIBRARY).is_null() {
        return (0..NAMES.len()).all(|index| !ptr::eq(fetch(index), absent as *const c_void));
    }
    let library = resolve::open(LIBRARY);
    let has = |name: &CStr| !resolve::symbol(library, name).is_null();
    let is_whole = !library.is_null() && NAMES.into_iter().all(has);
    resolve::close(library);
    is_whole
}

fn find(name: &CStr) -> *mut c_void {
    // It has no constructor that matters to anyone.
    match resolve::open(LIBRARY) {
        library if library.is_null() => ptr::null_mut(),
        library => resolve::symbol(library, name),
    }
}

crate::late! { 13 from find, else absent:
    "_Unwind_Backtrace" 0,
    "_Unwind_DeleteException" 1,
    "_Unwind_GetDataRelBase" 2,
    "_Unwind_GetIP" 3,
    "_Unwind_GetIPInfo" 4,
    "_Unwind_GetLanguageSpecificData" 5,
    "_Unwind_GetRegionStart" 6,
    "_Unwind_GetTextRelBase" 7,
    "_Unwind_RaiseException" 8,
    "_Unwind_Resume" 9,
    "_Unwind_SetGR" 10,
    "_Unwind_SetIP" 11,
    "_Unwind_GetCFA" 12,
}
