//! The proof that torch has no private-pool scope open on a device.
//!
//! Inside such a scope (graph capture, cudagraph-tree warm-up,
//! `torch.cuda.use_mem_pool`) torch does not run the last rung of its
//! out-of-memory ladder. The driver cannot see these scopes, so the object
//! behind `c10::cuda::CUDACachingAllocator::allocator` gets a copy of its
//! vtable in which the methods that open and close them are counted; where it
//! is not known where all lies (`layout`) nothing is changed and nothing claimed.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use memcuda_core::driver::Address;

use super::layout::{
    ALLOCATE, BASE, BEGIN, CREATE, EMPTY, ENABLE, END, FOR_STREAM, FRACTION, HEADER, Layout,
    METHODS, RAW, RECORD, STATS, USE_ON_OOM, WORD,
};
use super::switch::PrivatePool;
use super::{base, first, limits, split, switch, tensors, withheld};

/// Torch counts devices in a signed byte.
const DEVICES: usize = 128;

/// What takes the place of each method (`layout`).
static WRAPPERS: [Forward; METHODS] = {
    let mut all: [Forward; METHODS] = [begin; METHODS];
    all[END] = end;
    all[FOR_STREAM] = allocate_for_stream;
    all[USE_ON_OOM] = use_on_oom;
    all[ENABLE] = enable;
    all[RAW] = raw_allocate;
    all[ALLOCATE] = allocate;
    all[RECORD] = record_stream;
    all[FRACTION] = set_fraction;
    all[CREATE] = create_pool;
    all[BASE] = base_allocation;
    all[EMPTY] = empty_cache;
    all[STATS] = device_stats;
    all
};

/// Six integer registers and one for floating point reach the real method as they came; what torch
/// passes in them (a device, a pool id, a pointer to a function object) stays opaque.
type Forward = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize, f64) -> usize;

static REAL: [AtomicUsize; METHODS] = [const { AtomicUsize::new(0) }; METHODS];
static OPEN: [AtomicI32; DEVICES] = [const { AtomicI32::new(0) }; DEVICES];
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
static FORGETS: AtomicBool = AtomicBool::new(false);
static WATCHED: OnceLock<Watched> = OnceLock::new();

thread_local! {
    /// Depth of calls that allocate for a stream that is not the current one.
    static OTHER_STREAM: Cell<u32> = const { Cell::new(0) };
}

/// The allocator object whose scopes are counted, the vtable it must have, and where it lies.
struct Watched {
    object: usize,
    vtable: usize,
    layout: &'static Layout,
}

/// Gives the allocator object the counting vtable. False where there is no
/// object yet, or it is not torch's native allocator. Called before torch has
/// initialised its allocator, so before any scope can be open.
pub fn install(layout: &'static Layout) -> bool {
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
                copy[slot] = WRAPPERS[i] as usize;
            }
        }
        // Never freed: the object keeps pointing here to the end.
        let vtable = copy.leak().as_ptr() as usize + HEADER * WORD;
        pointer.store(vtable, Ordering::Release);
        Watched {
            object,
            vtable,
            layout,
        }
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
    !watching() || OPEN.iter().any(|count| count.load(Ordering::Acquire) != 0)
}

/// Is everything that allocates seen? One way, which answers through a register of its own, is
/// not on all machines (`layout`).
fn sees_all() -> bool {
    REAL[ALLOCATE].load(Ordering::Relaxed) != 0
}

/// Is this thread inside an allocation for a stream that is not its current one?
pub fn stream_unknown() -> bool {
    OTHER_STREAM.get() != 0
}

