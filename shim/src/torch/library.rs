//! Torch's libraries as the dynamic loader mapped them: where, and from which
//! file. Loads nothing and keeps no library alive.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::libraries::{dynamic, loader, scope};

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

    /// Is this text, a whole string, in its file?
    pub fn holds(&self, text: &CStr) -> bool {
        let text = text.to_bytes_with_nul();
        let file = std::fs::read(&self.path);
        file.is_ok_and(|file| file.windows(text.len()).any(|w| w == text))
    }
}

/// A function of torch's that one of this library stands before. Looked up when it is
/// first wanted, and in the way of nobody's lookup: who calls it has it loaded.
pub struct Exported {
    file: &'static CStr,
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Exported {
    /// The function of this name in the library of this file name.
    pub const fn new(file: &'static CStr, name: &'static CStr) -> Self {
        let found = AtomicPtr::new(ptr::null_mut());
        Self { file, name, found }
    }

    /// Torch's own; null where it is not loaded or has none.
    pub fn get(&self) -> *mut c_void {
        self.known(|| dynamic::find(|file| file == self.file.to_bytes(), self.name))
    }

    /// The same, behind `own`, which this library exports; where torch has none by that file name,
    /// of whatever library has it: who renames torch's libraries or has them in its own calls it, too.
    pub fn behind(&self, own: unsafe extern "C" fn()) -> *mut c_void {
        match self.get() {
            none if none.is_null() => {
                self.known(|| scope::elsewhere(own as *const c_void, self.name))
            }
            found => found,
        }
    }

    fn known(&self, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let found = find();
        self.found.store(found, Ordering::Release);
        found
    }
}

/// Has one of torch's libraries that read its setting this key in it?
pub fn knows(key: &CStr) -> bool {
    let files = ["libc10_cuda.so", "libc10.so"];
    files.into_iter().filter_map(named).any(|it| it.holds(key))
}

/// The loaded library of this file name.
pub fn named(file_name: &str) -> Option<Library> {
    find(|library| library.file_name() == file_name)
}

/// The first loaded library that satisfies `wanted`, in load order.
pub fn find(mut wanted: impl FnMut(&Library) -> bool) -> Option<Library> {
    loader::find(|file| {
        let range = file.range()?;
        let library = Library {
            base: file.base(),
            start: range.start,
            end: range.end,
            path: PathBuf::from(OsStr::from_bytes(file.path().to_bytes())),
        };
        wanted(&library).then_some(library)
    })
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
