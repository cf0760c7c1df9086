//! The only place that looks symbols up, always through libc's own `dlsym`, so
//! that no hook of this library is ever found by the library itself.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::libraries::{dynamic, loader, scope};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlerror = unsafe extern "C" fn() -> *mut c_char;

/// libc's own function of a name, whoever else has interposed it; before glibc
/// 2.34 they are in a library of their own.
fn of_libc(name: &CStr) -> *mut c_void {
    match dynamic::of_libc(name) {
        found if found.is_null() => dynamic::find(|file| file == b"libdl.so.2", name),
        found => found,
    }
}

fn dlopen(file: &CStr, flags: c_int) -> *mut c_void {
    static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let found = cached(&DLOPEN, || of_libc(c"dlopen"));
    // SAFETY: null is `None`; anything else is a function of this signature.
    let dlopen = unsafe { std::mem::transmute::<*mut c_void, Option<Dlopen>>(found) };
    // SAFETY: a string, and flags that it knows.
    let handle = dlopen.map_or(ptr::null_mut(), |dlopen| unsafe {
        dlopen(file.as_ptr(), flags)
    });
    if handle.is_null() {
        forget_failure();
    }
    handle
}

/// A handle on a library, which is loaded if it is not yet; null where it
/// cannot be.
pub fn open(file: &CStr) -> *mut c_void {
    dlopen(file, libc::RTLD_NOW)
}

/// A handle on a library that the process has loaded already. With NOLOAD
/// nothing is loaded and no constructor runs.
pub fn loaded(file: &CStr) -> *mut c_void {
    dlopen(file, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
}

/// Gives such a handle back, if it is one.
pub fn close(library: *mut c_void) {
    type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
    static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let found = cached(&DLCLOSE, || of_libc(c"dlclose"));
    // SAFETY: null is `None`; anything else is a function of this signature.
    let dlclose = unsafe { std::mem::transmute::<*mut c_void, Option<Dlclose>>(found) };
    if let Some(dlclose) = dlclose.filter(|_| !library.is_null()) {
        // SAFETY: a handle of dlopen's, which is not used again.
        unsafe { dlclose(library) };
    }
}

/// After a lookup of ours that failed: the program's next `dlerror` does not
/// speak of it.
fn forget_failure() {
    static DLERROR: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let found = cached(&DLERROR, || of_libc(c"dlerror"));
    // SAFETY: null is `None`; anything else is a function of this signature.
    if let Some(dlerror) = unsafe { std::mem::transmute::<*mut c_void, Option<Dlerror>>(found) } {
        // SAFETY: takes nothing; hands the error out and forgets it.
        unsafe { dlerror() };
    }
}

fn cached(slot: &AtomicPtr<c_void>, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let known = slot.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = find();
    slot.store(found, Ordering::Release);
    found
}

/// libc's own `dlsym`.
fn dlsym() -> Option<Dlsym> {
    static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let found = cached(&DLSYM, || of_libc(c"dlsym"));
    // SAFETY: null is `None`; anything else is a function of this signature.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlsym>>(found) }
}

/// `dlsym(handle, name)` without any hook; null where it is absent. A failure is
/// left for `dlerror`.
pub fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is one of dlopen's or a constant of its, or a wrong one
    // of the program's, as before.
    dlsym().map_or(ptr::null_mut(), |dlsym| unsafe {
        dlsym(handle, name.as_ptr())
    })
}

/// As [`look_up`] in libc, which has nothing of CUDA: for the failure that it leaves.
pub fn in_libc(name: &CStr) -> *mut c_void {
    static LIBC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    match cached(&LIBC, || loaded(c"libc.so.6")) {
        libc if libc.is_null() => libc,
        libc => look_up(libc, name),
    }
}

/// As [`look_up`]; a failure is forgotten.
pub fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let found = look_up(handle, name);
    if found.is_null() {
        forget_failure();
    }
    found
}

/// The definition behind this library in the program's search order: the real
/// one, or that of another preloaded library.
pub fn next(name: &CStr) -> *mut c_void {
    symbol(libc::RTLD_NEXT, name)
}

/// As [`next`], looked up once; null only where no program could call it.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        let found = AtomicPtr::new(ptr::null_mut());
        Self { name, found }
    }

    pub fn get(&self) -> *mut c_void {
        cached(&self.found, || next(self.name))
    }
}

const DRIVER: &CStr = c"libcuda.so.1";

/// A handle on the driver library if the process has loaded it, and null otherwise: the shim
/// brings the driver into a process only where it is called in the place of who would.
pub fn driver() -> *mut c_void {
    static LOADED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    cached(&LOADED, || loaded(DRIVER))
}

/// The same, loaded as a library loads it whose function was called here; null where there is
/// none, which that library then says in its own way.
pub fn driver_for_another() -> *mut c_void {
    match open(DRIVER) {
        none if none.is_null() => none,
        _ => driver(),
    }
}

/// The runtime function that the code at `caller` would reach without this
/// library: one that stands in for everybody's, the one of the libcudart that its own module
/// depends on, else the
/// next one in the search order, else any loaded libcudart's. `own` is this
/// library's function of that name. It holds until something is unloaded.
///
/// What a module brings along to stand in for a runtime (TileLang's `libcudart_stub.so`) is
/// reached only where there is none in the search order.
///
/// Only where neither the caller's module nor the program depends on a runtime is the
/// loader asked: it may be busy with a constructor that waits for this thread.
pub fn runtime(caller: usize, name: &CStr, own: *const c_void) -> *mut c_void {
    let (from_tables, is_before) = scope::look_behind(own as usize, caller, name);
    if is_before || (!from_tables.is_null() && is_of_runtime(from_tables)) {
        return from_tables;
    }
    let from_next = next(name);
    if !from_next.is_null() && is_behind(own as usize, from_next as usize) {
        return from_next;
    }
    match from_tables {
        none if none.is_null() => dynamic::find(is_runtime, name),
        found => found,
    }
}

/// Is this the name of a runtime's file?
pub fn is_runtime(file: &[u8]) -> bool {
    // A version, or what wheels put before it.
    let rest = file.strip_prefix(b"libcudart");
    rest.is_some_and(|rest| rest.starts_with(b".") || rest.starts_with(b"-"))
}

/// Does a function lie in a runtime?
pub fn is_of_runtime(function: *mut c_void) -> bool {
    let at = function as usize;
    let holds = |file: &loader::File<'_>| file.code().is_some_and(|code| code.contains(&at));
    loader::find(|file| holds(file).then(|| is_runtime(file.file()))) == Some(true)
}

/// What the scope of the caller's own library has behind this one, which RTLD_DEFAULT
/// searches too: of what was loaded with RTLD_LOCAL nobody else sees it. That it is in no
/// other scope is forgotten with that.
pub fn in_scope(caller: usize, name: &CStr, own: *const c_void) -> *mut c_void {
    let found = scope::behind(own as usize, caller, name);
    if !found.is_null() {
        forget_failure();
    }
    found
}

/// Does code lie in a file that comes after this library's? What comes before it, as
/// another preloaded library, has been asked already, and asks on.
pub fn is_behind(own: usize, found: usize) -> bool {
    let behind = loader::find(|file| {
        let code = file.code()?;
        let first = code.contains(&own) || code.contains(&found);
        first.then(|| !code.contains(&found))
    });
    behind.unwrap_or(false)
}
