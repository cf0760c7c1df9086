//! What a loaded file says of itself in its own tables in memory: what a library
//! exports, and what the program refers to. The first is, above all, for the few functions
//! by which all others are looked up. They cannot be linked to: glibc 2.34 moved
//! them from libdl into libc, and the loader of a glibc before 2.30 refuses a
//! library that asks for them in the other one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::libraries::loader::{self, File};

mod references;

pub use references::{is_own, program_uses};

/// The function of this name in the first loaded library whose file's name is
/// wanted and which exports it; null where none does. Of a function with several
/// symbol versions it is any one.
pub fn find(wanted: impl Fn(&[u8]) -> bool, name: &CStr) -> *mut c_void {
    let found = loader::find(|file| {
        let dynamic = Dynamic::of(file).filter(|_| wanted(file.file()))?;
        // SAFETY: the library stays loaded while it is looked at.
        let found = unsafe { look_up(dynamic, name) };
        (!found.is_null()).then_some(found)
    });
    found.unwrap_or(ptr::null_mut())
}

/// What `of` says of a variable of this name: several files may have it, of which the process
/// uses one for all (`STB_GNU_UNIQUE`).
pub fn find_object<T>(name: &CStr, of: impl Fn(*const c_void) -> Option<T>) -> Option<T> {
    loader::find(|file| {
        let dynamic = Dynamic::of(file)?;
        // SAFETY: the library stays loaded while it is looked at.
        let (_, object) = unsafe { definition(dynamic, name, OBJECT) }?;
        of(object)
    })
}

/// One of the loader's list of files (`struct link_map` of link.h), and its head.
#[repr(C)]
struct Link {
    base: usize,
    path: *const c_char,
    dynamic: usize,
    next: *const Link,
}

#[repr(C)]
struct Head {
    version: c_int,
    first: *const Link,
}

unsafe extern "C" {
    #[link_name = "_r_debug"]
    static LIST: Head;
}

impl Link {
    /// The last part of its path.
    fn file(&self) -> &[u8] {
        if self.path.is_null() {
            return b"";
        }
        // SAFETY: not null, so a string of a file that stays loaded.
        let path = unsafe { CStr::from_ptr(self.path) }.to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    fn look_up(&self, name: &CStr) -> *mut c_void {
        let (base, at) = (self.base, self.dynamic);
        // SAFETY: a file that stays loaded.
        unsafe { look_up(Dynamic { base, at }, name) }
    }
}

/// What the process began with, in the order in which functions are looked for, up to
/// libc. Asks nobody and waits for nobody.
fn first_files() -> impl Iterator<Item = &'static Link> {
    let mut is_over = false;
    // SAFETY: the loader's own list. Up to libc, without which this library does not
    // load, it has what the process began with, of which nothing is ever unloaded.
    let mut link = unsafe { LIST.first.as_ref() };
    std::iter::from_fn(move || {
        let here = link.filter(|_| !is_over)?;
        is_over = here.file() == b"libc.so.6";
        // SAFETY: as above.
        link = unsafe { here.next.as_ref() };
        Some(here)
    })
}

/// libc's own function of this name; null where libc.so.6 has none. Asks nobody: a
/// sanitizer that stands in for `dl_iterate_phdr` looks symbols up before it can answer.
pub fn of_libc(name: &CStr) -> *mut c_void {
    let libc = first_files().find(|link| link.file() == b"libc.so.6");
    libc.map_or(ptr::null_mut(), |libc| libc.look_up(name))
}

/// The function of this name behind `own`, which is this library's, up to libc: that of
/// another preloaded library, or libc's. `dlsym` finds the same, but waits for constructors
/// of other threads to end, and these may wait for the thread that asks.
pub fn behind(own: *const c_void, name: &CStr) -> *mut c_void {
    let mut found = first_files().map(|link| link.look_up(name));
    let _before = found.by_ref().find(|found| ptr::eq(*found, own));
    found
        .find(|found| !found.is_null())
        .unwrap_or(ptr::null_mut())
}

/// Does the file in which this code lies export a function of this name?
pub fn exports(code: usize, name: &CStr) -> bool {
    let found = loader::find(|file| {
        file.code().filter(|range| range.contains(&code))?;
        // SAFETY: the library stays loaded while its code runs.
        let of = |dynamic: Dynamic| unsafe { look_up(dynamic, name) };
        Some(Dynamic::of(file).is_some_and(|dynamic| !of(dynamic).is_null()))
    });
    found.unwrap_or(false)
}

