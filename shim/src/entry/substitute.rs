//! From a driver function to the hook that replaces it, by pointer identity:
//! the driver chose version and spelling, this map only recognises the choice.
//!
//! Built when the driver is loaded and something of it is first asked for by `dlsym`, of
//! which the driver itself may be the one, in the middle of its own start: nothing of it
//! is called for that. Once it has been called by the program a probe checks that
//! `cuGetProcAddress` and `dlsym` hand out the same pointers; on a driver where they do
//! not, [`by_name`] decides from name, version and flags.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use memcuda_core::driver::Code;
use once_cell::race::OnceBox;

use crate::entry::thunks;
use crate::hook::{Entry, Hook};
use crate::hooks;
use crate::libraries::routes::Door;
use crate::libraries::{aside, modules, resolve, routes};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub const PER_THREAD: u64 = 2;

/// What the probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Both ways give the same pointers: substitution is by identity.
    Identical,
    /// They differ: what `cuGetProcAddress` returns is judged by name.
    Different,
    /// The driver has no `cuGetProcAddress`, or it knows no `cuMemAlloc`.
    Unanswered,
}

type Map = HashMap<usize, &'static Hook>;

static MAP: OnceBox<Map> = OnceBox::new();

/// The map, once the driver is loaded; none where the library stands aside. Two threads
/// may both build it; one result is kept (no lock that a fork could leave behind).
fn map() -> Option<&'static Map> {
    if aside::stands() {
        return None;
    }
    let made = || {
        let driver = resolve::driver();
        (!driver.is_null())
            .then(|| Box::new(build(driver)))
            .ok_or(())
    };
    MAP.get_or_try_init(made).ok()
}

/// What the probe finds, once the driver is loaded. Asks the driver the first time, so only
/// behind a call of the program's to it.
pub fn probe() -> Option<Probe> {
    // Two threads may both ask, and are told the same.
    static FOUND: AtomicU8 = AtomicU8::new(0);
    const ALL: [Probe; 3] = [Probe::Identical, Probe::Different, Probe::Unanswered];
    let map = map()?;
    if let Some(&known) = ALL.get(usize::from(FOUND.load(Ordering::Acquire)).wrapping_sub(1)) {
        return Some(known);
    }
    let found = ask(resolve::driver(), |it| map.contains_key(&(it as usize)));
    let place = ALL.iter().position(|it| *it == found)?;
    FOUND.store(place as u8 + 1, Ordering::Release);
    Some(found)
}

fn build(driver: *mut c_void) -> Map {
    let mut hooks = HashMap::new();
    for hook in hooks::all() {
        let real = resolve::symbol(driver, hook.symbol);
        if !real.is_null() {
            hook.real.store(real, Ordering::Release);
            // Two symbols of one function: the first spelling listed serves both.
            hooks.entry(real as usize).or_insert(hook);
        }
        // A driver that looks its own exports up by symbol finds this library's.
        hooks.insert(hook.exported as usize, hook);
    }
    hooks
}

fn ask(driver: *mut c_void, known: impl Fn(*mut c_void) -> bool) -> Probe {
    type GetProcAddress =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;
    let get = resolve::symbol(driver, c"cuGetProcAddress_v2");
    if get.is_null() {
        return Probe::Unanswered;
    }
    let mut found = ptr::null_mut();
    // SAFETY: the driver's function of this name has this signature; the
    // pointers are valid, and a null status is allowed.
    let code = unsafe {
        let get = std::mem::transmute::<*mut c_void, GetProcAddress>(get);
        get(c"cuMemAlloc".as_ptr(), &mut found, 3020, 0, ptr::null_mut())
    };
    match code {
        Code::SUCCESS if known(found) => Probe::Identical,
        Code::SUCCESS if !found.is_null() => Probe::Different,
        _ => Probe::Unanswered,
    }
}

