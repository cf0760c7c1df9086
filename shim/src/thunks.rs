//! One `cuMemAlloc_v2` and one `cuMemFree_v2` per asking module, so that the
//! hook knows through whose table of entry points a call came. The driver
//! level cannot tell otherwise who asks: the runtime is in between.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code};

use crate::hooks::{frees, memory};
use crate::modules::{Module, NUMBERED};

type Allocate = unsafe extern "C" fn(*mut Address, usize) -> Code;
type Free = unsafe extern "C" fn(Address) -> Code;

unsafe extern "C" fn allocate_from<const N: u8>(out: *mut Address, bytes: usize) -> Code {
    // SAFETY: the program's own call, passed on with its module.
    unsafe { memory::allocate(Module(N), out, bytes) }
}

unsafe extern "C" fn free_from<const N: u8>(address: Address) -> Code {
    // SAFETY: the program's own call, passed on with its module.
    unsafe { frees::free(Module(N), address) }
}

/// One function per number; the last is shared by all modules beyond them.
macro_rules! per_module {
    ($function:ident) => {
        per_module!(@ $function
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    };
    (@ $function:ident $($n:literal)*) => { [$($function::<$n>),*] };
}

static ALLOCATE: [Allocate; NUMBERED + 1] = per_module!(allocate_from);
static FREE: [Free; NUMBERED + 1] = per_module!(free_from);

/// The `cuMemAlloc_v2` of a module that looks it up.
pub fn allocate(module: Module) -> *mut c_void {
    ALLOCATE[usize::from(module.0)] as *mut c_void
}

/// The `cuMemFree_v2` of a module that looks it up.
pub fn free(module: Module) -> *mut c_void {
    FREE[usize::from(module.0)] as *mut c_void
}

/// Is this one of the functions of [`allocate`]?
pub fn is_allocate(function: *mut c_void) -> bool {
    ALLOCATE
        .iter()
        .any(|&known| known as *mut c_void == function)
}

/// Is this one of the functions of [`free`]?
pub fn is_free(function: *mut c_void) -> bool {
    FREE.iter().any(|&known| known as *mut c_void == function)
}
