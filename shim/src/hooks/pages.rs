//! Handles of physical memory that the program makes itself. Those of torch's own
//! allocator, where the profile says so, are pages that are kept
//! (`memcuda::pages`); torch is asked for idle ones before there would be more than
//! ever. All others are the driver's, with room made if need be.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::time::Duration;

use memcuda_core::driver::real::Real;
use memcuda_core::driver::sys::{HANDLE_POSIX_FD, MemAllocationProp};
use memcuda_core::driver::{Code, Context, Driver, Handle, Result, cancel};
use memcuda_core::pages::{Kind, Lease, Pages};

use crate::engine::boundary;
use crate::engine::device::Device;
use crate::engine::{self, Engine};
use crate::hook::{ABSENT, Hook};
use crate::pages::{passed_on, put_off};
use crate::pool::PATIENCE;
use crate::process::yama;
use crate::room::{Place, is_beyond_the_limit, with_room_for};
use crate::{oom, pages, torch};

use super::foreign::{at, located};

crate::slot! { cuMemCreate ["cuMemCreate" since 10020] Exported }

/// The hook of this family that must know who calls.
pub static CREATE: &[&Hook] = &[&cuMemCreate::HOOK];

crate::pass_caller! {
    /// `cuMemCreate(handle, bytes, properties, flags)`.
    cuMemCreate, create, "r8", "x4"
}

type RealCreate = unsafe extern "C" fn(*mut Handle, usize, *const MemAllocationProp, u64) -> Code;

unsafe extern "C" fn create(
    handle: *mut Handle,
    bytes: usize,
    properties: *const MemAllocationProp,
    flags: u64,
    caller: usize,
) -> Code {
    let real = cuMemCreate::HOOK.real();
    if real.is_null() {
        return ABSENT;
    }
    // SAFETY: the driver's function of this name has this signature.
    let real = unsafe { std::mem::transmute::<*mut c_void, RealCreate>(real) };
    let _held = cancel::hold();
    // SAFETY: the program's own call, passed on.
    let passed = || boundary::answered(unsafe { real(handle, bytes, properties, flags) });
    boundary::enter(
        "cuMemCreate",
        |engine| {
            // SAFETY: null or, by the program's call, a whole structure.
            let about = unsafe { properties.as_ref() };
            let page = about
                .filter(|_| !handle.is_null() && flags == 0 && torch::maps_pages(caller))
                .and_then(|about| {
                    pages::asked_from(caller);
                    lend(engine, bytes as u64, about)
                });
            match page {
                Some(Ok(page)) => {
                    torch::page_made();
                    // SAFETY: not null, and the program's to write, by its call.
                    unsafe { *handle = page };
                    boundary::answered(Code::SUCCESS)
                }
                Some(Err(code)) => boundary::answered(code),
                None => {
                    let place = || located(engine, properties).holding(bytes as u64);
                    let code = with_room_for(engine, bytes as u64, place, passed);
                    if code == Code::SUCCESS && torch::maps_pages(caller) {
                        torch::page_made();
                    }
                    code
                }
            }
        },
        passed,
        passed,
    )
}

/// A page for torch; `None` where it is to be the driver's.
fn lend(engine: &Engine, bytes: u64, about: &MemAllocationProp) -> Option<Result<Handle>> {
    put_off::end();
    if torch::refuses_page_with(about.requested_handle_types) {
        return Some(Err(Code::NOT_SUPPORTED));
    }
    let (context, device) = place(engine, about).filter(|_| bytes > 0)?;
    let pages = pages_of(engine, device)?;
    // As cudaMalloc, whether a page is there or not.
    if let Err(code) = engine.driver.check(context)
        && code.is_sticky()
    {
        return Some(Err(code));
    }
    let lease = match pages.lend(kind(bytes, about)) {
        Some(lease) => Ok(lease),
        None => make(engine, device, pages, bytes, about),
    };
    Some(lease.map(|lease| pages::handle(device, lease)))
}

