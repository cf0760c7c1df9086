//! CUDA IPC of pooled memory, and of torch's pages. The driver exports no mapped memory in this way,
//! so a handle of ours names an export at the keeper, and opening it maps the
//! memory that the keeper has of it. Handles of the driver's own, and its own
//! memory, are the driver's.
//!
//! Nothing here records, queries or waits for an event but the last close of a
//! handle, which waits as cudaFree does; captures are not touched.

use std::ffi::c_void;

use memcuda_core::driver::{Access, Address, Code, Driver};
use memcuda_core::pool::{BlockInfo, Owner};
use memcuda_core::share::handle::{Handle, Unreadable};
use memcuda_core::share::protocol::{self, DeviceId, State};

use crate::driver::calls::{IpcBytes, LAZY_ENABLE_PEER_ACCESS};
use crate::engine::Engine;
use crate::names::lifetime;
use crate::share::given::{self, Given};
use crate::share::{self, Error, exports, held, keeper};
use crate::whose::{self, Below};

crate::hooks! {
    /// `cuIpcGetMemHandle`.
    cuIpcGetMemHandle ["cuIpcGetMemHandle" since 4010] (
        handle: *mut c_void, address: Address,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        let real = || unsafe { real(handle, address) };
        let (Some(memory), Ok(context), false) =
            (whose::live(engine, address), engine.calls.current(), handle.is_null())
        else {
            return real();
        };
        if let Err(code) = engine.driver.check(context) {
            return code;
        }
        match export(engine, &memory.block, address) {
            Some(bytes) => {
                if matches!(memory.below, Below::Pages(_)) && address != memory.block.base {
                    crate::log_once!(
                        Info,
                        "a handle of CUDA IPC was asked for within an allocation of torch's: it opens \
                         at the first byte of that, which the range around the address tells"
                    );
                }
                // SAFETY: not null, and the program's to write, by its call.
                unsafe { handle.cast::<[u8; 64]>().write(bytes) };
                Code::SUCCESS
            }
            // The driver refuses mapped memory.
            None => real(),
        }
    }

    /// `cuIpcOpenMemHandle`, before CUDA 11.
    cuIpcOpenMemHandle ["cuIpcOpenMemHandle" since 4010] (
        out: *mut Address, handle: IpcBytes, flags: u32,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        open(engine, out, &handle, flags, || unsafe { real(out, handle, flags) })
    }

    /// `cuIpcOpenMemHandle_v2`.
    cuIpcOpenMemHandle_v2 ["cuIpcOpenMemHandle" since 11000] (
        out: *mut Address, handle: IpcBytes, flags: u32,
    ) |real, engine| {
        // SAFETY: the program's own call, passed on.
        open(engine, out, &handle, flags, || unsafe { real(out, handle, flags) })
    }

    /// `cuIpcCloseMemHandle`.
    cuIpcCloseMemHandle ["cuIpcCloseMemHandle" since 4010] (address: Address) |real, engine| {
        match held::close(engine, address) {
            Some(closed) => closed.err().unwrap_or(Code::SUCCESS),
            // SAFETY: the program's own call, passed on.
            None => unsafe { real(address) },
        }
    }
}

/// The handle of an allocation; `None` where the driver is to refuse.
fn export(engine: &Engine, block: &BlockInfo, address: Address) -> Option<[u8; 64]> {
    if block.attached {
        return lifetime::ipc_handle(engine, block.base);
    }
    if block.owner != Owner::Context {
        return None;
    }
    match exports::handle_of(engine, address)? {
        Ok(handle) => Some(handle),
        Err(failure) => {
            crate::log_once!(
                Warn,
                "pooled memory cannot be exported by CUDA IPC: {failure}"
            );
            None
        }
    }
}

fn open(
    engine: &Engine,
    out: *mut Address,
    handle: &IpcBytes,
    flags: u32,
    real: impl FnOnce() -> Code,
) -> Code {
    let handle = match Handle::from_bytes(&handle.0) {
        Ok(handle) => handle,
        Err(Unreadable::Foreign) => return real(),
        Err(Unreadable::Version(version)) => {
            crate::log_once!(
                Warn,
                "an IPC handle of another memcuda (layout {version}) cannot be opened here"
            );
            return Code::INVALID_VALUE;
        }
    };
    if out.is_null() || flags != LAZY_ENABLE_PEER_ACCESS {
        return Code::INVALID_VALUE;
    }
    match opened(engine, &handle) {
        Ok(address) => {
            // SAFETY: not null, and the program's to write, by its call.
            unsafe { *out = address };
            Code::SUCCESS
        }
        Err(code) => code,
    }
}

fn opened(engine: &Engine, handle: &Handle) -> Result<Address, Code> {
    let (context, current) = engine.current()?;
    engine.driver.check(context)?;
    let generation = handle.generation;
    if exports::is_own(generation) {
        // So does the driver answer to a process that opens its own.
        return Err(Code::INVALID_CONTEXT);
    }
    if let Some(address) = held::again(generation, context) {
        return Ok(address);
    }
    let answer = keeper::node(engine).and_then(|node| match node == handle.node {
        true => keeper::import(engine, generation).map(Some),
        false => Ok(None),
    });
    let memory = match answer {
        Ok(answer) => answer.and_then(Given::of).ok_or(None),
        Err(error) => Err(Some(error)),
    };
    let memory = memory.map_err(|error| refusal(handle, error))?;
    let (on, home) = (memory.entry.spec.device, memory.home(engine, current));
    let access = match memory.entry.state {
        State::Sealed => Access::Read,
        _ => Access::Write,
    };
    let imported = memory.import(engine, (context, current), access);
    let memory = imported.map_err(|failure| {
        held::release(engine, generation);
        unopened(engine, on, failure)
    })?;
    held::attach(engine, home, generation, memory)
}

/// What the program is told where memory that the keeper gave cannot be had, and the log why.
fn unopened(engine: &Engine, on: DeviceId, failure: given::Failure) -> Code {
    match share::device(engine, on) {
        Some(_) => crate::log!(
            Warn,
            "memory of another process cannot be opened: {failure}"
        ),
        None => crate::log!(
            Warn,
            "memory of another process is on {on}, which this process does not see \
             (CUDA_VISIBLE_DEVICES): {failure}"
        ),
    }
    match failure {
        given::Failure::Driver(code) => code,
        given::Failure::Keeper(_) => Code::MAP_FAILED,
    }
}

/// What the program is told where the keeper gives no memory, and the log why.
fn refusal(handle: &Handle, error: Option<Error>) -> Code {
    match error {
        None => {
            crate::log!(
                Warn,
                "an IPC handle of another host, or of before its last start"
            );
            Code::INVALID_VALUE
        }
        Some(Error::Refused(protocol::Code::NotFound, _)) => {
            crate::log!(
                Warn,
                "an IPC handle of memory that is gone, or of another user: {}",
                handle.generation
            );
            Code::INVALID_VALUE
        }
        Some(error) => {
            crate::log!(Warn, "memory of another process cannot be opened: {error}");
            Code::MAP_FAILED
        }
    }
}
