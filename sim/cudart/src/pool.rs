//! Stream-ordered memory and its pools.

use std::ffi::c_void;

use crate::driver::Driver;
use crate::runtime;
use crate::state::{bind, check};

/// The thread's context is made current for a default stream alone: another one tells its own.
fn bind_for(driver: &Driver, stream: u64) -> Result<(), u32> {
    const LAST_DEFAULT: u64 = 2;
    match stream {
        ..=LAST_DEFAULT => bind(driver),
        _ => Ok(()),
    }
}

runtime! { with_driver |driver|
    fn cudaMallocAsync | cudaMallocAsync_ptsz (out: *mut u64, bytes: usize, stream: u64) {
        if !out.is_null() {
            out.write(0);
        }
        bind_for(driver, stream)?;
        check((driver.mem_alloc_async)(out, bytes, stream))
    }
    fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz (out: *mut u64, bytes: usize, pool: u64, stream: u64) {
        if !out.is_null() {
            out.write(0);
        }
        bind_for(driver, stream)?;
        check((driver.mem_alloc_from_pool)(out, bytes, pool, stream))
    }
    fn cudaFreeAsync | cudaFreeAsync_ptsz (at: u64, stream: u64) {
        bind_for(driver, stream)?;
        check((driver.mem_free_async)(at, stream))
    }
    fn cudaDeviceGetDefaultMemPool(out: *mut u64, device: i32) {
        check((driver.pool_default)(out, device))
    }
    fn cudaDeviceGetMemPool(out: *mut u64, device: i32) {
        check((driver.pool_get)(out, device))
    }
    fn cudaDeviceSetMemPool(device: i32, pool: u64) {
        check((driver.pool_set)(device, pool))
    }
    fn cudaMemPoolCreate(out: *mut u64, properties: *mut c_void) {
        check((driver.pool_create)(out, properties))
    }
    fn cudaMemPoolDestroy(pool: u64) {
        check((driver.pool_destroy)(pool))
    }
    fn cudaMemPoolTrimTo(pool: u64, keep: usize) {
        check((driver.pool_trim)(pool, keep))
    }
    fn cudaMemPoolSetAttribute(pool: u64, attribute: i32, value: *mut c_void) {
        check((driver.pool_set_attribute)(pool, attribute, value))
    }
    fn cudaMemPoolGetAttribute(pool: u64, attribute: i32, value: *mut c_void) {
        check((driver.pool_get_attribute)(pool, attribute, value))
    }
    fn cudaMemPoolSetAccess(pool: u64, descriptors: *mut c_void, count: usize) {
        check((driver.pool_set_access)(pool, descriptors, count))
    }
}
