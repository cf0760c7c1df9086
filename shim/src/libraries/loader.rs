//! The files that the loader has mapped into this process, one after the other: where
//! they lie, what they are called, what their headers say. Loads nothing, keeps nothing
//! loaded and takes no lock of ours: callers may be inside a lookup. No thread looks while
//! another one forks (`fork_gate`).

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr;

use crate::process::fork_gate;

/// A mapped file, while it is looked at.
pub struct File<'a>(&'a libc::dl_phdr_info);

impl File<'_> {
    /// What the addresses in its tables are relative to.
    pub fn base(&self) -> usize {
        self.0.dlpi_addr as usize
    }

    /// Its path as the loader knows it; empty for the program itself.
    pub fn path(&self) -> &CStr {
        match self.0.dlpi_name.is_null() {
            true => c"",
            // SAFETY: the loader's name of the file, a string.
            false => unsafe { CStr::from_ptr(self.0.dlpi_name) },
        }
    }

    /// The last component of its path.
    pub fn file(&self) -> &[u8] {
        let path = self.path().to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// Its program headers.
    pub fn headers(&self) -> &[libc::Elf64_Phdr] {
        let (first, count) = (self.0.dlpi_phdr, self.0.dlpi_phnum.into());
        match first.is_null() {
            true => &[],
            // SAFETY: the loader's table, counted by itself.
            false => unsafe { std::slice::from_raw_parts(first, count) },
        }
    }

    /// From the first byte of its segments to behind the last; `None` where it has none. What
    /// lies between two segments may be another file's.
    pub fn range(&self) -> Option<Range<usize>> {
        self.around(|_| true)
    }

    /// The same of its code alone, in which no other file lies: an old glibc's own loader has
    /// 2 MiB between code and data, and the kernel maps others there.
    pub fn code(&self) -> Option<Range<usize>> {
        self.around(|header| header.p_flags & libc::PF_X != 0)
    }

    fn around(&self, is_wanted: impl Fn(&libc::Elf64_Phdr) -> bool) -> Option<Range<usize>> {
        let wanted = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && is_wanted(h);
        let loads = || self.headers().iter().filter(wanted);
        let first = loads().map(|h| h.p_vaddr).min()?;
        let end = loads().map(|h| h.p_vaddr + h.p_memsz).max()?;
        Some(self.base() + first as usize..self.base() + end as usize)
    }

    /// How many files were unloaded from the process so far.
    pub fn unloads(&self) -> u64 {
        self.0.dlpi_subs
    }
}

/// What `look` finds in the first file in which it finds anything, in the order in which
/// they were loaded: the program is the first.
pub fn find<T>(look: impl FnMut(&File<'_>) -> Option<T>) -> Option<T> {
    let mut search = Search { look, found: None };
    let visit = visit_of(&search);
    let search_at = ptr::from_mut(&mut search).cast();
    // SAFETY: the callback gets the variable's address and keeps to its type.
    fork_gate::pass(|| unsafe { libc::dl_iterate_phdr(Some(visit), search_at) });
    search.found
}

/// Runs `work` while no other thread loads or unloads anything; it may search, too.
pub fn held<T>(work: impl FnOnce() -> T) -> Option<T> {
    let mut work = Some(work);
    find(|_| work.take().map(|work| work()))
}

struct Search<L, T> {
    look: L,
    found: Option<T>,
}

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// The callback for a search of this type.
fn visit_of<L: FnMut(&File<'_>) -> Option<T>, T>(_: &Search<L, T>) -> Visit {
    visit::<L, T>
}

unsafe extern "C" fn visit<L: FnMut(&File<'_>) -> Option<T>, T>(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid record; `search` is the variable above.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<L, T>>()) };
    search.found = (search.look)(&File(info));
    c_int::from(search.found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_comes_first_and_libc_holds_its_functions() {
        let mut files = Vec::new();
        let none = find(|file| {
            files.push(file.file().to_vec());
            None::<()>
        });
        assert_eq!((none, files[0].as_slice()), (None, &b""[..]));
        assert!(files.len() > 1);
        let strlen = libc::strlen as *const () as usize;
        let holds = |file: &File<'_>| file.code()?.contains(&strlen).then_some(());
        let name = find(|file| holds(file).map(|()| file.file().to_vec())).unwrap();
        assert!(name.starts_with(b"libc.so"), "{name:?}");
        assert!(find(|file| file.range()?.contains(&8).then_some(())).is_none());
    }
}
