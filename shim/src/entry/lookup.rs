//! The doors through which programs look driver functions up: `dlsym`,
//! `cuGetProcAddress` in its versions, and the runtime's
//! `cudaGetDriverEntryPoint*`. Each asks the real one first and then swaps
//! what is hooked; what the real one does not find stays not found.
//!
//! `dlsym` is a filter and a tail jump: no allocation and no lock of ours for
//! names that are not hooked, and the real one sees the caller's own return
//! address. Nothing is logged from inside it, whatever happens.

use std::ffi::{CStr, c_char, c_int, c_void};

use memcuda_core::driver::Code;

use crate::engine::boundary;
use crate::entry::{substitute, tagged};
use crate::hook::{ABSENT, Hook};
use crate::hooks;
use crate::libraries::routes::Door;
use crate::libraries::{aside, dynamic, listener, resolve, scope, ucx};
use crate::process::asm::Next;
use crate::process::{environment, log};

crate::tail_jump! {
    /// `dlsym(handle, name)`, without a symbol version: it serves references to
    /// every version.
    dlsym, filter
}

unsafe extern "C" fn filter(handle: *mut c_void, name: *const c_char, caller: usize) -> Next {
    static NEXT: resolve::Next = resolve::Next::new(c"dlsym");
    // SAFETY: the caller passes a string, as dlsym demands.
    if name.is_null() || !unsafe { is_of_cuda(name) } {
        return Next::jump(NEXT.get());
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(own) = exported(name).filter(|_| aside::other().is_none()) else {
        return Next::jump(NEXT.get());
    };
    let found = || match handle == libc::RTLD_NEXT {
        true => find_next(name, own, caller),
        false => Some(find(handle, name, own, caller)),
    };
    let found = log::silent(|| boundary::or_else("dlsym", found, || None));
    found.unwrap_or_else(|| Next::jump(NEXT.get()))
}

/// Does a name begin as those of driver and runtime do? Told by its bytes alone: a sanitizer that
/// looks its functions up, before it has any, may stand in for those of libc.
///
/// # Safety
/// The name is a string.
unsafe fn is_of_cuda(name: *const c_char) -> bool {
    // SAFETY: the string goes on where it has been the same so far.
    let is = |at, byte: u8| unsafe { *name.add(at) }.to_ne_bytes() == [byte];
    is(0, b'c') && is(1, b'u')
}

/// What is answered to who looks for what is behind itself; `None` where it is what that finds.
fn find_next(name: &CStr, own: *mut c_void, caller: usize) -> Option<Next> {
    if !name.to_bytes().starts_with(b"cuda") && ucx::asks(caller) {
        return Some(find(libc::RTLD_DEFAULT, name, own, caller));
    }
    if listener::asks(name, caller) {
        // What it finds behind itself, where that is the driver's: ours.
        let behind = scope::behind(caller, caller, name);
        let is_behind = !behind.is_null() && behind != own;
        let entry = || substitute::entry_for(behind, Door::Dlsym, caller);
        return is_behind.then(entry)?.map(Next::answer);
    }
    // Before this library its own is the next one: only real if anybody has it, too.
    let is_there = resolve::is_behind(own as usize, caller)
        || !resolve::next(name).is_null()
        || !scope::elsewhere(own, name).is_null();
    // The error that dlerror tells of is the real dlsym's.
    (!is_there).then(|| Next::answer(resolve::in_libc(name)))
}

/// What `dlsym` answers for a name that this library exports.
fn find(handle: *mut c_void, name: &CStr, own: *mut c_void, caller: usize) -> Next {
    // What is hooked is not asked of another library that stands in for dlsym: of two, the
    // first one answers. One that stands in for the driver as well has been asked (`aside`).
    let mut found = resolve::look_up(handle, name);
    let mut behind = found;
    if found == own {
        // Found by searching the whole program: only real if somebody behind
        // this library has it too.
        behind = resolve::look_up(libc::RTLD_NEXT, name);
        if behind.is_null() && handle == libc::RTLD_DEFAULT {
            behind = resolve::in_scope(caller, name, own);
        }
        if behind.is_null() {
            // What fails behind a library leaves dlerror nothing in glibc 2.23.
            behind = resolve::in_libc(name);
        }
    }
    if behind.is_null() {
        // The error that dlerror tells of is the real dlsym's.
        return Next::answer(behind);
    }
    if environment::disabled() || ucx::patches(caller) {
        found = behind;
    } else if let Some(entry) = substitute::entry_for(behind, Door::Dlsym, caller) {
        found = entry;
    } else if found == own && dynamic::is_own(caller, behind, name) {
        // Who stands in for another, and compares what it finds with what it has.
        found = behind;
    }
    Next::answer(found)
}

/// This library's own function of a name, if it is a hooked one: `cu` or
/// `cuda` and a capital letter, then one of the list.
fn exported(name: &CStr) -> Option<*mut c_void> {
    let text = name.to_bytes();
    let rest = text.strip_prefix(b"cuda").or(text.strip_prefix(b"cu"))?;
    if !rest.first()?.is_ascii_uppercase() {
        return None;
    }
    if text.starts_with(b"cuda") {
        let runtime: [(&CStr, unsafe extern "C" fn()); 9] = [
            (c"cudaMalloc", tagged::cudaMalloc),
            (c"cudaFree", tagged::cudaFree),
            (c"cudaGetDeviceCount", tagged::cudaGetDeviceCount),
            (c"cudaStreamIsCapturing", tagged::cudaStreamIsCapturing),
            (c"cudaStreamSynchronize", tagged::cudaStreamSynchronize),
            (c"cudaGetDriverEntryPoint", cudaGetDriverEntryPoint),
            (
                c"cudaGetDriverEntryPoint_ptsz",
                cudaGetDriverEntryPoint_ptsz,
            ),
            (
                c"cudaGetDriverEntryPointByVersion",
                cudaGetDriverEntryPointByVersion,
            ),
            (
                c"cudaGetDriverEntryPointByVersion_ptsz",
                cudaGetDriverEntryPointByVersion_ptsz,
            ),
        ];
        let own = runtime.iter().find(|(known, _)| *known == name);
        return own.map(|(_, function)| *function as *mut c_void);
    }
    let hook = hooks::all().find(|hook| hook.symbol == name)?;
    Some(hook.exported as *mut c_void)
}

/// The hooks of this file, for the list of all.
pub static HOOKS: &[&Hook] = &[
    &cuGetProcAddress::HOOK,
    &cuGetProcAddress_v2::HOOK,
    &cuGetProcAddress_v2_ptsz::HOOK,
];

crate::slot! { cuGetProcAddress ["cuGetProcAddress" since 11030] Exported }
crate::slot! { cuGetProcAddress_v2 ["cuGetProcAddress" since 12000] Exported }
crate::slot! { cuGetProcAddress_v2_ptsz ["cuGetProcAddress" since 12000 per_thread] Exported }

crate::pass_caller! {
    /// `cuGetProcAddress(name, function, version, flags)` of CUDA 11.3.
    cuGetProcAddress, get, "r8", "x4"
}
crate::pass_caller! {
    /// `cuGetProcAddress_v2(name, function, version, flags, status)` of CUDA 12.0.
    cuGetProcAddress_v2, get_v2, "r9", "x5"
}
crate::pass_caller! {
    /// The spelling of `cuGetProcAddress_v2` whose default is flag 2.
    cuGetProcAddress_v2_ptsz, get_v2_ptsz, "r9", "x5"
}

unsafe extern "C" fn get(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    caller: usize,
) -> Code {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Code;
    let real = cuGetProcAddress::HOOK.real();
    if real.is_null() {
        return ABSENT;
    }
    // SAFETY: the driver's function of this name, called as the program did.
    let code =
        unsafe { std::mem::transmute::<*mut c_void, Real>(real)(name, function, version, flags) };
    // SAFETY: as far as the real call went through, its arguments were valid.
    unsafe {
        swap(
            "cuGetProcAddress",
            code,
            name,
            function,
            version,
            flags,
            caller,
        )
    }
}

unsafe extern "C" fn get_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
    caller: usize,
) -> Code {
    let asked = (name, function, version, flags, status);
    // SAFETY: the program's own call.
    unsafe { ask_v2(&cuGetProcAddress_v2::HOOK, asked, flags, caller) }
}

