//! What files say of themselves: those that are loaded here, and one that is made up.

use super::references::{JMPREL, PLTRELSZ, Relocation, refers};
use super::*;
use crate::libraries::resolve;
use std::mem::offset_of;

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
        let found = find(|file| file == b"libc.so.6", name);
        assert!(!found.is_null(), "{name:?}");
        assert_eq!(found, resolve::symbol(libc, name), "{name:?}");
    }
}

#[test]
fn a_program_uses_what_it_calls_and_nothing_else() {
    // This test does, through the standard library.
    assert!(program_uses(b"write"));
    assert!(program_uses(b"mmap"));
    assert!(!program_uses(b"memcuda_"));
    assert!(!program_uses(b"no_such_function"));
}

#[test]
fn a_file_exports_what_it_defines_and_no_more() {
    let code = libc::strlen as *const () as usize;
    assert!(exports(code, c"malloc"));
    assert!(!exports(code, c"no_such_function"));
    let own = exports as fn(usize, &std::ffi::CStr) -> bool as usize;
    assert!(!exports(own, c"malloc"), "another file's");
    assert!(!exports(8, c"malloc"), "nobody's code");
}

/// A file that has one function and calls it, with its tables as they are in the file.
#[repr(C)]
struct Made {
    dynamic: [[usize; 2]; 6],
    symbols: [Symbol; 2],
    hash: [u32; 6],
    calls: [Relocation; 1],
    names: [u8; 8],
}

impl Made {
    fn new(buckets: u32, section: u16) -> Self {
        let symbol = |name, section| Symbol {
            name,
            info: FUNCTION,
            other: 0,
            section,
            value: 0x10,
            size: 1,
        };
        let hash = b"only".iter().fold(5381_u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        Self {
            dynamic: [
                [STRTAB, offset_of!(Self, names)],
                [SYMTAB, offset_of!(Self, symbols)],
                [GNU_HASH, offset_of!(Self, hash)],
                [JMPREL, offset_of!(Self, calls)],
                [PLTRELSZ, size_of::<Relocation>()],
                [0, 0],
            ],
            symbols: [symbol(0, 0), symbol(1, section)],
            // Buckets, the first symbol, no filter; the bucket; the symbol, the last one.
            hash: [buckets, 1, 0, 0, 1, hash | 1],
            calls: [Relocation {
                at: 0,
                info: 1 << 32,
                addend: 0,
            }],
            names: *b"\0only\0\0\0",
        }
    }

    fn tables(&self) -> Dynamic {
        let base = ptr::from_ref(self) as usize;
        let at = base + offset_of!(Self, dynamic);
        Dynamic { base, at }
    }
}

#[test]
fn tables_are_read_that_the_loader_has_left_as_they_were_and_empty_ones() {
    let found = |buckets: u32, section: u16| {
        let made = Made::new(buckets, section);
        // SAFETY: the tables are as their names say, and stay here.
        let found = unsafe { look_up(made.tables(), c"only") } as usize;
        found.checked_sub(made.tables().base)
    };
    assert_eq!(found(1, 1), Some(0x10));
    assert_eq!(found(1, 0), None, "another file's");
    assert_eq!(found(0, 1), None);
}

#[test]
fn a_file_with_the_older_table_alone_has_functions() {
    for (buckets, is_there) in [(1, true), (0, false)] {
        let mut made = Made::new(1, 1);
        made.dynamic[2][0] = HASH;
        // How many buckets and symbols; the bucket; for each symbol the next one.
        made.hash = [buckets, 2, 1, 0, 0, 0];
        // SAFETY: as above.
        let (found, symbols) =
            unsafe { (look_up(made.tables(), c"only"), symbols_in(made.tables())) };
        assert_eq!((!found.is_null(), symbols), (is_there, Some(2)));
        // SAFETY: as above.
        assert!(unsafe { look_up(made.tables(), c"other") }.is_null());
    }
}

#[test]
fn functions_of_a_version_are_not_for_all() {
    let made = Made::new(1, 1);
    // SAFETY: as above.
    let found = unsafe { look_up_for_all(made.tables(), c"only") } as usize;
    assert_eq!(found.checked_sub(made.tables().base), Some(0x10));
    let in_libc = |link: &&Link| link.file() == b"libc.so.6";
    let libc = first_files().find(in_libc).unwrap();
    let (base, at) = (libc.base, libc.dynamic);
    // SAFETY: libc stays loaded.
    let found = unsafe { look_up_for_all(Dynamic { base, at }, c"getpid") };
    assert!(found.is_null() && !libc.look_up(c"getpid").is_null());
}

#[test]
fn what_is_called_is_referred_to() {
    let made = Made::new(1, 0);
    // SAFETY: as above.
    let refers = |wanted: &[u8]| unsafe { refers(made.tables(), |name| name == wanted) };
    assert!(refers(b"only") && !refers(b"on"));
}

#[test]
fn what_is_absent_or_no_function_is_not_found() {
    let in_libc = |name| find(|file| file == b"libc.so.6", name);
    assert_eq!(in_libc(c"no_such_function"), ptr::null_mut());
    assert_eq!(in_libc(c""), ptr::null_mut());
    assert_eq!(in_libc(c"environ"), ptr::null_mut());
    assert_eq!(find(|file| file == b"libno.so", c"getpid"), ptr::null_mut());
}

#[test]
fn code_is_the_symbols_in_which_it_lies() {
    let start = libc::getpid as *const () as usize;
    let (name, offset) = symbol_at(start + 1).unwrap();
    assert_eq!((name.contains("getpid"), offset), (true, 1));
    assert_eq!(symbol_at(8), None);
}
