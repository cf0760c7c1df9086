//! Where torch's allocator object, its vtable and the methods that are watched (`scopes`) lie in a
//! loaded `libc10_cuda.so`. Every slot is found by name in the library's own symbol table; where one
//! is missing or ambiguous nothing is claimed. Changes nothing.

use std::collections::HashSet;
use std::ops::Range;

use super::elf::{Symbol, Symbols};
use super::library::Library;

const NATIVE: &str = "_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator";
const VTABLE: &str = "_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
const ALLOCATOR: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
const CLIQUE: &str = "_ZN3c104cuda20get_fabric_clique_idEa";
/// And their parts, if compilers split any off.
const FABRIC: [&str; 2] = [
    "_ZN3c104cuda12_GLOBAL__N_117isFabricSupportedEv",
    "_ZN3c104cuda17get_fabric_accessEa",
];

/// And its parts: waits for a stream, and unmaps pages.
const UNMAPS: &str = "17ExpandableSegment12unmapHandlesE";

/// Words before the first method: offset to top, type information.
pub const HEADER: usize = 2;
pub const WORD: usize = size_of::<usize>();

/// A method: its names in the releases that have it, and whether a release may lack it.
#[derive(Clone, Copy)]
struct Method {
    names: &'static [&'static str],
    optional: bool,
}

/// Those that are watched.
pub const METHODS: usize = 13;
pub const BEGIN: usize = 0;
pub const END: usize = 1;
pub const FOR_STREAM: usize = 2;
pub const USE_ON_OOM: usize = 3;
pub const ENABLE: usize = 4;
pub const RAW: usize = 5;
pub const ALLOCATE: usize = 6;
pub const RECORD: usize = 7;
pub const FRACTION: usize = 8;
pub const CREATE: usize = 9;
pub const BASE: usize = 10;
pub const EMPTY: usize = 11;
pub const STATS: usize = 12;

static WATCHED: [Method; METHODS] = {
    let mut all = [always(&[]); METHODS];
    all[BEGIN] = always(&["19beginAllocateToPool", "25beginAllocateStreamToPool"]);
    all[END] = always(&["17endAllocateToPool", "23endAllocateStreamToPool"]);
    all[FOR_STREAM] = always(&["21raw_alloc_with_stream"]);
    all[USE_ON_OOM] = sometimes(&["11setUseOnOOM"]);
    all[ENABLE] = sometimes(&["6enable"]);
    all[RAW] = sometimes(&["9raw_alloc"]);
    all[ALLOCATE] = sometimes(on_x86_64(&["8allocate"]));
    all[RECORD] = sometimes(&["12recordStreamERKNS_7DataPtrENS0_10CUDAStreamE"]);
    all[FRACTION] = sometimes(&["17setMemoryFraction"]);
    all[CREATE] = sometimes(&["18createOrIncrefPool"]);
    all[BASE] = sometimes(&["17getBaseAllocation"]);
    all[EMPTY] = sometimes(&["10emptyCacheE"]);
    all[STATS] = sometimes(on_x86_64(&["14getDeviceStatsE"]));
    all
};

/// A method that every release has.
const fn always(names: &'static [&'static str]) -> Method {
    Method {
        names,
        optional: false,
    }
}

/// One that some lack.
const fn sometimes(names: &'static [&'static str]) -> Method {
    Method {
        names,
        optional: true,
    }
}

/// The names of a method that answers through a register of its own on all other machines, where
/// nothing is to take its place.
const fn on_x86_64(names: &'static [&'static str]) -> &'static [&'static str] {
    match cfg!(target_arch = "x86_64") {
        true => names,
        false => &[],
    }
}

