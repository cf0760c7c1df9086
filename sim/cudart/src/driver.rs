//! The driver as this runtime reaches it, which is how NVIDIA's does: one
//! `dlsym`, for `cuGetProcAddress_v2`, and every entry point through that,
//! once for the legacy and once for the per-thread default stream.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `cudaErrorInitializationError`.
const NOT_INITIALIZED: u32 = 3;
/// `cudaErrorInsufficientDriver`.
const INSUFFICIENT_DRIVER: u32 = 35;

type Lookup = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;

macro_rules! driver {
    ($($field:ident = $name:literal, $version:literal: fn($($arg:ty),*);)*) => {
        /// Entry points of the driver.
        pub struct Driver {
            /// Which default stream the entry points are for: 0 or 2.
            pub flags: u64,
            $(pub $field: unsafe extern "C" fn($($arg),*) -> u32,)*
        }

        impl Driver {
            fn load(lookup: Lookup, flags: u64) -> Result<Driver, u32> {
                Ok(Driver {
                    flags,
                    $($field: {
                        let found = find(lookup, $name, $version, flags)?;
                        // SAFETY: the driver answers with the function of this
                        // name and version, whose published type this is.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) -> u32,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcMemHandle(pub [u8; 64]);

/// One end of a copy of rows (`CUDA_MEMCPY2D`), told by its address alone.
#[repr(C)]
pub struct RowsEnd {
    x: usize,
    y: usize,
    kind: u32,
    host: u64,
    at: u64,
    array: u64,
    pitch: usize,
}

impl RowsEnd {
    /// Rows that begin at this address, `pitch` bytes apart.
    pub fn new(at: u64, pitch: usize) -> RowsEnd {
        const UNIFIED: u32 = 4;
        RowsEnd {
            x: 0,
            y: 0,
            kind: UNIFIED,
            host: 0,
            at,
            array: 0,
            pitch,
        }
    }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct CopyRows {
    pub from: RowsEnd,
    pub to: RowsEnd,
    pub width: usize,
    pub height: usize,
}

const _: () = assert!(size_of::<CopyRows>() == 128);

type P = *mut c_void;

driver! {
    init = c"cuInit", 2000: fn(u32);
    driver_version = c"cuDriverGetVersion", 2020: fn(*mut c_int);
    error_name = c"cuGetErrorName", 6000: fn(u32, *mut *const c_char);
    error_string = c"cuGetErrorString", 6000: fn(u32, *mut *const c_char);
    proc_address = c"cuGetProcAddress", 12000: fn(*const c_char, *mut P, c_int, u64, *mut c_int);
    device_count = c"cuDeviceGetCount", 2000: fn(*mut c_int);
    device_attribute = c"cuDeviceGetAttribute", 2000: fn(*mut c_int, c_int, c_int);
    can_access_peer = c"cuDeviceCanAccessPeer", 4000: fn(*mut c_int, c_int, c_int);
    primary_retain = c"cuDevicePrimaryCtxRetain", 7000: fn(*mut u64, c_int);
    primary_release = c"cuDevicePrimaryCtxRelease", 11000: fn(c_int);
    primary_state = c"cuDevicePrimaryCtxGetState", 7000: fn(c_int, *mut u32, *mut c_int);
    primary_reset = c"cuDevicePrimaryCtxReset", 11000: fn(c_int);
    context_id = c"cuCtxGetId", 12000: fn(u64, *mut u64);
    context_get = c"cuCtxGetCurrent", 4000: fn(*mut u64);
    context_set = c"cuCtxSetCurrent", 4000: fn(u64);
    context_device = c"cuCtxGetDevice", 2000: fn(*mut c_int);
    context_synchronize = c"cuCtxSynchronize", 2000: fn();
    enable_peer = c"cuCtxEnablePeerAccess", 4000: fn(u64, u32);
    disable_peer = c"cuCtxDisablePeerAccess", 4000: fn(u64);
    priority_range = c"cuCtxGetStreamPriorityRange", 5050: fn(*mut c_int, *mut c_int);
    mem_alloc = c"cuMemAlloc", 3020: fn(*mut u64, usize);
    mem_alloc_pitch = c"cuMemAllocPitch", 3020: fn(*mut u64, *mut usize, usize, usize, u32);
    mem_alloc_managed = c"cuMemAllocManaged", 6000: fn(*mut u64, usize, u32);
    mem_free = c"cuMemFree", 3020: fn(u64);
    mem_info = c"cuMemGetInfo", 3020: fn(*mut usize, *mut usize);
    mem_alloc_async = c"cuMemAllocAsync", 11020: fn(*mut u64, usize, u64);
    mem_alloc_from_pool = c"cuMemAllocFromPoolAsync", 11020: fn(*mut u64, usize, u64, u64);
    mem_free_async = c"cuMemFreeAsync", 11020: fn(u64, u64);
    host_alloc = c"cuMemHostAlloc", 2020: fn(*mut P, usize, u32);
    host_free = c"cuMemFreeHost", 2000: fn(P);
    host_register = c"cuMemHostRegister", 6050: fn(P, usize, u32);
    host_unregister = c"cuMemHostUnregister", 4000: fn(P);
    host_device_pointer = c"cuMemHostGetDevicePointer", 3020: fn(*mut u64, P, u32);
    copy = c"cuMemcpy", 4000: fn(u64, u64, usize);
    copy_async = c"cuMemcpyAsync", 4000: fn(u64, u64, usize, u64);
    copy_to_host = c"cuMemcpyDtoH", 3020: fn(P, u64, usize);
    copy_to_device = c"cuMemcpyHtoD", 3020: fn(u64, P, usize);
    copy_on_device = c"cuMemcpyDtoD", 3020: fn(u64, u64, usize);
    copy_peer = c"cuMemcpyPeer", 4000: fn(u64, u64, u64, u64, usize);
    copy_rows = c"cuMemcpy2DUnaligned", 3020: fn(*const CopyRows);
    copy_rows_async = c"cuMemcpy2DAsync", 3020: fn(*const CopyRows, u64);
    fill = c"cuMemsetD8", 3020: fn(u64, u8, usize);
    fill_async = c"cuMemsetD8Async", 3020: fn(u64, u8, usize, u64);
    fill_rows = c"cuMemsetD2D8", 3020: fn(u64, usize, u8, usize, usize);
    stream_create = c"cuStreamCreate", 2000: fn(*mut u64, u32);
    stream_create_priority = c"cuStreamCreateWithPriority", 5050: fn(*mut u64, u32, c_int);
    stream_destroy = c"cuStreamDestroy", 4000: fn(u64);
    stream_synchronize = c"cuStreamSynchronize", 2000: fn(u64);
    stream_query = c"cuStreamQuery", 2000: fn(u64);
    stream_wait = c"cuStreamWaitEvent", 3020: fn(u64, u64, u32);
    stream_flags = c"cuStreamGetFlags", 5050: fn(u64, *mut u32);
    stream_priority = c"cuStreamGetPriority", 5050: fn(u64, *mut c_int);
    capture_info_v2 = c"cuStreamGetCaptureInfo", 11030: fn(u64, *mut u32, *mut u64, *mut u64, *mut P, *mut usize);
    capture_info = c"cuStreamGetCaptureInfo", 12030: fn(u64, *mut u32, *mut u64, *mut u64, *mut P, *mut P, *mut usize);
    stream_is_capturing = c"cuStreamIsCapturing", 10000: fn(u64, *mut c_int);
    stream_begin_capture = c"cuStreamBeginCapture", 10010: fn(u64, c_int);
    stream_end_capture = c"cuStreamEndCapture", 10000: fn(u64, *mut u64);
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode", 10010: fn(*mut c_int);
    host_func = c"cuLaunchHostFunc", 10000: fn(u64, P, P);
    event_create = c"cuEventCreate", 2000: fn(*mut u64, u32);
    event_destroy = c"cuEventDestroy", 4000: fn(u64);
    event_record = c"cuEventRecord", 2000: fn(u64, u64);
    event_record_flags = c"cuEventRecordWithFlags", 11010: fn(u64, u64, u32);
    event_query = c"cuEventQuery", 2000: fn(u64);
    event_synchronize = c"cuEventSynchronize", 2000: fn(u64);
    event_elapsed = c"cuEventElapsedTime", 2000: fn(*mut f32, u64, u64);
    graph_instantiate = c"cuGraphInstantiateWithFlags", 11040: fn(*mut u64, u64, u64);
    graph_launch = c"cuGraphLaunch", 10000: fn(u64, u64);
    graph_destroy = c"cuGraphDestroy", 10000: fn(u64);
    graph_exec_destroy = c"cuGraphExecDestroy", 10000: fn(u64);
    pool_default = c"cuDeviceGetDefaultMemPool", 11020: fn(*mut u64, c_int);
    pool_get = c"cuDeviceGetMemPool", 11020: fn(*mut u64, c_int);
    pool_set = c"cuDeviceSetMemPool", 11020: fn(c_int, u64);
    pool_create = c"cuMemPoolCreate", 11020: fn(*mut u64, P);
    pool_destroy = c"cuMemPoolDestroy", 11020: fn(u64);
    pool_trim = c"cuMemPoolTrimTo", 11020: fn(u64, usize);
    pool_set_attribute = c"cuMemPoolSetAttribute", 11020: fn(u64, c_int, P);
    pool_get_attribute = c"cuMemPoolGetAttribute", 11020: fn(u64, c_int, P);
    pool_set_access = c"cuMemPoolSetAccess", 11020: fn(u64, P, usize);
    pointer_attributes = c"cuPointerGetAttributes", 7000: fn(u32, *const u32, *const P, u64);
    ipc_get = c"cuIpcGetMemHandle", 4010: fn(*mut IpcMemHandle, u64);
    ipc_open = c"cuIpcOpenMemHandle", 11000: fn(*mut u64, IpcMemHandle, u32);
    ipc_close = c"cuIpcCloseMemHandle", 4010: fn(u64);
}

fn find(lookup: Lookup, name: &CStr, version: c_int, flags: u64) -> Result<*mut c_void, u32> {
    let mut found = std::ptr::null_mut();
    // SAFETY: a C string and a local; the status is optional.
    let code = unsafe {
        lookup(
            name.as_ptr(),
            &mut found,
            version,
            flags,
            std::ptr::null_mut(),
        )
    };
    if code == 0 && !found.is_null() {
        Ok(found)
    } else {
        Err(INSUFFICIENT_DRIVER)
    }
}

/// The driver's entry points; `per_thread` chooses the default stream.
pub fn driver(per_thread: bool) -> Result<&'static Driver, u32> {
    static DRIVERS: OnceLock<Result<[Driver; 2], u32>> = OnceLock::new();
    let drivers = DRIVERS.get_or_init(|| {
        // SAFETY: C strings; the library is never closed.
        let lookup = unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                return Err(INSUFFICIENT_DRIVER);
            }
            libc::dlsym(library, c"cuGetProcAddress_v2".as_ptr())
        };
        if lookup.is_null() {
            return Err(INSUFFICIENT_DRIVER);
        }
        // SAFETY: the published type of that function.
        let lookup = unsafe { std::mem::transmute::<*mut c_void, Lookup>(lookup) };
        let mut probe = std::ptr::null_mut();
        // SAFETY: an empty name is a legal question; only its answer is ignored.
        unsafe { lookup(c"".as_ptr(), &mut probe, 0, 0, std::ptr::null_mut()) };
        Ok([Driver::load(lookup, 0)?, Driver::load(lookup, 2)?])
    });
    match drivers {
        Ok(drivers) => Ok(&drivers[usize::from(per_thread)]),
        Err(code) => Err(*code),
    }
}

/// `cuInit`, once it succeeded; a forked child is refused by the driver itself.
pub fn initialise(driver: &Driver) -> Result<(), u32> {
    static DONE: OnceLock<u32> = OnceLock::new();
    // SAFETY: no arguments but flags.
    match *DONE.get_or_init(|| unsafe { (driver.init)(0) }) {
        0 => Ok(()),
        _ => Err(NOT_INITIALIZED),
    }
}
