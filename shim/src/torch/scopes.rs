//! The proof that torch has no private-pool scope open on a device.
//!
//! Inside such a scope (graph capture, cudagraph-tree warm-up,
//! `torch.cuda.use_mem_pool`) torch does not run the last rung of its
//! out-of-memory ladder. The driver cannot see these scopes, so the object
//! behind `c10::cuda::CUDACachingAllocator::allocator` gets a copy of its
//! vtable in which the methods that open and close them are counted. Every
//! slot is found by name in the library's own symbol table; where one is
//! missing or ambiguous nothing is changed and nothing is claimed.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::elf::{Symbol, Symbols};
use super::library::Library;
use super::switch::PrivatePool;
use super::{first, split, switch};

const NATIVE: &str = "_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator";
const VTABLE: &str = "_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
const ALLOCATOR: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
const CLIQUE: &str = "_ZN3c104cuda20get_fabric_clique_idEa";
/// And their parts, if compilers split any off.
const FABRIC: [&str; 2] = [
    "_ZN3c104cuda12_GLOBAL__N_117isFabricSupportedEv",
    "_ZN3c104cuda17get_fabric_accessEa",
];

/// Words before the first method: offset to top, type information.
const HEADER: usize = 2;
const WORD: usize = size_of::<usize>();
/// Torch counts devices in a signed byte.
const DEVICES: usize = 128;

/// A method that is replaced: its names in the releases that have it, whether
/// a release may lack it, and what takes its place.
struct Method {
    names: &'static [&'static str],
    optional: bool,
    wrapper: Forward,
}

/// Six integer registers reach the real method as they came; what torch passes
/// in them (a device, a pool id, a pointer to a function object) stays opaque.
type Forward = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

static METHODS: [Method; 7] = [
    Method {
        names: &["19beginAllocateToPool", "25beginAllocateStreamToPool"],
        optional: false,
        wrapper: begin,
    },
    Method {
        names: &["17endAllocateToPool", "23endAllocateStreamToPool"],
        optional: false,
        wrapper: end,
    },
    Method {
        names: &["21raw_alloc_with_stream"],
        optional: false,
        wrapper: allocate_for_stream,
    },
    Method {
        names: &["11setUseOnOOM"],
        optional: true,
        wrapper: use_on_oom,
    },
    Method {
        names: &["6enable"],
        optional: true,
        wrapper: enable,
    },
    Method {
        names: &["9raw_alloc"],
        optional: true,
        wrapper: raw_allocate,
    },
    // Answers through a register of its own elsewhere.
    Method {
        names: match cfg!(target_arch = "x86_64") {
            true => &["8allocate"],
            false => &[],
        },
        optional: true,
        wrapper: allocate,
    },
];
const BEGIN: usize = 0;
const END: usize = 1;
const FOR_STREAM: usize = 2;
const USE_ON_OOM: usize = 3;
const ENABLE: usize = 4;
const RAW: usize = 5;
const ALLOCATE: usize = 6;

static REAL: [AtomicUsize; METHODS.len()] = [const { AtomicUsize::new(0) }; METHODS.len()];
static OPEN: [AtomicI32; DEVICES] = [const { AtomicI32::new(0) }; DEVICES];
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
static WATCHED: OnceLock<Watched> = OnceLock::new();

thread_local! {
    /// Depth of calls that allocate for a stream that is not the current one.
    static OTHER_STREAM: Cell<u32> = const { Cell::new(0) };
}

/// The allocator object whose scopes are counted, and the vtable it must have.
struct Watched {
    object: usize,
    vtable: usize,
}

/// Where everything is, in a library that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Address of the pointer to the allocator object.
    allocator: usize,
    /// What the object's vtable pointer holds.
    vtable: usize,
    /// Words from the start of the vtable to its end.
    words: usize,
    /// Word of each of [`METHODS`].
    slots: [Option<usize>; METHODS.len()],
    /// The code of `c10::cuda::get_fabric_clique_id`, in releases that have it
    /// (`fabric`).
    pub clique: Option<Range<usize>>,
    /// The code by which it finds out whether handles can be for a fabric.
    pub fabric: Vec<Range<usize>>,
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
    let mut slots = [None; METHODS.len()];
    for (slot, method) in slots.iter_mut().zip(&METHODS) {
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
    let finds_out = |symbol: &Symbol| FABRIC.iter().any(|name| symbol.name.starts_with(name));
    Ok(Layout {
        allocator: at(allocator.value),
        vtable: range.start + HEADER * WORD,
        words,
        slots,
        clique: symbols.only(CLIQUE).map(code),
        fabric: symbols.iter().filter(finds_out).map(code).collect(),
    })
}

/// Gives the allocator object the counting vtable. False where there is no
/// object yet, or it is not torch's native allocator. Called before torch has
/// initialised its allocator, so before any scope can be open.
pub fn install(layout: &Layout) -> bool {
    if WATCHED.get().is_some() {
        return true;
    }
    // SAFETY: `verify` found this to be the library's pointer to its allocator.
    let object = unsafe { word_at(layout.allocator) }.load(Ordering::Acquire);
    if object == 0 {
        return false;
    }
    // SAFETY: an object with virtual methods begins with its vtable pointer.
    let pointer = unsafe { word_at(object) };
    if pointer.load(Ordering::Acquire) != layout.vtable {
        return false;
    }
    // SAFETY: `verify` read the same words.
    let original = unsafe {
        let start = (layout.vtable - HEADER * WORD) as *const usize;
        std::slice::from_raw_parts(start, layout.words)
    };
    WATCHED.get_or_init(|| {
        let mut copy = original.to_vec();
        for (i, slot) in layout.slots.iter().enumerate() {
            if let Some(slot) = *slot {
                REAL[i].store(copy[slot], Ordering::Release);
                copy[slot] = METHODS[i].wrapper as usize;
            }
        }
        // Never freed: the object keeps pointing here to the end.
        let vtable = copy.leak().as_ptr() as usize + HEADER * WORD;
        pointer.store(vtable, Ordering::Release);
        Watched { object, vtable }
    });
    true
}

