//! Symbols of a shared library, local ones too, read from its file on disk: the
//! loader does not map that table (`.symtab`). Reads only; a file that is not a
//! 64-bit little-endian ELF file with the table, as a stripped one, is an
//! error, never a guess.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One defined symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The (mangled) name.
    pub name: &'a str,
    /// Offset from the address at which the library is loaded.
    pub value: u64,
    /// Bytes.
    pub size: u64,
}

/// A symbol table with its names.
pub struct Symbols {
    entries: Vec<u8>,
    names: Vec<u8>,
}

const SYMTAB: u32 = 2;
const ENTRY: usize = 24;
/// No table of a library that is looked at here comes near this, in bytes.
const LARGEST_TABLE: u64 = 256 << 20;

impl Symbols {
    /// Reads the full table of a library.
    pub fn read(library: &Path) -> Result<Self> {
        let file = File::open(library)?;
        let mut header = [0u8; 64];
        file.read_exact_at(&mut header, 0)?;
        if header[..6] != [0x7f, b'E', b'L', b'F', 2, 1] {
            return Err(bad("not a 64-bit little-endian ELF file"));
        }
        let section_entry = u64::from(u16_at(&header, 0x3a));
        let section_count = u64::from(u16_at(&header, 0x3c));
        if section_entry < 64 || section_count == 0 {
            return Err(bad("no section headers"));
        }
        let sections = read(&file, u64_at(&header, 0x28), section_entry * section_count)?;
        let section = |i: u64| {
            let start = (i * section_entry) as usize;
            sections.get(start..start + 64)
        };
        let symbols = (0..section_count)
            .filter_map(section)
            .find(|s| u32_at(s, 4) == SYMTAB)
            .ok_or_else(|| bad("no such symbol table"))?;
        if u64_at(symbols, 0x38) != ENTRY as u64 {
            return Err(bad("symbol entries of an unknown size"));
        }
        let names =
            section(u64::from(u32_at(symbols, 0x28))).ok_or_else(|| bad("no string table"))?;
        let load = |s: &[u8]| read(&file, u64_at(s, 0x18), u64_at(s, 0x20));
        Ok(Self {
            entries: load(symbols)?,
            names: load(names)?,
        })
    }

    /// Every defined function and object.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.entries.chunks_exact(ENTRY).filter_map(|entry| {
            let kind = entry[4] & 0xf;
            let (function, object) = (kind == 2, kind == 1);
            let defined = u16_at(entry, 6) != 0;
            (defined && (function || object)).then_some(())?;
            Some(Symbol {
                name: self.name(u32_at(entry, 0) as usize)?,
                value: u64_at(entry, 8),
                size: u64_at(entry, 16),
            })
        })
    }

    /// The symbol of this name, if exactly one place bears it.
    pub fn only(&self, name: &str) -> Option<Symbol<'_>> {
        self.only_where(|n| n == name)
    }

    /// The symbol whose name satisfies `wanted`, if exactly one place does.
    pub fn only_where(&self, wanted: impl Fn(&str) -> bool) -> Option<Symbol<'_>> {
        let mut found = self.iter().filter(|s| wanted(s.name));
        let first = found.next()?;
        found.all(|s| s.value == first.value).then_some(first)
    }

    fn name(&self, at: usize) -> Option<&str> {
        let rest = self.names.get(at..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

fn read(file: &File, at: u64, bytes: u64) -> Result<Vec<u8>> {
    if bytes > LARGEST_TABLE {
        return Err(bad("a table of an absurd size"));
    }
    let mut buffer = vec![0; bytes as usize];
    file.read_exact_at(&mut buffer, at)?;
    Ok(buffer)
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

// The slices are long enough by construction: a header is 64 bytes, an entry 24.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::fixture::Fixture;

    #[test]
    fn local_symbols_are_read_too() {
        let library = Fixture::build("elf", "");
        let full = Symbols::read(library.path()).unwrap();
        let vtable = "_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
        assert!(full.only(vtable).is_some_and(|s| s.size >= 6 * 8));
        let object = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
        assert!(full.only(object).is_some());
        assert!(full.only("no_such_symbol").is_none());
    }

    #[test]
    fn a_stripped_library_is_an_error() {
        let library = Fixture::build("stripped", "-s");
        assert!(Symbols::read(library.path()).is_err());
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_and_not_a_panic() {
        let library = Fixture::build("cut", "");
        let whole = std::fs::read(library.path()).unwrap();
        let cut = library.path().with_extension("cut");
        for length in [0, 3, 63, 64, 65, whole.len() / 2, whole.len() - 65] {
            std::fs::write(&cut, &whole[..length]).unwrap();
            assert!(Symbols::read(&cut).is_err(), "{length}");
        }
        let mut wrong = whole.clone();
        wrong[0x3c] = 0xff;
        wrong[0x3d] = 0xff;
        std::fs::write(&cut, &wrong).unwrap();
        assert!(Symbols::read(&cut).is_err());
    }
}
