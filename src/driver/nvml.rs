//! Memory in use on each GPU, by NVIDIA's management library: the figure that
//! no allocator in a process can colour. Reads; never changes a setting.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::library::Library;

type Init = unsafe extern "C" fn() -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
type MemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
type DriverVersion = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

const _: () = assert!(size_of::<Memory>() == 24);

/// The management library, with every GPU of the machine.
pub struct Nvml {
    gpus: Vec<*mut c_void>,
    memory: MemoryInfo,
    version: Option<DriverVersion>,
}

impl Nvml {
    /// Opens `libnvidia-ml.so.1` and finds the GPUs, or says why it cannot.
    pub fn open() -> Result<Self, String> {
        let library = Library::open(c"libnvidia-ml.so.1")?;
        let lacking = || "libnvidia-ml.so.1 lacks a function".to_owned();
        // SAFETY: the types above are those of nvml.h for these names.
        let functions = unsafe {
            (
                library.function::<Init>(c"nvmlInit_v2"),
                library.function::<Count>(c"nvmlDeviceGetCount_v2"),
                library.function::<ByIndex>(c"nvmlDeviceGetHandleByIndex_v2"),
                library.function::<MemoryInfo>(c"nvmlDeviceGetMemoryInfo"),
                library.function::<DriverVersion>(c"nvmlSystemGetDriverVersion"),
            )
        };
        let (Some(init), Some(count), Some(by_index), Some(memory), version) = functions else {
            return Err(lacking());
        };
        // SAFETY: nvmlInit_v2 takes no argument.
        check("nvmlInit_v2", unsafe { init() })?;
        let mut gpus = Vec::new();
        let mut number: c_uint = 0;
        // SAFETY: `number` outlives the call.
        check("nvmlDeviceGetCount_v2", unsafe { count(&mut number) })?;
        for index in 0..number {
            let mut gpu = std::ptr::null_mut();
            // SAFETY: `gpu` outlives the call.
            check("nvmlDeviceGetHandleByIndex_v2", unsafe {
                by_index(index, &mut gpu)
            })?;
            gpus.push(gpu);
        }
        Ok(Self {
            gpus,
            memory,
            version,
        })
    }

    /// The same where every GPU tells its memory in use; one whose memory is the host's does not.
    pub fn open_meter() -> Result<Self, String> {
        let nvml = Self::open()?;
        nvml.used_bytes()?;
        Ok(nvml)
    }

    /// Bytes in use on every GPU of the machine together, by all processes
    /// (`nvmlDeviceGetMemoryInfo`).
    pub fn used_bytes(&self) -> Result<u64, String> {
        let mut used = 0;
        for &gpu in &self.gpus {
            let mut memory = Memory::default();
            // SAFETY: `gpu` came from the library; `memory` has the layout of
            // `nvmlMemory_t` and outlives the call.
            check("nvmlDeviceGetMemoryInfo", unsafe {
                (self.memory)(gpu, &mut memory)
            })?;
            used += memory.used;
        }
        Ok(used)
    }

    /// The kernel driver's version, as `580.65.06`.
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0u8; 81];
        // SAFETY: the buffer is as long as said and outlives the call.
        let code = unsafe { self.version?(text.as_mut_ptr().cast(), text.len() as c_uint) };
        let end = text.iter().position(|&byte| byte == 0)?;
        (code == 0).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

fn check(call: &str, code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{call} failed with code {code}")),
    }
}
