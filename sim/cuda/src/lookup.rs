//! How programs find the calls: `cuGetProcAddress`, which answers with the
//! same addresses as the exports, and the calls that need no device.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::LazyLock;

use crate::abi::{CODES, Code};
use crate::entry::{api, must_put, put};
use crate::fault::base_name;

/// The address of an exported call.
#[derive(Clone, Copy)]
pub struct Export(pub *const ());

// SAFETY: the address of a function: never written through.
unsafe impl Send for Export {}
// SAFETY: as above.
unsafe impl Sync for Export {}

/// CUDA 13.0.
const VERSION: i32 = 13000;
const PER_THREAD: u64 = 2;
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// From which CUDA version on a name stands for a later form of the call.
/// Everything else stands for its only form from the beginning.
const SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v3", 11040),
    ("cuCtxCreate_v4", 12050),
    ("cuCtxDestroy_v2", 4000),
    ("cuCtxGetDevice_v2", 13000),
    ("cuCtxPopCurrent_v2", 4000),
    ("cuCtxPushCurrent_v2", 4000),
    ("cuCtxSynchronize_v2", 13000),
    ("cuDeviceGetUuid_v2", 11040),
    ("cuDevicePrimaryCtxRelease_v2", 11000),
    ("cuDevicePrimaryCtxReset_v2", 11000),
    ("cuDevicePrimaryCtxSetFlags_v2", 11000),
    ("cuEventDestroy_v2", 4000),
    ("cuEventElapsedTime_v2", 12080),
    ("cuGetProcAddress_v2", 12000),
    ("cuGraphAddNode", 12020),
    ("cuGraphAddNode_v2", 12030),
    ("cuGraphAddNode_v3", 13040),
    ("cuGraphInstantiate_v2", 11000),
    ("cuIpcOpenMemHandle_v2", 11000),
    ("cuMemHostRegister_v2", 6050),
    ("cuMulticastBindAddr_v2", 13010),
    ("cuStreamBeginCapture_v2", 10010),
    ("cuStreamDestroy_v2", 4000),
    ("cuStreamGetCaptureInfo", 10010),
    ("cuStreamGetCaptureInfo_v2", 11030),
    ("cuStreamGetCaptureInfo_v3", 12030),
    ("cuStreamGetCtx_v2", 12050),
    ("cuStreamWaitValue32", 8000),
    ("cuStreamWaitValue32_v2", 11070),
    ("cuStreamWaitValue64", 9000),
    ("cuStreamWaitValue64_v2", 11070),
    ("cuStreamWriteValue32", 8000),
    ("cuStreamWriteValue32_v2", 11070),
    ("cuStreamWriteValue64", 9000),
    ("cuStreamWriteValue64_v2", 11070),
];
/// The version of every other `_v2`: 64-bit sizes.
const SINCE_V2: i32 = 3020;

fn tables() -> impl Iterator<Item = &'static (&'static str, Export)> {
    [
        EXPORTS,
        crate::array::EXPORTS,
        crate::attributes::EXPORTS,
        crate::capture::EXPORTS,
        crate::capture::STREAM_EXPORTS,
        crate::capture_info::STREAM_EXPORTS,
        crate::claims::EXPORTS,
        crate::context::EXPORTS,
        crate::device::EXPORTS,
        crate::event::EXPORTS,
        crate::event::STREAM_EXPORTS,
        crate::graph::EXPORTS,
        crate::graph::STREAM_EXPORTS,
        crate::green::EXPORTS,
        crate::handle::EXPORTS,
        crate::host::EXPORTS,
        crate::ipc::EXPORTS,
        crate::launch::EXPORTS,
        crate::launch::STREAM_EXPORTS,
        crate::mapping::EXPORTS,
        crate::memory::EXPORTS,
        crate::module::EXPORTS,
        crate::multicast::EXPORTS,
        crate::nodes::EXPORTS,
        crate::peers::EXPORTS,
        crate::mempool::EXPORTS,
        crate::mempool::STREAM_EXPORTS,
        crate::primary::EXPORTS,
        crate::rows::EXPORTS,
        crate::rows::STREAM_EXPORTS,
        crate::stream::EXPORTS,
        crate::stream::STREAM_EXPORTS,
        crate::fill::EXPORTS,
        crate::fill::STREAM_EXPORTS,
        crate::transfer::EXPORTS,
        crate::transfer::STREAM_EXPORTS,
        crate::values::STREAM_EXPORTS,
    ]
    .into_iter()
    .flatten()
}

