//! The runtime functions that are only *tagged*: they note who called with
//! what on this thread, and go on to the real function of the caller's own
//! runtime. The driver hooks below read the note: only there is it known that
//! memory is asked for, only here who asks.
//!
//! A note is used once: `cuMemAlloc`, `cuMemFree`, `cuStreamSynchronize` and, of torch's
//! pages, `cuMemUnmap` take it away. Nothing is
//! allocated or locked once a call site has been seen.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use memcuda_core::driver::{Address, Stream};

use crate::asm::Next;
use crate::tags::{self, Tag};
use crate::{boundary, modules, resolve, torch};

/// Leaves a note; the first of these calls tells torch's part which libraries
/// are there.
fn note(name: &str, caller: usize, leave: impl FnOnce()) {
    let noted = || {
        leave();
        torch::note_runtime_call(caller);
    };
    boundary::or_else(name, noted, || ());
}

/// `cudaErrorInsufficientDriver`: what a runtime answers without a driver, and
/// what these symbols answer without a runtime behind them.
const NO_RUNTIME: c_int = 35;

/// The real functions of one name, by call site; the few call sites that a
/// program has are found without asking the loader again, until it unloads
/// something.
pub struct Sites {
    name: &'static CStr,
    known: [AtomicPtr<Site>; 16],
}

/// What was found for a call site. Never freed: it may be being read.
struct Site {
    caller: usize,
    real: *mut c_void,
    /// See [`modules::unloads`]: how many there had been when it was last found.
    unloads: AtomicU64,
}

impl Site {
    fn is_of(&self, unloads: u64) -> bool {
        self.unloads.load(Ordering::Relaxed) == unloads
    }
}

impl Sites {
    pub const fn new(name: &'static CStr) -> Self {
        let known = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];
        Self { name, known }
    }

    pub fn real(&self, caller: usize, own: unsafe extern "C" fn()) -> *mut c_void {
        let unloads = modules::unloads();
        // SAFETY: null, or a record that is never freed.
        let filled = |slot: &AtomicPtr<Site>| unsafe { slot.load(Ordering::Acquire).as_ref() };
        let sites = || self.known.iter().map_while(filled);
        if let Some(site) = sites().find(|site| site.caller == caller && site.is_of(unloads)) {
            return site.real;
        }
        let real = resolve::runtime(caller, self.name, own as *const c_void);
        if real.is_null() {
            return no_runtime as *mut c_void;
        }
        // What was unloaded seldom changes an answer: the record still holds.
        if let Some(site) = sites().find(|site| site.caller == caller && site.real == real) {
            site.unloads.store(unloads, Ordering::Relaxed);
            return real;
        }
        let site = Box::into_raw(Box::new(Site {
            caller,
            real,
            unloads: AtomicU64::new(unloads),
        }));
        let kept = self.known.iter().any(|slot| {
            let known = slot.load(Ordering::Acquire);
            // SAFETY: as above.
            let free = unsafe { known.as_ref() }.is_none_or(|site| !site.is_of(unloads));
            let swap = || slot.compare_exchange(known, site, Ordering::AcqRel, Ordering::Acquire);
            free && swap().is_ok()
        });
        if !kept {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(site) });
        }
        real
    }
}

extern "C" fn no_runtime() -> c_int {
    NO_RUNTIME
}

crate::tail_jump! {
    /// `cudaMalloc(pointer, bytes)`.
    cudaMalloc, on_malloc
}

unsafe extern "C" fn on_malloc(_pointer: usize, bytes: usize, caller: usize) -> Next {
    static SITES: Sites = Sites::new(c"cudaMalloc");
    note("cudaMalloc", caller, || {
        let before = tags::take();
        let is_capturing = before.is_capturing.filter(|_| before.cuda_malloc.is_none());
        tags::set(Tag {
            cuda_malloc: Some((caller, bytes as u64)),
            is_capturing,
            ..Tag::NONE
        });
    });
    Next::jump(SITES.real(caller, cudaMalloc))
}

crate::tail_jump! {
    /// `cudaFree(pointer)`.
    cudaFree, on_free
}

unsafe extern "C" fn on_free(address: usize, _unused: usize, caller: usize) -> Next {
    static SITES: Sites = Sites::new(c"cudaFree");
    note("cudaFree", caller, || {
        tags::set(Tag {
            cuda_free: Some((caller, address as Address)),
            ..Tag::NONE
        });
    });
    Next::jump(SITES.real(caller, cudaFree))
}

crate::tail_jump! {
    /// `cudaStreamSynchronize(stream)`.
    cudaStreamSynchronize, on_synchronize
}

unsafe extern "C" fn on_synchronize(stream: usize, _unused: usize, caller: usize) -> Next {
    static SITES: Sites = Sites::new(c"cudaStreamSynchronize");
    note("cudaStreamSynchronize", caller, || {
        tags::set(Tag {
            synchronize: Some((caller, Stream(stream as u64))),
            ..Tag::NONE
        });
    });
    Next::jump(SITES.real(caller, cudaStreamSynchronize))
}

crate::tail_jump! {
    /// `cudaGetDeviceCount(count)`: the first call of most programs.
    cudaGetDeviceCount, on_device_count
}

unsafe extern "C" fn on_device_count(_count: usize, _unused: usize, caller: usize) -> Next {
    static SITES: Sites = Sites::new(c"cudaGetDeviceCount");
    note("cudaGetDeviceCount", caller, || ());
    Next::jump(SITES.real(caller, cudaGetDeviceCount))
}

crate::pass_caller! {
    /// `cudaStreamIsCapturing(stream, status)`. Called, not jumped to: its
    /// answer must be read here. To keep the pointer and read it from the
    /// `cudaMalloc` that follows would read a stack frame that may be gone.
    cudaStreamIsCapturing, on_is_capturing, "rdx", "x2"
}

unsafe extern "C" fn on_is_capturing(stream: Stream, status: *mut u32, caller: usize) -> c_int {
    static SITES: Sites = Sites::new(c"cudaStreamIsCapturing");
    type Real = unsafe extern "C" fn(Stream, *mut u32) -> c_int;
    let real = SITES.real(caller, cudaStreamIsCapturing);
    // SAFETY: the runtime's function of this name, called as the program did.
    let result = unsafe { std::mem::transmute::<*mut c_void, Real>(real)(stream, status) };
    let succeeded = result == 0 && !status.is_null();
    note("cudaStreamIsCapturing", caller, || {
        tags::set(Tag {
            // SAFETY: the call succeeded, so it wrote the status.
            is_capturing: succeeded.then(|| (caller, stream, unsafe { status.read() })),
            ..Tag::NONE
        });
    });
    result
}
