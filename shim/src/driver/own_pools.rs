//! Memory pools that the program made: where each lies, and how much it may hold. One that is at
//! its own limit would be given nothing by room on a device. Makes no room, and calls the driver
//! under no lock.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::sys::MemLocation;
use memcuda_core::lock::lock;
use memcuda_core::units::MIB;

use crate::driver::calls::{Calls, MemPool};

/// `CUmemPool_attribute`: bytes held, bytes used.
const RESERVED: u32 = 5;
const USED: u32 = 7;
/// A pool grows by so many bytes, or by more.
const LEAST: u64 = 2 * MIB;

/// How `CUmemPoolProps` begins.
#[repr(C)]
pub struct Properties {
    kind: u32,
    handle_types: u32,
    location: MemLocation,
    security: *mut c_void,
    /// Bytes; 0, and always before CUDA 12.2, for what the driver sees fit.
    limit: usize,
}

const _: () = assert!(std::mem::offset_of!(Properties, limit) == 24);

struct OwnPool {
    handle: MemPool,
    location: MemLocation,
    limit: u64,
}

static POOLS: Mutex<Vec<OwnPool>> = Mutex::new(Vec::new());

fn pools() -> MutexGuard<'static, Vec<OwnPool>> {
    lock(&POOLS)
}

/// The program has made a pool.
pub fn made(handle: MemPool, about: &Properties) {
    pools().push(OwnPool {
        handle,
        location: about.location,
        limit: about.limit as u64,
    });
}

/// Runs the end of a pool, whose handle may be another one's before that returns; it stays where
/// `ends` says that it has not ended.
pub fn ending(handle: MemPool, ends: impl FnOnce() -> bool) {
    let mut known = pools();
    let at = known.iter().position(|pool| pool.handle == handle);
    let pool = at.map(|at| known.swap_remove(at));
    drop(known);
    if !ends() {
        pools().extend(pool);
    }
}

/// Where a pool lies, if it is known.
pub fn location(handle: MemPool) -> Option<MemLocation> {
    let pools = pools();
    let pool = pools.iter().find(|pool| pool.handle == handle)?;
    Some(pool.location)
}

/// Is it for its own limit that a pool has just refused so many bytes?
pub fn is_at_its_limit(calls: &Calls, handle: MemPool, bytes: u64) -> bool {
    let limit = {
        let pools = pools();
        let pool = pools.iter().find(|pool| pool.handle == handle);
        pool.map_or(0, |pool| pool.limit)
    };
    let beyond = |sum, more: u64| {
        let has = calls.mem_pool_sum(handle, sum);
        has.is_some_and(|has| has.saturating_add(more) > limit)
    };
    limit > 0 && (beyond(USED, bytes) || beyond(RESERVED, LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_known_until_it_has_ended() {
        let handle = 1;
        assert!(location(handle).is_none());
        let about = Properties {
            kind: 1,
            handle_types: 0,
            location: MemLocation { kind: 3, id: 5 },
            security: std::ptr::null_mut(),
            limit: 0,
        };
        made(handle, &about);
        ending(handle, || false);
        assert_eq!(location(handle).map(|location| location.id), Some(5));
        // Another thread is given the handle before the call has returned.
        ending(handle, || {
            made(handle, &about);
            true
        });
        assert!(location(handle).is_some());
        ending(handle, || true);
        assert!(location(handle).is_none());
    }
}
