//! The driver in libcuda, reached through a table of function pointers that
//! the caller resolves. Loads no library, looks up no symbol, links to nothing
//! of CUDA.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::openable::Unknown;
use super::properties::{self, Known, Properties};
use super::sys::{self, MemAccessDesc, MemAllocationProp};
use super::{Access, Address, Capture, Code, Context, Driver, Event, Handle, Result, Stream};

crate::entry_points! {
    /// The entry points behind [`Driver`].
    pub(super) struct Calls;
    required {
        "cuDeviceGet" device_get(*mut i32, i32);
        "cuDeviceGetAttribute" device_attribute(*mut i32, i32, i32);
        "cuCtxGetCurrent" ctx_current(*mut Context);
        "cuCtxGetDevice" ctx_device(*mut i32);
        "cuCtxPushCurrent_v2" ctx_push(Context);
        "cuCtxPopCurrent_v2" ctx_pop(*mut Context);
        "cuCtxSynchronize" ctx_synchronize();
        "cuThreadExchangeStreamCaptureMode" exchange_capture_mode(*mut u32);
        "cuStreamIsCapturing" stream_is_capturing(Stream, *mut u32);
        "cuStreamWaitEvent" stream_wait(Stream, Event, u32);
        "cuEventCreate" event_create(*mut Event, u32);
        "cuEventDestroy_v2" event_destroy(Event);
        "cuEventRecord" event_record(Event, Stream);
        "cuCtxGetStreamPriorityRange" priority_range(*mut i32, *mut i32);
        "cuEventQuery" event_query(Event);
        "cuEventSynchronize" event_synchronize(Event);
        "cuMemGetInfo_v2" mem_info(*mut usize, *mut usize);
        "cuMemAlloc_v2" mem_alloc(*mut Address, usize);
        "cuMemFree_v2" mem_free(Address);
        "cuMemHostAlloc" host_alloc(*mut *mut c_void, usize, u32);
        "cuMemFreeHost" host_free(*mut c_void);
        "cuMemGetAllocationGranularity" granularity(*mut usize, *const MemAllocationProp, u32);
        "cuMemAddressReserve" reserve(*mut Address, usize, usize, Address, u64);
        "cuMemAddressFree" free_reservation(Address, usize);
        "cuMemCreate" create(*mut Handle, usize, *const MemAllocationProp, u64);
        "cuMemRelease" release(Handle);
        "cuMemMap" map(Address, usize, usize, Handle, u64);
        "cuMemUnmap" unmap(Address, usize);
        "cuMemSetAccess" set_access(Address, usize, *const MemAccessDesc, usize);
        "cuMemsetD32Async" fill(Address, u32, usize, Stream);
        "cuMemcpyDtoH_v2" read(*mut c_void, Address, usize);
    }
    optional {
        "cuCtxRecordEvent" ctx_record(Context, Event);
        "cuCtxWaitEvent" ctx_wait(Context, Event);
        "cuMemExportToShareableHandle" export(*mut c_int, Handle, u32, u64);
        "cuMemImportFromShareableHandle" import(*mut Handle, *mut c_void, u32);
    }
}

struct Table {
    calls: Calls,
    properties: Known,
    unknown: Unknown,
}

