//! Legacy memory handles between processes. An open goes through the
//! exporter's descriptor table, so the exporter must live, as in CUDA. A handle of
//! memory that was freed opens no more, but where a granule is shared.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::abi::{Answer, Code, IpcMemHandle};
use crate::address::{map_file, reserve_address};
use crate::arena::{GRANULE, Import, LARGE};
use crate::entry::{api, must_put};
use crate::memory::{Allocation, Source};
use crate::state::Sim;
use crate::uses::Uses;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: other flags are refused.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
const MAGIC: u64 = 0x6d65_6d63_7564_6133;

/// What the 64 bytes say.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct Exported {
    magic: u64,
    pid: u64,
    /// The exporter's descriptor of the arena.
    fd: u64,
    arena: u64,
    offset: u64,
    bytes: u64,
    /// The allocation's number in its process.
    id: u64,
    device: u64,
}

impl Exported {
    /// The exporter's memory from this offset on.
    fn import(&self, offset: u64) -> Result<Import, Code> {
        let path = format!("/proc/{}/fd/{}\0", self.pid, self.fd);
        // SAFETY: a NUL-terminated path; the descriptor is owned at once.
        let file = unsafe {
            let fd = libc::open(path.as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd < 0 {
                return Err(Code::INVALID_VALUE);
            }
            OwnedFd::from_raw_fd(fd)
        };
        let import = Import::at(file.as_raw_fd(), offset)?;
        if import.arena != self.arena {
            return Err(Code::INVALID_VALUE);
        }
        Ok(import)
    }
}

/// An opened handle.
pub struct Opened {
    from: Exported,
    references: u32,
    /// Keeps the range held for as long as it is open.
    _file: OwnedFd,
    reservation: (u64, u64),
    pub uses: Uses,
}

impl Sim {
    fn open_ipc(&mut self, out: *mut u64, handle: IpcMemHandle, flags: u32) -> Answer {
        // SAFETY: both are 64 bytes and every bit pattern is valid.
        let from: Exported = unsafe { std::mem::transmute(handle) };
        let context = self.current()?;
        if out.is_null() || from.magic != MAGIC || flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(Code::INVALID_VALUE);
        }
        if from.pid == u64::from(std::process::id()) {
            return Err(Code::INVALID_CONTEXT);
        }
        let known = self
            .opened
            .iter_mut()
            .find(|(_, opened)| opened.from == from);
        if let Some((base, opened)) = known {
            // One context of the process has it.
            if self.allocations[base].context != context {
                return Err(Code::INVALID_HANDLE);
            }
            opened.references += 1;
            // SAFETY: the caller's pointer, not null.
            return unsafe { must_put(out, *base) };
        }
        // SAFETY: asks for a process, and sends it nothing.
        if unsafe { libc::kill(from.pid as i32, 0) } < 0 {
            return Err(Code::INVALID_HANDLE);
        }
        let device = self.device(from.device as i32)?;
        let first = from.offset / GRANULE * GRANULE;
        let import = from.import(first)?;
        // Small ones share their granules, of which none is lent again.
        if from.bytes >= LARGE && import.allocation != from.id {
            return Err(Code::INVALID_VALUE);
        }
        let object = self.object_of(&import);
        let length = (from.offset - first + from.bytes).next_multiple_of(GRANULE);
        let reservation = reserve_address(length, GRANULE)?;
        // SAFETY: the address range was reserved on the line above.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            map_file(
                reservation,
                length,
                import.file.as_raw_fd(),
                first,
                protection,
            )?;
        }
        let base = reservation + (from.offset - first);
        let id = self.number(0) >> 4;
        self.allocations.insert(
            base,
            Allocation {
                bytes: from.bytes,
                held: from.bytes,
                source: Source::Ipc,
                device,
                context,
                id,
                object,
                offset: from.offset,
                sync_memops: false,
                freed: false,
                exported: false,
            },
        );
        self.opened.insert(
            base,
            Opened {
                from,
                references: 1,
                _file: import.file,
                reservation: (reservation, length),
                uses: Uses::default(),
            },
        );
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, base) }
    }

    pub fn close_ipc(&mut self, base: u64) {
        self.allocations.remove(&base);
        if let Some(opened) = self.opened.remove(&base) {
            let (at, length) = opened.reservation;
            // SAFETY: the mapping is ours, and nothing refers to it any more.
            unsafe { libc::munmap(at as *mut _, length as usize) };
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuIpcGetMemHandle(out: *mut IpcMemHandle, address: u64) {
        sim.current()?;
        let found = sim.allocation_at(address).filter(|(_, a)| a.source == Source::Plain && !a.freed);
        let (base, allocation) = found.ok_or(Code::INVALID_VALUE)?;
        let arena = &sim.devices[allocation.device].arena;
        let first = allocation.offset / GRANULE * GRANULE;
        arena.describe(first, allocation.held.next_multiple_of(GRANULE), allocation.id)?;
        let exported = Exported {
            magic: MAGIC,
            pid: u64::from(std::process::id()),
            fd: arena.fd() as u64,
            arena: arena.id,
            offset: allocation.offset,
            bytes: allocation.bytes,
            id: allocation.id,
            device: allocation.device as u64,
        };
        if let Some(allocation) = sim.allocations.get_mut(&base) {
            allocation.exported = true;
        }
        // SAFETY: both are 64 bytes of plain data; the caller's pointer.
        unsafe { must_put(out.cast(), exported) }
    }
    fn cuIpcOpenMemHandle(out: *mut u64, handle: IpcMemHandle, flags: u32) {
        sim.open_ipc(out, handle, flags)
    }
    fn cuIpcOpenMemHandle_v2(out: *mut u64, handle: IpcMemHandle, flags: u32) {
        sim.open_ipc(out, handle, flags)
    }
    fn cuIpcCloseMemHandle(base: u64) {
        sim.current()?;
        let opened = sim.opened.get_mut(&base).ok_or(Code::INVALID_VALUE)?;
        if opened.references > 1 {
            opened.references -= 1;
            return Ok(());
        }
        let bytes = opened.from.bytes;
        // It waits for the context that opened it.
        sim.drain_context(sim.whole(sim.allocations[&base].context))?;
        sim.check_unused_at(base, bytes, "closes");
        sim.close_ipc(base);
        Ok(())
    }
}

const _: () = assert!(size_of::<Exported>() == 64 && size_of::<IpcMemHandle>() == 64);
