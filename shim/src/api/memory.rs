//! Memory by its name: made, opened, sealed, closed, and the name of the next
//! allocation.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use memcuda_core::share::protocol::{Code, Entry, Mode, Request};

use super::info::Info;
use super::options::{self, Options};
use super::outcome::{OK, ask, call};
use super::{dlpack, place};
use crate::engine::{self, Engine};
use crate::names::lifetime;
use crate::names::make;
use crate::names::open::{self, Found};
use crate::names::place::Place;
use crate::names::table::{self, Mapped, Spot};
use crate::names::{Failure, Wanted, hints};
use crate::share::{held, keeper};

/// What a number that is no handle gets.
pub fn no_handle(handle: u64) -> Failure {
    Failure::Invalid(format!("{handle} is no handle, or a closed one"))
}

/// The memory of a handle.
pub fn of(handle: u64) -> Result<std::sync::Arc<Mapped>, Failure> {
    table::get(handle).ok_or_else(|| no_handle(handle))
}

/// `memcuda_create`.
///
/// # Safety
/// The pointers are null or valid, `options` as large as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_create(
    name: *const c_char,
    options: *const Options,
    out: *mut u64,
) -> c_int {
    // SAFETY: the program's own call.
    call("memcuda_create", |engine| unsafe {
        open_as(engine, Mode::Create, name, options, out)
    })
}

/// `memcuda_open`.
///
/// # Safety
/// As for [`memcuda_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_open(
    name: *const c_char,
    options: *const Options,
    out: *mut u64,
) -> c_int {
    // SAFETY: the program's own call.
    call("memcuda_open", |engine| unsafe {
        open_as(engine, Mode::Attach, name, options, out)
    })
}

/// `memcuda_create_or_open`.
///
/// # Safety
/// As for [`memcuda_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_create_or_open(
    name: *const c_char,
    options: *const Options,
    out: *mut u64,
) -> c_int {
    // SAFETY: the program's own call.
    call("memcuda_create_or_open", |engine| unsafe {
        open_as(engine, Mode::CreateOrAttach, name, options, out)
    })
}

/// # Safety
/// As for [`memcuda_create`].
unsafe fn open_as(
    engine: &'static Engine,
    mode: Mode,
    name: *const c_char,
    options: *const Options,
    out: *mut u64,
) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::Invalid(
            "the place for the handle is null".to_owned(),
        ));
    }
    // SAFETY: by the function's own contract.
    let (text, options) = unsafe { (options::text(name)?, Options::read(options)?) };
    let place = place::of(engine, options.device)?;
    if mode != Mode::Create
        && let Some(epoch) = keeper::epoch()
    {
        let fits = |entry: &Entry| {
            // SAFETY: by the function's own contract.
            let wanted =
                unsafe { options.wanted(entry.name.clone().ok_or_else(Failure::odd)?, mode)? };
            fits(&wanted, entry).and_then(|()| open::is_where_wanted(place, &wanted, entry))
        };
        let again = table::again(text, (place.asked, options.write()), epoch, fits);
        if let Some(handle) = again {
            // SAFETY: not null, and the program's to write, by its call.
            unsafe { out.write(handle?) };
            return Ok(());
        }
    }
    // SAFETY: by the function's own contract.
    let wanted = unsafe { options.wanted(options::name(name)?, mode)? };
    let handle = open_anew(engine, place, &wanted)?;
    // SAFETY: as above.
    unsafe { out.write(handle) };
    Ok(())
}

/// Is what is there what is wanted? As the keeper would answer.
fn fits(wanted: &Wanted, entry: &Entry) -> Result<(), Failure> {
    let differs = entry
        .spec
        .differs(wanted.bytes, wanted.dtype, &wanted.shape);
    match differs {
        None => Ok(()),
        Some(differs) => {
            let why = format!("{} {differs}", wanted.name);
            Err(Failure::Refused(Code::Mismatch, why))
        }
    }
}

