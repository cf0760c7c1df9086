//! `cuInit`: the one place where the library starts.

use memcuda_core::driver::Code;

use crate::share::early;
use crate::{boundary, engine, hook, torch};

crate::slot! { cuInit ["cuInit" since 2000] Exported }

/// The hooks of this family.
pub static HOOKS: &[&hook::Hook] = &[&cuInit::HOOK];

crate::pass_caller! {
    /// `cuInit(flags)`.
    cuInit, initialize, "rsi", "x1"
}

/// `cuInit` for this library's own interface, in a process that has not made the
/// call yet; the driver is loaded.
pub fn initialize_here() -> Code {
    // SAFETY: the driver's function, without a caller that is to be known.
    unsafe { initialize(0, 0) }
}

unsafe extern "C" fn initialize(flags: u32, caller: usize) -> Code {
    type Real = unsafe extern "C" fn(u32) -> Code;
    let real = cuInit::HOOK.real();
    if real.is_null() {
        return hook::ABSENT;
    }
    // SAFETY: the driver's function of this name, called as the program did.
    let code = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(real)(flags) };
    if code == Code::SUCCESS {
        let first = engine::start();
        if let Some(engine) = engine::running() {
            let noted = || torch::note_runtime_call(caller);
            boundary::or_else("cuInit", noted, || ());
            if first {
                boundary::or_else("cuInit", || early::cuda_started(engine), || ());
            }
        }
    }
    code
}
