//! What programs ask about memory: how much there is, where an allocation
//! begins and ends, and what is to be had of mapped memory alone.

use memcuda_core::driver::{Address, Code, Handle};
use std::ffi::c_void;

use crate::engine::Engine;
use crate::engine::boundary;
use crate::engine::device::Device;
use crate::whose::{self, Below, Memory, PAGE, Whose};
use crate::{pages, torch};

/// Allocations begin at multiples of so many bytes.
const STEP: usize = 512;

crate::hooks! {
    /// `cuMemGetInfo_v2`: idle memory of the pool counts as free, except what
    /// the driver's memory pool or torch's cache would keep as well, and what other processes
    /// have idle. Of what a limit forbids nothing does.
    cuMemGetInfo_v2 ["cuMemGetInfo" since 3020] (
        free: *mut usize, total: *mut usize,
    ) |real, engine| {
        let (mut free_bytes, mut total_bytes) = (0, 0);
        // SAFETY: both pointers are to locals.
        let code = unsafe { real(&mut free_bytes, &mut total_bytes) };
        boundary::unanswered();
        if code == Code::SUCCESS
            && let Ok((_, device)) = engine.current()
        {
            let all = to_have(engine, device, free_bytes as u64, total_bytes as u64);
            free_bytes = all.saturating_sub(torch::withheld(device.ordinal)) as usize;
        }
        // SAFETY: what is not null is the program's to write, by its call.
        unsafe {
            if !free.is_null() {
                *free = free_bytes;
            }
            if !total.is_null() {
                *total = total_bytes;
            }
        }
        code
    }

    /// `cuMemGetAddressRange_v2`: the allocation around an address, not the
    /// pieces below it.
    cuMemGetAddressRange_v2 ["cuMemGetAddressRange" since 3020] (
        base: *mut Address, bytes: *mut usize, address: Address,
    ) |real, engine| {
        // With no context, or a broken one, nothing is answered; who wants to
        // know nothing is always right.
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(base, bytes, address) };
        let block = match whose::of(engine, address) {
            Whose::Foreign => return code,
            Whose::Freed => None,
            // Of another device's memory a context knows what it reaches.
            Whose::Live(memory) => memory.is_reached(engine).then_some(memory.block),
        };
        boundary::unanswered();
        if code != Code::SUCCESS || (base.is_null() && bytes.is_null()) {
            return code;
        }
        let (start, length) = block.map_or((0, 0), |block| (block.base, block.bytes as usize));
        // SAFETY: what is not null is the program's to write, by its call.
        unsafe {
            if !base.is_null() {
                *base = start;
            }
            if !bytes.is_null() {
                *bytes = length;
            }
        }
        block.map_or(Code::NOT_FOUND, |_| Code::SUCCESS)
    }

    /// `cuMemRetainAllocationHandle`: as for cudaMalloc's memory, there is no
    /// handle to be had; libraries take success as "this is VMM memory".
    cuMemRetainAllocationHandle ["cuMemRetainAllocationHandle" since 11000] (
        handle: *mut Handle, address: *mut c_void,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        refuse(whose::is_ours(engine, address as Address), || unsafe { real(handle, address) })
    }, panicked {
        // SAFETY: the program's own call, passed on.
        refuse(whose::is_ours_now(address as Address), || unsafe { real(handle, address) })
    }

    /// `cuMulticastBindAddr`: takes memory that the program mapped, and none of cudaMalloc's.
    cuMulticastBindAddr ["cuMulticastBindAddr" since 12010] (
        object: Handle, offset: usize, at: Address, bytes: usize, flags: u64,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        refuse(whose::is_ours(engine, at), || unsafe { real(object, offset, at, bytes, flags) })
    }, panicked {
        // SAFETY: the program's own call, passed on.
        refuse(whose::is_ours_now(at), || unsafe { real(object, offset, at, bytes, flags) })
    }

    /// `cuMulticastBindAddr_v2`: likewise.
    cuMulticastBindAddr_v2 ["cuMulticastBindAddr" since 13010] (
        object: Handle, device: i32, offset: usize, at: Address, bytes: usize, flags: u64,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let real = || unsafe { real(object, device, offset, at, bytes, flags) };
        refuse(whose::is_ours(engine, at), real)
    }, panicked {
        // SAFETY: the program's own call, passed on.
        let real = || unsafe { real(object, device, offset, at, bytes, flags) };
        refuse(whose::is_ours_now(at), real)
    }

    /// `cuMemHostGetFlags`: no device memory is the host's; mapped memory would
    /// have flags. The driver is asked of no address instead.
    cuMemHostGetFlags ["cuMemHostGetFlags" since 2030] (
        flags: *mut u32, address: *mut c_void,
    ) |real, engine| {
        let address = none_if(whose::is_ours(engine, address as Address), address);
        // SAFETY: the program's own call, passed on.
        unsafe { real(flags, address) }
    }, panicked {
        let address = none_if(whose::is_ours_now(address as Address), address);
        // SAFETY: the program's own call, passed on.
        unsafe { real(flags, address) }
    }

    /// `cuMemHostGetDevicePointer_v2`: likewise.
    cuMemHostGetDevicePointer_v2 ["cuMemHostGetDevicePointer" since 3020] (
        out: *mut Address, address: *mut c_void, flags: u32,
    ) |real, engine| {
        let address = none_if(whose::is_ours(engine, address as Address), address);
        // SAFETY: the program's own call, passed on.
        unsafe { real(out, address, flags) }
    }, panicked {
        let address = none_if(whose::is_ours_now(address as Address), address);
        // SAFETY: the program's own call, passed on.
        unsafe { real(out, address, flags) }
    }

    /// `cuMemGetHandleForAddressRange`: a descriptor over a range of one
    /// allocation and of the pages that it lies on, for libraries ask for whole
    /// pages of the host; it may lie on several handles. Of what is freed, none.
    cuMemGetHandleForAddressRange ["cuMemGetHandleForAddressRange" since 11070] (
        handle: *mut c_void, address: Address, bytes: usize, kind: u32, flags: u64,
    ) |real, engine| {
        if whose::is_ours(engine, address) {
            let Some(memory) = had(engine, address, bytes as u64) else {
                return Code::INVALID_VALUE;
            };
            // Who gets no descriptor registers it in another way.
            if memory.is_torchs() {
                torch::is_registered();
            }
        }
        pages::share(engine, address, bytes as u64);
        // SAFETY: the program's own call, passed on.
        unsafe { real(handle, address, bytes, kind, flags) }
    }
}