/// Asks the keeper; the answer may be that it is what is open already.
fn open_anew<'a>(engine: &'a Engine, place: Place<'a>, wanted: &Wanted) -> Result<u64, Failure> {
    open::patiently(wanted, |patience| {
        // Read before the keeper is asked: what is deleted after that is seen by the
        // next opening. A process that never asked has no page to read yet; the next
        // opening of this name asks the keeper, too.
        let epoch = keeper::epoch().unwrap_or(table::UNCONFIRMED);
        let mapped = match open::ask(engine, place, wanted, patience)? {
            Found::Memory(memory) => {
                let place = open::settle(engine, place, wanted, &memory.entry)?;
                let spot = Spot::of(&place, wanted.write);
                if let Some(handle) = table::confirmed(&memory.entry, spot, epoch) {
                    // One lease is enough for all openings here.
                    held::release(engine, memory.entry.generation);
                    return Ok(handle);
                }
                open::map(engine, place, wanted, *memory)?
            }
            Found::Make(generation) => make::make_or_abort(engine, place, wanted, generation)?,
        };
        Ok(lifetime::opened(engine, mapped, epoch))
    })
}

/// `memcuda_close`.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_close(handle: u64) -> c_int {
    let closed = close(handle);
    if closed == OK {
        dlpack::close_refused();
    }
    closed
}

pub fn close(handle: u64) -> c_int {
    call("memcuda_close", |engine| {
        lifetime::close(engine, handle).unwrap_or_else(|| Err(no_handle(handle)))
    })
}

/// `memcuda_address`.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_address(handle: u64) -> *mut c_void {
    // In a forked child nobody lets go of what other threads had locked.
    let get = || engine::running().and_then(|_| table::get(handle));
    let address = crate::engine::boundary::or_else("memcuda_address", get, || None);
    address.map_or(ptr::null_mut(), |mapped| mapped.address as *mut c_void)
}

/// `memcuda_describe`.
///
/// # Safety
/// `info` is null, or as large as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_describe(handle: u64, info: *mut Info) -> c_int {
    call("memcuda_describe", |engine| {
        let (mapped, made) = (of(handle)?, table::is_made_for(handle));
        // SAFETY: by the function's own contract.
        unsafe { Info::of_mapped(engine, &mapped, made).write(info) }
    })
}

/// `memcuda_seal`.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_seal(handle: u64) -> c_int {
    call("memcuda_seal", |engine| {
        let mapped = of(handle)?;
        if !mapped.spot.write {
            let denied = format!("{} was opened for reading only", mapped.name());
            return Err(Failure::Refused(Code::Denied, denied));
        }
        let generation = mapped.entry.generation;
        ask(engine, Request::Seal { generation })?;
        table::note_sealed(generation);
        Ok(())
    })
}

/// `memcuda_name_next`.
///
/// # Safety
/// As for [`memcuda_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_name_next(
    name: *const c_char,
    mode: c_int,
    options: *const Options,
) -> c_int {
    call("memcuda_name_next", |_| {
        if name.is_null() {
            hints::set_next(None);
            return Ok(());
        }
        let mode = match mode {
            1 => Mode::Create,
            2 => Mode::Attach,
            3 => Mode::CreateOrAttach,
            _ => {
                return Err(Failure::Invalid(format!(
                    "mode {mode} is none; accepted: MEMCUDA_CREATE, _ATTACH, _CREATE_OR_ATTACH"
                )));
            }
        };
        // SAFETY: by the function's own contract.
        let wanted = unsafe { Options::read(options)?.wanted(options::name(name)?, mode)? };
        hints::set_next(Some(Wanted {
            here: true,
            ..wanted
        }));
        Ok(())
    })
}

/// `memcuda_find`.
///
/// # Safety
/// `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_find(address: *const c_void, out: *mut u64) -> c_int {
    call("memcuda_find", |_| {
        if out.is_null() {
            return Err(Failure::Invalid(
                "the place for the handle is null".to_owned(),
            ));
        }
        let handle = table::find(address as u64).ok_or_else(|| {
            let none = format!("nothing at {address:p} has a name");
            Failure::Refused(Code::NotFound, none)
        })?;
        // SAFETY: not null, and the program's to write, by its call.
        unsafe { out.write(handle) };
        Ok(())
    })
}
