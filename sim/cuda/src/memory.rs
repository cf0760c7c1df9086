//! Plain allocations (`cuMemAlloc`), and what an address stands for.

use std::collections::BTreeMap;

use crate::abi::Code;
use crate::arena::{GRANULE, LARGE, SMALL};
use crate::check::{misuse, span};
use crate::clock::cost;
use crate::entry::{api, must_put, put};
use crate::state::Sim;

/// Where an allocation came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocAsync` and its kin, from this pool.
    Pool(u64),
    /// Another process, by `cuIpcOpenMemHandle`.
    Ipc,
    /// A graph's allocation node.
    Graph(u64),
}

#[derive(Clone)]
pub struct Allocation {
    /// As asked for.
    pub bytes: u64,
    /// As taken from the arena.
    pub held: u64,
    pub source: Source,
    pub device: usize,
    pub context: u64,
    /// Unique for every allocation of the process.
    pub id: u64,
    pub object: u32,
    pub offset: u64,
    pub sync_memops: bool,
    /// A stream-ordered free was asked for: nobody may use it any more.
    pub freed: bool,
    pub exported: bool,
}

/// Part of an address range that is one run of physical bytes.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The arena, or the memory of another process.
    pub object: u32,
    pub offset: u64,
    pub va: u64,
    pub bytes: u64,
}

/// The entry of a map of disjoint ranges that holds `address`.
pub fn holding<T>(
    map: &BTreeMap<u64, T>,
    address: u64,
    bytes: impl Fn(&T) -> u64,
) -> Option<(u64, &T)> {
    let (base, value) = map.range(..=address).next_back()?;
    (address - base < bytes(value)).then_some((*base, value))
}

impl Sim {
    pub fn allocation_at(&self, address: u64) -> Option<(u64, &Allocation)> {
        holding(&self.allocations, address, |a| a.bytes)
    }

    /// The physical bytes below a range; the first address without any.
    pub fn resolve(&self, base: u64, bytes: u64) -> Result<Vec<Piece>, u64> {
        let end = base.checked_add(bytes).ok_or(base)?;
        let mut pieces = Vec::new();
        let mut at = base;
        while at < end {
            let (object, offset, until) = self.physical(at).ok_or(at)?;
            let stop = until.min(end);
            pieces.push(Piece {
                object,
                offset,
                va: at,
                bytes: stop - at,
            });
            at = stop;
        }
        Ok(pieces)
    }

    /// Object and offset below an address, and where that run ends.
    fn physical(&self, at: u64) -> Option<(u32, u64, u64)> {
        if let Some((base, allocation)) = self.allocation_at(at) {
            let usable = !allocation.freed;
            return usable.then(|| {
                (
                    allocation.object,
                    allocation.offset + (at - base),
                    base + allocation.bytes,
                )
            });
        }
        let (base, mapping) = holding(&self.mappings, at, |m| m.bytes)?;
        let handle = self.handles.get(&mapping.handle)?;
        (mapping.access != [0; 8]).then(|| {
            (
                handle.object,
                handle.offset + (at - base),
                base + mapping.bytes,
            )
        })
    }

    /// Is this an address of a device, whatever state it is in?
    pub fn is_device_address(&self, address: u64) -> bool {
        self.devices.iter().any(|d| d.arena.contains(address))
            || holding(&self.reservations, address, |bytes| *bytes).is_some()
            || self.allocation_at(address).is_some()
    }

    /// Is there memory of a device at this address?
    pub fn is_of_device(&self, address: u64) -> bool {
        let found = self.allocation_at(address);
        found.is_some_and(|(_, it)| !it.freed)
            || holding(&self.mappings, address, |it| it.bytes).is_some()
    }

    /// Do these bytes, at least one, begin and end in the host's memory, or in addresses of
    /// devices? What else is wrong with them the checker finds.
    pub fn is_range(&self, base: u64, bytes: u64) -> bool {
        let last = base.checked_add(bytes - 1);
        last.is_some_and(|last| self.is_device_address(base) == self.is_device_address(last))
    }

