//! Versions of a name, as programs publish them and wait for them.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::memory::of;
use super::outcome::call;
use super::place::stream;
use crate::names::versions;

/// # Safety
/// `out` is null or valid for a write.
unsafe fn put(out: *mut u64, value: u64) {
    if !out.is_null() {
        // SAFETY: by the function's own contract.
        unsafe { out.write(value) };
    }
}

/// `memcuda_publish`.
///
/// # Safety
/// `published` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_publish(handle: u64, version: u64, published: *mut u64) -> c_int {
    call("memcuda_publish", |engine| {
        let number = versions::publish(engine, &*of(handle)?, version)?;
        // SAFETY: by the function's own contract.
        unsafe { put(published, number) };
        Ok(())
    })
}

/// `memcuda_publish_on`.
///
/// # Safety
/// `published` is null or valid for a write, the stream one of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_publish_on(
    handle: u64,
    version: u64,
    on: *mut c_void,
    published: *mut u64,
) -> c_int {
    call("memcuda_publish_on", |engine| {
        let number = versions::publish_on(engine, &*of(handle)?, version, stream(on))?;
        // SAFETY: by the function's own contract.
        unsafe { put(published, number) };
        Ok(())
    })
}

/// `memcuda_wait`.
///
/// # Safety
/// `seen` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_wait(
    handle: u64,
    version: u64,
    timeout_us: u64,
    seen: *mut u64,
) -> c_int {
    call("memcuda_wait", |engine| {
        let longest = (timeout_us != u64::MAX).then(|| Duration::from_micros(timeout_us));
        let mapped = of(handle)?;
        let waited = versions::wait(engine, &mapped, version, longest);
        let newest = match &waited {
            Ok(newest) => *newest,
            Err(_) => versions::known(&mapped),
        };
        // SAFETY: by the function's own contract.
        unsafe { put(seen, newest) };
        waited.map(drop)
    })
}

/// `memcuda_wait_on`.
///
/// # Safety
/// The stream is one of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_wait_on(handle: u64, version: u64, on: *mut c_void) -> c_int {
    call("memcuda_wait_on", |engine| {
        versions::wait_on(engine, &*of(handle)?, version, stream(on))
    })
}
