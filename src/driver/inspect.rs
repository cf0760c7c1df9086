//! What the driver on this machine is and can do, for `memcuda doctor`. Opens
//! the driver and asks; makes no context and no allocation.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::code::Code;
use super::library::Library;
use super::sys;

/// Name of the simulated GPU's devices.
pub const SIMULATED_GPU: &str = "memcuda simulated GPU";

/// The driver, as far as it answered.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// CUDA version that the driver speaks, as `12040` for 12.4
    /// (`cuDriverGetVersion`).
    pub cuda_version: u32,
    /// Entry points that the pool cannot do without and the driver lacks.
    pub missing: Vec<String>,
    /// The devices.
    pub devices: Vec<Device>,
}

/// One device.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// Name (`cuDeviceGetName`).
    pub name: String,
    /// Bytes of memory (`cuDeviceTotalMem_v2`).
    pub total_bytes: u64,
    /// Can address space and physical memory be handled apart
    /// (`CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`)?
    pub virtual_memory: bool,
    /// Can memory be exported as a file descriptor
    /// (`CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`)?
    pub fd_export: bool,
}

const NEEDED: [&CStr; 8] = [
    c"cuMemAddressReserve",
    c"cuMemAddressFree",
    c"cuMemCreate",
    c"cuMemRelease",
    c"cuMemMap",
    c"cuMemUnmap",
    c"cuMemSetAccess",
    c"cuMemGetAllocationGranularity",
];

crate::entry_points! {
    /// What is asked.
    struct Calls;
    required {
        "cuInit" init(c_uint);
        "cuDriverGetVersion" version(*mut c_int);
        "cuDeviceGetCount" count(*mut c_int);
        "cuDeviceGet" get(*mut c_int, c_int);
        "cuDeviceGetName" name(*mut c_char, c_int, c_int);
        "cuDeviceTotalMem_v2" total(*mut usize, c_int);
        "cuDeviceGetAttribute" attribute(*mut c_int, c_int, c_int);
    }
    optional {}
}

/// Opens `libcuda.so.1` and asks it, or says why it cannot.
pub fn inspect() -> Result<Inspection, String> {
    let library = Library::open(c"libcuda.so.1")?;
    // SAFETY: the library is never closed.
    let calls = unsafe { Calls::resolve(&|name| library.symbol(name)) }
        .map_err(|name| format!("libcuda.so.1 lacks {name}"))?;
    let lacks = |name: &&&CStr| library.symbol(name).is_null();
    let missing = NEEDED.iter().filter(lacks);
    let missing = missing.map(|name| name.to_string_lossy().into_owned());
    // SAFETY: the flags of cuInit must be 0.
    check("cuInit", unsafe { (calls.init)(0) })?;
    let (mut cuda_version, mut number) = (0, 0);
    // SAFETY: both integers outlive the calls.
    check("cuDriverGetVersion", unsafe {
        (calls.version)(&mut cuda_version)
    })?;
    // SAFETY: as above.
    check("cuDeviceGetCount", unsafe { (calls.count)(&mut number) })?;
    let devices = (0..number).map(|ordinal| device(&calls, ordinal));
    Ok(Inspection {
        cuda_version: cuda_version as u32,
        missing: missing.collect(),
        devices: devices.collect::<Result<_, _>>()?,
    })
}

/// Asks about one device, after `cuInit`.
fn device(calls: &Calls, ordinal: c_int) -> Result<Device, String> {
    let (mut device, mut bytes) = (0, 0);
    let mut text = [0u8; 256];
    // SAFETY: `device` outlives the call.
    check("cuDeviceGet", unsafe { (calls.get)(&mut device, ordinal) })?;
    // SAFETY: the buffer is as long as said and outlives the call.
    check("cuDeviceGetName", unsafe {
        (calls.name)(text.as_mut_ptr().cast(), text.len() as c_int, device)
    })?;
    // SAFETY: `bytes` outlives the call.
    check("cuDeviceTotalMem_v2", unsafe {
        (calls.total)(&mut bytes, device)
    })?;
    let supports = |which| {
        let mut value = 0;
        // SAFETY: `value` outlives the call. A driver that does not know the
        // attribute says so, which is "no".
        let code = unsafe { (calls.attribute)(&mut value, which, device) };
        code == Code::SUCCESS && value == 1
    };
    Ok(Device {
        name: CStr::from_bytes_until_nul(&text)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        total_bytes: bytes as u64,
        virtual_memory: supports(sys::ATTRIBUTE_VMM),
        fd_export: supports(sys::ATTRIBUTE_POSIX_FD),
    })
}

/// The C library's version, as `2.36` (`gnu_get_libc_version`).
pub fn glibc_version() -> String {
    // SAFETY: the function takes no argument and returns a static string.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    text.to_string_lossy().into_owned()
}

fn check(call: &str, code: Code) -> Result<(), String> {
    code.ok().map_err(|code| format!("{call}: {code:?}"))
}
