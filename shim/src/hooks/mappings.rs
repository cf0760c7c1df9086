//! The program's own mappings. Memory of the pool is none, to the program: the
//! driver refuses to unmap what cudaMalloc gave, so it is refused here.

use memcuda_core::driver::{Address, Code};

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
}
