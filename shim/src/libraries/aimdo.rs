//! comfy-aimdo, which manages memory for ComfyUI: it looks cuMemAlloc and cuMemFree up and writes
//! into what it finds, to hear of all that comes and goes; where there is no memory it gives some of
//! its own up, and asks again. Known by what its library exports. Here it is only told whether it
//! is there, and remembered whether it has looked.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::libraries::dynamic;

const NAME: &CStr = c"aimdo_setup_hooks";

static LOOKED: AtomicBool = AtomicBool::new(false);

/// Is this its code, which looks for a function to write into?
pub fn asks(caller: usize) -> bool {
    let asks = dynamic::exports(caller, NAME);
    if asks {
        LOOKED.store(true, Ordering::Relaxed);
    }
    asks
}

/// May it have written into functions?
#[inline]
pub fn hears() -> bool {
    LOOKED.load(Ordering::Relaxed)
}

/// Is it loaded?
pub fn is_loaded() -> bool {
    !dynamic::find(|_| true, NAME).is_null()
}