/// Where everything is, in a library that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Address of the pointer to the allocator object.
    pub allocator: usize,
    /// What the object's vtable pointer holds.
    pub vtable: usize,
    /// Words from the start of the vtable to its end.
    pub words: usize,
    /// Word of each method that is watched.
    pub slots: [Option<usize>; METHODS],
    /// Is `setUseOnOOM` told whether a pool stands in? It is since 2.11, and says no at the end of
    /// every pool; before, it is called for those alone that do.
    pub says_on_oom: bool,
    /// Does torch take what is recorded while a private pool is open for a capture's? It does up to
    /// 2.12; later ones are told of captures themselves.
    pub forgets: bool,
    /// Is `createOrIncrefPool` passed a `std::shared_ptr` to the pool's allocator? It is since 2.11;
    /// before, the address.
    pub shares_allocators: bool,
    /// The code of `c10::cuda::get_fabric_clique_id`, in releases that have it
    /// (`fabric`).
    pub clique: Option<Range<usize>>,
    /// The code by which it finds out whether handles can be for a fabric.
    pub fabric: Vec<Range<usize>>,
    /// The code that waits for a stream before it unmaps pages (`unmaps`).
    pub unmaps: Vec<Range<usize>>,
}

/// Compares a loaded `libc10_cuda.so` with its own symbol table.
pub fn verify(library: &Library) -> Result<Layout, &'static str> {
    let symbols =
        Symbols::read(&library.path).map_err(|_| "the library's symbol table cannot be read")?;
    let at = |value: u64| library.base + value as usize;
    let vtable = symbols.only(VTABLE).ok_or("no native allocator in it")?;
    let allocator = symbols.only(ALLOCATOR).ok_or("no allocator object in it")?;
    let words = vtable.size as usize / WORD;
    let range = at(vtable.value)..at(vtable.value) + words * WORD;
    if words <= HEADER || !library.contains(range.start) || !library.contains(range.end) {
        return Err("its vtable lies outside the library");
    }
    if !library.contains(at(allocator.value)) {
        return Err("its allocator object lies outside the library");
    }
    // SAFETY: the words lie in the mapped, relocated data of the library.
    let table = unsafe { std::slice::from_raw_parts(range.start as *const usize, words) };
    let functions: HashSet<usize> = symbols.iter().map(|s| at(s.value)).collect();
    let strange = |&word: &usize| library.contains(word) && !functions.contains(&word);
    if table[HEADER..].iter().any(strange) {
        return Err("the loaded library is not the file on disk");
    }
    let mut slots = [None; METHODS];
    for (slot, method) in slots.iter_mut().zip(&WATCHED) {
        let named = |name: &str| {
            let rest = name.strip_prefix(NATIVE).unwrap_or_default();
            // A dot marks a fragment that the compiler split off.
            !rest.contains('.') && method.names.iter().any(|n| rest.starts_with(n))
        };
        let Some(symbol) = symbols.only_where(named) else {
            if method.optional && !symbols.iter().any(|s| named(s.name)) {
                continue;
            }
            return Err("a method of its allocator is missing or ambiguous");
        };
        let mut places = (HEADER..words).filter(|&i| table[i] == at(symbol.value));
        *slot = places.next();
        if slot.is_none() || places.next().is_some() {
            return Err("a method of its allocator is not in the vtable once");
        }
    }
    let code = |symbol: Symbol| at(symbol.value)..at(symbol.value + symbol.size);
    let on_oom = format!("{NATIVE}11setUseOnOOM");
    let says = |symbol: Symbol| symbol.name.starts_with(&on_oom) && symbol.name.ends_with('b');
    let marks = format!("{NATIVE}16markCaptureBegin");
    let create = format!("{NATIVE}18createOrIncrefPool");
    let shares =
        |symbol: Symbol| symbol.name.starts_with(&create) && symbol.name.contains("10shared_ptr");
    let unmaps = |symbol: &Symbol| symbol.name.contains(UNMAPS);
    let finds_out = |symbol: &Symbol| FABRIC.iter().any(|name| symbol.name.starts_with(name));
    Ok(Layout {
        allocator: at(allocator.value),
        vtable: range.start + HEADER * WORD,
        words,
        slots,
        says_on_oom: symbols.iter().any(says),
        shares_allocators: symbols.iter().any(shares),
        forgets: !symbols.iter().any(|it| it.name.starts_with(&marks)),
        clique: symbols.only(CLIQUE).map(code),
        fabric: symbols.iter().filter(finds_out).map(code).collect(),
        unmaps: symbols.iter().filter(unmaps).map(code).collect(),
    })
}
