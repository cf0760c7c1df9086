//! One physical handle made by a process of its own, for the keeper, which has
//! no driver: found, made, filled, exported. Makes a context only where memory
//! is to be filled.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::library::Library;
use super::real::Real;
use super::{Access, Address, Code, Context, Driver, Handle, Stream};

crate::entry_points! {
    /// What [`Real`] has not.
    struct Calls;
    required {
        "cuInit" init(u32);
        "cuDeviceGetCount" count(*mut i32);
        "cuDeviceGet" get(*mut i32, i32);
        "cuDevicePrimaryCtxRetain" retain(*mut Context, i32);
        "cuDevicePrimaryCtxRelease_v2" let_go(i32);
        "cuMemcpyDtoD_v2" copy(Address, Address, usize);
    }
    optional {
        "cuDeviceGetUuid" uuid(*mut [u8; 16], i32);
        // Of a slice of a device (MIG), where the older one is of the whole.
        "cuDeviceGetUuid_v2" uuid_of_slice(*mut [u8; 16], i32);
    }
}

/// What went wrong: the call, and the driver's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed(pub &'static str, pub Code);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(call, code) = self;
        write!(f, "{call}: {code:?}")
    }
}

type Result<T> = std::result::Result<T, Failed>;

/// The driver, initialised.
pub struct Allocator {
    calls: Calls,
    real: Real,
}

/// Memory that was made or imported; given up when it is dropped, while its
/// descriptors keep it.
pub struct Memory<'a> {
    allocator: &'a Allocator,
    handle: Handle,
    device: u32,
    /// Bytes of the handle.
    pub mapped: u64,
}

impl Allocator {
    /// Opens `libcuda.so.1` and initialises it, or says why it cannot.
    pub fn open() -> std::result::Result<Self, String> {
        let library = Library::open(c"libcuda.so.1")?;
        let lookup = |name: &CStr| library.symbol(name);
        let lacks = |name| format!("libcuda.so.1 lacks {name}");
        // SAFETY: the library is never closed.
        let calls = unsafe { Calls::resolve(&lookup) }.map_err(lacks)?;
        // SAFETY: as above.
        let real = unsafe { Real::resolve(&lookup) }.map_err(lacks)?;
        // SAFETY: the flags of cuInit must be 0.
        check("cuInit", unsafe { (calls.init)(0) }).map_err(|failed| failed.to_string())?;
        Ok(Self { calls, real })
    }

    /// How many devices there are (`cuDeviceGetCount`).
    pub fn devices(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the call.
        check("cuDeviceGetCount", unsafe {
            (self.calls.count)(&mut count)
        })?;
        Ok(count.max(0) as u32)
    }

    /// The UUID of a device (`cuDeviceGetUuid_v2`).
    pub fn uuid(&self, device: u32) -> Result<[u8; 16]> {
        let ask = self.calls.uuid_of_slice.or(self.calls.uuid);
        let ask = ask.ok_or(Failed("cuDeviceGetUuid", Code::NOT_FOUND))?;
        let (device, mut uuid) = (self.handle_of(device)?, [0; 16]);
        // SAFETY: the pointer is valid for the call.
        check("cuDeviceGetUuid", unsafe { ask(&mut uuid, device) })?;
        Ok(uuid)
    }

