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
use memcuda_core::pages::{Found, Pages};
use memcuda_core::pool::Pool;

use super::foreign;
use super::pages::once_more;
use crate::driver::marks::Which;
use crate::engine::Engine;
use crate::engine::boundary;
use crate::engine::device::Device;
use crate::pages::{put_off, reservations};
use crate::process::tags;
use crate::record::Freeing;
use crate::room::{Place, with_room};
use crate::share::exports;
use crate::{pages, torch};

crate::hooks! {
    /// `cuMemAddressReserve`: pages in one reservation may be one allocation.
    cuMemAddressReserve ["cuMemAddressReserve" since 10020] (
        at: *mut Address, bytes: usize, align: usize, wanted: Address, flags: u64,
    ) |real, _engine| {
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(at, bytes, align, wanted, flags) };
        if code == Code::SUCCESS {
            // SAFETY: the driver has just written there.
            reservations::add(unsafe { *at }, bytes as u64);
        }
        code
    }

    /// `cuMemMap`.
    cuMemMap ["cuMemMap" since 10020] (
        at: Address, bytes: usize, offset: usize, handle: Handle, flags: u64,
    ) |real, engine| {
        map(engine, (at, bytes as u64), offset, handle, flags).unwrap_or_else(|| {
            // SAFETY: the program's own call, passed on.
            unsafe { real(at, bytes, offset, handle, flags) }
        })
    }, panicked {
        let serve = |engine| map(engine, (at, bytes as u64), offset, handle, flags);
        // SAFETY: the program's own call, passed on.
        once_more(serve, || unsafe { real(at, bytes, offset, handle, flags) })
    }

    /// `cuMemUnmap`.
    cuMemUnmap ["cuMemUnmap" since 10020] (at: Address, bytes: usize) |real, engine| {
        // SAFETY: the program's own call, passed on.
        unmap(engine, at, bytes as u64).unwrap_or_else(|| unsafe { real(at, bytes) })
    }, panicked {
        let serve = |engine| unmap(engine, at, bytes as u64);
        // SAFETY: the program's own call, passed on.
        once_more(serve, || unsafe { real(at, bytes) })
    }

    /// `cuMemAddressFree`.
    cuMemAddressFree ["cuMemAddressFree" since 10020] (at: Address, bytes: usize) |real, engine| {
        // SAFETY: the program's own call, passed on.
        give_up(engine, (at, bytes as u64), || unsafe { real(at, bytes) })
    }, panicked {
        // SAFETY: the program's own call, passed on.
        let real = || unsafe { real(at, bytes) };
        once_more(|engine| Some(give_up(engine, (at, bytes as u64), real)), real)
    }

    /// `cuMemSetAccess`: with room made if need be, for it takes page tables of who is let in.
    cuMemSetAccess ["cuMemSetAccess" since 10020] (
        at: Address, bytes: usize, access: *const c_void, count: usize,
    ) |real, engine| {
        if engine.owner(at).is_some() {
            return Code::INVALID_VALUE;
        }
        // SAFETY: the program's own call, passed on.
        let real = || unsafe { real(at, bytes, access, count) };
        // SAFETY: by the program's call so many descriptors.
        let wanted = unsafe { descriptors(access, count) };
        with_room(engine, || let_in(engine, wanted), || {
            open(engine, at, bytes as u64, wanted).unwrap_or_else(real)
        })
    }, panicked {
        // SAFETY: by the program's call so many descriptors.
        let wanted = unsafe { descriptors(access, count) };
        let serve = |engine| open(engine, at, bytes as u64, wanted);
        // SAFETY: the program's own call, passed on.
        once_more(serve, || unsafe { real(at, bytes, access, count) })
    }
}

/// Gives addresses up: no page that nobody uses is left there.
fn give_up(engine: &Engine, (at, bytes): (Address, u64), real: impl FnOnce() -> Code) -> Code {
    if engine.owner(at).is_some() {
        return Code::INVALID_VALUE;
    }
    match pages::leave(engine, at, bytes) {
        Code::SUCCESS => {
            // Before the addresses may be somebody else's.
            let known = reservations::remove(engine, at);
            let code = real();
            if let (true, Some(bytes)) = (code != Code::SUCCESS, known) {
                reservations::add(at, bytes);
            }
            code
        }
        code => code,
    }
}

/// Maps a page, or takes pages that nobody uses out of the way of another handle:
/// then the call is the driver's. Refuses the pool's addresses.
fn map(
    engine: &Engine,
    (at, bytes): (Address, u64),
    offset: usize,
    handle: Handle,
    flags: u64,
) -> Option<Code> {
    if engine.owner(at).is_some() {
        // Reserved, so the driver would take it where the pool maps nothing now.
        return Some(Code::INVALID_VALUE);
    }
    let Some((device, pages, lease)) = pages::of_handle(engine, handle) else {
        return failed(pages::leave(engine, at, bytes));
    };
    if offset != 0 || flags != 0 {
        return Some(Code::INVALID_VALUE);
    }
    let place = || Place::Device(device);
    let home = reservations::home(engine, device, at);
    let code = with_room(engine, place, || code_of(pages.map(at, bytes, lease, home)));
    if code == Code::SUCCESS {
        if engine.captures.any() || torch::maps_for_graphs(device.ordinal) {
            pages.on_any_stream(at, pages::whole(engine, device, home.context));
        }
        torch::page_mapped(device.ordinal, bytes);
        if let Some(recorder) = &engine.recorder {
            recorder.mapped(device.ordinal, at, bytes, pages::caller());
        }
    }
    Some(boundary::answered(code))
}

