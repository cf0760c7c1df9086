//! The runtime functions that are only *tagged*: they note who called with
//! what on this thread, and go on to the real function of the caller's own
//! runtime, or to another preloaded library's, of which nothing is noted. The driver hooks
//! below read the note: only there is it known that memory is asked for, only here who asks.
//!
//! A note is used once: `cuMemAlloc`, `cuMemFree`, `cuStreamSynchronize` and, of torch's
//! pages, `cuMemUnmap` take it away. Nothing is
//! allocated or locked once a module has called.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use memcuda_core::driver::{Address, Stream};

use crate::engine::boundary;
use crate::libraries::{loader, modules, resolve};
use crate::process::asm::Next;
use crate::process::tags::{self, Tag};
use crate::torch;

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

/// Modules whose way to the real function is kept. A process has a few that call; stacks of
/// extensions have a hundred.
const KEPT: usize = 256;

/// The real functions of one name, by the calling module; those that
/// call are found without searching again, until something is unloaded.
pub struct Callers([AtomicPtr<Known>; KEPT]);

/// What a call goes on to.
#[derive(Clone, Copy, PartialEq)]
pub struct Behind {
    pub function: *mut c_void,
    /// Nobody stands between the caller and a runtime, and may take a failure for the end.
    is_runtime: bool,
}

impl Behind {
    const NOBODY: Self = Self {
        function: no_runtime as *mut c_void,
        is_runtime: false,
    };

    fn of(function: *mut c_void) -> Self {
        Self {
            function,
            is_runtime: resolve::is_of_runtime(function),
        }
    }
}

/// What was found for a module. Never freed: it may be being read. Where another one took its
/// place it lies behind that.
struct Known {
    module: Range<usize>,
    real: Behind,
    /// See [`modules::unloads`]: how many there had been when it was last found.
    unloads: AtomicU64,
    older: AtomicPtr<Known>,
}

impl Known {
    fn is_of(&self, unloads: u64) -> bool {
        self.unloads.load(Ordering::Relaxed) == unloads
    }
}

impl Callers {
    /// Nobody called yet. Without the name: what is all zero takes no room in the file, of
    /// which every process would get a copy.
    pub const fn none() -> Self {
        Self([const { AtomicPtr::new(std::ptr::null_mut()) }; KEPT])
    }

    /// The function of this name, behind this library's `own`, for code at `caller`.
    pub fn real(&self, caller: usize, name: &CStr, own: unsafe extern "C" fn()) -> Behind {
        let unloads = modules::unloads();
        // SAFETY: null, or a record that is never freed.
        let filled = |slot: &AtomicPtr<Known>| unsafe { slot.load(Ordering::Acquire).as_ref() };
        let modules = || self.0.iter().map_while(filled);
        let mut of_caller = modules().filter(|known| known.module.contains(&caller));
        if let Some(known) = of_caller.find(|known| known.is_of(unloads)) {
            return known.real;
        }
        let real = resolve::runtime(caller, name, own as *const c_void);
        if real.is_null() {
            return Behind::NOBODY;
        }
        let real = Behind::of(real);
        let module = loader::find(|file| file.code().filter(|code| code.contains(&caller)));
        let module = module.unwrap_or(caller..caller + 1);
        // What was unloaded seldom changes an answer: the record still holds.
        if let Some(known) = modules().find(|known| known.module == module && known.real == real) {
            known.unloads.store(unloads, Ordering::Relaxed);
            return real;
        }
        let fresh = Box::into_raw(Box::new(Known {
            module,
            real,
            unloads: AtomicU64::new(unloads),
            older: AtomicPtr::default(),
        }));
        // What is out of date may hold again, so it goes last.
        let places = [false, true]
            .iter()
            .flat_map(|old| self.0.iter().map(move |slot| (*old, slot)));
        let kept = places.into_iter().any(|(old, slot)| {
            let known = slot.load(Ordering::Acquire);
            // SAFETY: as above.
            let free = match unsafe { known.as_ref() } {
                Some(known) => old && !known.is_of(unloads),
                None => true,
            };
            // SAFETY: not published yet.
            unsafe { &*fresh }.older.store(known, Ordering::Relaxed);
            let swap = || slot.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire);
            free && swap().is_ok()
        });
        if !kept {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(fresh) });
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
    static CALLERS: Callers = Callers::none();
    let real = CALLERS.real(caller, c"cudaMalloc", cudaMalloc);
    note("cudaMalloc", caller, || {
        let before = tags::take();
        let is_capturing = before.is_capturing.filter(|_| before.cuda_malloc.is_none());
        tags::set(Tag {
            cuda_malloc: real.is_runtime.then_some((caller, bytes as u64)),
            is_capturing,
            ..Tag::NONE
        });
    });
    Next::jump(real.function)
}

crate::tail_jump! {
    /// `cudaFree(pointer)`.
    cudaFree, on_free
}

unsafe extern "C" fn on_free(address: usize, _unused: usize, caller: usize) -> Next {
    static CALLERS: Callers = Callers::none();
    let real = CALLERS.real(caller, c"cudaFree", cudaFree);
    note("cudaFree", caller, || {
        tags::set(Tag {
            cuda_free: real.is_runtime.then_some((caller, address as Address)),
            ..Tag::NONE
        });
    });
    Next::jump(real.function)
}

crate::tail_jump! {
    /// `cudaStreamSynchronize(stream)`.
    cudaStreamSynchronize, on_synchronize
}

unsafe extern "C" fn on_synchronize(stream: usize, _unused: usize, caller: usize) -> Next {
    static CALLERS: Callers = Callers::none();
    note("cudaStreamSynchronize", caller, || {
        tags::set(Tag {
            synchronize: Some((caller, Stream(stream as u64))),
            ..Tag::NONE
        });
    });
    Next::jump(
        CALLERS
            .real(caller, c"cudaStreamSynchronize", cudaStreamSynchronize)
            .function,
    )
}

crate::tail_jump! {
    /// `cudaGetDeviceCount(count)`: the first call of most programs.
    cudaGetDeviceCount, on_device_count
}

unsafe extern "C" fn on_device_count(_count: usize, _unused: usize, caller: usize) -> Next {
    static CALLERS: Callers = Callers::none();
    note("cudaGetDeviceCount", caller, || ());
    Next::jump(
        CALLERS
            .real(caller, c"cudaGetDeviceCount", cudaGetDeviceCount)
            .function,
    )
}

crate::pass_caller! {
    /// `cudaStreamIsCapturing(stream, status)`. Called, not jumped to: its
    /// answer must be read here. To keep the pointer and read it from the
    /// `cudaMalloc` that follows would read a stack frame that may be gone.
    cudaStreamIsCapturing, on_is_capturing, "rdx", "x2"
}

unsafe extern "C" fn on_is_capturing(stream: Stream, status: *mut u32, caller: usize) -> c_int {
    static CALLERS: Callers = Callers::none();
    type Real = unsafe extern "C" fn(Stream, *mut u32) -> c_int;
    let real = CALLERS
        .real(caller, c"cudaStreamIsCapturing", cudaStreamIsCapturing)
        .function;
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