struct Entry {
    since: i32,
    plain: Export,
    per_thread: Option<Export>,
}

/// For each name as programs ask for it: its forms, newest first.
static NAMES: LazyLock<HashMap<&'static str, Vec<Entry>>> = LazyLock::new(|| {
    let all: HashMap<&str, Export> = tables().copied().collect();
    let mut names: HashMap<&str, Vec<Entry>> = HashMap::new();
    for (export, &plain) in &all {
        if export.ends_with("_ptsz") || export.ends_with("_ptds") {
            continue;
        }
        let base = base_name(export);
        let since = match SINCE.iter().find(|(name, _)| name == export) {
            Some((_, since)) => *since,
            None if base == *export => 0,
            None => SINCE_V2,
        };
        let per_thread = ["_ptsz", "_ptds"]
            .iter()
            .find_map(|suffix| all.get(format!("{export}{suffix}").as_str()).copied());
        names.entry(base).or_default().push(Entry {
            since,
            plain,
            per_thread,
        });
    }
    for forms in names.values_mut() {
        forms.sort_by_key(|entry| std::cmp::Reverse(entry.since));
    }
    names
});

/// Is there a call of this name, with or without its version?
pub fn is_known(name: &str) -> bool {
    NAMES.contains_key(name) || tables().any(|(export, _)| *export == name)
}

/// # Safety
/// `name` is null or a C string; the other pointers are null or writable.
unsafe fn find(
    name: *const c_char,
    out: *mut *const c_void,
    version: i32,
    flags: u64,
    status: *mut u32,
) -> crate::abi::Answer {
    if name.is_null() || out.is_null() || flags > 2 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: by the function's own contract.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
    let forms = NAMES.get(name);
    let form = forms.and_then(|forms| forms.iter().find(|form| form.since <= version));
    let (answer, state) = match (form, forms) {
        (Some(form), _) => {
            let per_thread = form.per_thread.filter(|_| flags == PER_THREAD);
            (per_thread.unwrap_or(form.plain).0, FOUND)
        }
        (None, Some(_)) => (std::ptr::null(), VERSION_NOT_SUFFICIENT),
        (None, None) => (std::ptr::null(), NOT_FOUND),
    };
    // SAFETY: by the function's own contract.
    unsafe {
        put(out, answer.cast());
        put(status, state);
    }
    // A missing symbol is an error only for callers that passed no status.
    if answer.is_null() {
        Err(Code::NOT_FOUND)
    } else {
        Ok(())
    }
}

fn text(
    code: u32,
    out: *mut *const c_char,
    pick: fn(&(Code, &'static str, &'static str)) -> &'static str,
) -> crate::abi::Answer {
    let known = match code {
        0 => Some(&(Code::SUCCESS, "CUDA_SUCCESS\0", "no error\0")),
        _ => CODES.iter().find(|entry| entry.0.0 == code),
    };
    let value = known.map_or(std::ptr::null(), |entry| pick(entry).as_ptr().cast());
    // SAFETY: the caller's pointer.
    unsafe { must_put(out, value)? };
    known.map(|_| ()).ok_or(Code::INVALID_VALUE)
}

api! { raw EXPORTS
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        crate::entry::start()
    }
    fn cuDriverGetVersion(out: *mut i32) {
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, VERSION) }
    }
    fn cuGetProcAddress(name: *const c_char, out: *mut *const c_void, version: i32, flags: u64) {
        // SAFETY: the caller's pointers.
        unsafe { find(name, out, version, flags, std::ptr::null_mut()) }
    }
    fn cuGetProcAddress_v2(name: *const c_char, out: *mut *const c_void, version: i32, flags: u64, status: *mut u32) {
        // SAFETY: the caller's pointers.
        unsafe { find(name, out, version, flags, status) }
    }
    fn cuGetProcAddress_v2_ptsz(name: *const c_char, out: *mut *const c_void, version: i32, flags: u64, status: *mut u32) {
        let meant = if flags == 0 { PER_THREAD } else { flags };
        // SAFETY: the caller's pointers.
        unsafe { find(name, out, version, meant, status) }
    }
    fn cuGetErrorString(code: u32, out: *mut *const c_char) {
        text(code, out, |entry| entry.2)
    }
    fn cuGetErrorName(code: u32, out: *mut *const c_char) {
        text(code, out, |entry| entry.1)
    }
}