/// The real driver. Copies share one table, which lives as long as the process.
#[derive(Clone, Copy)]
pub struct Real(&'static Table);

impl Real {
    /// A driver whose entry points come from `lookup`; the error is the symbol
    /// of a required one that is missing (a driver before CUDA 10.2).
    ///
    /// # Safety
    /// As for a table of [`crate::entry_points!`]: what `lookup` returns is
    /// null or the function of that name, loaded for ever.
    pub unsafe fn resolve(
        lookup: &dyn Fn(&CStr) -> *mut c_void,
    ) -> std::result::Result<Self, &'static str> {
        // SAFETY: the caller's promise is the one that is asked for.
        let calls = unsafe { Calls::resolve(lookup) }?;
        Ok(Self(Box::leak(Box::new(Table {
            calls,
            properties: Known::default(),
            unknown: Unknown::default(),
        }))))
    }

    pub(super) fn calls(&self) -> &'static Calls {
        &self.0.calls
    }

    pub(super) fn unknown(&self) -> &'static Unknown {
        &self.0.unknown
    }

    fn attribute(&self, device: u32, attribute: i32) -> Result<i32> {
        let (mut handle, mut value) = (0, 0);
        // SAFETY: the pointers are valid for the calls.
        unsafe {
            (self.calls().device_get)(&mut handle, device as i32).ok()?;
            (self.calls().device_attribute)(&mut value, attribute, handle).ok()?;
        }
        Ok(value)
    }

    /// The properties that the device last accepted, or says it supports.
    fn properties(&self, device: u32) -> Properties {
        let known = self.0.properties.get(device);
        known.unwrap_or_else(|| {
            Properties::supported(|attribute| self.attribute(device, attribute).unwrap_or(0) != 0)
        })
    }

    /// Handles of a device are made without the last of its properties from now on; `None`
    /// where it has none, or more devices are there than are remembered.
    pub(super) fn give_up_last(&self, device: u32) -> Option<()> {
        let fewer = self.properties(device).fewer()?;
        self.0.properties.set(device, fewer);
        (self.properties(device) == fewer).then_some(())
    }

    /// A handle with what the caller asks for, and with what cudaMalloc's memory has
    /// beside it, as far as the driver gives that (`cuMemCreate`). Fails with its code.
    pub fn create_as(&self, bytes: u64, wanted: &MemAllocationProp) -> Result<Handle> {
        self.learn_late(wanted.location.id as u32)?;
        // Beside other kinds of handles the driver may refuse what it gives else.
        let usual = wanted.requested_handle_types & !sys::HANDLE_POSIX_FD == 0;
        let create = |with: Properties| self.create_with(bytes, &with.beside(wanted));
        self.create_most(wanted.location.id as u32, usual, create)
    }

    /// A handle with what is known to be right for it.
    pub(super) fn make(&self, device: u32, bytes: u64) -> Result<Handle> {
        let create = |with: Properties| self.create_with(bytes, &with.of_handle(device));
        self.create_most(device, true, create)
    }

    /// Creates with as many properties as the driver accepts: for good, where it is `usual`.
    fn create_most(
        &self,
        device: u32,
        usual: bool,
        create: impl Fn(Properties) -> Result<Handle>,
    ) -> Result<Handle> {
        let mut with = self.properties(device);
        loop {
            match create(with) {
                Err(code) if refuses(code) => with = with.fewer().ok_or(code)?,
                Ok(handle) if !usual => return Ok(handle),
                made => return made.inspect(|_| self.0.properties.set(device, with)),
            }
        }
    }

    fn create_with(&self, bytes: u64, properties: &MemAllocationProp) -> Result<Handle> {
        let mut handle = Handle::default();
        // SAFETY: the pointers are valid for the call.
        unsafe { (self.calls().create)(&mut handle, bytes as usize, properties, 0) }.ok()?;
        Ok(handle)
    }
}

/// Does `cuMemCreate` say by this that there is no such handle?
pub(super) fn refuses(code: Code) -> bool {
    matches!(
        code,
        Code::NOT_SUPPORTED | Code::INVALID_VALUE | Code::NOT_PERMITTED
    )
}

// Of every block below that says "see above": the entry points have the signatures of cuda.h,
// out-pointers are to locals that outlive the call, and what a wrong handle or
// address does is an error code by the driver's contract.
impl Driver for Real {
    fn granularity(&self, device: u32) -> Result<u64> {
        let properties = self.properties(device).of_handle(device);
        let mut bytes = 0;
        let minimum = sys::GRANULARITY_MINIMUM;
        // SAFETY: see above.
        unsafe { (self.calls().granularity)(&mut bytes, &properties, minimum) }.ok()?;
        Ok(bytes as u64)
    }

    fn memory_info(&self, device: u32) -> Result<(u64, u64)> {
        let (mut its, mut free, mut total) = (-1, 0, 0);
        // SAFETY: see above.
        unsafe { (self.calls().ctx_device)(&mut its) }.ok()?;
        if u32::try_from(its) != Ok(device) {
            return Err(Code::INVALID_CONTEXT);
        }
        // SAFETY: see above.
        unsafe { (self.calls().mem_info)(&mut free, &mut total) }.ok()?;
        Ok((free as u64, total as u64))
    }

    fn reserve(&self, bytes: u64) -> Result<Address> {
        let mut at = 0;
        // SAFETY: see above.
        unsafe { (self.calls().reserve)(&mut at, bytes as usize, 0, 0, 0) }.ok()?;
        Ok(at)
    }

    fn free_reservation(&self, at: Address, bytes: u64) -> Result<()> {
        // SAFETY: see above.
        unsafe { (self.calls().free_reservation)(at, bytes as usize) }.ok()
    }

    fn create(&self, device: u32, bytes: u64) -> Result<Handle> {
        self.learn_late(device)?;
        self.make(device, bytes)
    }

    fn release(&self, handle: Handle) -> Result<()> {
        // SAFETY: see above.
        unsafe { (self.calls().release)(handle) }.ok()
    }

    fn export(&self, handle: Handle) -> Result<OwnedFd> {
        let export = self.calls().export.ok_or(Code::NOT_SUPPORTED)?;
        let mut descriptor: c_int = -1;
        // SAFETY: see above; for this kind of handle an int is written.
        unsafe { export(&mut descriptor, handle, sys::HANDLE_POSIX_FD, 0) }.ok()?;
        if descriptor < 0 {
            return Err(Code::UNKNOWN);
        }
        // SAFETY: the driver has just made it, for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Handle> {
        let import = self.calls().import.ok_or(Code::NOT_SUPPORTED)?;
        let mut handle = Handle::default();
        // The descriptor travels in the place of a pointer.
        let descriptor = ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: see above.
        unsafe { import(&mut handle, descriptor, sys::HANDLE_POSIX_FD) }.ok()?;
        Ok(handle)
    }

