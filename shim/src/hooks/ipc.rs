//! Legacy CUDA IPC: the driver cannot export pooled memory this way, so a
//! program gets the driver's own answer, and the log says why.

use std::ffi::c_void;

use memcuda_core::driver::Address;

crate::hooks! {
    /// `cuIpcGetMemHandle`.
    cuIpcGetMemHandle ["cuIpcGetMemHandle" since 4010] (
        handle: *mut c_void, address: Address,
    ) |real, engine| {
        if engine.owner(address).is_some() {
            crate::log_once!(
                Warn,
                "cudaIpcGetMemHandle: pooled memory cannot be exported by CUDA IPC yet; \
                 MEMCUDA_DISABLE=1 runs the program on the plain driver"
            );
        }
        // SAFETY: the program's own call, passed on: the driver refuses mapped
        // memory.
        unsafe { real(handle, address) }
    }
}