/// The name of the symbol that code belongs to, as far as its file tells, and how far
/// behind its beginning the code is, in bytes: for code whose file stays loaded.
pub fn symbol_at(code: usize) -> Option<(String, usize)> {
    let found = loader::find(|file| {
        file.code().filter(|range| range.contains(&code))?;
        // SAFETY: the library stays loaded while it is looked at.
        let around = |dynamic| unsafe { symbol_around(dynamic, code) };
        Some(Dynamic::of(file).and_then(around))
    });
    let (name, offset) = found.flatten()?;
    // SAFETY: a string of the file, which stays loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some((name.to_string_lossy().into_owned(), offset))
}

/// The dynamic section of a loaded file, and where the file is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Dynamic {
    base: usize,
    at: usize,
}

impl Dynamic {
    pub fn of(file: &File<'_>) -> Option<Self> {
        let mut headers = file.headers().iter();
        let header = headers.find(|h| h.p_type == libc::PT_DYNAMIC)?;
        let base = file.base();
        let at = base + header.p_vaddr as usize;
        Some(Self { base, at })
    }

    /// # Safety
    /// It is still loaded.
    unsafe fn value(self, tag: usize) -> Option<usize> {
        // SAFETY: as the caller says.
        unsafe { self.values(tag) }.next()
    }

    /// # Safety
    /// It stays loaded while they are gone through.
    unsafe fn values(self, tag: usize) -> impl Iterator<Item = usize> {
        // SAFETY: pairs of tag and value up to the tag 0.
        let entries = (0..).map(move |index| unsafe { *(self.at as *const [usize; 2]).add(index) });
        let entries = entries.take_while(|[known, _]| *known != 0);
        entries.filter_map(move |[known, value]| (known == tag).then_some(value))
    }

    /// The strings that the entries of this tag say: [`NEEDED`], [`SONAME`].
    ///
    /// # Safety
    /// It stays loaded while they are used.
    pub unsafe fn texts(self, tag: usize) -> impl Iterator<Item = *const c_char> {
        // SAFETY: as the caller says.
        let (table, values) = unsafe { (self.address(STRTAB), self.values(tag)) };
        values.filter_map(move |value| Some((table? + value) as *const c_char))
    }

