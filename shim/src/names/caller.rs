//! Who asks for memory: the name of the thread, and the library whose code is
//! nearest on its stack, CUDA's own and ours aside. Asked only by rules that
//! want to know.

use std::ffi::{CStr, c_int, c_void};

use crate::modules;

/// The name of the calling thread.
pub fn thread() -> String {
    let mut name = [0_u8; 17];
    // SAFETY: writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// Frames that are looked at.
const MOST_FRAMES: u32 = 64;
const GO_ON: c_int = 0;
const STOP: c_int = 4;

struct Search {
    frames: u32,
    found: Option<String>,
}

/// The file of the library that asks, without its directories; that of the
/// program where it is the program itself.
pub fn library() -> String {
    let mut search = Search {
        frames: 0,
        found: None,
    };
    // SAFETY: the callback keeps to the type of its data.
    unsafe { _Unwind_Backtrace(visit, (&raw mut search).cast()) };
    search.found.unwrap_or_default()
}

unsafe extern "C" fn visit(frame: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: the search of the caller, which lives.
    let search = unsafe { &mut *data.cast::<Search>() };
    search.frames += 1;
    if search.frames > MOST_FRAMES {
        return STOP;
    }
    // SAFETY: the unwinder's own frame. What it returns to is behind the call.
    let at = unsafe { _Unwind_GetIP(frame) }.wrapping_sub(1);
    let Some(module) = modules::at(at) else {
        return GO_ON;
    };
    let file = module.file();
    let own = module.holds(visit as *const () as usize);
    if own || file.starts_with(b"libcuda.so") || file.starts_with(b"libcudart.so") {
        return GO_ON;
    }
    let name = match file {
        b"" => program(),
        file => String::from_utf8_lossy(file).into_owned(),
    };
    search.found = Some(name);
    STOP
}

/// The file of the program, without its directories.
pub fn program() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
