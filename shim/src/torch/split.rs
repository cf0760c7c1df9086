//! Torch's split size, which it has from this library only as long as it can be asked to give
//! back. Blocks of that size are for that: whole, so that torch gives back one of them. Where
//! it is not asked they are more memory than it needs; and in a private pool, in which a request
//! fails in earnest, torch gives back those that graphs replay on. So where a private pool opens,
//! and where nobody asks torch (any more), it has no split size for good, as by itself. Takes
//! away what a user set only by [`end`].

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::elf::Symbols;
use super::library::{self, Library};
use super::places;
use crate::libraries::dynamic;

/// What torch takes for no split size, in bytes.
pub const NONE: usize = usize::MAX;

/// What a library that reads it has in it.
const KEY: &CStr = c"max_split_size_mb";

/// The pointer to the configuration of torch's CUDA allocator, which begins with the split size
/// up to 2.9: from 2.4 on a variable of all libraries that read it, before one of its own.
const EXPORTED: &CStr =
    c"_ZZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig8instanceEvE10s_instance";
const LOCAL: &str =
    "_ZZN3c104cuda20CUDACachingAllocator22CachingAllocatorConfig8instanceEvE10s_instance";

/// Has torch one by this library alone?
static TOLD: AtomicBool = AtomicBool::new(false);
/// Is there one to take away once torch has a configuration?
static LATER: AtomicBool = AtomicBool::new(false);

/// Torch has been told a split size, by this library alone or by its user.
pub fn is_told(ours: bool) {
    TOLD.store(ours, Ordering::Relaxed);
}

/// Would torch by itself have another split size?
pub fn was_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Torch is not asked everywhere any more: it has no split size from now on, but for its user's.
pub fn leave() {
    if was_told() && !end() {
        LATER.store(true, Ordering::Relaxed);
    }
}

/// Torch may have a configuration by now, which the releases up to 2.9 make for their first segment.
pub fn leave_late() {
    if LATER.load(Ordering::Relaxed) && end() {
        LATER.store(false, Ordering::Relaxed);
    }
}

/// Torch has no split size from now on, whoever set it. False where it has no configuration yet.
pub fn end() -> bool {
    let word = word();
    word.inspect(|word| word.store(NONE, Ordering::Relaxed))
        .is_some()
}

/// Why torch's split size could not be taken away again.
pub fn obstacle(allocator: &Library) -> Option<&'static str> {
    let is_known = match reads_it_itself(allocator) {
        true => dynamic::find_object(EXPORTED, Some).is_some() || local(allocator).is_some(),
        false => places::know_split(),
    };
    (!is_known).then_some("its split size, which private pools must not have, is not found")
}

/// In bytes; `None` until torch has a configuration.
fn word() -> Option<&'static AtomicUsize> {
    static WORD: OnceLock<&'static AtomicUsize> = OnceLock::new();
    if let Some(word) = WORD.get() {
        return Some(word);
    }
    let allocator = library::named("libc10_cuda.so")?;
    let word = match reads_it_itself(&allocator) {
        true => exported().or_else(|| pointed(local(&allocator)? as *const c_void)),
        false => places::configured()?.split,
    };
    word.map(|word| *WORD.get_or_init(|| word))
}

/// That of 2.4 to 2.9.
pub fn exported() -> Option<&'static AtomicUsize> {
    // The pointer to it is in each library of torch's that reads it; one is used by all.
    dynamic::find_object(EXPORTED, pointed)
}

/// Where the pointer of the releases before lies.
fn local(allocator: &Library) -> Option<usize> {
    let symbols = Symbols::read(&allocator.path).ok()?;
    Some(allocator.base + symbols.only(LOCAL)?.value as usize)
}

/// The first word of the configuration to which the pointer at this address points.
fn pointed(at: *const c_void) -> Option<&'static AtomicUsize> {
    // SAFETY: a static pointer of torch's, which it sets before it allocates, to an
    // object that is never gone.
    let word = unsafe { ptr::read(at.cast::<*const AtomicUsize>()) };
    // SAFETY: as above; in these releases that object begins with this atomic word.
    unsafe { word.as_ref() }
}

/// Does torch's CUDA allocator read its split size itself, as it does up to 2.9? From 2.10 on it is
/// in the configuration that all kinds of devices share.
pub fn reads_it_itself(allocator: &Library) -> bool {
    static ITSELF: OnceLock<bool> = OnceLock::new();
    *ITSELF.get_or_init(|| allocator.holds(KEY))
}
