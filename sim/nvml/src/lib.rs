//! A `libnvidia-ml.so.1` for the simulated GPU: tells which processes have a
//! context on a device, as the simulated libcuda of this process knows them.
//! It has nothing else of NVIDIA's management library. Who asks after it has ended with the
//! process, as the last functions do that run at an exit, ends the process. With `MEMCUDA_SIM_NVML=mig` its
//! devices are parts of GPUs; with `container` it lists the process that asks alone; with
//! `slow` an answer takes a quarter of a second, with `asleep` its start three seconds; with `unlisted` it lists no processes, as
//! under WSL2. Nobody draws, but with `drawing` everybody
//! else, of 1 GiB each, with `desktop` of 16 MiB each.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const DRIVER_NOT_LOADED: c_int = 9;

/// `nvmlProcessInfo_t`.
#[repr(C)]
pub struct Process {
    id: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Most processes that are told.
const MOST: usize = 256;

type Processes = unsafe extern "C" fn(*const [u8; 16], *mut u32, *mut u32) -> u32;

fn processes() -> Option<Processes> {
    // SAFETY: looks a loaded library up, and a function of the signature that
    // memcuda_sim.h gives.
    unsafe {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        let cuda = libc::dlopen(c"libcuda.so.1".as_ptr(), flags);
        if cuda.is_null() {
            return None;
        }
        let found = libc::dlsym(cuda, c"cuSimProcesses".as_ptr());
        (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, Processes>(found))
    }
}

static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end() {
    ENDED.store(true, Ordering::SeqCst);
}

/// Fails where no simulated libcuda is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    match processes() {
        Some(_) => {
            if is_set("asleep") {
                std::thread::sleep(std::time::Duration::from_secs(3));
            }
            // SAFETY: a function of this library, which stays loaded.
            unsafe { libc::atexit(end) };
            SUCCESS
        }
        None => DRIVER_NOT_LOADED,
    }
}

/// The handle of a device is its identity, which stays allocated.
///
/// # Safety
/// `name` is a C string, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    name: *const c_char,
    out: *mut *mut c_void,
) -> c_int {
    if name.is_null() || out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: by the function's own contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let kind = if is_set("mig") { "MIG-" } else { "GPU-" };
    let Some(digits) = name.strip_prefix(kind) else {
        return NOT_FOUND;
    };
    let Ok(uuid) = u128::from_str_radix(&digits.replace('-', ""), 16) else {
        return INVALID_ARGUMENT;
    };
    let mut count = MOST as u32;
    if list(&uuid.to_be_bytes(), &mut [0; MOST], &mut count) != 0 {
        return NOT_FOUND;
    }
    let handle = Box::leak(Box::new(uuid.to_be_bytes()));
    // SAFETY: by the function's own contract.
    unsafe { out.write(std::ptr::from_mut(handle).cast()) };
    SUCCESS
}

/// # Safety
/// `device` is a handle from [`nvmlDeviceGetHandleByUUID`]; `into` is an array
/// of `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: *const [u8; 16],
    count: *mut c_uint,
    into: *mut Process,
) -> c_int {
    let alone = is_set("container") || drawing_bytes().is_some();
    let own = std::process::id();
    // SAFETY: by the function's own contract.
    unsafe { tell(device, count, into, 0, |id| !alone || id == own) }
}

/// # Safety
/// As for [`nvmlDeviceGetComputeRunningProcesses_v3`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: *const [u8; 16],
    count: *mut c_uint,
    into: *mut Process,
) -> c_int {
    let bytes = drawing_bytes();
    let own = std::process::id();
    let draws = |id| bytes.is_some() && id != own;
    // SAFETY: by the function's own contract.
    unsafe { tell(device, count, into, bytes.unwrap_or(0), draws) }
}

/// What each of those that draw has.
fn drawing_bytes() -> Option<u64> {
    let of = [("drawing", 1 << 30), ("desktop", 16 << 20)];
    of.into_iter()
        .find_map(|(word, bytes)| is_set(word).then_some(bytes))
}

/// Lists those processes on a device of which this is true, each with so many bytes.
///
/// # Safety
/// As for [`nvmlDeviceGetComputeRunningProcesses_v3`].
unsafe fn tell(
    device: *const [u8; 16],
    count: *mut c_uint,
    into: *mut Process,
    used_bytes: u64,
    is_told: impl Fn(u32) -> bool,
) -> c_int {
    if device.is_null() || count.is_null() {
        return INVALID_ARGUMENT;
    }
    if is_set("unlisted") {
        return NOT_SUPPORTED;
    }
    let mut ids = [0; MOST];
    let mut found = MOST as u32;
    // SAFETY: by the function's own contract.
    unsafe {
        if list(&*device, &mut ids, &mut found) != 0 {
            return NOT_FOUND;
        }
        if is_set("slow") {
            std::thread::sleep(std::time::Duration::from_millis(250));
        }
        if ENDED.load(Ordering::SeqCst) {
            eprintln!("MISUSE: the management library was asked after its end");
            std::process::abort();
        }
        let told: Vec<u32> = ids[..found as usize]
            .iter()
            .copied()
            .filter(|&id| is_told(id))
            .collect();
        let room = count.read();
        count.write(told.len() as c_uint);
        if told.len() > room as usize {
            return INSUFFICIENT_SIZE;
        }
        for (index, &id) in told.iter().enumerate() {
            into.add(index).write(Process {
                id,
                used_bytes,
                gpu_instance: u32::MAX,
                compute_instance: u32::MAX,
            });
        }
    }
    SUCCESS
}

fn is_set(word: &str) -> bool {
    std::env::var_os("MEMCUDA_SIM_NVML").is_some_and(|set| set == word)
}

fn list(uuid: &[u8; 16], ids: &mut [u32; MOST], count: &mut u32) -> u32 {
    // SAFETY: the pointers are valid for the call, the array as long as said.
    processes().map_or(1, |ask| unsafe { ask(uuid, ids.as_mut_ptr(), count) })
}