    /// Why nothing may be touched at an address.
    pub fn explain_hole(&self, at: u64) -> String {
        if let Some((base, allocation)) = self.allocation_at(at) {
            return format!(
                "{at:#x} lies in {}, which was freed",
                span(base, allocation.bytes)
            );
        }
        if holding(&self.mappings, at, |m| m.bytes).is_some() {
            return format!("{at:#x} is mapped, but no access was granted");
        }
        if holding(&self.reservations, at, |bytes| *bytes).is_some() {
            return format!("{at:#x} is reserved, but not mapped (any more)");
        }
        if self.devices.iter().any(|d| d.arena.contains(at)) {
            return format!("{at:#x} is freed memory, or was never allocated");
        }
        format!("{at:#x} is no device memory")
    }

    /// A plain allocation on a device.
    pub fn allocate(
        &mut self,
        device: usize,
        bytes: u64,
        source: Source,
        context: u64,
    ) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let held = self.held(bytes)?;
        let arena = &mut self.devices[device].arena;
        let offset = match arena.take(held, &mut self.ledger) {
            Ok(offset) => offset,
            Err(_) => {
                self.trim_pools(device)?;
                self.devices[device].arena.take(held, &mut self.ledger)?
            }
        };
        self.enter_allocation(bytes, offset, device, source, self.whole(context))
    }

    /// Bytes of the arena that a request takes.
    pub fn held(&self, bytes: u64) -> Result<u64, Code> {
        let held = bytes.checked_next_multiple_of(SMALL);
        let held = held.filter(|held| *held <= self.ledger.total());
        held.ok_or(Code::OUT_OF_MEMORY)
    }

    /// The address of an allocation that lies at `offset` of the arena.
    pub fn enter_allocation(
        &mut self,
        bytes: u64,
        offset: u64,
        device: usize,
        source: Source,
        context: u64,
    ) -> Result<u64, Code> {
        let allocation = Allocation {
            bytes,
            held: self.held(bytes)?,
            source,
            device,
            context,
            id: self.number(0) >> 4,
            object: device as u32,
            offset,
            sync_memops: false,
            freed: false,
            exported: false,
        };
        let base = self.devices[device].arena.base + offset;
        self.allocations.insert(base, allocation);
        Ok(base)
    }

    /// The bytes of an allocation as one piece.
    pub fn piece_of(base: u64, allocation: &Allocation) -> Piece {
        Piece {
            object: allocation.object,
            offset: allocation.offset,
            va: base,
            bytes: allocation.bytes,
        }
    }

    /// Ends an allocation; its bytes may be lent again at once.
    pub fn discard(&mut self, base: u64) {
        let Some(allocation) = self.allocations.remove(&base) else {
            return;
        };
        self.shadow
            .forget(allocation.object, allocation.offset, allocation.held);
        let arena = &mut self.devices[allocation.device].arena;
        if allocation.exported && allocation.held < LARGE {
            // Its importer sees the whole slab: the place is not used again.
        } else if allocation.exported {
            let bytes = allocation.held.next_multiple_of(GRANULE);
            // Whoever has it open keeps it; its handle opens no more.
            let _ = arena.describe(allocation.offset, bytes, 0);
            arena.linger(allocation.offset, bytes, &mut self.ledger);
        } else {
            arena.give(allocation.offset, allocation.held, &mut self.ledger);
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuMemAlloc_v2 [clears out] (out: *mut u64, bytes: usize) {
        let context = sim.current()?;
        sim.refuse_unsafe()?;
        let device = sim.contexts[&context].device;
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let cost = sim.opening(cost::alloc(bytes as u64));
        sim.clock.charge(cost);
        let base = sim.allocate(device, bytes as u64, Source::Plain, context)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, base) }
    }
    fn cuMemAllocManaged [clears out] (out: *mut u64, bytes: usize, flags: u32) {
        if out.is_null() || !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        let context = sim.current()?;
        sim.refuse_unsafe()?;
        let device = sim.contexts[&context].device;
        sim.clock.charge(cost::alloc(bytes as u64));
        let base = sim.allocate(device, bytes as u64, Source::Managed, context)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, base) }
    }
    fn cuMemAllocPitch_v2 [clears out pitch] (out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) {
        let context = sim.current()?;
        let device = sim.contexts[&context].device;
        if out.is_null() || pitch.is_null() || width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let row = (width as u64).checked_next_multiple_of(SMALL).ok_or(Code::INVALID_VALUE)?;
        let bytes = row.checked_mul(height as u64).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(pitch, row as usize)? };
        sim.refuse_unsafe()?;
        sim.clock.charge(cost::alloc(bytes));
        let base = sim.allocate(device, bytes, Source::Plain, context)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, base) }
    }
    fn cuMemFree_v2(base: u64) {
        sim.refuse_unsafe()?;
        // It needs no context, but a broken one is told.
        let context = match sim.current() {
            Err(Code::INVALID_CONTEXT) => None,
            context => Some(context?),
        };
        if base == 0 {
            return Ok(());
        }
        let allocation = sim.allocations.get(&base).filter(|a| !a.freed).cloned();
        let allocation = allocation.ok_or(Code::INVALID_VALUE)?;
        match allocation.source {
            Source::Plain | Source::Managed => {
                sim.check_unclaimed(base, allocation.bytes, "frees");
                // The driver waits for the memory's context, and for no other one, before it
                // takes memory away.
                sim.drain_context(sim.whole(allocation.context))?;
                sim.clock.charge(cost::free(allocation.bytes));
                // What it waited for may have crashed.
                context.map_or(Ok(()), |context| sim.healthy(context))?;
                // What runs for another context is not waited for.
                sim.check_unused(&Sim::piece_of(base, &allocation), None, "frees");
                sim.discard(base);
            }
            Source::Pool(pool) => {
                // It does not wait for stream-ordered memory.
                sim.check_unclaimed(base, allocation.bytes, "frees");
                sim.clock.charge(cost::POOL_FREE);
                sim.check_unused(&Sim::piece_of(base, &allocation), None, "frees");
                sim.return_to_pool(pool, base, None);
            }
            Source::Graph(_) => {
                sim.check_unused(&Sim::piece_of(base, &allocation), None, "frees");
                sim.give_graph_memory(base)?;
            }
            Source::Ipc => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
    fn cuMemGetInfo_v2 [clears free total] (free: *mut usize, total: *mut usize) {
        let device = sim.current_device()?;
        sim.clock.charge(cost::MEM_INFO);
        sim.devices[device].arena.settle_lingering(&mut sim.ledger);
        let all = sim.ledger.total();
        // SAFETY: the caller's pointers; null is legal.
        unsafe {
            put(free, all.saturating_sub(sim.ledger.used(device)) as usize);
            put(total, all as usize);
        }
        Ok(())
    }
    fn cuMemGetAddressRange_v2 [clears base bytes] (base: *mut u64, bytes: *mut usize, address: u64) {
        if base.is_null() && bytes.is_null() {
            return Ok(());
        }
        let context = sim.current()?;
        if !sim.is_address_reached(&sim.contexts[&context], address) {
            return Err(Code::NOT_FOUND);
        }
        let (at, length) = match sim.allocation_at(address) {
            Some((at, allocation)) if !allocation.freed => (at, allocation.bytes),
            _ => {
                let mapping = holding(&sim.mappings, address, |it| it.bytes);
                let mapping = mapping.map(|(at, it)| (at, it.bytes));
                let pinned = holding(&sim.pinned, address, |it| it.bytes);
                let pinned = pinned.map(|(at, it)| (at, it.bytes));
                mapping.or(pinned).ok_or(Code::NOT_FOUND)?
            }
        };
        // SAFETY: the caller's pointers; null is legal.
        unsafe {
            put(base, at);
            put(bytes, length as usize);
        }
        Ok(())
    }
    fn cuSimCheckLeaks() {
        let mut left = Vec::new();
        let named = [
            ("allocation", sim.allocations.iter().map(|(k, a)| (*k, a.bytes)).next(), sim.allocations.len()),
            ("mapping", sim.mappings.iter().map(|(k, m)| (*k, m.bytes)).next(), sim.mappings.len()),
            ("reservation", sim.reservations.iter().map(|(k, b)| (*k, *b)).next(), sim.reservations.len()),
            ("array", sim.arrays.iter().map(|(k, a)| (*k, a.bytes)).next(), sim.arrays.len()),
            ("handle", sim.handles.iter().map(|(k, h)| (*k, h.bytes)).min(), sim.handles.len()),
        ];
        for (kind, first, count) in named {
            if let Some((at, bytes)) = first {
                left.push(format!("{count} {kind}(s), the first at {at:#x} of {bytes} bytes"));
            }
        }
        if !left.is_empty() {
            misuse(&format!("leaked: {}", left.join("; ")));
        }
        Ok(())
    }
}
