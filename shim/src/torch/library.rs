//! Torch's libraries as the dynamic loader mapped them: where, and from which
//! file. Loads nothing and keeps no library alive.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A library as the loader mapped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// What symbol values are relative to.
    pub base: usize,
    /// First address of its segments.
    pub start: usize,
    /// One past the last address of its segments.
    pub end: usize,
    /// The file, as the loader names it.
    pub path: PathBuf,
}

impl Library {
    /// Does the address lie inside this library?
    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The last part of the file's name.
    pub fn file_name(&self) -> &str {
        self.path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default()
    }
}

/// The loaded library of this file name.
pub fn named(file_name: &str) -> Option<Library> {
    find(|library| library.file_name() == file_name)
}

/// The first loaded library that satisfies `wanted`, in load order.
pub fn find(wanted: impl FnMut(&Library) -> bool) -> Option<Library> {
    let mut search = Search {
        wanted,
        found: None,
    };
    // SAFETY: the callback gets a pointer to `search`, which outlives the call,
    // and the loader's entries, which are valid during each callback.
    unsafe { libc::dl_iterate_phdr(Some(visit_of(&search)), (&raw mut search).cast()) };
    search.found
}

struct Search<F> {
    wanted: F,
    found: Option<Library>,
}

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

fn visit_of<F: FnMut(&Library) -> bool>(_: &Search<F>) -> Visit {
    visit::<F>
}

unsafe extern "C" fn visit<F: FnMut(&Library) -> bool>(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: `data` is the `Search<F>` that `find` passed, used by nobody else
    // during the walk; `info` is the loader's entry for this callback.
    let (search, info) = unsafe { (&mut *data.cast::<Search<F>>(), &*info) };
    if info.dlpi_name.is_null() || info.dlpi_phnum == 0 {
        return 0;
    }
    // SAFETY: the loader's table of `dlpi_phnum` program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let base = info.dlpi_addr as usize;
    let start = loads.clone().map(|h| base + h.p_vaddr as usize).min();
    let end = loads.map(|h| base + (h.p_vaddr + h.p_memsz) as usize).max();
    // SAFETY: the loader's name is a terminated string.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    let library = Library {
        base,
        start: start.unwrap_or(0),
        end: end.unwrap_or(0),
        path: PathBuf::from(OsStr::from_bytes(name.to_bytes())),
    };
    if (search.wanted)(&library) {
        search.found = Some(library);
        return 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_libc_lies_in_libc() {
        let strlen = libc::strlen as *const () as usize;
        let library = find(|l| l.contains(strlen)).unwrap();
        assert!(library.file_name().starts_with("libc"), "{library:?}");
        assert_eq!(named(library.file_name()), Some(library));
        assert_eq!(find(|l| l.contains(8)), None);
        assert_eq!(named("libno-such.so"), None);
    }
}
