//! One `cuMemAlloc_v2` and one `cuMemFree_v2` per asking module, so that the
//! hook knows through whose table of entry points a call came. The driver
//! level cannot tell otherwise who asks: the runtime is in between. Who writes into
//! what it finds (`aimdo`) finds one function of each, behind all of these from then on.

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;

use memcuda_core::driver::{Address, Code, cancel};

use crate::hooks::{frees, memory};
use crate::libraries::aimdo;
use crate::libraries::modules::{Module, NUMBERED};

type Allocate = unsafe extern "C" fn(*mut Address, usize) -> Code;
type Free = unsafe extern "C" fn(Address) -> Code;

thread_local! {
    /// Through whose table this thread came to the functions behind all.
    static FROM: Cell<Module> = const { Cell::new(Module::DIRECT) };
}

unsafe extern "C" fn allocate_from<const N: u8>(out: *mut Address, bytes: usize) -> Code {
    // SAFETY: the program's own call, passed on with its module.
    unsafe { allocate_heard(Module(N), out, bytes) }
}

unsafe extern "C" fn free_from<const N: u8>(address: Address) -> Code {
    // SAFETY: the program's own call, passed on with its module.
    unsafe { free_heard(Module(N), address) }
}

/// `cuMemAlloc_v2` for a module, heard by who hears of it.
///
/// # Safety
/// As for the driver's function.
pub unsafe fn allocate_heard(module: Module, out: *mut Address, bytes: usize) -> Code {
    match aimdo::hears() {
        // SAFETY: as the caller promises.
        true => from(module, || unsafe {
            black_box(ALLOCATE_FOR_ALL)(out, bytes)
        }),
        // SAFETY: as the caller promises.
        false => unsafe { memory::allocate(module, out, bytes) },
    }
}

/// `cuMemFree_v2` for a module, likewise.
///
/// # Safety
/// As for the driver's function.
pub unsafe fn free_heard(module: Module, address: Address) -> Code {
    match aimdo::hears() {
        // SAFETY: as the caller promises.
        true => from(module, || unsafe { black_box(FREE_FOR_ALL)(address) }),
        // SAFETY: as the caller promises.
        false => unsafe { frees::free(module, address) },
    }
}

/// A call of another's code, in the end, by which this thread is not to be cancelled.
#[cold]
fn from(module: Module, call: impl FnOnce() -> Code) -> Code {
    let _held = cancel::hold();
    let before = FROM.replace(module);
    let code = call();
    FROM.set(before);
    code
}

unsafe extern "C" fn allocate_for_all(out: *mut Address, bytes: usize) -> Code {
    // SAFETY: the program's own call, passed on with its module.
    unsafe { memory::allocate(FROM.get(), out, bytes) }
}

unsafe extern "C" fn free_for_all(address: Address) -> Code {
    // SAFETY: the program's own call, passed on with its module.
    unsafe { frees::free(FROM.get(), address) }
}

/// Called by their addresses alone: what is written there runs.
static ALLOCATE_FOR_ALL: Allocate = allocate_for_all;
static FREE_FOR_ALL: Free = free_for_all;

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

/// The `cuMemAlloc_v2` of a module whose code at `caller` looks it up.
pub fn allocate(module: Module, caller: usize) -> *mut c_void {
    match aimdo::asks(caller) {
        true => ALLOCATE_FOR_ALL as *mut c_void,
        false => ALLOCATE[usize::from(module.0)] as *mut c_void,
    }
}

/// The `cuMemFree_v2` of a module, likewise.
pub fn free(module: Module, caller: usize) -> *mut c_void {
    match aimdo::asks(caller) {
        true => FREE_FOR_ALL as *mut c_void,
        false => FREE[usize::from(module.0)] as *mut c_void,
    }
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
