//! Physical allocation handles (`cuMemCreate`), exported and imported as
//! POSIX file descriptors or, within the process alone, as what is for a fabric.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use crate::abi::{
    ALLOCATION_PINNED, Code, HANDLE_FABRIC, HANDLE_NONE, HANDLE_POSIX_FD, LOCATION_DEVICE,
    MemAllocationProp,
};
use crate::arena::{GRANULE, Import, Keep, reopen};
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::memory::{Source, holding};
use crate::state::Sim;

#[derive(Default)]
pub struct Physical {
    pub bytes: u64,
    pub device: usize,
    /// The arena, or the memory of another process.
    pub object: u32,
    pub offset: u64,
    pub properties: MemAllocationProp,
    /// `BUFFER_ID` of memory mapped from it.
    pub id: u64,
    /// Creations, imports and retains that were not released.
    pub references: u32,
    pub mappings: u32,
    /// Where it was mapped first, of the mappings that there are.
    pub first: u64,
    /// That mapping is gone while others stayed: no other device is let into these any more
    /// (docs/measurements/h100.md).
    pub torn: bool,
    exported: bool,
    /// Tokens for another device were asked for.
    pub sync_memops: bool,
    /// What keeps another process's memory, of an imported handle.
    pub import: Option<Keep>,
}

impl Physical {
    /// Does the program have it: by a reference, or by a mapping?
    pub fn is_known(&self) -> bool {
        self.references > 0 || self.mappings > 0
    }
}

impl Sim {
    /// Gives the memory up once neither a reference nor a mapping is left.
    pub fn collect(&mut self, handle: u64) {
        let gone = self
            .handles
            .get(&handle)
            .is_some_and(|h| h.references == 0 && h.mappings == 0);
        if !gone {
            return;
        }
        let Some(physical) = self.handles.remove(&handle) else {
            return;
        };
        if physical.import.is_some() {
            return;
        }
        self.shadow
            .forget(physical.object, physical.offset, physical.bytes);
        let arena = &mut self.devices[physical.device].arena;
        if physical.exported {
            arena.linger(physical.offset, physical.bytes, &mut self.ledger);
        } else {
            arena.give_granules(physical.offset, physical.bytes, &mut self.ledger);
        }
    }

