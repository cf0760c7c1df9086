//! Names whose memory is the driver's own allocation, so that a program without
//! this library can open it by the 64 bytes of its handle. It ends with its
//! maker. Whole pages are taken, so that a handle shows no neighbour's bytes.
//! Ends no capture.

use std::cell::Cell;

use memcuda_core::driver::{Address, Code};
use memcuda_core::share::protocol::Entry;
use memcuda_core::units::align_up;

use super::Failure;
use super::place::Place;
use super::table::{From, Mapped};
use crate::driver::calls::{IpcBytes, LAZY_ENABLE_PEER_ACCESS};
use crate::engine::Engine;
use crate::room;
use crate::whose::PAGE;

fn unsupported(call: &'static str) -> impl Fn() -> Failure {
    move || Failure::Driver(Code::NOT_SUPPORTED, call)
}

/// An allocation of at least so many bytes, the bytes it takes, its handle.
pub fn make(
    engine: &Engine,
    place: Place<'_>,
    bytes: u64,
) -> Result<(Address, u64, Vec<u8>), Failure> {
    let calls = &engine.calls;
    let handle_of = calls.ipc_get.ok_or_else(unsupported("cuIpcGetMemHandle"))?;
    let mapped = align_up(bytes, PAGE).ok_or_else(unsupported("cuMemAlloc"))?;
    let make = || {
        let place_of = Cell::new(0);
        let allocate = || {
            // SAFETY: the pointer is valid for the call.
            unsafe { (calls.mem_alloc)(place_of.as_ptr(), mapped as usize) }
        };
        let place = || room::Place::Device(place.device);
        let made = room::with_room_for(engine, mapped, place, allocate);
        made.ok().map_err(Failure::of("cuMemAlloc"))?;
        let at = place_of.get();
        let mut handle = IpcBytes([0; 64]);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { handle_of(&mut handle, at) };
        if let Err(code) = code.ok() {
            // SAFETY: allocated above, and known to nobody.
            unsafe { (calls.mem_free)(at) };
            return Err(Failure::Driver(code, "cuIpcGetMemHandle"));
        }
        Ok((at, mapped, handle.0.to_vec()))
    };
    place.within(engine, || calls.relaxed(make))
}

/// Opens the handle of an entry, in the driver's own way.
pub fn open(engine: &Engine, place: Place<'_>, entry: &Entry) -> Result<Address, Failure> {
    let calls = &engine.calls;
    let open = calls.ipc_open;
    let open = open.ok_or_else(unsupported("cuIpcOpenMemHandle"))?;
    let bytes = entry
        .legacy
        .as_slice()
        .try_into()
        .map_err(|_| Failure::odd())?;
    let open = || {
        let mut at = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { open(&mut at, IpcBytes(bytes), LAZY_ENABLE_PEER_ACCESS) };
        code.ok().map_err(Failure::of("cuIpcOpenMemHandle"))?;
        Ok(at)
    };
    place.within(engine, || calls.relaxed(open))
}

/// Gives the allocation or the opened handle back.
pub fn end(engine: &Engine, mapped: &Mapped) {
    let calls = &engine.calls;
    let end = || match (mapped.from, calls.ipc_close) {
        // SAFETY: made here, and its uses are over.
        (From::Allocation, _) => unsafe { (calls.mem_free)(mapped.address) },
        // SAFETY: opened here, and its uses are over.
        (From::LegacyHandle, Some(close)) => unsafe { close(mapped.address) },
        _ => Code::SUCCESS,
    };
    let _ = calls.within(mapped.spot.context, || calls.relaxed(end));
}
