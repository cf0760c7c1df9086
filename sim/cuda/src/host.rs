//! Page-locked host memory.

use crate::abi::{Answer, Code};
use crate::entry::{api, must_put};
use crate::memory::{Source, holding};
use crate::state::Sim;

const PAGE: usize = 4096;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: a device reaches it all.
const MAPPED: u32 = 2;
/// Flags that there are: of memory that is allocated, and of memory that is registered.
const OF_ALLOCATED: u32 = 7;
const OF_REGISTERED: u32 = 15;

pub struct Pinned {
    pub bytes: u64,
    flags: u32,
    /// The context for whose work its end waits, and for no other one's.
    context: u64,
    /// Not the driver's own.
    registered: bool,
}

impl Pinned {
    pub fn is_registered_in(&self, context: u64) -> bool {
        self.registered && self.context == context
    }
}

impl Sim {
    /// Is there anything to be said of an address as the host's? Of memory that a program has
    /// mapped there is.
    fn is_known_to_host(&self, at: u64) -> bool {
        holding(&self.pinned, at, |it| it.bytes).is_some()
            || holding(&self.mappings, at, |mapping| mapping.bytes).is_some()
    }

    fn pin(&mut self, at: u64, bytes: usize, flags: u32, context: u64, registered: bool) {
        let pinned = Pinned {
            bytes: bytes as u64,
            flags: flags | MAPPED,
            context: self.whole(context),
            registered,
        };
        self.pinned.insert(at, pinned);
    }

    /// Waits before page-locked memory ends: for its context, if that is there.
    fn unpin(&mut self, at: u64, unknown: Code) -> Answer {
        let context = self.pinned.get(&at).ok_or(unknown)?.context;
        if self.contexts.contains_key(&context) {
            self.drain_context(context)?;
        }
        self.pinned.remove(&at);
        Ok(())
    }

    fn host_alloc(&mut self, out: *mut u64, bytes: usize, flags: u32) -> Answer {
        let context = self.current()?;
        self.refuse_unsafe()?;
        if out.is_null() || flags > OF_ALLOCATED {
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
        self.pin(at, bytes, flags, context, false);
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, at) }
    }
}

api! { plain EXPORTS |sim|
    fn cuMemHostAlloc(out: *mut u64, bytes: usize, flags: u32) {
        sim.host_alloc(out, bytes, flags)
    }
    fn cuMemAllocHost_v2(out: *mut u64, bytes: usize) {
        sim.host_alloc(out, bytes, 0)
    }
    fn cuMemFreeHost(at: u64) {
        sim.refuse_unsafe()?;
        if at == 0 {
            return Ok(());
        }
        // It needs no context, but one that is broken, or has ended, is told.
        match sim.current() {
            Err(Code::INVALID_CONTEXT) => {}
            current => _ = current?,
        }
        sim.unpin(at, Code::INVALID_VALUE)?;
        // SAFETY: it was ours, and is no longer in the table.
        unsafe { libc::free(at as *mut _) };
        Ok(())
    }
    fn cuMemHostRegister_v2(at: u64, bytes: usize, flags: u32) {
        let context = sim.current()?;
        sim.refuse_unsafe()?;
        if at == 0 || bytes == 0 || at.checked_add(bytes as u64).is_none() || flags > OF_REGISTERED {
            return Err(Code::INVALID_VALUE);
        }
        if sim.is_device_address(at) {
            return Err(Code::INVALID_VALUE);
        }
        if holding(&sim.pinned, at, |it| it.bytes).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        sim.pin(at, bytes, flags, context, true);
        Ok(())
    }
    fn cuMemHostUnregister(at: u64) {
        sim.refuse_unsafe()?;
        match sim.current() {
            Err(Code::INVALID_CONTEXT) => {}
            current => _ = current?,
        }
        if sim.is_of_device(at) {
            return Err(Code::INVALID_VALUE);
        }
        sim.unpin(at, Code::HOST_MEMORY_NOT_REGISTERED)
    }
    fn cuMemHostGetFlags(out: *mut u32, at: u64) {
        let context = sim.current()?;
        if !sim.is_address_reached(&sim.contexts[&context], at) {
            return Err(Code::INVALID_VALUE);
        }
        let managed = sim.allocation_at(at).filter(|(_, it)| it.source == Source::Managed);
        if !sim.is_known_to_host(at) && managed.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        // Memory that is mapped is portable, too.
        let others = managed.map_or(3, |_| MAPPED);
        let flags = holding(&sim.pinned, at, |it| it.bytes).map_or(others, |(_, it)| it.flags);
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, flags) }
    }
    fn cuMemHostGetDevicePointer_v2 [clears out] (out: *mut u64, at: u64, _flags: u32) {
        let context = sim.current()?;
        if !sim.is_known_to_host(at) || !sim.is_address_reached(&sim.contexts[&context], at) {
            return Err(Code::INVALID_VALUE);
        }
        // Of a mapping it is the begin.
        let mapping = holding(&sim.mappings, at, |mapping| mapping.bytes);
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, mapping.map_or(at, |(base, _)| base)) }
    }
}
