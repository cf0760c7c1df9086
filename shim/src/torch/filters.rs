//! What torch's private pools take: of each one that opens torch has a function that says,
//! for a stream, whether what is allocated now is the pool's. A copy of it is asked as torch
//! asks its own, on the thread that allocates. Makes no guess: where torch's current stream
//! is not known, nothing is.

use std::ffi::{c_int, c_void};

use super::library::Exported;

/// `std::function<bool(cudaStream_t)>` as libstdc++ has it: what it calls, or a pointer to
/// that, what copies and destroys it, and what calls it.
#[repr(C)]
struct Function {
    object: [usize; 2],
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

type Manager = unsafe extern "C-unwind" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool;
type Invoker = unsafe extern "C-unwind" fn(*const [usize; 2], *const usize) -> bool;

/// What a manager is asked to do.
const COPY: c_int = 2;
const DESTROY: c_int = 3;

/// A copy of torch's function.
pub struct Filter {
    object: [usize; 2],
    manager: Manager,
    invoker: Invoker,
}

/// A copy of this function; `None` of an empty one.
pub fn copy(function: usize) -> Option<Filter> {
    // SAFETY: torch passes a function by its address, and it outlives the call.
    let Function {
        object,
        manager,
        invoker,
    } = unsafe { (function as *const Function).as_ref() }?;
    let (manager, invoker) = ((*manager)?, (*invoker)?);
    let mut copy = [0; 2];
    // SAFETY: the manager of that very object, asked as a copy of the function would.
    unsafe { manager(&mut copy, object, COPY) };
    Some(Filter {
        object: copy,
        manager,
        invoker,
    })
}

impl Filter {
    /// Is what this thread allocates for this stream the pool's?
    pub fn takes(&self, stream: usize) -> bool {
        // SAFETY: the invoker of this object; arguments are passed by their address.
        unsafe { (self.invoker)(&self.object, &stream) }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: the manager of this object, which nobody uses any more.
        unsafe { (self.manager)(&mut self.object, &self.object, DESTROY) };
    }
}

/// For what torch allocates: its current device, and a stream of it.
pub struct Allocation {
    pub device: usize,
    pub stream: usize,
}

static DEVICE: Exported = Exported::new(c"libc10_cuda.so", c"_ZN3c104cuda14current_deviceEv");
static CURRENT: Exported =
    Exported::new(c"libc10_cuda.so", c"_ZN3c104cuda20getCurrentCUDAStreamEa");
static STREAM: Exported = Exported::new(c"libc10_cuda.so", c"_ZNK3c104cuda10CUDAStream6streamEv");

/// `c10::cuda::CUDAStream`: its device and torch's number for it.
#[repr(C)]
struct TorchStream(u64, i64);

type Device = unsafe extern "C-unwind" fn() -> i8;
type Current = unsafe extern "C-unwind" fn(i8) -> TorchStream;
type Stream = unsafe extern "C-unwind" fn(*const TorchStream) -> usize;

/// What an allocation for this stream is for, or for torch's current one where none is said;
/// `None` in a torch that does not say.
pub fn allocation(stream: Option<usize>) -> Option<Allocation> {
    let device = DEVICE.get();
    if device.is_null() {
        return None;
    }
    // SAFETY: torch's function of this name has this signature.
    let device = unsafe { std::mem::transmute::<*mut c_void, Device>(device) };
    // SAFETY: takes nothing; what it throws the allocation would have thrown.
    let device = unsafe { device() };
    let stream = match stream {
        Some(stream) => stream,
        None => current(device)?,
    };
    let device = usize::try_from(device).ok()?;
    Some(Allocation { device, stream })
}

/// Torch's current stream of this device.
fn current(device: i8) -> Option<usize> {
    let (current, stream) = (CURRENT.get(), STREAM.get());
    if current.is_null() || stream.is_null() {
        return None;
    }
    // SAFETY: torch's function of this name has this signature.
    let current = unsafe { std::mem::transmute::<*mut c_void, Current>(current) };
    // SAFETY: torch's method of this name has this signature.
    let stream = unsafe { std::mem::transmute::<*mut c_void, Stream>(stream) };
    // SAFETY: torch's device, and the stream that was just answered.
    unsafe {
        let torch = current(device);
        Some(stream(&raw const torch))
    }
}