/// The device on which a page is to lie, and the context that asks, which is that device's.
fn place<'a>(engine: &'a Engine, about: &MemAllocationProp) -> Option<(Context, &'a Device)> {
    let Place::Device(device) = at(engine, about.location) else {
        return None;
    };
    let context = engine.context_for(device)?;
    let its = engine.device_of(context).ok()?;
    (its.ordinal == device.ordinal).then_some((context, device))
}

/// The pages of a device; `None` where the driver serves.
fn pages_of<'a>(engine: &Engine, device: &'a Device) -> Option<&'a Pages<Real>> {
    match device.pages() {
        Some(pages) if !pages.is_sound() => {
            // The plain driver serves from now on, and needs the memory.
            pages.give_back(u64::MAX, PATIENCE);
            None
        }
        // Though the pool may have stopped: who was told to use pages is asked for them.
        Some(pages) => Some(pages),
        None if engine.lends() => pages::of(engine, device),
        None => None,
    }
}

fn kind(bytes: u64, about: &MemAllocationProp) -> Kind {
    let flags = about.alloc_flags;
    Kind {
        bytes,
        properties: u64::from(about.requested_handle_types) << 32
            | u64::from(flags.usage) << 16
            | u64::from(flags.compression_type) << 8
            | u64::from(flags.gpu_direct_rdma_capable),
    }
}

/// A page that has to be made: where that would be more than ever, or there is no memory,
/// torch is told once that there is none, so that it gives idle ones up.
fn make(
    engine: &Engine,
    device: &Device,
    pages: &Pages<Real>,
    bytes: u64,
    about: &MemAllocationProp,
) -> Result<Lease> {
    // With nothing mapped torch has nothing to bring, and its first pages are probes.
    let may_fail = pages.is_any_used() && !engine.captures.any();
    let ask = || {
        let ask = may_fail && torch::ask_for_pages(device.ordinal, bytes);
        if ask {
            pages.ask();
            refused(engine, device, bytes);
        }
        ask
    };
    if pages.is_above_peak(bytes) && ask() {
        return Err(Code::OUT_OF_MEMORY);
    }
    // Like cudaMalloc's memory: what it is exported as, who reaches it.
    let made = || {
        // The pool may be making something, too.
        let limit = engine.config.limit_of(device.ordinal);
        if limit.is_some_and(|limit| !device.sums.pages_claim(bytes, limit)) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let made = engine.driver.create_as(bytes, about);
        made.inspect_err(|_| device.sums.pages_get_none())
    };
    // As long as it takes: torch would have waited before it gave its pages up.
    let is_beyond = |of_pool| is_beyond_the_limit(engine, device, bytes, (Duration::MAX, of_pool));
    let add = || match is_beyond(Duration::ZERO) {
        true => Err(Code::OUT_OF_MEMORY),
        false => pages.add(kind(bytes, about), made),
    };
    let page = match add() {
        // What torch has idle goes before what others have, and before what still runs.
        Err(Code::OUT_OF_MEMORY) if ask() => return Err(Code::OUT_OF_MEMORY),
        // Nobody can make room beyond the limit.
        Err(Code::OUT_OF_MEMORY) if !is_beyond(PATIENCE) => in_room(engine, device, bytes, add),
        added => added,
    };
    if let Err(code) = page {
        pages.refuse(code);
    }
    if page == Err(Code::OUT_OF_MEMORY) {
        refused(engine, device, bytes);
        torch::refused(device.ordinal);
        oom::report(engine, device, bytes, None);
    }
    page
}

/// Records that torch is told that there is no memory: to give some back, or for good.
fn refused(engine: &Engine, device: &Device, bytes: u64) {
    if let Some(recorder) = &engine.recorder {
        recorder.page_refused(device.ordinal, bytes, pages::caller());
    }
}

