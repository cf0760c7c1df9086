//! What the runtime keeps for a thread: its device and its last error. The
//! primary context is retained when a call first needs it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver::{Driver, driver, initialise};

/// `cudaErrorUnknown`.
const UNKNOWN: u32 = 999;

/// `cudaErrorInvalidDevice`.
const INVALID_DEVICE: u32 = 101;
/// `cudaErrorDeviceUninitialized`.
const DEVICE_UNINITIALIZED: u32 = 201;
/// `cudaErrorContextIsDestroyed`.
const CONTEXT_IS_DESTROYED: u32 = 709;
/// The most devices that there are.
const DEVICES: usize = 8;

/// The primary contexts that the runtime has retained, by device.
static PRIMARIES: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

pub fn device() -> i32 {
    DEVICE.get()
}

/// The last error; `clear` forgets it.
pub fn last_error(clear: bool) -> u32 {
    let code = LAST_ERROR.get();
    if clear {
        LAST_ERROR.set(0);
    }
    code
}

/// The end of every runtime call: its code, kept as the last error.
pub fn finish(result: Result<(), u32>) -> u32 {
    match result {
        Ok(()) => 0,
        Err(code) => {
            LAST_ERROR.set(code);
            code
        }
    }
}

/// Runs a call that needs an initialised driver, but no context.
pub fn with_driver(per_thread: bool, body: impl FnOnce(&Driver) -> Result<(), u32>) -> u32 {
    guard(|| {
        let driver = driver(per_thread)?;
        initialise(driver)?;
        body(driver)
    })
}

/// Runs a call that needs the thread's context.
pub fn with_context(per_thread: bool, body: impl FnOnce(&Driver) -> Result<(), u32>) -> u32 {
    with_driver(per_thread, |driver| {
        bind(driver)?;
        body(driver)
    })
}

fn guard(body: impl FnOnce() -> Result<(), u32>) -> u32 {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    finish(caught.unwrap_or(Err(UNKNOWN)))
}

/// Makes the primary context of the thread's device current, unless the program made another
/// one current itself. A primary one that has ended begins again.
pub fn bind(driver: &Driver) -> Result<(), u32> {
    let mut current = 0;
    // SAFETY: a local.
    check(unsafe { (driver.context_get)(&mut current) })?;
    if current == 0 {
        // Whichever device was set before.
        DEVICE.set(0);
        return set_context(driver, 0);
    }
    let (mut flags, mut active, mut device, mut id) = (0, 0, 0, 0);
    // SAFETY: a local.
    let has_ended = unsafe { (driver.context_id)(0, &mut id) } == CONTEXT_IS_DESTROYED;
    // SAFETY: locals.
    unsafe {
        check((driver.context_device)(&mut device))?;
        check((driver.primary_state)(device, &mut flags, &mut active))?;
    }
    match (has_ended, active != 0) {
        (false, true) => meet(driver, device, current),
        (false, false) => Ok(()),
        (true, false) if primary(driver, device)? == current => Ok(()),
        // Of another context that has ended it makes nothing.
        (true, _) => Err(DEVICE_UNINITIALIZED),
    }
}

/// Retains the current context, where it is the device's primary one and is met for the first
/// time.
fn meet(driver: &Driver, device: i32, current: u64) -> Result<(), u32> {
    let place = PRIMARIES.get(device as usize).ok_or(INVALID_DEVICE)?;
    if place.load(Relaxed) != 0 {
        return Ok(());
    }
    let mut context = 0;
    // SAFETY: a local.
    check(unsafe { (driver.primary_retain)(&mut context, device) })?;
    if context == current {
        place.store(context, Relaxed);
        return Ok(());
    }
    // SAFETY: it was retained just now.
    check(unsafe { (driver.primary_release)(device) })
}

fn set_context(driver: &Driver, device: i32) -> Result<(), u32> {
    let context = primary(driver, device)?;
    // SAFETY: the context is retained.
    check(unsafe { (driver.context_set)(context) })
}

/// The primary context of a device, retained once, and once more where it has ended since.
pub fn primary(driver: &Driver, device: i32) -> Result<u64, u32> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: two locals; a device that is none the driver refuses.
    check(unsafe { (driver.primary_state)(device, &mut flags, &mut active) })?;
    let place = PRIMARIES.get(device as usize).ok_or(INVALID_DEVICE)?;
    let mut context = place.load(Relaxed);
    if context == 0 || active == 0 {
        // SAFETY: a local.
        check(unsafe { (driver.primary_retain)(&mut context, device) })?;
        place.store(context, Relaxed);
    }
    Ok(context)
}

/// `cudaSetDevice`.
pub fn set_device(driver: &Driver, device: i32) -> Result<(), u32> {
    let mut count = 0;
    // SAFETY: a local.
    check(unsafe { (driver.device_count)(&mut count) })?;
    if !(0..count).contains(&device) {
        return Err(INVALID_DEVICE);
    }
    DEVICE.set(device);
    set_context(driver, device)
}

/// `cudaDeviceReset`.
pub fn reset(driver: &Driver) -> Result<(), u32> {
    // SAFETY: the thread's device exists, or the driver refuses it.
    check(unsafe { (driver.primary_reset)(DEVICE.get()) })
}

/// Driver codes and runtime codes are the same numbers.
pub fn check(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}