    /// # Safety
    /// It is still loaded.
    unsafe fn address(self, tag: usize) -> Option<usize> {
        // SAFETY: as the caller says.
        let value = unsafe { self.value(tag) }?;
        // The loader has made addresses of offsets, but where it could not write.
        Some(if value < self.base {
            self.base + value
        } else {
            value
        })
    }
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

/// Tags of the dynamic section: the libraries that a file needs, and what it is called by
/// those that need it.
pub const NEEDED: usize = 1;
pub const SONAME: usize = 14;

/// More of them, and types of symbols.
const STRTAB: usize = 5;
const SYMTAB: usize = 6;
/// The older table of hashes, which few files have alone.
const HASH: usize = 4;
const GNU_HASH: usize = 0x6fff_fef5;
const VERSYM: usize = 0x6fff_fff0;
/// Of a symbol's version: it is not the default one; and the greatest that is none.
const HIDDEN: u16 = 0x8000;
const GLOBAL: u16 = 1;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;
const THREAD_LOCAL: u8 = 6;

/// # Safety
/// It is still loaded.
unsafe fn symbol_around(dynamic: Dynamic, code: usize) -> Option<(*const c_char, usize)> {
    // SAFETY: as the caller says; the table has as many symbols.
    let (names, symbols) = unsafe {
        let (names, symbols) = (dynamic.address(STRTAB)?, dynamic.address(SYMTAB)?);
        let count = symbols_in(dynamic)?;
        let symbols = std::slice::from_raw_parts(symbols as *const Symbol, count);
        (names as *const c_char, symbols)
    };
    let offset = code - dynamic.base;
    let around = |symbol: &&Symbol| {
        let behind = offset.checked_sub(symbol.value);
        let is_place = symbol.section != 0 && symbol.info & 0xf != THREAD_LOCAL;
        is_place && behind.is_some_and(|behind| behind < symbol.size)
    };
    let around = symbols.iter().filter(around);
    let found = around.min_by_key(|symbol| offset - symbol.value)?;
    // SAFETY: a symbol's name lies in the table of names.
    let name = unsafe { names.add(found.name as usize) };
    Some((name, offset - found.value))
}

/// How many symbols a file has, as far as its hash table knows: the older one says it, of the
/// other it is up to the end of the last chain.
///
/// # Safety
/// It is still loaded.
unsafe fn symbols_in(dynamic: Dynamic) -> Option<usize> {
    // SAFETY: the table is as `look_up` says.
    unsafe {
        let Some(table) = dynamic.address(GNU_HASH) else {
            return Some(*(dynamic.address(HASH)? as *const u32).add(1) as usize);
        };
        let table = table as *const u32;
        let (buckets, first, filter) = (*table, *table.add(1), *table.add(2));
        let bucket = table.add(4 + 2 * filter as usize);
        let chain = bucket.add(buckets as usize);
        let last = (0..buckets as usize).map(|at| *bucket.add(at)).max();
        let mut last = last.filter(|last| *last >= first)?;
        while *chain.add((last - first) as usize) & 1 == 0 {
            last += 1;
        }
        Some(last as usize + 1)
    }
}

/// # Safety
/// It is still loaded.
pub unsafe fn look_up(dynamic: Dynamic, name: &CStr) -> *mut c_void {
    // SAFETY: as the caller says.
    let found = unsafe { definition(dynamic, name, FUNCTION) };
    found.map_or(ptr::null_mut(), |(_, function)| function)
}

/// As [`look_up`], of functions without a symbol version alone: whatever version a
/// reference is to, the loader takes such a one.
///
/// # Safety
/// It is still loaded.
pub unsafe fn look_up_for_all(dynamic: Dynamic, name: &CStr) -> *mut c_void {
    // SAFETY: as the caller says; there is a version for each symbol, or for none.
    let version = |index: usize| unsafe {
        let versions = dynamic.address(VERSYM)? as *const u16;
        Some(*versions.add(index) & !HIDDEN)
    };
    // SAFETY: as the caller says.
    let found = unsafe { definition(dynamic, name, FUNCTION) };
    let found = found.filter(|(index, _)| version(*index).is_none_or(|version| version <= GLOBAL));
    found.map_or(ptr::null_mut(), |(_, function)| function)
}

/// A symbol's number in their table, if it is of this type, and where it is.
///
/// # Safety
/// It is still loaded.
unsafe fn definition(dynamic: Dynamic, name: &CStr, kind: u8) -> Option<(usize, *mut c_void)> {
    let base = dynamic.base;
    // SAFETY: as the caller says.
    let (names, symbols) = unsafe { (dynamic.address(STRTAB)?, dynamic.address(SYMTAB)?) };
    let (names, symbols) = (names as *const i8, symbols as *const Symbol);
    // SAFETY: a hash table has numbers of symbols, whose names lie in the table of names.
    let wanted = |index: usize| unsafe {
        let symbol = &*symbols.add(index);
        let is_wanted = symbol.section != 0
            && symbol.info & 0xf == kind
            && CStr::from_ptr(names.add(symbol.name as usize).cast()) == name;
        is_wanted.then(|| (index, (base + symbol.value) as *mut c_void))
    };
    // SAFETY: as the caller says.
    let (table, older) = unsafe { (dynamic.address(GNU_HASH), dynamic.address(HASH)) };
    let Some(table) = table else {
        // SAFETY: the other one is there.
        return unsafe { by_older_hash(older? as *const u32, name, wanted) };
    };
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
            return None;
        }
        let bucket = table.add(4 + 2 * filter as usize);
        let chain = bucket.add(buckets as usize);
        let mut index = *bucket.add((hash % buckets) as usize);
        while index >= first {
            let word = *chain.add((index - first) as usize);
            let found = (word | 1 == hash | 1).then(|| wanted(index as usize));
            if let Some(found) = found.flatten() {
                return Some(found);
            }
            if word & 1 != 0 {
                break;
            }
            index += 1;
        }
    }
    None
}

/// What is wanted of the symbols that have this name's hash in the older table.
///
/// # Safety
/// It is such a table.
unsafe fn by_older_hash<T>(
    table: *const u32,
    name: &CStr,
    wanted: impl Fn(usize) -> Option<T>,
) -> Option<T> {
    let hash = name.to_bytes().iter().fold(0_u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        (hash ^ (hash >> 28 << 4)) & (u32::MAX >> 4)
    });
    // SAFETY: how many buckets and symbols there are, the first symbol of each bucket, and for
    // each symbol the next one; none has the number 0.
    unsafe {
        let (buckets, bucket) = (*table, table.add(2));
        let chain = bucket.add(buckets as usize);
        let mut index = *bucket.add(hash.checked_rem(buckets)? as usize);
        while index != 0 {
            if let Some(found) = wanted(index as usize) {
                return Some(found);
            }
            index = *chain.add(index as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests;