    fn map(&self, at: Address, bytes: u64, handle: Handle) -> Result<()> {
        // SAFETY: see above.
        unsafe { (self.calls().map)(at, bytes as usize, 0, handle, 0) }.ok()
    }

    fn set_access(&self, at: Address, bytes: u64, device: u32, access: Access) -> Result<()> {
        let access = MemAccessDesc {
            location: properties::location(device),
            flags: access.flags(),
        };
        // SAFETY: one descriptor is passed and counted; a wrong range is an
        // error of the call.
        unsafe { (self.calls().set_access)(at, bytes as usize, &access, 1) }.ok()
    }

    fn unmap(&self, at: Address, bytes: u64) -> Result<()> {
        // SAFETY: see above.
        unsafe { (self.calls().unmap)(at, bytes as usize) }.ok()
    }

    fn create_event(&self, context: Context) -> Result<Event> {
        let _entered = self.enter(context)?;
        let mut event = Event::default();
        // SAFETY: see above.
        unsafe { (self.calls().event_create)(&mut event, sys::EVENT_DISABLE_TIMING) }.ok()?;
        Ok(event)
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        // SAFETY: see above.
        unsafe { (self.calls().event_destroy)(event) }.ok()
    }

    fn record(&self, event: Event, context: Context, stream: Stream) -> Result<()> {
        let _entered = self.enter(context)?;
        // SAFETY: see above.
        unsafe { (self.calls().event_record)(event, stream) }.ok()
    }

    fn record_context(&self, event: Event, context: Context) -> Result<()> {
        let record = self.calls().ctx_record.ok_or(Code::NOT_FOUND)?;
        // SAFETY: see above.
        unsafe { record(context, event) }.ok()
    }

    fn is_complete(&self, event: Event) -> Result<bool> {
        let _relaxed = self.relax()?;
        // SAFETY: see above.
        match unsafe { (self.calls().event_query)(event) } {
            Code::SUCCESS => Ok(true),
            Code::NOT_READY => Ok(false),
            code => Err(code),
        }
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let _relaxed = self.relax()?;
        // SAFETY: see above.
        unsafe { (self.calls().event_synchronize)(event) }.ok()
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let _entered = self.enter(context)?;
        // SAFETY: see above.
        unsafe { (self.calls().stream_wait)(stream, event, 0) }.ok()
    }

    fn wait_context(&self, context: Context, event: Event) -> Result<()> {
        let wait = self.calls().ctx_wait.ok_or(Code::NOT_FOUND)?;
        // SAFETY: see above.
        unsafe { wait(context, event) }.ok()
    }

    fn capture(&self, context: Context, stream: Stream) -> Result<Capture> {
        let _entered = self.enter(context)?;
        let mut status = 0;
        // SAFETY: see above.
        match unsafe { (self.calls().stream_is_capturing)(stream, &mut status) } {
            Code::SUCCESS if status == 0 => Ok(Capture::None),
            // The legacy stream cannot be used while a stream that blocks on
            // it captures; asking does no harm.
            Code::SUCCESS | Code::STREAM_CAPTURE_IMPLICIT => Ok(Capture::Active),
            code => Err(code),
        }
    }

    fn check(&self, context: Context) -> Result<()> {
        let _entered = self.enter(context)?;
        // SAFETY: both outputs may be null.
        unsafe { (self.calls().priority_range)(std::ptr::null_mut(), std::ptr::null_mut()) }.ok()
    }

    fn synchronize_context(&self, context: Context) -> Result<()> {
        let _entered = self.enter(context)?;
        // SAFETY: see above.
        unsafe { (self.calls().ctx_synchronize)() }.ok()
    }

    fn synchronize_by_free(&self, context: Context) -> Result<()> {
        let _entered = self.enter(context)?;
        let _relaxed = self.relax()?;
        let calls = self.calls();
        let (mut at, mut pinned) = (0, std::ptr::null_mut());
        // SAFETY: see above; what is allocated is freed at once.
        unsafe {
            match (calls.mem_alloc)(&mut at, 1).ok() {
                Err(Code::OUT_OF_MEMORY) => {
                    // So much was seen to wait (docs/conformance.md).
                    (calls.host_alloc)(&mut pinned, 1 << 20, 0).ok()?;
                    (calls.host_free)(pinned).ok()
                }
                made => made.and_then(|()| (calls.mem_free)(at).ok()),
            }
        }
    }

    fn fill(
        &self,
        context: Context,
        stream: Stream,
        at: Address,
        word: u32,
        bytes: u64,
    ) -> Result<()> {
        let _entered = self.enter(context)?;
        // SAFETY: see above; the count is in words.
        unsafe { (self.calls().fill)(at, word, bytes as usize / 4, stream) }.ok()
    }

    fn read(&self, context: Context, at: Address, into: &mut [u8]) -> Result<()> {
        let _entered = self.enter(context)?;
        let _relaxed = self.relax()?;
        let target: *mut c_void = into.as_mut_ptr().cast();
        // SAFETY: see above; the slice is as long as it says.
        unsafe { (self.calls().read)(target, at, into.len()) }.ok()
    }
}

impl std::fmt::Debug for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Real({:p})", ptr::from_ref(self.0))
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