    fn check_properties(
        &self,
        properties: *const MemAllocationProp,
    ) -> Result<MemAllocationProp, Code> {
        if properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let properties = unsafe { properties.read() };
        if properties.kind != ALLOCATION_PINNED {
            return Err(Code::INVALID_VALUE);
        }
        if properties.location.kind != LOCATION_DEVICE {
            return Err(Code::NOT_SUPPORTED);
        }
        self.device(properties.location.id)?;
        match properties.requested_handle_types & !HANDLE_POSIX_FD {
            0 => Ok(properties),
            HANDLE_FABRIC if self.fabric => Ok(properties),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    /// A handle's memory as a file, where it was made to be exported in this way.
    fn export(&mut self, handle: u64, kind: u32) -> Result<OwnedFd, Code> {
        let physical = self.handles.get_mut(&handle).filter(|h| h.is_known());
        let physical = physical.ok_or(Code::INVALID_VALUE)?;
        if physical.properties.requested_handle_types & kind == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let arena = &self.devices[physical.device].arena;
        let file = arena.export(physical.offset, physical.bytes)?;
        physical.exported = true;
        Ok(file)
    }

    /// Keeps imported memory without a descriptor of its own, as the driver does.
    fn keep(&mut self, import: &Import) -> Result<Keep, Code> {
        let arena = match self.files.get(&import.arena) {
            Some(arena) => arena.clone(),
            None => {
                let arena = Arc::new(reopen(import.file.as_raw_fd())?);
                self.files.insert(import.arena, arena.clone());
                arena
            }
        };
        Keep::of(import, arena)
    }

    /// Is there all of this range: mapped, or on the granules of an allocation that it touches?
    fn is_had(&self, base: u64, bytes: u64) -> bool {
        let Some(end) = base.checked_add(bytes) else {
            return false;
        };
        let behind = self.allocations.range(base..end);
        let mut touched = self
            .allocation_at(base)
            .into_iter()
            .chain(behind.map(|(at, a)| (*at, a)));
        let on_granules = touched.any(|(at, a)| {
            let granules = at / GRANULE * GRANULE..(at + a.bytes).next_multiple_of(GRANULE);
            !a.freed && granules.start <= base && end <= granules.end
        });
        on_granules || self.resolve(base, bytes).is_ok()
    }

    /// No file is had of it.
    fn is_managed(&self, at: u64) -> bool {
        self.allocation_at(at)
            .is_some_and(|(_, a)| a.source == Source::Managed)
    }

    /// The object number of another process's arena, or of our own.
    pub fn object_of(&mut self, import: &Import) -> u32 {
        if let Some(own) = self.devices.iter().position(|d| d.arena.id == import.arena) {
            return own as u32;
        }
        let next = 64 + self.foreign.len() as u32;
        *self.foreign.entry(import.arena).or_insert(next)
    }
}

/// `CUmemFabricHandle`: the handle itself, in this process.
#[repr(C, packed)]
struct FabricHandle([u64; 8]);

impl FabricHandle {
    fn of(handle: u64) -> Self {
        Self([handle, 0, 0, 0, 0, 0, 0, 0])
    }
}

/// What stands for a dma-buf, which nothing here takes: an empty file as long as the range.
fn of_length(bytes: usize) -> Result<OwnedFd, Code> {
    // SAFETY: a constant name; the descriptor is ours.
    unsafe {
        let fd = libc::memfd_create(c"memcuda-sim-dma-buf".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(Code::OUT_OF_MEMORY);
        }
        let file = OwnedFd::from_raw_fd(fd);
        match libc::ftruncate(fd, bytes as libc::off_t) {
            0 => Ok(file),
            _ => Err(Code::OUT_OF_MEMORY),
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuMemGetAllocationGranularity(out: *mut usize, properties: *const MemAllocationProp, _option: u32) {
        sim.check_properties(properties)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, GRANULE as usize) }
    }
    fn cuMemCreate(out: *mut u64, bytes: usize, properties: *const MemAllocationProp, flags: u64) {
        let properties = sim.check_properties(properties)?;
        let bytes = bytes as u64;
        if out.is_null() || bytes == 0 || !bytes.is_multiple_of(GRANULE) || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        sim.lacks.create(&properties)?;
        let device = sim.device(properties.location.id)?;
        sim.clock.charge(cost::create(bytes));
        let taken = sim.devices[device].arena.take_granules(bytes, &mut sim.ledger);
        let offset = match taken {
            Ok(offset) => offset,
            Err(_) => {
                sim.trim_pools(device)?;
                sim.devices[device].arena.take_granules(bytes, &mut sim.ledger)?
            }
        };
        let handle = sim.number(0x6800_0000_0000);
        let id = sim.number(0) >> 4;
        sim.handles.insert(handle, Physical {
            bytes,
            device,
            object: device as u32,
            offset,
            properties,
            id,
            references: 1,
            ..Physical::default()
        });
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }
    fn cuMemRelease(handle: u64) {
        let physical = sim.handles.get_mut(&handle).filter(|h| h.references > 0);
        let physical = physical.ok_or(Code::INVALID_VALUE)?;
        physical.references -= 1;
        let bytes = physical.bytes;
        sim.clock.charge(cost::release(bytes));
        sim.collect(handle);
        Ok(())
    }
    fn cuMemGetHandleForAddressRange(out: *mut i32, base: u64, bytes: usize, kind: u32, flags: u64) {
        const DMA_BUF: u32 = 1;
        const PAGE: u64 = 4096;
        let odd = !(base | bytes as u64).is_multiple_of(PAGE);
        if base == 0 || kind != DMA_BUF {
            return Err(Code::INVALID_VALUE);
        }
        sim.current()?;
        if out.is_null() || bytes == 0 || odd {
            return Err(Code::INVALID_VALUE);
        }
        let refused = match sim.is_had(base, bytes as u64) && !sim.is_managed(base) {
            false => Some(Code::INVALID_VALUE),
            // A mapping over PCIe of its own this GPU has none.
            true => (flags != 0).then_some(Code::NOT_SUPPORTED),
        };
        if let Some(code) = refused {
            // SAFETY: the caller's pointer, not null.
            unsafe { out.write(-1) };
            return Err(code);
        }
        let file = of_length(bytes)?;
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, file.into_raw_fd()) }
    }
    fn cuMemExportToShareableHandle(out: *mut i32, handle: u64, kind: u32, flags: u64) {
        if out.is_null() || flags != 0 || ![HANDLE_POSIX_FD, HANDLE_FABRIC].contains(&kind) {
            return Err(Code::INVALID_VALUE);
        }
        let file = sim.export(handle, kind)?;
        sim.clock.charge(cost::EXPORT);
        // SAFETY: the caller's pointer, not null, to what this kind of handle is.
        unsafe {
            match kind {
                HANDLE_FABRIC => must_put(out.cast(), FabricHandle::of(handle)),
                _ => must_put(out, file.into_raw_fd()),
            }
        }
    }
    fn cuMemImportFromShareableHandle(out: *mut u64, shared: usize, kind: u32) {
        if out.is_null() || ![HANDLE_POSIX_FD, HANDLE_FABRIC].contains(&kind) {
            return Err(Code::INVALID_VALUE);
        }
        let import = match kind {
            HANDLE_FABRIC => {
                // SAFETY: by the caller's kind a pointer to such a handle.
                let shared = unsafe { (shared as *const FabricHandle).read_unaligned() };
                Import::open(sim.export(shared.0[0], kind)?.as_raw_fd())?
            }
            _ => Import::open(shared as i32)?,
        };
        sim.clock.charge(cost::IMPORT);
        let device = sim.device(import.device as i32)?;
        let object = sim.object_of(&import);
        let keep = sim.keep(&import)?;
        let handle = sim.number(0x6800_0000_0000);
        let id = sim.number(0) >> 4;
        let mut properties = MemAllocationProp {
            kind: ALLOCATION_PINNED,
            // An imported handle cannot be exported again.
            requested_handle_types: HANDLE_NONE,
            ..MemAllocationProp::default()
        };
        properties.location.kind = LOCATION_DEVICE;
        properties.location.id = device as i32;
        sim.handles.insert(handle, Physical {
            bytes: import.bytes,
            device,
            object,
            offset: import.offset,
            properties,
            id,
            references: 1,
            import: Some(keep),
            ..Physical::default()
        });
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }
    fn cuMemRetainAllocationHandle(out: *mut u64, address: u64) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let (_, mapping) = holding(&sim.mappings, address, |m| m.bytes).ok_or(Code::INVALID_VALUE)?;
        let handle = mapping.handle;
        if let Some(physical) = sim.handles.get_mut(&handle) {
            physical.references += 1;
        }
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }
    fn cuMemGetAllocationPropertiesFromHandle(out: *mut MemAllocationProp, handle: u64) {
        let physical = sim.handles.get(&handle).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, physical.properties) }
    }
}
