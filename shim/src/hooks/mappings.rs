//! The program's own mappings. Memory of the pool is none, to the program: the
//! driver refuses to change how cudaMalloc's memory is mapped, so it is refused
//! here.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code};

use super::foreign::current;
use crate::room::with_room;

crate::hooks! {
    /// `cuMemUnmap`.
    cuMemUnmap ["cuMemUnmap" since 10020] (at: Address, bytes: usize) |real, engine| {
        match engine.owner(at) {
            Some(_) => Code::INVALID_VALUE,
            // SAFETY: the program's own call, passed on.
            None => unsafe { real(at, bytes) },
        }
    }

    /// `cuMemAddressFree`.
    cuMemAddressFree ["cuMemAddressFree" since 10020] (at: Address, bytes: usize) |real, engine| {
        match engine.owner(at) {
            Some(_) => Code::INVALID_VALUE,
            // SAFETY: the program's own call, passed on.
            None => unsafe { real(at, bytes) },
        }
    }

    /// `cuMemSetAccess`: with room made if need be, for it takes page tables.
    cuMemSetAccess ["cuMemSetAccess" since 10020] (
        at: Address, bytes: usize, access: *const c_void, count: usize,
    ) |real, engine| {
        if engine.owner(at).is_some() {
            return Code::INVALID_VALUE;
        }
        with_room(engine, || current(engine), || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(at, bytes, access, count) }
        })
    }
}