    /// Makes memory of at least so many bytes on a device (`cuMemCreate`).
    pub fn make(&self, device: u32, bytes: u64) -> Result<Memory<'_>> {
        let granularity = self
            .real
            .granularity(device)
            .map_err(Failed::of("cuMemGetAllocationGranularity"))?;
        let mapped = bytes
            .checked_next_multiple_of(granularity.max(1))
            .ok_or(Failed("cuMemCreate", Code::OUT_OF_MEMORY))?;
        let handle = self.real.create(device, mapped);
        Ok(Memory {
            allocator: self,
            handle: handle.map_err(Failed::of("cuMemCreate"))?,
            device,
            mapped,
        })
    }

    /// Memory behind a descriptor (`cuMemImportFromShareableHandle`).
    pub fn import(&self, device: u32, mapped: u64, memory: BorrowedFd<'_>) -> Result<Memory<'_>> {
        let handle = self.real.import(memory);
        let handle = handle.map_err(Failed::of("cuMemImportFromShareableHandle"))?;
        Ok(Memory {
            allocator: self,
            handle,
            device,
            mapped,
        })
    }

    fn handle_of(&self, device: u32) -> Result<i32> {
        let mut handle = 0;
        // SAFETY: the pointer is valid for the call.
        check("cuDeviceGet", unsafe {
            (self.calls.get)(&mut handle, device as i32)
        })?;
        Ok(handle)
    }

    /// Does something in a device's primary context.
    fn within<T>(&self, device: u32, work: impl FnOnce(Context) -> Result<T>) -> Result<T> {
        let (handle, mut context) = (self.handle_of(device)?, Context::default());
        // SAFETY: the pointer is valid for the call.
        check("cuDevicePrimaryCtxRetain", unsafe {
            (self.calls.retain)(&mut context, handle)
        })?;
        let done = work(context);
        // SAFETY: it was retained above.
        let _ = unsafe { (self.calls.let_go)(handle) };
        done
    }
}

impl Memory<'_> {
    /// A descriptor that keeps the memory, too (`cuMemExportToShareableHandle`).
    pub fn export(&self) -> Result<OwnedFd> {
        let descriptor = self.allocator.real.export(self.handle);
        descriptor.map_err(Failed::of("cuMemExportToShareableHandle"))
    }

    /// Fills it with zeros and waits for that.
    pub fn zero(&self) -> Result<()> {
        let real = self.allocator.real;
        self.allocator.within(self.device, |context| {
            let view = View::of(self)?;
            real.fill(context, Stream::LEGACY, view.at, 0, self.mapped)
                .and_then(|()| real.synchronize_context(context))
                .map_err(Failed::of("cuMemsetD32Async"))
        })
    }

    /// Copies the bytes of another memory of the same device and waits for it.
    pub fn copy_from(&self, source: &Memory<'_>, bytes: u64) -> Result<()> {
        let allocator = self.allocator;
        let bytes = bytes.min(self.mapped).min(source.mapped);
        allocator.within(self.device, |context| {
            let (to, from) = (View::of(self)?, View::of(source)?);
            let copy = allocator.calls.copy;
            allocator
                .real
                .within(context, || {
                    // SAFETY: both ranges are mapped, and as long as that.
                    unsafe { copy(to.at, from.at, bytes as usize) }.ok()
                })
                .and_then(|()| allocator.real.synchronize_context(context))
                .map_err(Failed::of("cuMemcpyDtoD"))
        })
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let _ = self.allocator.real.release(self.handle);
    }
}

/// Memory at an address, for as long as this lives.
struct View<'a> {
    memory: &'a Memory<'a>,
    at: Address,
}

impl<'a> View<'a> {
    fn of(memory: &'a Memory<'a>) -> Result<Self> {
        let (real, mapped) = (memory.allocator.real, memory.mapped);
        let at = real
            .reserve(mapped)
            .map_err(Failed::of("cuMemAddressReserve"))?;
        if let Err(code) = real.map(at, mapped, memory.handle) {
            let _ = real.free_reservation(at, mapped);
            return Err(Failed("cuMemMap", code));
        }
        let view = Self { memory, at };
        real.set_access(at, mapped, memory.device, Access::Write)
            .map_err(Failed::of("cuMemSetAccess"))?;
        Ok(view)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let (real, mapped) = (self.memory.allocator.real, self.memory.mapped);
        let _ = real.unmap(self.at, mapped);
        let _ = real.free_reservation(self.at, mapped);
    }
}

impl Failed {
    fn of(call: &'static str) -> impl FnOnce(Code) -> Self {
        move |code| Self(call, code)
    }
}

fn check(call: &'static str, code: Code) -> Result<()> {
    code.ok().map_err(Failed::of(call))
}
