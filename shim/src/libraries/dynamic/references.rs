//! What a loaded file refers to, by its relocations: those of its symbols that the loader binds, to
//! whichever file has the first one of that name. A symbol table does not tell its own length.

use std::ffi::{CStr, c_void};

use super::{Dynamic, STRTAB, SYMTAB, Symbol};
use crate::libraries::loader;

/// Does the program itself, not a library, refer to anything whose name begins
/// so? By its relocations, as its symbol table does not tell its own length.
pub fn program_uses(prefix: &[u8]) -> bool {
    // SAFETY: the program stays loaded.
    let uses = |program: Dynamic| unsafe { refers(program, |name| name.starts_with(prefix)) };
    loader::find(|program| Some(Dynamic::of(program).is_some_and(uses))).unwrap_or(false)
}

/// Does a function lie in the file in which this code does, where no reference to its name leads
/// elsewhere, as the file has none that the loader binds?
pub fn is_own(code: usize, function: *const c_void, name: &CStr) -> bool {
    let found = loader::find(|file| {
        let range = file.code().filter(|range| range.contains(&code))?;
        // SAFETY: the library stays loaded while its code runs.
        let refers = |of: Dynamic| unsafe { refers(of, |it| it == name.to_bytes()) };
        let is_here = range.contains(&(function as usize));
        Some(is_here && !Dynamic::of(file).is_some_and(refers))
    });
    found.unwrap_or(false)
}

/// A relocation (`Elf64_Rela`).
#[repr(C)]
pub(super) struct Relocation {
    pub(super) at: usize,
    /// Its type, and above it the number of the symbol.
    pub(super) info: u64,
    pub(super) addend: isize,
}

/// Tags of the dynamic section.
pub(super) const PLTRELSZ: usize = 2;
const RELA: usize = 7;
const RELASZ: usize = 8;
pub(super) const JMPREL: usize = 23;
/// How many relocations at the beginning have no symbol.
const RELACOUNT: usize = 0x6fff_fff9;

/// # Safety
/// It is still loaded.
pub(super) unsafe fn refers(dynamic: Dynamic, is_wanted: impl Fn(&[u8]) -> bool) -> bool {
    // SAFETY: as the caller says, here and below.
    let tables = unsafe { (dynamic.address(STRTAB), dynamic.address(SYMTAB)) };
    let (Some(names), Some(symbols)) = tables else {
        return false;
    };
    let (names, symbols) = (names as *const i8, symbols as *const Symbol);
    let named = |relocation: &Relocation| {
        let symbol = (relocation.info >> 32) as usize;
        // SAFETY: a relocation's symbol is one of the table, with a name; the first is for none.
        let name = unsafe {
            let name = names.add((*symbols.add(symbol)).name as usize);
            CStr::from_ptr(name.cast())
        };
        is_wanted(name.to_bytes())
    };
    [(RELA, RELASZ, RELACOUNT), (JMPREL, PLTRELSZ, 0)]
        .into_iter()
        .any(|(at, bytes, without)| {
            // SAFETY: the tables are as long as they say.
            let all = unsafe {
                let (Some(at), Some(bytes)) = (dynamic.address(at), dynamic.value(bytes)) else {
                    return false;
                };
                let count = bytes / size_of::<Relocation>();
                let without = dynamic.value(without).unwrap_or(0).min(count);
                &std::slice::from_raw_parts(at as *const Relocation, count)[without..]
            };
            all.iter().any(named)
        })
}
