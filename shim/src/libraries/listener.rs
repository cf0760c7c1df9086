//! Who hears of frees: a library that the process began with, between this one and the driver,
//! that has a `cuMemFree` of its own and no `cuMemAlloc`, as MPICH 3.4 to 4.3.0, which forgets
//! there what it knows of the memory. A call that is bound to that name comes to this library
//! first, and goes on to that one, which calls what it has looked up: lookups are given another
//! function, so nothing comes round. A library that has both functions is never called: it
//! stands in for the driver, or loads it, or is a copy of it for linking. Frees nothing itself.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use memcuda_core::driver::{Address, Code, cancel};

use crate::libraries::{dynamic, scope};

type Free = unsafe extern "C" fn(Address) -> Code;

const FREE: &CStr = c"cuMemFree_v2";

thread_local! {
    /// Is this thread in that library's function? Whatever comes from there is not told again.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// Tells it of a call of `own`, this library's function. Has it freed the memory?
#[inline]
pub fn has_freed(own: *const c_void, address: Address) -> bool {
    /// Its function, `own` where there is none, null before the first call. What the process
    /// began with is never unloaded, and comes before all that is loaded later.
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let known = FOUND.load(Ordering::Acquire);
    if ptr::eq(known, own) {
        return false;
    }
    tell(&FOUND, own, address)
}

#[cold]
fn tell(found: &AtomicPtr<c_void>, own: *const c_void, address: Address) -> bool {
    let mut function = found.load(Ordering::Acquire);
    if function.is_null() {
        let behind = scope::behind(own as usize, own as usize, FREE);
        function = match hears(behind as usize) {
            true => behind,
            false => own.cast_mut(),
        };
        found.store(function, Ordering::Release);
    }
    if ptr::eq(function, own) || TELLS.replace(true) {
        return false;
    }
    // As in the driver, whose function the caller means.
    let _held = cancel::hold();
    // SAFETY: a function of this name has this signature, and its library stays loaded.
    let code = unsafe { std::mem::transmute::<*mut c_void, Free>(function)(address) };
    TELLS.set(false);
    code == Code::SUCCESS
}

/// Does this code lie in a library that only hears of frees?
fn hears(code: usize) -> bool {
    dynamic::exports(code, FREE) && !dynamic::exports(code, c"cuMemAlloc_v2")
}

/// Does code of such a library ask for the function that it is to call?
pub fn asks(name: &CStr, caller: usize) -> bool {
    name == FREE && hears(caller)
}
