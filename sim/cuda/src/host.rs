//! Page-locked host memory.

use crate::abi::Code;
use crate::entry::{api, must_put};
use crate::memory::holding;
use crate::state::Sim;

const PAGE: usize = 4096;

impl Sim {
    /// Is there anything to be said of an address as the host's? Of memory that a program has
    /// mapped there is.
    fn is_known_to_host(&self, at: u64) -> bool {
        holding(&self.pinned, at, |bytes| *bytes).is_some()
            || holding(&self.mappings, at, |mapping| mapping.bytes).is_some()
    }

    fn host_alloc(&mut self, out: *mut u64, bytes: usize) -> crate::abi::Answer {
        self.refuse_unsafe()?;
        self.current()?;
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if bytes == 0 {
            // SAFETY: the caller's pointer, not null.
            return unsafe { must_put(out, 0) };
        }
        // SAFETY: a fresh allocation with a valid alignment.
        let at = unsafe { libc::memalign(PAGE, bytes) } as u64;
        if at == 0 {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.pinned.insert(at, bytes as u64);
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, at) }
    }
}

api! { plain EXPORTS |sim|
    fn cuMemHostAlloc(out: *mut u64, bytes: usize, _flags: u32) {
        sim.host_alloc(out, bytes)
    }
    fn cuMemAllocHost_v2(out: *mut u64, bytes: usize) {
        sim.host_alloc(out, bytes)
    }
    fn cuMemFreeHost(at: u64) {
        sim.refuse_unsafe()?;
        if sim.pinned.remove(&at).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        // The driver waits before it takes host memory away.
        for device in 0..sim.devices.len() {
            sim.drain_device(device);
        }
        sim.settle();
        // SAFETY: it was ours, and is no longer in the table.
        unsafe { libc::free(at as *mut _) };
        Ok(())
    }
    fn cuMemHostRegister_v2(at: u64, bytes: usize, _flags: u32) {
        sim.current()?;
        if at == 0 || bytes == 0 || at.checked_add(bytes as u64).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        if sim.is_device_address(at) {
            return Err(Code::INVALID_VALUE);
        }
        if holding(&sim.pinned, at, |bytes| *bytes).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        sim.pinned.insert(at, bytes as u64);
        Ok(())
    }
    fn cuMemHostUnregister(at: u64) {
        if sim.is_device_address(at) {
            return Err(Code::INVALID_VALUE);
        }
        sim.pinned.remove(&at).map(|_| ()).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }
    fn cuMemHostGetFlags(out: *mut u32, at: u64) {
        if !sim.is_known_to_host(at) {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller's pointer. All of it is portable and mapped.
        unsafe { must_put(out, 3) }
    }
    fn cuMemHostGetDevicePointer_v2(out: *mut u64, at: u64, _flags: u32) {
        if !sim.is_known_to_host(at) {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, at) }
    }
}