/// Has torch been told something that cooperative reclaim cannot live with: pools that stand in on
/// out-of-memory, caching switched off, a limit beside what it frees unseen (`limits`)?
pub fn given_up() -> bool {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// May torch take memory for idle that another stream than its own still uses? Releases up to 2.12
/// take a stream that is told to them (`record_stream`) while any private pool is open for one of
/// a capture's, and forget it when the pool has closed. By themselves they are right where they
/// give such memory back, for `cudaFree` waits. From the first time on, since what they keep of
/// it may be found much later: whoever takes it back waits then, as `cudaFree` does.
pub fn forgets_users() -> bool {
    FORGETS.load(Ordering::Acquire)
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

/// A call of a method that is watched, with what torch passes.
struct Call {
    method: usize,
    passed: [usize; 6],
    fraction: f64,
}

impl Call {
    /// Makes it.
    fn real(self) -> usize {
        let [a, b, c, d, e, f] = self.passed;
        let address = REAL[self.method].load(Ordering::Acquire);
        // SAFETY: stored before the wrapper could be reached, the only one that makes such a call;
        // a method that takes at most six integer arguments and one of floating point, and what it
        // throws passes through.
        unsafe {
            let call: Forward = std::mem::transmute(address);
            call(a, b, c, d, e, f, self.fraction)
        }
    }
}

/// Declares what takes the place of methods: what they are passed behind the object, of six
/// registers that go on as they came with one for floating point, and the call of the real one.
macro_rules! wrappers {
    ($($(#[$meta:meta])* $name:ident of $method:ident |$passed:pat_param, $call:ident| $body:block)*) => {$(
        $(#[$meta])*
        unsafe extern "C-unwind" fn $name(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
            fraction: f64,
        ) -> usize {
            let passed = [a, b, c, d, e, f];
            let $call = Call { method: $method, passed, fraction };
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

/// Is a pool that is passed this made with an allocator of its own?
fn has_allocator(passed: usize) -> bool {
    let shared = WATCHED.get().is_some_and(|it| it.layout.shares_allocators);
    // SAFETY: torch passes a pointer of its own by its address, which begins with the object's.
    passed != 0 && !(shared && unsafe { word_at(passed) }.load(Ordering::Relaxed) == 0)
}

/// An allocation of torch's for this stream, or its current one. Its bytes are passed at this
/// place, and where it lies says who answers.
fn allocation(
    call: Call,
    stream: Option<usize>,
    size: usize,
    lies: impl Fn(usize) -> usize,
) -> usize {
    let _side = switch::for_allocation(stream, sees_all());
    let bytes = call.passed[size];
    let tensor = sees_all().then(|| tensors::begin(bytes)).flatten();
    let answer = first::alone(|| call.real());
    if let Some(tensor) = tensor {
        tensor.is_at(lies(answer));
    }
    answer
}

wrappers! {
    /// Counted before the scope opens: another thread sees it open too early
    /// rather than too late. Where torch throws it has opened none.
    begin of BEGIN |[device, id, more, function], call| {
        let scope = Scope::of(device, [id, more]).opens(function);
        let value = call.real();
        std::mem::forget(scope);
        value
    }

    /// Counted after the scope has closed, for the same reason.
    end of END |[device, id, more, _], call| {
        let value = call.real();
        drop(Scope::of(device, [id, more]));
        value
    }

    /// Torch asks for the capture status of the *current* stream here, but the
    /// memory is for another.
    allocate_for_stream of FOR_STREAM |[_, stream, ..], call| {
        struct Inside;
        impl Drop for Inside {
            fn drop(&mut self) {
                OTHER_STREAM.set(OTHER_STREAM.get() - 1);
            }
        }
        OTHER_STREAM.set(OTHER_STREAM.get() + 1);
        let _inside = Inside;
        allocation(call, Some(stream), 1, |at| at)
    }

    raw_allocate of RAW |_, call| {
        allocation(call, None, 1, |at| at)
    }

    /// The answer, which begins with the address, is written to what is passed before the object.
    allocate of ALLOCATE |_, call| {
        let [answer, ..] = call.passed;
        allocation(call, None, 2, |_| {
            // SAFETY: torch has just answered there.
            unsafe { word_at(answer) }.load(Ordering::Relaxed)
        })
    }

    /// Also where a pool opens meanwhile.
    record_stream of RECORD |_, call| {
        let note = || {
            let forgets = WATCHED.get().is_some_and(|it| it.layout.forgets);
            if forgets && !forgets_users() && any_may_be_open() {
                FORGETS.store(true, Ordering::Release);
            }
        };
        note();
        let value = call.real();
        note();
        value
    }

    set_fraction of FRACTION |_, call| {
        if limits::has_limit() {
            give_up();
        }
        call.real()
    }

    create_pool of CREATE |[_, _, _, allocator], call| {
        if has_allocator(allocator) && limits::has_allocator() {
            give_up();
        }
        call.real()
    }

    base_allocation of BASE |[at, size, ..], call| {
        let Some((base, bytes)) = base::of(at as Address) else {
            return call.real();
        };
        if size != 0 {
            // SAFETY: where torch is passed one it points to a size that it may write.
            unsafe { *(size as *mut usize) = bytes as usize };
        }
        base as usize
    }

    /// A pool that stands in on out-of-memory would be used up by soft failures.
    use_on_oom of USE_ON_OOM |[_, _, _, on], call| {
        if on & 1 == 1 || !WATCHED.get().is_some_and(|it| it.layout.says_on_oom) {
            give_up();
        }
        call.real()
    }

    /// There may be nothing left for it to give back.
    empty_cache of EMPTY |_, call| {
        let value = call.real();
        withheld::end_all();
        value
    }

    /// The answer is written to its first argument.
    device_stats of STATS |_, call| {
        withheld::know();
        call.real()
    }

    /// Without caching torch frees memory that kernels still use and relies on
    /// `cudaFree` to wait.
    enable of ENABLE |[value, ..], call| {
        if value & 1 == 0 {
            give_up();
        }
        call.real()
    }
}

#[cfg(test)]
#[path = "scopes_tests.rs"]
mod tests;
