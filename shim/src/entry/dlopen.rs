//! `dlopen` and `dlmopen`, of which only the flags are changed: RTLD_DEEPBIND
//! is taken out, because a library loaded with it binds to libc's `dlsym` and
//! to the driver's own functions, past this library. Everything else is the
//! loader's: the search follows the caller's own RPATH and RUNPATH, so the real
//! function is jumped to and sees the caller's return address. The names of what is loaded for
//! everybody are noted, for who looks behind this library later (`scope`).
//!
//! What is loaded into another namespace (`dlmopen`) has a libc and a driver of
//! its own there, out of reach; that is said once, when CUDA has started in this
//! one. No lock and, but for such names, no allocation.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use memcuda_core::config::Deepbind;

use crate::engine::boundary;
use crate::libraries::{aside, resolve, scope};
use crate::process::asm::Next;
use crate::process::environment;

crate::tail_jump_with! {
    /// `dlopen(file, flags)`.
    dlopen, on_dlopen, "rsi", "x1"
}

crate::tail_jump_with! {
    /// `dlmopen(namespace, file, flags)`.
    dlmopen, on_dlmopen, "rdx", "x2"
}

/// `LM_ID_BASE`: the namespace of the program.
const BASE: c_long = 0;

static STRIPPED: AtomicBool = AtomicBool::new(false);
/// The first library that went into another namespace.
static ELSEWHERE: AtomicPtr<CString> = AtomicPtr::new(ptr::null_mut());
static SPEAKS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn on_dlopen(file: *const c_char, flags: c_int) -> Next {
    static NEXT: resolve::Next = resolve::Next::new(c"dlopen");
    // SAFETY: dlopen demands a string or null.
    unsafe { note_global(file, flags) };
    Next::jump_with(NEXT.get(), visible(flags))
}

unsafe extern "C" fn on_dlmopen(namespace: c_long, file: *const c_char, flags: c_int) -> Next {
    static NEXT: resolve::Next = resolve::Next::new(c"dlmopen");
    if namespace == BASE {
        // SAFETY: dlmopen demands a string or null.
        unsafe { note_global(file, flags) };
        return Next::jump_with(NEXT.get(), visible(flags));
    }
    if !file.is_null() {
        // SAFETY: dlmopen demands a string or null.
        let file = unsafe { CStr::from_ptr(file) };
        boundary::or_else("dlmopen", || note_elsewhere(file), || ());
    }
    Next::jump_with(NEXT.get(), flags as usize)
}

/// What is loaded for everybody may stand in for others' functions.
///
/// # Safety
/// The file is a string or null.
unsafe fn note_global(file: *const c_char, flags: c_int) {
    if flags & libc::RTLD_GLOBAL != 0 && !file.is_null() {
        // SAFETY: as the caller says.
        let file = unsafe { CStr::from_ptr(file) };
        boundary::or_else("dlopen", || scope::note_global(file), || ());
    }
}

/// The flags with which the library binds to this one's functions.
fn visible(flags: c_int) -> usize {
    if flags & libc::RTLD_DEEPBIND == 0 || !boundary::or_else("dlopen", strips, || false) {
        return flags as usize;
    }
    STRIPPED.store(true, Ordering::SeqCst);
    say();
    (flags & !libc::RTLD_DEEPBIND) as usize
}

/// `MEMCUDA_DEEPBIND`, read here because libraries are loaded before the
/// settings are. A wrong value is refused at the start of CUDA.
fn strips() -> bool {
    let value = environment::raw(c"MEMCUDA_DEEPBIND").map_or(&b""[..], CStr::to_bytes);
    let deepbind = match value.trim_ascii() {
        b"" => Some(Deepbind::default()),
        word => Deepbind::of(OsStr::from_bytes(word)),
    };
    deepbind == Some(Deepbind::Strip) && !aside::stands()
}

fn note_elsewhere(file: &CStr) {
    if ELSEWHERE.load(Ordering::SeqCst).is_null() {
        let name = Box::into_raw(Box::new(file.to_owned()));
        let null = ptr::null_mut();
        let first = ELSEWHERE.compare_exchange(null, name, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_err() {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(name) });
        }
    }
    say();
}

/// The log is set up: what was noted is said, and from now on at once.
pub fn speak() {
    SPEAKS.store(true, Ordering::SeqCst);
    say();
}

fn say() {
    if !SPEAKS.load(Ordering::SeqCst) {
        return;
    }
    if STRIPPED.load(Ordering::SeqCst) {
        crate::log_once!(
            Info,
            "libraries are loaded without RTLD_DEEPBIND, which would hide memcuda from them \
             (MEMCUDA_DEEPBIND=keep leaves it)"
        );
    }
    // SAFETY: null, or a name that is never freed.
    if let Some(name) = unsafe { ELSEWHERE.load(Ordering::SeqCst).as_ref() } {
        crate::log_once!(
            Warn,
            "{name:?} was loaded into a namespace of its own (dlmopen): CUDA that is used there \
             is not seen by memcuda"
        );
    }
}