unsafe extern "C" fn get_v2_ptsz(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
    caller: usize,
) -> Code {
    let meant = if flags == 0 {
        substitute::PER_THREAD
    } else {
        flags
    };
    let asked = (name, function, version, flags, status);
    // SAFETY: the program's own call.
    unsafe { ask_v2(&cuGetProcAddress_v2_ptsz::HOOK, asked, meant, caller) }
}

/// Name, place of the answer, version, flags, place of the status.
type AskedV2 = (*const c_char, *mut *mut c_void, c_int, u64, *mut c_int);

/// Passes a call on and replaces its answer; `meant` are the flags as the driver
/// understands them.
///
/// # Safety
/// As for the driver's function.
unsafe fn ask_v2(
    hook: &'static Hook,
    (name, function, version, flags, status): AskedV2,
    meant: u64,
    caller: usize,
) -> Code {
    type Real =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;
    let real = hook.real();
    if real.is_null() {
        return ABSENT;
    }
    // SAFETY: the driver's function of this name, called as the program did.
    let code = unsafe {
        std::mem::transmute::<*mut c_void, Real>(real)(name, function, version, flags, status)
    };
    let door = hook.symbol.to_str().unwrap_or(hook.name);
    // SAFETY: as far as the real call went through, its arguments were valid.
    unsafe { swap(door, code, name, function, version, meant, caller) }
}

