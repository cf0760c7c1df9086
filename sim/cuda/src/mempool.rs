//! The driver's stream-ordered calls and its memory pools, as programs see
//! them; `blocks` finds the memory.

use crate::abi::{ACCESS_READ, ALLOCATION_PINNED, Answer, Code, MemAccessDesc, MemPoolProps};
use crate::blocks::{PIECE, Pool};
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::memory::{Allocation, Source};
use crate::state::Sim;
use crate::stream::Effect;

const RELEASE_THRESHOLD: u32 = 4;

const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;

impl Sim {
    fn pool(&mut self, handle: u64) -> Result<&mut Pool, Code> {
        self.pools
            .get_mut(&handle)
            .filter(|p| !p.destroyed)
            .ok_or(Code::INVALID_VALUE)
    }

    /// May this device use that stream-ordered memory?
    pub fn pool_grants(&self, allocation: &Allocation, device: usize) -> bool {
        match allocation.source {
            Source::Pool(pool) => self.pools.get(&pool).is_some_and(|p| p.access[device] != 0),
            _ => false,
        }
    }

    fn alloc_ordered(
        &mut self,
        out: *mut u64,
        bytes: u64,
        pool: Option<u64>,
        stream: u64,
    ) -> Answer {
        let id = self.stream(stream)?;
        let context = self.streams[&id].context;
        let device = self.contexts[&context].device;
        let pool = pool.unwrap_or(self.devices[device].current_pool);
        let device = self.pool(pool)?.device;
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if bytes == 0 {
            self.joined_by_default(id)?;
            return self.refuse_unsafe();
        }
        self.clock.charge(cost::POOL_ALLOC);
        if let Some(capture) = self.streams[&id].capture {
            let graph = self.active(capture)?.graph;
            // A graph has none that could be exported.
            if self.pool(pool)?.handle_types != 0 {
                return Err(Code::NOT_SUPPORTED);
            }
            let base = self.allocate(device, bytes, Source::Graph(graph), context)?;
            let kept = self.capture_work(capture, id, 0, &[], Effect::Take(base));
            kept.inspect_err(|_| self.discard(base))?;
            // SAFETY: the caller's pointer, not null.
            return unsafe { must_put(out, base) };
        }
        // No work: on the legacy default stream it is no barrier (docs/measurements/h100.md).
        self.joined_by_default(id)?;
        self.refuse_unsafe()?;
        let held = self.held(bytes)?;
        let offset = self.take_block(pool, held, id)?;
        self.count_used(pool, bytes);
        let base = self.enter_allocation(bytes, offset, device, Source::Pool(pool), 0)?;
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, base) }
    }

    /// A free of a pool's memory: behind the stream's work, or (`None`) now.
    pub fn return_to_pool(&mut self, pool: u64, base: u64, stream: Option<u32>) {
        if let Some(allocation) = self.allocations.remove(&base) {
            self.give_block(pool, allocation.offset, allocation.held, stream);
            if let Some(pool) = self.pools.get_mut(&pool) {
                pool.used -= allocation.bytes;
                pool.uncounted += stream.map_or(allocation.bytes, |_| 0);
            }
        }
    }

    fn free_ordered(&mut self, base: u64, stream: u64) -> Answer {
        let id = self.stream(stream)?;
        let capture = self.streams[&id].capture;
        if capture.is_none() {
            self.join_default(id)?;
            self.refuse_unsafe()?;
        }
        if let Some(capture) = capture {
            self.active(capture)?;
        }
        if base == 0 {
            return Ok(());
        }
        let allocation = self.allocations.get(&base).filter(|a| !a.freed).cloned();
        let allocation = allocation.ok_or(Code::INVALID_VALUE)?;
        self.clock.charge(cost::POOL_FREE);
        if let Some(capture) = capture {
            // A graph frees memory of its own only.
            if !matches!(allocation.source, Source::Graph(_)) {
                return Err(Code::INVALID_VALUE);
            }
            return self.capture_work(capture, id, 0, &[], Effect::Give(base));
        }
        self.check_unclaimed(base, allocation.bytes, "frees");
        let piece = Sim::piece_of(base, &allocation);
        self.check_unused(&piece, Some(id), "frees");
        match allocation.source {
            Source::Pool(pool) => self.return_to_pool(pool, base, Some(id)),
            Source::Managed => return Err(Code::NOT_SUPPORTED),
            Source::Plain => {
                if let Some(allocation) = self.allocations.get_mut(&base) {
                    allocation.freed = true;
                }
                self.submit(id, 0, &[], Effect::Free(base, allocation.id))?;
            }
            Source::Graph(_) => self.give_graph_memory(base)?,
            Source::Ipc => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// The moment of a stream-ordered free has come. The memory may be gone with its
    /// context, and its address be another allocation's by then.
    pub fn finish_free(&mut self, base: u64, id: u64) {
        if self.allocations.get(&base).is_some_and(|a| a.id == id) {
            self.discard(base);
        }
    }
}

impl Sim {
    fn set_current_pool(&mut self, device: i32, pool: u64) -> Answer {
        self.refuse_unsafe()?;
        let device = self.device(device).map_err(|_| Code::INVALID_VALUE)?;
        if self.pool(pool)?.device != device {
            return Err(Code::INVALID_VALUE);
        }
        self.devices[device].current_pool = pool;
        Ok(())
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz [stream clears out] (out: *mut u64, bytes: usize, stream: u64) {
        sim.alloc_ordered(out, bytes as u64, None, stream)
    }
    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz [stream clears out] (out: *mut u64, bytes: usize, pool: u64, stream: u64) {
        sim.alloc_ordered(out, bytes as u64, Some(pool), stream)
    }
    fn cuMemFreeAsync | cuMemFreeAsync_ptsz [stream] (base: u64, stream: u64) {
        sim.free_ordered(base, stream)
    }
}

api! { plain EXPORTS |sim|
    fn cuMemPoolCreate(out: *mut u64, properties: *const MemPoolProps) {
        sim.refuse_unsafe()?;
        if out.is_null() || properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let properties = unsafe { properties.read() };
        let device = sim.device(properties.location.id);
        let device = device.map_err(|_| Code::INVALID_VALUE)?;
        if properties.alloc_type != ALLOCATION_PINNED {
            return Err(Code::INVALID_VALUE);
        }
        let handle = sim.number(0x6d00_0000_0000);
        let mut pool = Pool::new(device, false);
        pool.handle_types = properties.handle_types;
        if properties.max_size > 0 {
            pool.limit = (properties.max_size as u64).next_multiple_of(PIECE);
        }
        sim.pools.insert(handle, pool);
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }
    fn cuMemPoolDestroy(pool: u64) {
        sim.refuse_unsafe()?;
        let entry = sim.pool(pool)?;
        if entry.default {
            return Err(Code::INVALID_VALUE);
        }
        entry.destroyed = true;
        let device = entry.device;
        if sim.devices[device].current_pool == pool {
            sim.devices[device].current_pool = sim.devices[device].default_pool;
        }
        sim.trim_pool(pool, 0);
        Ok(())
    }
    fn cuMemPoolTrimTo(pool: u64, keep: usize) {
        sim.refuse_unsafe()?;
        sim.pool(pool)?;
        sim.trim_pool(pool, keep as u64);
        Ok(())
    }
    fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: *const u64) {
        sim.refuse_unsafe()?;
        let pool = sim.pool(pool)?;
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes the type of the attribute.
        unsafe {
            match attribute {
                1..=3 => pool.reuse[attribute as usize - 1] = value.cast::<i32>().read(),
                RELEASE_THRESHOLD => pool.threshold = value.read(),
                RESERVED_HIGH if value.read() == 0 => pool.reserved_high = pool.reserved,
                USED_HIGH if value.read() == 0 => pool.used_high = pool.all_used(),
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    }
    fn cuMemPoolGetAttribute(pool: u64, attribute: u32, out: *mut u64) {
        sim.refuse_unsafe()?;
        let pool = sim.pool(pool)?;
        let value = match attribute {
            // SAFETY: the caller's pointer; these attributes are 32 bits wide.
            1..=3 => return unsafe { must_put(out.cast(), pool.reuse[attribute as usize - 1]) },
            RELEASE_THRESHOLD => pool.threshold,
            RESERVED => pool.reserved,
            RESERVED_HIGH => pool.reserved_high,
            USED => pool.all_used(),
            USED_HIGH => pool.used_high,
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, value) }
    }
    fn cuMemPoolSetAccess(pool: u64, descriptors: *const MemAccessDesc, count: usize) {
        sim.refuse_unsafe()?;
        sim.pool(pool)?;
        if descriptors.is_null() && count != 0 {
            return Err(Code::INVALID_VALUE);
        }
        for i in 0..count {
            // SAFETY: the caller passes `count` whole structures.
            let descriptor = unsafe { descriptors.add(i).read() };
            if descriptor.location.kind != crate::abi::LOCATION_DEVICE {
                return Err(Code::NOT_SUPPORTED);
            }
            match descriptor.flags {
                0 | 3 => {}
                ACCESS_READ => return Err(Code::NOT_SUPPORTED),
                _ => return Err(Code::INVALID_VALUE),
            }
            let device = sim.device(descriptor.location.id)?;
            if descriptor.flags == 0 && sim.pool(pool)?.device == device {
                return Err(Code::INVALID_DEVICE);
            }
            sim.pool(pool)?.access[device] = descriptor.flags as u8;
        }
        Ok(())
    }
    fn cuMemPoolGetAccess(out: *mut u32, pool: u64, location: *const crate::abi::MemLocation) {
        sim.refuse_unsafe()?;
        if location.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let device = sim.device(unsafe { location.read() }.id);
        let device = device.map_err(|_| Code::INVALID_VALUE)?;
        let access = sim.pool(pool)?.access[device];
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, u32::from(access)) }
    }
    fn cuDeviceGetDefaultMemPool(out: *mut u64, device: i32) {
        let device = sim.device(device)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.devices[device].default_pool) }
    }
    fn cuDeviceGetMemPool(out: *mut u64, device: i32) {
        let device = sim.device(device).map_err(|_| Code::INVALID_VALUE)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.devices[device].current_pool) }
    }
    fn cuDeviceSetMemPool(device: i32, pool: u64) {
        sim.set_current_pool(device, pool)
    }
    fn cuMemSetMemPool(location: *const crate::abi::MemLocation, kind: u32, pool: u64) {
        if location.is_null() || kind != crate::abi::ALLOCATION_PINNED {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let location = unsafe { location.read() };
        if location.kind != crate::abi::LOCATION_DEVICE {
            return Err(Code::NOT_SUPPORTED);
        }
        sim.set_current_pool(location.id, pool)
    }
}
