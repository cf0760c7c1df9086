//! Torch's libraries as the dynamic loader mapped them: where, and from which
//! file. Loads nothing and keeps no library alive.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::loader;

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