/// A page of so many bytes once more, with room made for it.
fn in_room(
    engine: &Engine,
    device: &Device,
    bytes: u64,
    add: impl Fn() -> Result<Lease>,
) -> Result<Lease> {
    let page = Cell::new(Err(Code::UNKNOWN));
    let add = || {
        page.set(add());
        page.get().err().unwrap_or(Code::SUCCESS)
    };
    with_room_for(engine, bytes, || Place::Device(device), add).ok()?;
    page.get()
}

crate::hooks! {
    /// `cuMemRelease`.
    cuMemRelease ["cuMemRelease" since 10020] (handle: Handle) |real, engine| {
        // SAFETY: the program's own call, passed on.
        release(engine, handle).unwrap_or_else(|| unsafe { real(handle) })
    }, panicked {
        // SAFETY: the program's own call, passed on.
        once_more(|engine| release(engine, handle), || unsafe { real(handle) })
    }

    /// `cuMemExportToShareableHandle`.
    cuMemExportToShareableHandle ["cuMemExportToShareableHandle" since 10020] (
        out: *mut c_void, handle: Handle, kind: c_int, flags: u64,
    ) |real, engine| {
        let Some(page) = below(engine, handle) else {
            return Code::INVALID_VALUE;
        };
        let is_passed_on = page != handle && kind as u32 == HANDLE_POSIX_FD;
        if is_passed_on {
            yama::let_others_take();
        }
        // SAFETY: the program's own call, passed on with the driver's handle.
        let code = unsafe { real(out, page, kind, flags) };
        match code {
            _ if !is_passed_on => {}
            // SAFETY: the driver has just written a descriptor there.
            Code::SUCCESS => passed_on::note(handle, unsafe { out.cast::<c_int>().read() }),
            _ => say_why_not(),
        }
        code
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    cuMemGetAllocationPropertiesFromHandle
        ["cuMemGetAllocationPropertiesFromHandle" since 10020] (
        properties: *mut MemAllocationProp, handle: Handle,
    ) |real, engine| {
        match below(engine, handle) {
            // SAFETY: the program's own call, passed on with the driver's handle.
            Some(handle) => unsafe { real(properties, handle) },
            None => Code::INVALID_VALUE,
        }
    }
}

/// A page of torch's could not be passed on: torch keeps a descriptor of each that is, and
/// says that there is no memory.
fn say_why_not() {
    let opened = std::fs::File::open("/dev/null");
    if opened.is_err_and(|error| error.raw_os_error() == Some(libc::EMFILE)) {
        crate::log_once!(
            Warn,
            "torch can pass no more of its memory on to other processes: it has a file open for \
             each page that it passed on, and this process may open no more (ulimit -n); \
             MEMCUDA_TORCH=segments needs none"
        );
    }
}

/// Gives a page up; `None` where the handle is the driver's.
fn release(engine: &Engine, handle: Handle) -> Option<Code> {
    let (_, pages, lease) = pages::of_handle(engine, handle)?;
    passed_on::forget(handle);
    let code = match pages.release(lease) {
        true => Code::SUCCESS,
        false => Code::INVALID_VALUE,
    };
    Some(boundary::answered(code))
}

/// Serves a call again that panicked: torch ends where a page cannot be mapped or
/// given up.
pub fn once_more(
    serve: impl FnOnce(&'static Engine) -> Option<Code>,
    real: impl FnOnce() -> Code,
) -> Code {
    let again = || engine::running().and_then(serve);
    boundary::or_else("once more", again, || Some(Code::UNKNOWN)).unwrap_or_else(real)
}

/// The driver's handle: of a page that others may open from now on, or the handle
/// itself. `None` where it stands for a page that is gone.
fn below(engine: &Engine, handle: Handle) -> Option<Handle> {
    match pages::of_handle(engine, handle) {
        Some((_, pages, lease)) => pages.share(lease),
        None => Some(handle),
    }
}