/// Unmaps pages, in torch's eyes, or refuses to unmap what is the pool's.
fn unmap<'a>(engine: &'a Engine, at: Address, bytes: u64) -> Option<Code> {
    if engine.owner(at).is_some() {
        return Some(Code::INVALID_VALUE);
    }
    if torch::forgets_users()
        && let Err(code) = wait_for_all(engine, at)
    {
        return Some(code);
    }
    let _still = exports::hold();
    // Before they may be mapped again.
    let recorded = freeing(engine, at, bytes);
    let unmap = |device: &'a Device| {
        let kept = device.pages().filter(|kept| kept.is_used_in(at, bytes))?;
        let unmapped = match put_off::wait_at_home(engine, device, kept, at) {
            Ok(()) => kept.unmap(at, bytes, put_off::last_use(engine, device))?,
            refused => refused,
        };
        Some((device, unmapped))
    };
    match engine.devices.iter().find_map(unmap) {
        Some((device, unmapped)) => {
            if unmapped.is_ok() {
                recorded
                    .into_iter()
                    .for_each(|(page, bytes)| page.of_page(bytes));
            }
            if let Some(site) = tags::take().waited {
                torch::waits_to_unmap(site);
            }
            torch::freed(device.ordinal, bytes);
            let code = boundary::answered(code_of(unmapped));
            if code == Code::SUCCESS {
                left(engine, device, (at, bytes));
            }
            Some(code)
        }
        None => {
            // It is unmapped in truth.
            put_off::make_up(engine);
            failed(pages::leave(engine, at, bytes))
        }
    }
}

/// Torch has waited for the stream of this page, and may have forgotten another one.
///
/// # Errors
/// As a wait for pages of graphs: then everything is as it was.
fn wait_for_all(engine: &Engine, at: Address) -> memcuda_core::driver::Result<()> {
    for device in &engine.devices {
        let Some(kept) = device.pages() else { continue };
        if let Found::Run(run) = kept.find(at) {
            let whole = pages::whole(engine, device, run.context);
            kept.wait_for_context(whole)?;
            if run.context != whole {
                kept.wait_for_context(run.context)?;
            }
        }
    }
    Ok(())
}

/// The pages that are unmapped, with their bytes, where that is recorded.
fn freeing(engine: &Engine, at: Address, bytes: u64) -> Vec<(Freeing<'_>, u64)> {
    let of = |kept: &Pages<Real>| {
        let begin = |(at, bytes)| {
            let page = engine.freeing(kept.device(), at, pages::caller())?;
            Some((page, bytes))
        };
        kept.used_in(at, bytes)?.into_iter().map(begin).collect()
    };
    let recorded = engine.recorder.as_ref();
    let pages = recorded.and_then(|_| engine.pages().find_map(of));
    pages.unwrap_or_default()
}

/// Pages in this range are torch's no more: what was said of them is over.
fn left(engine: &Engine, device: &Device, (at, bytes): (Address, u64)) {
    exports::unmapped(engine, at, bytes);
    let is_used = |at, bytes| {
        let pages = device.pages();
        pages.is_some_and(|pages| pages.is_used_in(at, bytes))
    };
    let range = Which::Range(at, bytes);
    device.memops.left(&engine.calls, range, is_used);
}

fn failed(code: Code) -> Option<Code> {
    (code != Code::SUCCESS).then_some(code)
}

/// Who is to have which access.
///
/// # Safety
/// Where `access` is not null there are so many descriptors, for the whole call.
pub unsafe fn descriptors<'a>(access: *const c_void, count: usize) -> &'a [MemAccessDesc] {
    match access.is_null() || count > MOST_DEVICES {
        true => &[],
        // SAFETY: as the caller promises.
        false => unsafe { std::slice::from_raw_parts(access.cast(), count) },
    }
}

/// More devices than a process can have.
const MOST_DEVICES: usize = 128;

/// The device that is let in; of several nobody knows which has no room.
pub fn let_in<'a>(engine: &'a Engine, wanted: &[MemAccessDesc]) -> Place<'a> {
    match wanted {
        [one] => foreign::at(engine, one.location),
        _ => Place::Somewhere,
    }
}

/// Opens pages to devices; `None` where the driver is to be asked as it is.
fn open(engine: &Engine, at: Address, bytes: u64, wanted: &[MemAccessDesc]) -> Option<Code> {
    let wanted: Option<Vec<_>> = wanted.iter().map(device_and_access).collect();
    let wanted = wanted.filter(|wanted| !wanted.is_empty())?;
    let open = |device: &Device| {
        let pages = device.pages()?;
        if wanted.contains(&(device.ordinal, Access::Write)) {
            // Torch opens new pages to its own device; cudaMalloc's memory would be
            // open to all that have access.
            for reader in device.pool().map(Pool::readers).unwrap_or_default() {
                if let Err(code) = pages.open_to(at, bytes, reader)? {
                    return Some(code);
                }
            }
        }
        open_all(pages, at, bytes, &wanted)
    };
    engine.devices.iter().find_map(open).map(boundary::answered)
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
