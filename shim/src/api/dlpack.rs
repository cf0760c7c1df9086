//! Deleters for DLPack. A tensor that another library was given owns a handle;
//! that library lets go wherever it is, in any thread, at the very end of the
//! process, so what gives the handle back cannot be a function of Python's.

use std::ffi::c_void;
use std::sync::Mutex;

use memcuda_core::lock::lock;

use super::memory::close;
use super::outcome::CUDA_FAILED;

/// Where `manager_ctx` is in a `DLManagedTensor`, in bytes: behind the tensor.
const CONTEXT: usize = 48;
/// In a `DLManagedTensorVersioned`: behind the version.
const CONTEXT_VERSIONED: usize = 8;

/// `memcuda_dlpack_deleter`.
///
/// # Safety
/// `managed` is null, or a `DLManagedTensor` at the beginning of a block of
/// malloc, with a handle as its `manager_ctx`; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_dlpack_deleter(managed: *mut c_void) {
    // SAFETY: by the function's own contract.
    unsafe { give_back(managed, CONTEXT) }
}

/// `memcuda_dlpack_deleter_versioned`.
///
/// # Safety
/// As for [`memcuda_dlpack_deleter`], of a `DLManagedTensorVersioned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_dlpack_deleter_versioned(managed: *mut c_void) {
    // SAFETY: by the function's own contract.
    unsafe { give_back(managed, CONTEXT_VERSIONED) }
}

/// Handles whose close was refused: it could not be waited for, as beside a capture on a
/// full device.
static REFUSED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Nobody is there to hear that it was refused, or that its context has ended meanwhile.
fn let_go(handle: u64) {
    if close(handle) == CUDA_FAILED {
        let mut refused = lock(&REFUSED);
        refused.push(handle);
    }
}

/// Closes what could not be closed before.
pub fn close_refused() {
    // In a forked child nobody lets go of what another thread had locked.
    let refused = REFUSED.try_lock().map(|mut all| std::mem::take(&mut *all));
    refused.unwrap_or_default().into_iter().for_each(let_go);
}

/// # Safety
/// `managed` is null, or a block of malloc with a handle at this offset.
unsafe fn give_back(managed: *mut c_void, offset: usize) {
    if managed.is_null() {
        return;
    }
    // SAFETY: by the function's own contract; malloc aligns for it.
    let handle = unsafe { managed.byte_add(offset).cast::<u64>().read() };
    let_go(handle);
    // SAFETY: by the function's own contract.
    unsafe { libc::free(managed) };
}
