//! UCX, which learns from the driver's functions what memory comes and goes: it looks them up and
//! writes into them, or, told to, redirects the references of all files to functions of its own,
//! which call what it has looked up. Known by what its libraries export. Here it is only told
//! whose functions it is to find, and remembered whether it has found the driver's.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::libraries::dynamic;

/// Were functions looked up to be written into?
static PATCHED: AtomicBool = AtomicBool::new(false);

/// May it have written into the driver's own functions?
pub fn any_patched() -> bool {
    PATCHED.load(Ordering::Relaxed)
}

/// Is this its code, which looks for what is behind itself (up to 1.15)? That is the driver's, to
/// which nothing of what is pooled comes.
pub fn asks(caller: usize) -> bool {
    dynamic::exports(caller, c"ucm_cuMemFree")
}

/// Is this its code, and does it write into functions and look at mappings, too (from 1.18 on)?
/// Then the driver's own must be the ones: the pool's mappings go through them. Where it redirects
/// references as well it must not have them: they free nothing of the pool's.
pub fn patches(caller: usize) -> bool {
    let patches = dynamic::exports(caller, c"ucm_cuMemMap") && only_writes();
    if patches {
        PATCHED.store(true, Ordering::Relaxed);
    }
    patches
}

/// Is no UCX told anything but to write into functions? When it looks functions up it has read
/// its settings, from variables and files.
fn only_writes() -> bool {
    /// Where `ucm_global_config_t` has `cuda_hook_modes`, a bitmap (ucm.h of 1.18 to 1.22).
    const MODES: usize = 24;
    /// `UCM_MMAP_HOOK_BISTRO` alone, which is the default.
    const WRITES: u64 = 1 << 2;
    let otherwise = |options: *const c_void| {
        // SAFETY: the structure is longer, and stays loaded while it is looked at.
        let modes = unsafe { options.byte_add(MODES).cast::<u64>().read_volatile() };
        (modes != WRITES).then_some(())
    };
    dynamic::find_object(c"ucm_global_opts", otherwise).is_none()
}
