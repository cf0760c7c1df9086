//! Which loaded module an address of code lies in, and the table that gives
//! modules small numbers. Lock-free: callers may be inside a lookup.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Modules with a number of their own.
pub const NUMBERED: usize = 32;

/// The number of a module, for the entry points that are made per module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module(pub u8);

impl Module {
    /// All modules beyond the table, and code outside every module.
    pub const OTHER: Module = Module(NUMBERED as u8);
    /// Callers that reached an exported symbol directly.
    pub const DIRECT: Module = Module(NUMBERED as u8 + 1);

    /// What is known of the module; `None` for the two shared numbers.
    pub fn about(self) -> Option<&'static About> {
        // SAFETY: a filled slot points to a record that is never freed.
        unsafe { TABLE.get(self.0 as usize)?.load(Ordering::Acquire).as_ref() }
    }
}

/// A module: its file and where its segments lie.
#[derive(Debug)]
pub struct About {
    /// Path as the loader knows it; empty for the program itself.
    pub path: CString,
    start: usize,
    end: usize,
}

impl About {
    /// The last component of the path.
    pub fn file(&self) -> &[u8] {
        let path = self.path.to_bytes();
        path.rsplit(|&b| b == b'/').next().unwrap_or(path)
    }

    /// Does this address lie in the module?
    pub fn holds(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

static TABLE: [AtomicPtr<About>; NUMBERED] = [const { AtomicPtr::new(ptr::null_mut()) }; NUMBERED];

/// The number of the module that holds this address; gives a new one out
/// while there are any.
pub fn number(address: usize) -> Module {
    let mut fresh: Option<Box<About>> = None;
    for (index, slot) in TABLE.iter().enumerate() {
        let mut here = slot.load(Ordering::Acquire);
        if here.is_null() {
            let Some(about) = fresh.take().or_else(|| find(address).map(Box::new)) else {
                return Module::OTHER;
            };
            let about = Box::into_raw(about);
            let null = ptr::null_mut();
            match slot.compare_exchange(null, about, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => here = about,
                Err(other) => {
                    here = other;
                    // SAFETY: the record was not published.
                    fresh = Some(unsafe { Box::from_raw(about) });
                }
            }
        }
        // SAFETY: a filled slot points to a record that is never freed.
        if unsafe { (*here).holds(address) } {
            return Module(index as u8);
        }
    }
    Module::OTHER
}

/// The module that holds this address, from the table where it has a number.
pub fn at(address: usize) -> Option<&'static About> {
    number(address).about()
}

/// Asks the loader.
fn find(address: usize) -> Option<About> {
    struct Search {
        address: usize,
        found: Option<About>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid record; `search` is the variable below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        let base = info.dlpi_addr as usize;
        // SAFETY: the record's program headers, counted by itself.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
        let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let start = loads().map(|h| base + h.p_vaddr as usize).min();
        let end = loads()
            .map(|h| base + (h.p_vaddr + h.p_memsz) as usize)
            .max();
        let (Some(start), Some(end)) = (start, end) else {
            return 0;
        };
        if !(start..end).contains(&search.address) {
            return 0;
        }
        let path = match info.dlpi_name.is_null() {
            true => CString::default(),
            // SAFETY: the loader's name of the module, a string.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned(),
        };
        search.found = Some(About { path, start, end });
        1
    }
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: the callback gets the variable's address and keeps to its type.
    unsafe { libc::dl_iterate_phdr(Some(visit), ptr::from_mut(&mut search).cast()) };
    search.found
}