/// What the code at `caller` gets for a driver function: the hook's entry for
/// its module, or `None` where the function is not hooked.
pub fn entry_for(function: *mut c_void, door: Door, caller: usize) -> Option<*mut c_void> {
    let map = map()?;
    if let Some(hook) = map.get(&(function as usize)) {
        return Some(hook.entry_for(door, caller));
    }
    // A thunk made for another module, found through that module.
    let module = || modules::number(caller);
    if thunks::is_allocate(function) {
        Some(thunks::allocate(module(), caller))
    } else if thunks::is_free(function) {
        Some(thunks::free(module(), caller))
    } else {
        None
    }
}

/// As [`entry_for`], for what `cuGetProcAddress` returned for this request.
pub fn entry_for_request(
    function: *mut c_void,
    name: &CStr,
    version: i32,
    flags: u64,
    caller: usize,
) -> Option<*mut c_void> {
    if probe()? != Probe::Different {
        let hooked = map()?.contains_key(&(function as usize));
        if !hooked && by_name(name, version, flags).is_some() {
            crate::log_once!(
                Info,
                "the driver answers {name:?} (version {version}) with a function that is not \
                 hooked; passed on"
            );
        }
        return entry_for(function, Door::GetProcAddress, caller);
    }
    let hook = by_name(name, version, flags)?;
    // A driver that looks its own exports up by symbol answers with this library's.
    if function != hook.exported as *mut c_void {
        hook.real.store(function, Ordering::Release);
    }
    Some(hook.entry_for(Door::GetProcAddress, caller))
}

/// The newest CUDA whose signatures the hooks know: what a later one changed
/// would be called with the wrong arguments.
const KNOWN_CUDA: i32 = 13_050;

/// The hook for a request: the newest signature at or before the version, in
/// the spelling that the flags ask for.
fn by_name(name: &CStr, version: i32, flags: u64) -> Option<&'static Hook> {
    if version > KNOWN_CUDA {
        return None;
    }
    let per_thread = flags & PER_THREAD != 0;
    let matches = |per_thread: bool| {
        hooks::all()
            .filter(|hook| hook.name.as_bytes() == name.to_bytes())
            .filter(|hook| hook.since as i64 <= i64::from(version))
            .filter(|hook| hook.per_thread == per_thread)
            .max_by_key(|hook| hook.since)
    };
    // A function that has a spelling of its own which is not hooked is not this one.
    let plain = || matches(false).filter(|hook| !per_thread || !has_own_spelling(hook));
    matches(per_thread).or_else(plain)
}

/// Has the driver a spelling of this hook's function for a thread's own default stream?
fn has_own_spelling(hook: &Hook) -> bool {
    let name = [hook.symbol.to_bytes(), b"_ptsz"].concat();
    CString::new(name).is_ok_and(|it| !resolve::symbol(resolve::driver(), &it).is_null())
}

impl Hook {
    /// What the code at `caller` gets for this hook.
    fn entry_for(&'static self, door: Door, caller: usize) -> *mut c_void {
        let module = modules::number(caller);
        routes::note(self.symbol, door, module);
        match self.entry {
            Entry::Exported => self.exported as *mut c_void,
            Entry::Allocate => thunks::allocate(module, caller),
            Entry::Free => thunks::free(module, caller),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hooks_are_of_a_cuda_that_is_known() {
        let latest = hooks::all().map(|hook| hook.since).max();
        assert!(latest.is_some_and(|since| since as i64 <= i64::from(KNOWN_CUDA)));
    }

    #[test]
    fn a_name_is_the_newest_signature_up_to_the_version() {
        let symbol = |version| by_name(c"cuGraphAddNode", version, 0).map(|hook| hook.symbol);
        assert_eq!(symbol(12_010), None);
        assert_eq!(symbol(12_020), Some(c"cuGraphAddNode"));
        assert_eq!(symbol(13_030), Some(c"cuGraphAddNode_v2"));
        assert_eq!(symbol(13_040), Some(c"cuGraphAddNode_v3"));
        assert_eq!(symbol(KNOWN_CUDA + 10), None);
    }
}
