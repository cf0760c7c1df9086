//! What the driver on this machine is and can do, for `memcuda doctor`. Opens
//! the driver and asks; makes no context and no allocation.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::code::Code;
use super::library::Library;

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

const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_uint = 102;
const POSIX_FILE_DESCRIPTOR_SUPPORTED: c_uint = 103;

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

type Init = unsafe extern "C" fn(c_uint) -> Code;
type Version = unsafe extern "C" fn(*mut c_int) -> Code;
type Get = unsafe extern "C" fn(*mut c_int, c_int) -> Code;
type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code;
type Total = unsafe extern "C" fn(*mut usize, c_int) -> Code;
type Attribute = unsafe extern "C" fn(*mut c_int, c_uint, c_int) -> Code;

/// Opens `libcuda.so.1` and asks it, or says why it cannot.
pub fn inspect() -> Result<Inspection, String> {
    let library = Library::open(c"libcuda.so.1")?;
    // SAFETY: the types above are those of cuda.h for these names; `NEEDED`
    // is only looked up, never called.
    let (init, version, count, get, name, total, attribute, missing) = unsafe {
        (
            need(library.function::<Init>(c"cuInit"), "cuInit")?,
            need(
                library.function::<Version>(c"cuDriverGetVersion"),
                "cuDriverGetVersion",
            )?,
            need(
                library.function::<Version>(c"cuDeviceGetCount"),
                "cuDeviceGetCount",
            )?,
            need(library.function::<Get>(c"cuDeviceGet"), "cuDeviceGet")?,
            need(
                library.function::<Name>(c"cuDeviceGetName"),
                "cuDeviceGetName",
            )?,
            need(
                library.function::<Total>(c"cuDeviceTotalMem_v2"),
                "cuDeviceTotalMem_v2",
            )?,
            need(
                library.function::<Attribute>(c"cuDeviceGetAttribute"),
                "cuDeviceGetAttribute",
            )?,
            NEEDED
                .iter()
                .filter(|name| library.function::<Init>(name).is_none()),
        )
    };
    let missing = missing
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    // SAFETY: the flags of cuInit must be 0.
    check("cuInit", unsafe { init(0) })?;
    let (mut cuda_version, mut number) = (0, 0);
    // SAFETY: both integers outlive the calls.
    check("cuDriverGetVersion", unsafe { version(&mut cuda_version) })?;
    // SAFETY: as above.
    check("cuDeviceGetCount", unsafe { count(&mut number) })?;
    let mut devices = Vec::new();
    for ordinal in 0..number {
        let mut device = 0;
        // SAFETY: `device` outlives the call.
        check("cuDeviceGet", unsafe { get(&mut device, ordinal) })?;
        let mut text = [0u8; 256];
        // SAFETY: the buffer is as long as said and outlives the call.
        check("cuDeviceGetName", unsafe {
            name(text.as_mut_ptr().cast(), text.len() as c_int, device)
        })?;
        let mut bytes = 0;
        // SAFETY: `bytes` outlives the call.
        check("cuDeviceTotalMem_v2", unsafe { total(&mut bytes, device) })?;
        let supports = |which| {
            let mut value = 0;
            // SAFETY: `value` outlives the call. A driver that does not know
            // the attribute says so, which is "no".
            let code = unsafe { attribute(&mut value, which, device) };
            code == Code::SUCCESS && value == 1
        };
        devices.push(Device {
            name: CStr::from_bytes_until_nul(&text)
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            total_bytes: bytes as u64,
            virtual_memory: supports(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            fd_export: supports(POSIX_FILE_DESCRIPTOR_SUPPORTED),
        });
    }
    Ok(Inspection {
        cuda_version: cuda_version as u32,
        missing,
        devices,
    })
}

/// The C library's version, as `2.36` (`gnu_get_libc_version`).
pub fn glibc_version() -> String {
    // SAFETY: the function takes no argument and returns a static string.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    text.to_string_lossy().into_owned()
}

fn need<F>(function: Option<F>, name: &str) -> Result<F, String> {
    function.ok_or_else(|| format!("libcuda.so.1 lacks {name}"))
}

fn check(call: &str, code: Code) -> Result<(), String> {
    code.ok().map_err(|code| format!("{call}: {code:?}"))
}