/// Replaces what a successful lookup wrote, where it is hooked.
unsafe fn swap(
    door: &str,
    code: Code,
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    caller: usize,
) -> Code {
    if code != Code::SUCCESS || name.is_null() || function.is_null() {
        return code;
    }
    // SAFETY: the driver has just read the name and written the function.
    let (name, found) = unsafe { (CStr::from_ptr(name), *function) };
    if found.is_null() {
        return code;
    }
    let entry = boundary::or_else(
        door,
        || substitute::entry_for_request(found, name, version, flags, caller),
        || None,
    );
    if let Some(entry) = entry {
        // SAFETY: see above.
        unsafe { *function = entry };
    }
    code
}

macro_rules! runtime_entry_point {
    ($($symbol:ident ($($arg:ident: $type:ty),*) $caller_x86_64:literal $caller_aarch64:literal;)*) => {$(
        crate::pass_caller! {
            #[doc = concat!("The runtime's `", stringify!($symbol), "`: what it finds is swapped for the asking module.")]
            $symbol, $symbol::get, $caller_x86_64, $caller_aarch64
        }

        mod $symbol {
            use super::*;

            pub unsafe extern "C" fn get(
                name: *const c_char,
                function: *mut *mut c_void,
                $($arg: $type,)*
                caller: usize,
            ) -> c_int {
                type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, $($type),*) -> c_int;
                const NAME: &CStr =
                    match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a symbol has no inner NUL"),
                    };
                static CALLERS: tagged::Callers = tagged::Callers::none();
                let real = CALLERS.real(caller, NAME, super::$symbol).function;
                // SAFETY: the runtime's function of this name, called as the program did;
                // releases whose function has fewer arguments ignore the last ones.
                let result = unsafe {
                    std::mem::transmute::<*mut c_void, Real>(real)(name, function, $($arg),*)
                };
                if result == 0 && !function.is_null() {
                    // SAFETY: the call succeeded, so it wrote the function.
                    let found = unsafe { *function };
                    let entry = boundary::or_else(
                        stringify!($symbol),
                        || substitute::entry_for(found, Door::EntryPoint, caller),
                        || None,
                    );
                    if let Some(entry) = entry {
                        // SAFETY: see above.
                        unsafe { *function = entry };
                    }
                }
                result
            }
        }
    )*};
}

runtime_entry_point! {
    cudaGetDriverEntryPoint(flags: u64, status: *mut c_int) "r8" "x4";
    cudaGetDriverEntryPoint_ptsz(flags: u64, status: *mut c_int) "r8" "x4";
    cudaGetDriverEntryPointByVersion(version: u32, flags: u64, status: *mut c_int) "r9" "x5";
    cudaGetDriverEntryPointByVersion_ptsz(version: u32, flags: u64, status: *mut c_int) "r9" "x5";
}
