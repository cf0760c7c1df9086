//! How every driver call enters: the lock, the clock, injected faults, work
//! whose time has come, and the boundary that no panic crosses.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::abi::{Answer, Code};
use crate::clock::cost;
use crate::host_functions::refuse_inside;
use crate::state::{SIM, Sim};

type Locked = MutexGuard<'static, Option<Sim>>;

/// The calling process is a fork of the one that made the devices.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Relaxed);
}

/// `cuInit`.
pub fn start() -> Answer {
    if FORKED.load(Relaxed) {
        return Err(Code::NOT_INITIALIZED);
    }
    let mut state = lock();
    if state.is_none() {
        let sim = Sim::new().map_err(|line| {
            eprintln!("{line}");
            Code::INVALID_VALUE
        })?;
        // SAFETY: registers a handler that only stores a flag.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        *state = Some(sim);
    }
    Ok(())
}

/// Runs the body of a driver call over the simulation.
pub fn call(name: &'static str, mut body: impl FnMut(&mut Sim) -> Answer) -> u32 {
    guard(name, || {
        refuse_inside(name)?;
        if FORKED.load(Relaxed) {
            return Err(Code::NOT_INITIALIZED);
        }
        let mut state = lock();
        let sim = state.as_mut().ok_or(Code::NOT_INITIALIZED)?;
        sim.call = name;
        let of_driver = !name.starts_with("cuSim");
        if of_driver {
            sim.clock.charge(cost::CALL);
        }
        sim.settle();
        if of_driver && let Err(code) = sim.faults.check(name) {
            sim.injected(code);
            return Err(code);
        }
        loop {
            let sim = state.as_mut().ok_or(Code::NOT_INITIALIZED)?;
            sim.call = name;
            let number = sim.waits.begin();
            let answer = body(sim);
            sim.settle();
            if answer != Err(Code::AGAIN) {
                return answer.and(finish(state, number));
            }
            state = wait(state, number);
        }
    })
}

/// Runs a body that may not unwind further and needs no simulation.
pub fn guard(name: &'static str, body: impl FnOnce() -> Answer) -> u32 {
    let before = hold();
    let code = guarded(name, body);
    // SAFETY: the state that the thread had; null is legal.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    code
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// No thread that is cancelled ends in the frames of Rust that lie here, as in a driver's.
fn hold() -> c_int {
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    before
}

fn guarded(name: &'static str, body: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            eprintln!("memcuda-sim: a defect of the simulation in {name} (see the panic above)");
            std::process::abort()
        }
    }
}

/// Waits, unlocked, until what a call waits for is over.
fn wait(mut state: Locked, call: u64) -> Locked {
    while let Some(rest) = state.as_mut().and_then(|sim| sim.rest(call)) {
        drop(state);
        std::thread::sleep(rest);
        state = lock();
    }
    state
}

/// Waits until what a call waits for is over; answers what became of the work.
fn finish(state: Locked, call: u64) -> Answer {
    let waited_for = state.as_ref().map(|sim| sim.waited_for(call));
    let mut state = wait(state, call);
    let Some(sim) = state.as_mut() else {
        return Ok(());
    };
    let waited_for = waited_for.unwrap_or_default();
    if !waited_for.is_empty() {
        sim.release_unused();
    }
    sim.answer_of(&waited_for)
}

pub fn lock() -> Locked {
    // A panic ends the process, so poison is never seen by another call.
    SIM.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Declares exported driver calls and the table that looks them up.
///
/// - `plain`: the body runs as it stands.
/// - `streams`: `fn name | name_ptsz [stream] (..)`: one body for both
///   spellings; 0 is the legacy stream in the first and the calling thread's
///   default stream in the second.
/// - `defaults`: as `streams` for calls without a stream argument, which no capture takes.
/// - `raw`: needs no initialised driver.
///
/// `clears out` in brackets behind a name: the driver writes 0 there before anything else,
/// whatever comes of the call.
macro_rules! api {
    (raw $table:ident $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            $crate::entry::guard(stringify!($name), || $body)
        })*
        pub const $table: &[(&str, $crate::lookup::Export)] =
            &[$((stringify!($name), $crate::lookup::Export($name as *const ()))),*];
    };
    (plain $table:ident |$sim:ident| $(fn $name:ident $([clears $($out:ident)*])? ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(#[unsafe(no_mangle)]
        #[allow(unused_variables, reason = "some bodies need nothing of the simulation")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            // SAFETY: the caller's pointers; null is passed over.
            $($(unsafe { $crate::entry::put($out, 0) };)*)?
            $crate::entry::call(stringify!($name), |$sim| $body)
        })*
        pub const $table: &[(&str, $crate::lookup::Export)] =
            &[$((stringify!($name), $crate::lookup::Export($name as *const ()))),*];
    };
    (streams $table:ident |$sim:ident| $(fn $name:ident | $alt:ident [$stream:ident $(clears $out:ident)?] ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            // SAFETY: the caller's pointer; null is passed over.
            $(unsafe { $crate::entry::put($out, 0) };)?
            let $stream = if $stream == 0 { 1 } else { $stream };
            $crate::entry::call(stringify!($name), |$sim| $body)
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alt($($arg: $ty),*) -> u32 {
            // SAFETY: the caller's pointer; null is passed over.
            $(unsafe { $crate::entry::put($out, 0) };)?
            let $stream = if $stream == 0 { 2 } else { $stream };
            $crate::entry::call(stringify!($alt), |$sim| $body)
        })*
        pub const $table: &[(&str, $crate::lookup::Export)] = &[$(
            (stringify!($name), $crate::lookup::Export($name as *const ())),
            (stringify!($alt), $crate::lookup::Export($alt as *const ())),
        )*];
    };
    (defaults $table:ident |$sim:ident| $(fn $name:ident | $alt:ident [$stream:ident] ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            let $stream = 1u64;
            $crate::entry::call(stringify!($name), |$sim| {
                $sim.refuse_capturing($stream)?;
                $body
            })
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alt($($arg: $ty),*) -> u32 {
            let $stream = 2u64;
            $crate::entry::call(stringify!($alt), |$sim| {
                $sim.refuse_capturing($stream)?;
                $body
            })
        })*
        pub const $table: &[(&str, $crate::lookup::Export)] = &[$(
            (stringify!($name), $crate::lookup::Export($name as *const ())),
            (stringify!($alt), $crate::lookup::Export($alt as *const ())),
        )*];
    };
}
pub(crate) use api;

/// Writes a result where the caller asked for one.
///
/// # Safety
/// `out` is null or valid for a write.
pub unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: by the function's own contract.
        unsafe { out.write(value) };
    }
}

/// As [`put`], for results that the driver insists on.
///
/// # Safety
/// As for [`put`].
pub unsafe fn must_put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: by the function's own contract.
    unsafe { out.write(value) };
    Ok(())
}
