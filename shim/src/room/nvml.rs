//! Who is on a device by NVIDIA's management library, which lists the processes with a
//! context, and by another call those that draw. Of these a display server is on every
//! desktop: who draws with little memory is none. Loaded and initialised when it is first
//! asked; changes no setting.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use memcuda_core::share::protocol::DeviceId;
use memcuda_core::units::MIB;

use crate::engine::worker;
use crate::libraries::resolve;

type Init = unsafe extern "C" fn() -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_int;

/// `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    id: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

const _: () = assert!(size_of::<Process>() == 24);

/// Bytes with which a process that draws counts; where they cannot be told, they are more.
const MUCH: u64 = 256 * MIB;

const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;

/// The functions of NVML.
struct Library {
    init: Init,
    by_uuid: ByUuid,
    processes: Processes,
    /// Those that draw.
    drawing: Option<Processes>,
}

impl Library {
    fn load() -> Option<Self> {
        let library = resolve::open(c"libnvidia-ml.so.1");
        if library.is_null() {
            return None;
        }
        let processes = c"nvmlDeviceGetComputeRunningProcesses_v3";
        let before = c"nvmlDeviceGetComputeRunningProcesses_v2";
        let drawing = c"nvmlDeviceGetGraphicsRunningProcesses_v3";
        let drawing_before = c"nvmlDeviceGetGraphicsRunningProcesses_v2";
        // SAFETY: the types above are those of nvml.h for these names.
        unsafe {
            Some(Self {
                init: function(library, c"nvmlInit_v2")?,
                by_uuid: function(library, c"nvmlDeviceGetHandleByUUID")?,
                processes: function(library, processes).or_else(|| function(library, before))?,
                drawing: function(library, drawing).or_else(|| function(library, drawing_before)),
            })
        }
    }
}

/// Loads what tells of others, once. It takes the loader's lock, under which a
/// program's destructors may end a context: not to be called with anything held
/// that the end of a context waits for.
pub fn prepare() {
    library();
}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).as_ref()
}

/// A device as NVML knows it.
pub struct Listed {
    device: *mut c_void,
    processes: Processes,
    drawing: Option<Processes>,
}

impl Listed {
    /// The device of this identity; `None` where the library cannot be had, or does not
    /// know it.
    pub fn find(uuid: [u8; 16]) -> Option<Self> {
        let library = nvml()?;
        // A part of a GPU has a name of its own kind.
        ["GPU", "MIG"].into_iter().find_map(|kind| {
            let name = CString::new(DeviceId(uuid).named(kind)).ok()?;
            let mut device = std::ptr::null_mut();
            // SAFETY: a string, and a pointer that is valid for the call.
            let code = unsafe { (library.by_uuid)(name.as_ptr(), &mut device) };
            let (processes, drawing) = (library.processes, library.drawing);
            (code == SUCCESS).then_some(Self {
                device,
                processes,
                drawing,
            })
        })
    }

    /// Are there other processes with a context than this one, or that draw? `None` where
    /// those with a context are not listed: this one would be, too.
    pub fn are_several(&self) -> Option<bool> {
        let Some(mut all) = self.list(self.processes) else {
            return Some(true);
        };
        let lists = !all.is_empty();
        match self.drawing.map(|drawing| self.list(drawing)) {
            Some(Some(drawing)) => all.extend(drawing.iter().filter(|it| it.used_bytes >= MUCH)),
            Some(None) => return Some(true),
            None => {}
        }
        let company = company(&all);
        (lists || company).then_some(company)
    }

    /// What a call lists, nothing where it fails; `None` where there are very many.
    fn list(&self, call: Processes) -> Option<Vec<Process>> {
        let mut processes = [Process::default(); 64];
        let mut count = processes.len() as c_uint;
        // SAFETY: the array is as long as said; the device came from NVML.
        match unsafe { call(self.device, &mut count, processes.as_mut_ptr()) } {
            SUCCESS => Some(processes[..processes.len().min(count as usize)].to_vec()),
            INSUFFICIENT_SIZE => None,
            _ => Some(Vec::new()),
        }
    }
}

/// This process is on the list, maybe under the number that it has elsewhere.
fn company(processes: &[Process]) -> bool {
    let mut ids: Vec<u32> = processes.iter().map(|process| process.id).collect();
    // A process of several contexts may be listed more than once.
    ids.sort_unstable();
    ids.dedup();
    ids.len() > 1
}

/// The library, initialised once; `None` where it cannot be had.
fn nvml() -> Option<&'static Library> {
    static STARTED: OnceLock<bool> = OnceLock::new();
    let library = library();
    let started = *STARTED.get_or_init(|| {
        // SAFETY: it takes no argument.
        let started = library.is_some_and(|library| unsafe { (library.init)() } == SUCCESS);
        crate::log!(Debug, "the management library answers: {started}");
        worker::rest_at_exit();
        started
    });
    library.filter(|_| started)
}

/// # Safety
/// `F` is the type of the function of this name, a pointer.
unsafe fn function<F>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = resolve::symbol(library, name);
    // SAFETY: not null, and of this type by the caller's promise.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More are there than there was room for.
    unsafe extern "C" fn many(_: *mut c_void, count: *mut c_uint, _: *mut Process) -> c_int {
        // SAFETY: the caller's, valid.
        unsafe { *count += 1 };
        7 // NVML_ERROR_INSUFFICIENT_SIZE
    }

    unsafe extern "C" fn lost(_: *mut c_void, _: *mut c_uint, _: *mut Process) -> c_int {
        15 // NVML_ERROR_GPU_IS_LOST
    }

    #[test]
    fn more_processes_than_there_is_room_for_are_several_and_an_error_tells_nothing() {
        let listed = |processes: Processes| Listed {
            device: std::ptr::null_mut(),
            processes,
            drawing: None,
        };
        assert_eq!(listed(many).are_several(), Some(true));
        assert_eq!(listed(lost).are_several(), None);
    }

    #[test]
    fn one_process_is_alone_whatever_its_number() {
        let process = |id| Process {
            id,
            ..Process::default()
        };
        let own = std::process::id();
        assert!(!company(&[]));
        assert!(!company(&[process(own)]));
        assert!(!company(&[process(own), process(own)]));
        assert!(!company(&[process(own + 1)]), "its number on the host");
        assert!(company(&[process(own), process(own + 1)]));
    }
}
