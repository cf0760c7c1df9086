//! Address space of this process: reserved, and made a view of a part of a file. Knows
//! of no device.

use crate::abi::{Answer, Code};

/// Reserves address space without access.
pub fn reserve_address(bytes: u64, align: u64) -> Result<u64, Code> {
    let padded = bytes.checked_add(align).ok_or(Code::OUT_OF_MEMORY)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping wherever the kernel likes, trimmed to alignment.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            padded as usize,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        );
        if at == libc::MAP_FAILED {
            return Err(Code::OUT_OF_MEMORY);
        }
        let at = at as u64;
        let start = at.next_multiple_of(align);
        if start > at {
            libc::munmap(at as *mut _, (start - at) as usize);
        }
        let tail = at + padded - (start + bytes);
        if tail > 0 {
            libc::munmap((start + bytes) as *mut _, tail as usize);
        }
        Ok(start)
    }
}

/// Maps part of a file at an address that is part of a reservation.
///
/// # Safety
/// `[at, at + bytes)` is address space of the simulation.
pub unsafe fn map_file(at: u64, bytes: u64, fd: i32, offset: u64, protection: i32) -> Answer {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: by the function's own contract.
    let got = unsafe {
        libc::mmap(
            at as *mut _,
            bytes as usize,
            protection,
            flags,
            fd,
            offset as i64,
        )
    };
    if got == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(())
}

/// Turns address space of the simulation back into a reservation.
///
/// # Safety
/// As for [`map_file`].
pub unsafe fn unmap_file(at: u64, bytes: u64) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: by the function's own contract.
    unsafe { libc::mmap(at as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
}