/// What can be had where the driver has so much free: with what is idle here and elsewhere, below
/// the limit.
fn to_have(engine: &Engine, device: &Device, free: u64, total: u64) -> u64 {
    let idle = device.free_to_have();
    let mut all = free.saturating_add(idle).min(total);
    if !engine.lends() {
        return all;
    }
    if all < total {
        all = all.saturating_add(device.offered(free)).min(total);
    }
    let limit = engine.config.limit_of(device.ordinal);
    let below = limit.map(|limit| limit.saturating_add(idle).saturating_sub(device.counted()));
    below.map_or(all, |most| all.min(most))
}

/// The live allocation on whose pages all of this range is that touches it, or one on pages of
/// torch's that all of it is on, whatever lies there.
fn had(engine: &Engine, address: Address, bytes: u64) -> Option<Memory<'_>> {
    let end = address.checked_add(bytes)?;
    let has = |memory: &Memory| match memory.below {
        Below::Pool(_) => {
            let pages = memory.pages();
            pages.start <= address && end <= pages.end
        }
        Below::Pages(pages) => pages.covers(address, bytes),
    };
    // An allocation that it touches first on a later page begins behind this one.
    let first_page = address..end.min((address / PAGE + 1) * PAGE);
    let mut live = first_page
        .step_by(STEP)
        .filter_map(|at| whose::live(engine, at));
    live.find(has)
}

/// What the driver is asked of instead: of memory of ours it would know too much.
fn none_if(is_ours: bool, address: *mut c_void) -> *mut c_void {
    match is_ours {
        true => std::ptr::null_mut(),
        false => address,
    }
}

/// The driver's answer, but of memory of ours: mapped memory it would know.
fn refuse(is_ours: bool, real: impl FnOnce() -> Code) -> Code {
    match is_ours {
        true => Code::INVALID_VALUE,
        false => real(),
    }
}
