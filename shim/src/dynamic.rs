//! What a loaded library exports, read from its own tables in memory: for the
//! few functions by which all others are looked up. They cannot be linked to:
//! glibc 2.34 moved them from libdl into libc, and the loader of a glibc before
//! 2.30 refuses a library that asks for them in the other one.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

/// The function of this name in the first loaded library that has one of these
/// file names and exports it; null where none does. Of a function with several
/// symbol versions it is any one.
pub fn find(files: &[&CStr], name: &CStr) -> *mut c_void {
    let mut search = Search {
        files,
        name,
        found: ptr::null_mut(),
    };
    // SAFETY: the callback gets the variable's address and keeps to its type.
    unsafe { libc::dl_iterate_phdr(Some(visit), ptr::from_mut(&mut search).cast()) };
    search.found
}

struct Search<'a> {
    files: &'a [&'a CStr],
    name: &'a CStr,
    found: *mut c_void,
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid record; `search` is the variable above.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the loader's name of the module, a string.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let file = path.rsplit(|&byte| byte == b'/').next();
    if !search
        .files
        .iter()
        .any(|known| file == Some(known.to_bytes()))
    {
        return 0;
    }
    // SAFETY: the record's program headers, counted by itself.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let base = info.dlpi_addr as usize;
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC);
    if let Some(header) = dynamic {
        // SAFETY: the dynamic section of a library that stays loaded during the
        // callback, at the address that its header gives.
        search.found = unsafe { look_up(base, base + header.p_vaddr as usize, search.name) };
    }
    c_int::from(!search.found.is_null())
}

/// An entry of the symbol table (`Elf64_Sym`).
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// Tags of the dynamic section, and the type of a symbol that is a function.
const STRTAB: usize = 5;
const SYMTAB: usize = 6;
const GNU_HASH: usize = 0x6fff_fef5;
const FUNCTION: u8 = 2;

/// # Safety
/// A loaded library's base and dynamic section.
unsafe fn look_up(base: usize, dynamic: usize, name: &CStr) -> *mut c_void {
    // SAFETY: pairs of tag and value up to the tag 0.
    let value_of = |tag: usize| unsafe {
        let mut entry = dynamic as *const [usize; 2];
        while (*entry)[0] != 0 && (*entry)[0] != tag {
            entry = entry.add(1);
        }
        // The loader has made addresses of offsets, but where it could not write.
        match (*entry)[0] {
            0 => None,
            _ if (*entry)[1] < base => Some(base + (*entry)[1]),
            _ => Some((*entry)[1]),
        }
    };
    let (Some(names), Some(symbols), Some(table)) =
        (value_of(STRTAB), value_of(SYMTAB), value_of(GNU_HASH))
    else {
        return ptr::null_mut();
    };
    let (names, symbols) = (names as *const i8, symbols as *const Symbol);
    let hash = name.to_bytes().iter().fold(5381_u32, |hash, &byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    });
    // SAFETY: the GNU hash table: its sizes, a filter that is passed over, the
    // first symbol of each bucket, and a word for each symbol from `first` on,
    // whose lowest bit ends the bucket.
    unsafe {
        let table = table as *const u32;
        let (buckets, first, filter) = (*table, *table.add(1), *table.add(2));
        if buckets == 0 {
            return ptr::null_mut();
        }
        let bucket = table.add(4 + 2 * filter as usize);
        let chain = bucket.add(buckets as usize);
        let mut index = *bucket.add((hash % buckets) as usize);
        while index >= first {
            let word = *chain.add((index - first) as usize);
            let symbol = &*symbols.add(index as usize);
            if word | 1 == hash | 1
                && symbol.section != 0
                && symbol.info & 0xf == FUNCTION
                && CStr::from_ptr(names.add(symbol.name as usize).cast()) == name
            {
                return (base + symbol.value) as *mut c_void;
            }
            if word & 1 != 0 {
                break;
            }
            index += 1;
        }
    }
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::resolve;
    use std::ptr;

    #[test]
    fn functions_are_those_that_dlsym_gives() {
        let libc = resolve::loaded(c"libc.so.6");
        assert!(!libc.is_null());
        for name in [
            c"dl_iterate_phdr",
            c"getpid",
            c"malloc",
            c"abort",
            c"close",
            c"open64",
        ] {
            let found = find(&[c"libno.so", c"libc.so.6"], name);
            assert!(!found.is_null(), "{name:?}");
            assert_eq!(found, resolve::symbol(libc, name), "{name:?}");
        }
    }

    #[test]
    fn what_is_absent_or_no_function_is_not_found() {
        let in_libc = |name| find(&[c"libc.so.6"], name);
        assert_eq!(in_libc(c"no_such_function"), ptr::null_mut());
        assert_eq!(in_libc(c""), ptr::null_mut());
        assert_eq!(in_libc(c"environ"), ptr::null_mut());
        assert_eq!(find(&[c"libno.so"], c"getpid"), ptr::null_mut());
        assert_eq!(find(&[], c"getpid"), ptr::null_mut());
    }
}
