//! The program's own mappings. Memory of the pool is none, to the program: the
//! driver refuses to change how cudaMalloc's memory is mapped, so it is refused
//! here. Pages of torch's (`pages`) are mapped, unmapped and opened to devices
//! where that is not so already; to torch it looks as if it were not.

use std::ffi::c_void;

use memcuda_core::driver::real::Real;
use memcuda_core::driver::sys::{
    ACCESS_NONE, ACCESS_READ, ACCESS_READ_WRITE, LOCATION_DEVICE, MemAccessDesc,
};
use memcuda_core::driver::{Access, Address, Code, Handle};
use memcuda_core::pages::Pages;

use super::foreign::current;
use crate::engine::Engine;
use crate::room::{Place, with_room};
use crate::{pages, torch};

crate::hooks! {
    /// `cuMemMap`.
    cuMemMap ["cuMemMap" since 10020] (
        at: Address, bytes: usize, offset: usize, handle: Handle, flags: u64,
    ) |real, engine| {
        let Some((device, pages, lease)) = pages::of_handle(engine, handle) else {
            return match pages::leave(engine, at, bytes as u64) {
                // SAFETY: the program's own call, passed on.
                Code::SUCCESS => unsafe { real(at, bytes, offset, handle, flags) },
                code => code,
            };
        };
        if offset != 0 || flags != 0 {
            return Code::INVALID_VALUE;
        }
        let code = with_room(engine, || Place::Device(device), || {
            code_of(pages.map(at, bytes as u64, lease))
        });
        if code == Code::SUCCESS {
            torch::page_mapped(device.ordinal);
        }
        code
    }

    /// `cuMemUnmap`.
    cuMemUnmap ["cuMemUnmap" since 10020] (at: Address, bytes: usize) |real, engine| {
        if engine.owner(at).is_some() {
            return Code::INVALID_VALUE;
        }
        let length = bytes as u64;
        if let Some(unmapped) = pages::all(engine).find_map(|pages| pages.unmap(at, length)) {
            torch::page_unmapped(length);
            return code_of(unmapped);
        }
        match pages::leave(engine, at, length) {
            // SAFETY: the program's own call, passed on.
            Code::SUCCESS => unsafe { real(at, bytes) },
            code => code,
        }
    }

    /// `cuMemAddressFree`.
    cuMemAddressFree ["cuMemAddressFree" since 10020] (at: Address, bytes: usize) |real, engine| {
        if engine.owner(at).is_some() {
            return Code::INVALID_VALUE;
        }
        match pages::leave(engine, at, bytes as u64) {
            // SAFETY: the program's own call, passed on.
            Code::SUCCESS => unsafe { real(at, bytes) },
            code => code,
        }
    }

    /// `cuMemSetAccess`: with room made if need be, for it takes page tables.
    cuMemSetAccess ["cuMemSetAccess" since 10020] (
        at: Address, bytes: usize, access: *const c_void, count: usize,
    ) |real, engine| {
        if engine.owner(at).is_some() {
            return Code::INVALID_VALUE;
        }
        let wanted = match access.is_null() || count > MOST_DEVICES {
            true => &[],
            // SAFETY: not null, and by the program's call so many descriptors.
            false => unsafe { std::slice::from_raw_parts(access.cast::<MemAccessDesc>(), count) },
        };
        with_room(engine, || current(engine), || {
            open(engine, at, bytes as u64, wanted).unwrap_or_else(|| {
                // SAFETY: the program's own call, passed on.
                unsafe { real(at, bytes, access, count) }
            })
        })
    }
}

/// More devices than a process can have.
const MOST_DEVICES: usize = 128;

/// Opens pages to devices; `None` where the driver is to be asked as it is.
fn open(engine: &Engine, at: Address, bytes: u64, wanted: &[MemAccessDesc]) -> Option<Code> {
    let wanted: Option<Vec<_>> = wanted.iter().map(device_and_access).collect();
    let wanted = wanted.filter(|wanted| !wanted.is_empty())?;
    pages::all(engine).find_map(|pages| open_all(pages, at, bytes, &wanted))
}

fn open_all(
    pages: &Pages<Real>,
    at: Address,
    bytes: u64,
    wanted: &[(u32, Access)],
) -> Option<Code> {
    let mut code = Code::SUCCESS;
    for &(device, access) in wanted {
        let opened = pages.set_access(at, bytes, device, access)?;
        if code == Code::SUCCESS {
            code = code_of(opened);
        }
    }
    Some(code)
}

fn device_and_access(wanted: &MemAccessDesc) -> Option<(u32, Access)> {
    let access = match wanted.flags {
        ACCESS_NONE => Access::None,
        ACCESS_READ => Access::Read,
        ACCESS_READ_WRITE => Access::Write,
        _ => return None,
    };
    let device = u32::try_from(wanted.location.id).ok()?;
    (wanted.location.kind == LOCATION_DEVICE).then_some((device, access))
}

fn code_of(result: memcuda_core::driver::Result<()>) -> Code {
    result.err().unwrap_or(Code::SUCCESS)
}
