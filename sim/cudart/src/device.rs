//! Devices, versions, errors, and the way to the driver's own entry points.

use std::ffi::{c_char, c_int, c_void};

use crate::driver::{Driver, driver};
use crate::runtime;
use crate::state::{check, device, finish, last_error, primary, reset, set_device};

/// CUDA 13.0.
const VERSION: c_int = 13000;
/// `cudaErrorInvalidValue`.
const INVALID_VALUE: u32 = 1;
/// `cudaErrorSymbolNotFound`.
const NOT_FOUND: u32 = 500;

runtime! { with_context |driver|
    fn cudaDeviceSynchronize() {
        check((driver.context_synchronize)())
    }
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        check((driver.priority_range)(least, greatest))
    }
    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: u32) {
        check((driver.enable_peer)(primary(driver, peer)?, flags))
    }
    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        check((driver.disable_peer)(primary(driver, peer)?))
    }
}

runtime! { with_driver |driver|
    fn cudaDeviceReset() {
        reset(driver)
    }
    fn cudaSetDevice(ordinal: c_int) {
        set_device(driver, ordinal)
    }
    fn cudaGetDevice(out: *mut c_int) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        // With no context current the answer is the thread's choice.
        if (driver.context_device)(out) != 0 {
            out.write(device());
        }
        Ok(())
    }
    fn cudaGetDeviceCount(out: *mut c_int) {
        check((driver.device_count)(out))
    }
    fn cudaDeviceGetAttribute(out: *mut c_int, attribute: c_int, ordinal: c_int) {
        check((driver.device_attribute)(out, attribute, ordinal))
    }
    fn cudaDeviceCanAccessPeer(out: *mut c_int, ordinal: c_int, peer: c_int) {
        check((driver.can_access_peer)(out, ordinal, peer))
    }
    fn cudaGetDriverEntryPoint | cudaGetDriverEntryPoint_ptsz (name: *const c_char, out: *mut *mut c_void, flags: u64, status: *mut c_int) {
        entry_point(driver, name, out, VERSION as u32, flags, status)
    }
    fn cudaGetDriverEntryPointByVersion | cudaGetDriverEntryPointByVersion_ptsz (name: *const c_char, out: *mut *mut c_void, version: u32, flags: u64, status: *mut c_int) {
        entry_point(driver, name, out, version, flags, status)
    }
}

/// The driver's entry point of a name. By default (no flags) it is the
/// spelling for the caller's own default stream.
unsafe fn entry_point(
    driver: &Driver,
    name: *const c_char,
    out: *mut *mut c_void,
    version: u32,
    flags: u64,
    status: *mut c_int,
) -> Result<(), u32> {
    let flags = if flags == 0 { driver.flags } else { flags };
    // SAFETY: the program's arguments, passed on.
    let code = unsafe { (driver.proc_address)(name, out, version as c_int, flags, status) };
    // Where the caller asked for a status, a missing symbol is not an error.
    if code == NOT_FOUND && !status.is_null() {
        Ok(())
    } else {
        check(code)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDriverGetVersion(out: *mut c_int) -> u32 {
    // SAFETY: the program's argument, passed on.
    finish(driver(false).and_then(|d| check(unsafe { (d.driver_version)(out) })))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion(out: *mut c_int) -> u32 {
    if out.is_null() {
        return finish(Err(INVALID_VALUE));
    }
    // SAFETY: not null; the program's argument.
    unsafe { out.write(VERSION) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetLastError() -> u32 {
    last_error(true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPeekAtLastError() -> u32 {
    last_error(false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    // SAFETY: the driver writes to a local.
    describe(
        code,
        |d, out| unsafe { (d.error_string)(code, out) },
        c"unrecognized error code".as_ptr(),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetErrorName(code: u32) -> *const c_char {
    // SAFETY: the driver writes to a local.
    describe(
        code,
        |d, out| unsafe { (d.error_name)(code, out) },
        c"unrecognized error code".as_ptr(),
    )
}

fn describe(
    code: u32,
    ask: impl FnOnce(&crate::driver::Driver, *mut *const c_char) -> u32,
    unknown: *const c_char,
) -> *const c_char {
    if code == 35 {
        return c"CUDA driver version is insufficient for CUDA runtime version".as_ptr();
    }
    let mut text = std::ptr::null();
    match driver(false) {
        Ok(driver) if ask(driver, &mut text) == 0 => text,
        _ => unknown,
    }
}
