//! Who asks for memory: the name of the thread, and the library whose code is
//! nearest on its stack, CUDA's own and ours aside. Asked only by rules that want
//! to know, recordings and reports, which also ask what program this is.

use std::ffi::CStr;

use crate::libraries::modules::{self, About};
use crate::process::backtrace;

/// The name of the calling thread.
pub fn thread() -> String {
    let mut name = [0_u8; 17];
    // SAFETY: writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Frames that are looked at.
const MOST_FRAMES: usize = 64;

/// The file of the library that asks, without its directories; that of the
/// program where it is the program itself.
pub fn library() -> String {
    let (mut frames, mut found) = (0, None);
    backtrace::walk(|at| {
        frames += 1;
        found = modules::at(at).and_then(|module| named(&module));
        found.is_none() && frames < MOST_FRAMES
    });
    found.unwrap_or_default()
}

/// The file of a module that is neither CUDA's nor ours.
fn named(module: &About) -> Option<String> {
    let file = module.file();
    if module.holds(backtrace::own()) || is_of_cuda(file) {
        return None;
    }
    Some(match file {
        b"" => program(),
        file => String::from_utf8_lossy(file).into_owned(),
    })
}

/// Is this one of the libraries that only pass a request on?
pub fn is_of_cuda(file: &[u8]) -> bool {
    file.starts_with(b"libcuda.so") || file.starts_with(b"libcudart")
}

/// The file of the program, without its directories.
pub fn program() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The command line of this process, of at most so many bytes.
pub fn command_line(most: usize) -> String {
    let mut line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    line.truncate(most);
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    line.trim_end().to_owned()
}
