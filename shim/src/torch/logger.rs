//! Torch's own lines about a request that failed softly. Releases from 2.13 on
//! write a warning for each; what is a step of the library's is none to the user.
//! While a thread is on a ladder of ours its warnings are made informations, which
//! torch writes only where it was told to (`TORCH_CPP_LOG_LEVEL=INFO`).
//!
//! The constructor is known by its mangled name, so with these types. Its place in
//! the code is an argument that is passed beside the registers (x86-64) or as one
//! of them (aarch64) and stays as it is; nothing else of it is known here. Only a
//! severity that is exactly a warning's is changed.

use super::library::Exported;
use super::reclaim;
use crate::process::asm::Next;

/// `c10::GLOG_INFO` and `c10::GLOG_WARNING`.
const INFO: usize = 0;
const WARNING: usize = 1;

crate::tail_jump_with! {
    /// `c10::MessageLogger::MessageLogger(c10::SourceLocation, int severity, bool)`.
    _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib, on_message, "rsi", "x2"
}

unsafe extern "C" fn on_message(_logger: usize, second: usize, third: usize) -> Next {
    static REAL: Exported = Exported::new(
        c"libc10.so",
        c"_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib",
    );
    let real = REAL.behind(_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib);
    if real.is_null() {
        nobody_has_it();
    }
    let severity = match cfg!(target_arch = "aarch64") {
        true => third,
        false => second,
    };
    let quiet = severity == WARNING && reclaim::is_on_ladder();
    Next::jump_with(real, if quiet { INFO } else { severity })
}

/// What was called is in this library's list alone: who calls it was built for another torch, and
/// without this library would not have been loaded. Ends as where the loader finds that out late.
fn nobody_has_it() -> ! {
    const LINE: &str = "memcuda: error: undefined symbol: \
        _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib (a library was built for another release of torch)\n";
    // SAFETY: the bytes of a string; the process ends here, and no destructor runs.
    unsafe {
        libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
        libc::_exit(127)
    }
}