/// Is torch's native allocator watched, with the counting vtable still in place?
pub fn watching() -> bool {
    WATCHED.get().is_some_and(|w| {
        // SAFETY: the object is a static of a library that is never unloaded.
        unsafe { word_at(w.object) }.load(Ordering::Relaxed) == w.vtable
    })
}

/// May a private-pool scope be open on this device? True when unknown.
pub fn may_be_open(device: u32) -> bool {
    let count = OPEN.get(device as usize);
    !watching() || count.is_none_or(|c| c.load(Ordering::Acquire) != 0)
}

/// May a private-pool scope be open on any device?
pub fn any_may_be_open() -> bool {
    (0..DEVICES as u32).any(may_be_open)
}

/// Is this thread inside an allocation for a stream that is not its current one?
pub fn stream_unknown() -> bool {
    OTHER_STREAM.get() != 0
}

/// Has torch been told something that cooperative reclaim cannot live with:
/// pools that stand in on out-of-memory, or caching switched off?
pub fn given_up() -> bool {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// No cooperative reclaim and nothing identified from now on.
pub fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
    split::leave();
}

/// The word at an address, as shared memory.
///
/// # Safety
/// The address is aligned and holds a word for the rest of the process.
unsafe fn word_at<'a>(address: usize) -> &'a AtomicUsize {
    // SAFETY: as the caller promises.
    unsafe { AtomicUsize::from_ptr(address as *mut usize) }
}

/// Calls the real method.
///
/// # Safety
/// Only from the wrapper of the same method, with its arguments.
unsafe fn real(method: usize, a: [usize; 6]) -> usize {
    let address = REAL[method].load(Ordering::Acquire);
    // SAFETY: stored before the wrapper could be reached; a method that takes
    // at most six integer arguments, and what it throws passes through.
    unsafe {
        let call: Forward = std::mem::transmute(address);
        call(a[0], a[1], a[2], a[3], a[4], a[5])
    }
}

/// Declares what takes the place of methods: what they are passed behind the object, of six
/// registers that go on as they came, and a call of the real one.
macro_rules! wrappers {
    ($($(#[$meta:meta])* $name:ident of $method:ident |$passed:pat_param, $real:ident| $body:block)*) => {$(
        $(#[$meta])*
        unsafe extern "C-unwind" fn $name(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
        ) -> usize {
            // SAFETY: this is the wrapper of that method.
            let $real = || unsafe { real($method, [a, b, c, d, e, f]) };
            let $passed = [b, c, d, e];
            $body
        }
    )*};
}

/// A scope of this pool. Dropped once it has closed, or where torch throws instead of
/// opening it.
struct Scope(PrivatePool);

impl Scope {
    /// Of what torch passes: a device, of whose register it sets one byte, and a pool's id.
    fn of(device: usize, id: [usize; 2]) -> Self {
        let device = device & (DEVICES - 1);
        Self(PrivatePool { device, id })
    }

    fn opens(self, function: usize) -> Self {
        let Self(pool) = self;
        OPEN[pool.device].fetch_add(1, Ordering::AcqRel);
        switch::opens(pool, function);
        self
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        switch::closed(self.0);
        OPEN[self.0.device].fetch_sub(1, Ordering::AcqRel);
    }
}

/// An allocation of torch's for this stream, or its current one.
fn allocation(stream: Option<usize>, real: impl FnOnce() -> usize) -> usize {
    let _side = switch::for_allocation(stream);
    first::alone(real)
}

wrappers! {
    /// Counted before the scope opens: another thread sees it open too early
    /// rather than too late. Where torch throws it has opened none.
    begin of BEGIN |[device, id, more, function], real| {
        let scope = Scope::of(device, [id, more]).opens(function);
        let value = real();
        std::mem::forget(scope);
        value
    }

    /// Counted after the scope has closed, for the same reason.
    end of END |[device, id, more, _], real| {
        let value = real();
        drop(Scope::of(device, [id, more]));
        value
    }

    /// Torch asks for the capture status of the *current* stream here, but the
    /// memory is for another.
    allocate_for_stream of FOR_STREAM |[_, stream, ..], real| {
        struct Inside;
        impl Drop for Inside {
            fn drop(&mut self) {
                OTHER_STREAM.set(OTHER_STREAM.get() - 1);
            }
        }
        OTHER_STREAM.set(OTHER_STREAM.get() + 1);
        let _inside = Inside;
        allocation(Some(stream), real)
    }

    raw_allocate of RAW |_, real| {
        allocation(None, real)
    }

    /// The answer is written to its first argument.
    allocate of ALLOCATE |_, real| {
        allocation(None, real)
    }

    /// A pool that stands in on out-of-memory would be used up by soft failures.
    use_on_oom of USE_ON_OOM |_, real| {
        give_up();
        real()
    }

    /// Without caching torch frees memory that kernels still use and relies on
    /// `cudaFree` to wait.
    enable of ENABLE |[value, ..], real| {
        if value & 1 == 0 {
            give_up();
        }
        real()
    }
}

#[cfg(test)]
#[path = "scopes_tests.rs"]
mod tests;
