//! What the runtime keeps for a thread: its device and its last error. The
//! primary context is retained when a call first needs it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver::{Driver, driver, initialise};

/// `cudaErrorUnknown`.
const UNKNOWN: u32 = 999;

/// Counts device resets: a context bound before one is dead.
static RESETS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
    /// The context that the runtime made current, and the resets before it.
    static BOUND: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
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

/// Makes the primary context of the thread's device current, unless the
/// program made another one current itself.
fn bind(driver: &Driver) -> Result<(), u32> {
    let mut current = 0;
    // SAFETY: a local.
    check(unsafe { (driver.context_get)(&mut current) })?;
    let (bound, resets) = BOUND.get();
    let dead = current == bound && resets != RESETS.load(Relaxed);
    if current != 0 && !dead {
        return Ok(());
    }
    set_context(driver, DEVICE.get())
}

fn set_context(driver: &Driver, device: i32) -> Result<(), u32> {
    let mut context = 0;
    // SAFETY: a local.
    check(unsafe { (driver.primary_retain)(&mut context, device) })?;
    // SAFETY: the context was just retained.
    check(unsafe { (driver.context_set)(context) })?;
    BOUND.set((context, RESETS.load(Relaxed)));
    Ok(())
}

/// `cudaSetDevice`.
pub fn set_device(driver: &Driver, device: i32) -> Result<(), u32> {
    let mut count = 0;
    // SAFETY: a local.
    check(unsafe { (driver.device_count)(&mut count) })?;
    if !(0..count).contains(&device) {
        return Err(101);
    }
    DEVICE.set(device);
    set_context(driver, device)
}

/// `cudaDeviceReset`.
pub fn reset(driver: &Driver) -> Result<(), u32> {
    RESETS.fetch_add(1, Relaxed);
    // SAFETY: the thread's device exists, or the driver refuses it.
    check(unsafe { (driver.primary_reset)(DEVICE.get()) })
}

/// The primary context of another device, for peer access.
pub fn context_of(driver: &Driver, device: i32) -> Result<u64, u32> {
    let mut context = 0;
    // SAFETY: a local.
    check(unsafe { (driver.primary_retain)(&mut context, device) })?;
    Ok(context)
}

/// Driver codes and runtime codes are the same numbers.
pub fn check(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}
