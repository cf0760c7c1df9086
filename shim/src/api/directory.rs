//! All names of the host: kept, deleted, shown, listed. Maps nothing.

use std::ffi::{c_char, c_int, c_void};

use memcuda_core::epoch::now_us;
use memcuda_core::share::protocol::{Entry, Persist, Reply, Request, State};

use super::info::Info;
use super::options;
use super::outcome::{OK, ask, call};
use crate::engine::Engine;
use crate::names::Failure;

/// `memcuda_persist`.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_persist(name: *const c_char, seconds: u64) -> c_int {
    call("memcuda_persist", |engine| {
        // SAFETY: by the function's own contract.
        let name = unsafe { options::name(name)? };
        let persist = Persist::for_seconds(seconds, now_us());
        ask(engine, Request::Persist { name, persist }).map(drop)
    })
}

/// `memcuda_delete`.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_delete(name: *const c_char) -> c_int {
    call("memcuda_delete", |engine| {
        // SAFETY: by the function's own contract.
        let name = unsafe { options::name(name)? };
        let generation = None;
        ask(engine, Request::Delete { name, generation }).map(drop)
    })
}

/// `memcuda_show`.
///
/// # Safety
/// `name` is null or a string, `info` null or as large as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_show(name: *const c_char, info: *mut Info) -> c_int {
    call("memcuda_show", |engine| {
        // SAFETY: by the function's own contract.
        let name = unsafe { options::name(name)? };
        let Reply::Entries { entries, .. } = ask(engine, Request::Show { name })? else {
            return Err(Failure::odd());
        };
        let entry = entries.first().ok_or_else(Failure::odd)?;
        // SAFETY: by the function's own contract.
        unsafe { Info::of(engine, entry).write(info) }
    })
}

fn all(engine: &Engine) -> Result<Vec<Entry>, Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = Request::List { after, all: false };
        let Reply::Entries { entries, next } = ask(engine, page)? else {
            return Err(Failure::odd());
        };
        // One that is being made, or hidden, cannot be opened yet.
        let there = entries.into_iter();
        all.extend(there.filter(|entry| entry.state != State::Creating));
        match next {
            Some(place) => after = Some(place),
            None => return Ok(all),
        }
    }
}

/// `memcuda_list`.
///
/// # Safety
/// `each` is null or a function of this signature, which takes `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcuda_list(
    each: Option<unsafe extern "C" fn(*const Info, *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    let mut infos = Vec::new();
    let listed = call("memcuda_list", |engine| {
        if each.is_none() {
            return Err(Failure::Invalid("the callback is null".to_owned()));
        }
        infos = all(engine)?
            .iter()
            .map(|entry| Info::of(engine, entry))
            .collect();
        Ok(())
    });
    if let (OK, Some(each)) = (listed, each) {
        for info in &infos {
            // SAFETY: the program's own function and argument; outside of every
            // lock and hook of ours, so that it may call the library.
            if unsafe { each(info, context) } != 0 {
                break;
            }
        }
    }
    listed
}
