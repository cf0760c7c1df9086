//! The library's own thread: its start, its turns, its rest. What it does is in
//! `watch`, and known to the engine.
//!
//! Started with the first pool, the first connection to a keeper, or a recording,
//! with every signal of the program's blocked. Never waits for the device, never ends a capture,
//! makes no driver call while a context is being destroyed or after the program
//! began to exit, and runs no hook's body.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use memcuda_core::lock::lock;
use memcuda_core::waiting::nap;

use crate::engine;
use crate::engine::{boundary, endings};
use crate::libraries::dynamic;

/// Held while the thread makes calls of libcuda or of libraries over it.
static TURN: Mutex<()> = Mutex::new(());
/// Held while it is in a library that has nothing to do with contexts and ends with the program.
static ELSEWHERE: Mutex<()> = Mutex::new(());
static STOP: AtomicBool = AtomicBool::new(false);

/// Starts the thread, once; is there one? Where there is none to be had, with the next one who
/// wants it.
pub fn start() -> bool {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::Relaxed) {
        return true;
    }
    rest_at_exit();
    // SAFETY: both sets are initialised before they are read.
    let code = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        // By this the program's sandbox answers the thread's own calls, and ends the program
        // where it is blocked.
        libc::sigdelset(&mut all, libc::SIGSYS);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let code = spawn();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        code
    };
    if code != 0 {
        STARTED.store(false, Ordering::Relaxed);
        let error = std::io::Error::from_raw_os_error(code);
        crate::log!(
            Info,
            "no thread ({error}): idle memory is not given to other processes"
        );
    }
    code == 0
}

/// Not by the standard library: what it keeps for a thread that starts another has a
/// destructor, and to register one is to wait for the loader, where a constructor may
/// wait for this thread. Returns the error.
fn spawn() -> c_int {
    // SAFETY: the attributes are initialised before they are used, and destroyed after.
    unsafe {
        let (mut thread, mut attributes) = (std::mem::zeroed(), std::mem::zeroed());
        libc::pthread_attr_init(&mut attributes);
        let bytes = stack(&attributes);
        libc::pthread_attr_setstacksize(&mut attributes, bytes);
        let null = ptr::null_mut();
        let code = libc::pthread_create(&mut thread, &attributes, run, null);
        libc::pthread_attr_destroy(&mut attributes);
        if code == 0 {
            libc::pthread_detach(thread);
        }
        code
    }
}

/// How long its stack is made: glibc takes thread-local memory out of it, that of the files
/// that were there at the start of the program and what it keeps for more, which is any
/// number of bytes. It tells by a function that no header has.
fn stack(attributes: &libc::pthread_attr_t) -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    let name = c"__pthread_get_minstack";
    let found = match dynamic::of_libc(name) {
        found if found.is_null() => dynamic::find(|file| file == b"libpthread.so.0", name),
        found => found,
    };
    // SAFETY: null is `None`; anything else is a function of this signature, which reads
    // attributes at most.
    let least = unsafe { std::mem::transmute::<*mut c_void, Option<Least>>(found) }
        .map_or(0, |least| unsafe { least(attributes) });
    (256 << 10) + least
}

/// The right of the thread to make such calls, until it is dropped; `None` while a context is
/// ending, which may take its time, and once the program exits.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    let turn = lock(&TURN);
    (!is_stopped() && !endings::any()).then_some(turn)
}

/// The right of the thread to call other libraries that end with the program, until it is
/// dropped; `None` once the program exits. The end of a context does not wait for it.
pub fn elsewhere() -> Option<MutexGuard<'static, ()>> {
    let elsewhere = lock(&ELSEWHERE);
    (!is_stopped()).then_some(elsewhere)
}

/// Waits until the turn that the thread may have is over: behind this it has none while a
/// context is ending.
pub fn until_away() {
    drop(lock(&TURN));
}

/// Lets the thread rest before anything that was loaded up to now ends: what is
/// registered last is called first.
pub fn rest_at_exit() {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { libc::atexit(at_exit) };
}

/// Is the thread to do nothing more?
pub fn is_stopped() -> bool {
    STOP.load(Ordering::Acquire)
}

/// There is no such thread any more: in a forked child.
pub fn stop() {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn at_exit() {
    if STOP.swap(true, Ordering::AcqRel) {
        return;
    }
    let recorder = engine::running().and_then(|engine| engine.recorder.as_ref());
    if let Some(recorder) = recorder {
        recorder.file().shrink();
    }
    for _ in 0..1000 {
        if TURN.try_lock().is_ok() && ELSEWHERE.try_lock().is_ok() {
            return;
        }
        nap(Duration::from_millis(1));
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: a name of at most 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"memcuda".as_ptr()) };
    boundary::stay_outside();
    if let Some(engine) = engine::running() {
        boundary::or_else("watch", || (engine.duty)(engine), || ());
    }
    ptr::null_mut()
}
