//! Copies of memory that the current device does not reach. The driver carries
//! cudaMalloc's memory over the host then, whatever names the copy; mapped
//! memory, and so ours, only where the copy names the contexts of both ends. So
//! a copy that it refused is made once more as one that names them.
//!
//! Without a current context the driver copies no mapped memory that lies on several handles, as
//! ours does, though it copies any other: the copy is made in its stream's context.
//!
//! A capture takes no copy that names contexts. There the pool, or what is copied of
//! torch's pages, is opened to the device for good, and the program's own call made
//! again.

use memcuda_core::driver::sys::{LOCATION_DEVICE, MemLocation, pointer};
use memcuda_core::driver::{Address, Code, Context, Stream};
use memcuda_core::pool::{Grantee, Owner};

use crate::driver::calls::{Calls, MemPool};
use crate::driver::shapes::{Block, DEVICE, End, HOST, UNIFIED};
use crate::engine::boundary::answered;
use crate::engine::device::Device;
use crate::engine::{self, Engine};
use crate::pool;
use crate::room::{self, with_room};
use crate::whose::{self, Below, Memory, Whose};

/// What the driver answers a copy that it does not make.
pub const REFUSED: Code = Code::INVALID_VALUE;

/// A line of more bytes is carried to or from the host in parts: a row of a block
/// may be no longer than the driver's longest pitch.
const LONGEST_ROW: usize = 1 << 30;

/// When a copy is made.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// By a call that names no stream.
    Call,
    /// The same, where the default stream is the thread's own.
    CallOfThread,
    /// In the order of a stream.
    Queued(Stream),
}

/// The memory at one end of a copy.
enum Place<'a> {
    Host,
    Device {
        ordinal: u32,
        /// Whose it is, if a context's.
        context: Option<Context>,
        /// Does the current device reach it, being another one?
        reached: bool,
        /// The allocation, if it is ours.
        ours: Option<Memory<'a>>,
    },
}

impl<'a> Place<'a> {
    fn ours(&self) -> Option<Memory<'a>> {
        match self {
            Place::Device { ours, .. } => *ours,
            Place::Host => None,
        }
    }
}

/// Is this a copy that is queued by a thread without a current context, where there are several
/// devices? Of mapped memory that the stream's device does not reach the driver makes none, but
/// ends the process (driver 580, signal 11; docs/measurements/h100.md).
pub fn is_nowhere(when: When) -> bool {
    let is_so = |engine: &Engine| {
        engine.devices.len() > 1 && engine.calls.current() == Err(Code::INVALID_CONTEXT)
    };
    matches!(when, When::Queued(_)) && engine::running().is_some_and(is_so)
}

/// Makes such a copy: where memory of ours is at an end from the stream's context, so that the
/// driver makes or refuses it; any other is the program's own call.
pub fn from_nowhere(
    engine: &Engine,
    block: Block,
    when: When,
    real: impl FnOnce() -> Code,
) -> Code {
    let is_ours = block.places().any(|at| whose::is_ours(engine, at));
    match when {
        When::Queued(stream) if is_ours => {
            lent(engine, block, stream, real).unwrap_or_else(|code| code)
        }
        _ => answered(real()),
    }
}

/// Makes a copy that the driver refused, where it refused it because of the
/// pool, and answers for it. `real` is the program's call.
pub fn again(engine: &Engine, block: Block, when: When, real: impl FnOnce() -> Code) -> Code {
    let made = match (engine.current(), when) {
        (Ok(here), _) => made(engine, here, false, block, when, real),
        // What is queued needs no current context.
        (Err(Code::INVALID_CONTEXT), When::Queued(stream)) => lent(engine, block, stream, real),
        (Err(code), _) => Err(code),
    };
    made.unwrap_or_else(|code| code)
}

/// Makes a copy from the context of its stream, where the program has none.
fn lent(
    engine: &Engine,
    block: Block,
    stream: Stream,
    real: impl FnOnce() -> Code,
) -> Result<Code, Code> {
    let here = engine.of_stream(stream)?;
    let make = || made(engine, here, true, block, When::Queued(stream), real);
    engine.calls.within(here.0, make)?
}

/// Makes the copy from the current context. It is `lent` where the program has none: then a copy
/// within the device may succeed as it stands.
fn made(
    engine: &Engine,
    here: (Context, &Device),
    lent: bool,
    mut block: Block,
    when: When,
    real: impl FnOnce() -> Code,
) -> Result<Code, Code> {
    let to = place(engine, here, &block.to, &block)?;
    let from = place(engine, here, &block.from, &block)?;
    let ends = [&to, &from];
    let far = ends.map(|place| {
        place
            .ours()
            .filter(|it| it.device.ordinal != here.1.ordinal)
    });
    if far.iter().all(Option::is_none) {
        let is_ours = ends.iter().any(|place| place.ours().is_some());
        return (lent && is_ours).then(|| answered(real())).ok_or(REFUSED);
    }
    if !captured(engine, when)? {
        block.to = named(block.to, &to, here)?;
        block.from = named(block.from, &from, here)?;
        return carried(engine, &block, when);
    }
    for memory in far.into_iter().flatten() {
        open(engine, &memory, here)?;
    }
    Ok(answered(real()))
}

/// Where an end lies. All of a pooled one must be live.
fn place<'a>(
    engine: &'a Engine,
    here: (Context, &Device),
    end: &End,
    block: &Block,
) -> Result<Place<'a>, Code> {
    match end.kind {
        HOST => Ok(Place::Host),
        _ if end.is_device_address() => {
            let (first, bytes) = end.span(block).ok_or(REFUSED)?;
            match whose::of(engine, first) {
                Whose::Live(memory) => ours(memory, first, bytes, here.1.ordinal),
                Whose::Freed => Err(REFUSED),
                Whose::Foreign => foreign(engine, end.kind, first, here.1.ordinal),
            }
        }
        // An array, which is no address; the driver knows whose it is.
        _ => Ok(Place::Device {
            ordinal: here.1.ordinal,
            context: Some(here.0),
            reached: true,
            ours: None,
        }),
    }
}

/// Memory of ours.
fn ours(memory: Memory<'_>, at: Address, bytes: u64, here: u32) -> Result<Place<'_>, Code> {
    if bytes > memory.bytes_from(at) {
        return Err(REFUSED);
    }
    let block = &memory.block;
    let reached = match memory.below {
        Below::Pool(pool) => pool.is_open_to(here),
        Below::Pages(_) => false,
    };
    Ok(Place::Device {
        ordinal: memory.device.ordinal,
        context: (block.owner == Owner::Context).then_some(block.context),
        reached,
        ours: Some(memory),
    })
}

/// Memory that is none of ours, as the driver knows it: it checks the length
/// itself.
fn foreign(engine: &Engine, said: u32, at: Address, here: u32) -> Result<Place<'static>, Code> {
    let (mut kind, mut context, mut ordinal) = (0_u32, Context::default(), 0_u32);
    let mut on_host = 0_u64;
    let ask = engine.calls.pointer_attribute.ok_or(REFUSED)?;
    // SAFETY: each pointer is valid for its attribute's type.
    unsafe {
        match ask((&raw mut kind).cast(), pointer::MEMORY_TYPE, at) {
            // Pageable memory of the host.
            Code::INVALID_VALUE => kind = HOST,
            code => code.ok()?,
        }
        match (said, kind) {
            (_, DEVICE) => {}
            (UNIFIED, HOST) => return Ok(Place::Host),
            // Pinned memory by the address that devices have for it.
            (DEVICE, HOST) => {
                ask((&raw mut on_host).cast(), pointer::HOST_POINTER, at).ok()?;
                return (on_host == at).then_some(Place::Host).ok_or(REFUSED);
            }
            _ => return Err(REFUSED),
        }
        ask((&raw mut context).cast(), pointer::CONTEXT, at).ok()?;
        ask((&raw mut ordinal).cast(), pointer::DEVICE_ORDINAL, at).ok()?;
    }
    let is_nobodys = context == Context::default();
    Ok(Place::Device {
        ordinal,
        context: (!is_nobodys).then_some(context),
        reached: is_nobodys && reaches(&engine.calls, at, here),
        ours: None,
    })
}

/// Does the current device, whose ordinal is given, reach memory of no context: the program's
/// own mapping, or memory of a memory pool?
fn reaches(calls: &Calls, at: Address, here: u32) -> bool {
    let Some(ask) = calls.pointer_attribute else {
        return false;
    };
    let (mut pool, mut of_mapping, mut of_pool) = (MemPool::default(), 0_u64, 0);
    let location = MemLocation {
        kind: LOCATION_DEVICE,
        id: here as i32,
    };
    // SAFETY: each pointer is valid for its attribute's type, or for the call.
    let asked = unsafe {
        match ask((&raw mut pool).cast(), pointer::MEMPOOL_HANDLE, at) {
            // What a pointer of a pool answers is its own device's.
            Code::SUCCESS if pool != MemPool::default() => {
                let access = calls.mem_pool_access;
                access.map_or(Code::NOT_FOUND, |access| {
                    access(&mut of_pool, pool, &location)
                })
            }
            _ => ask((&raw mut of_mapping).cast(), pointer::ACCESS_FLAGS, at),
        }
    };
    asked == Code::SUCCESS && (of_mapping != 0 || of_pool != 0)
}

/// The end with its context. Memory of no context the driver carries for nobody: the current
/// device has to reach it.
fn named(end: End, place: &Place, here: (Context, &Device)) -> Result<End, Code> {
    match *place {
        Place::Host => Ok(end.of_host()),
        Place::Device {
            context: Some(context),
            ..
        } => Ok(end.of(context)),
        Place::Device {
            ordinal, reached, ..
        } if reached || ordinal == here.1.ordinal => Ok(end.of(here.0)),
        Place::Device { .. } => Err(REFUSED),
    }
}

/// Would the copy become part of a graph?
fn captured(engine: &Engine, when: When) -> Result<bool, Code> {
    match when {
        When::Queued(stream) => match engine.calls.is_capturing(stream) {
            // The legacy stream, beside a capture: the driver makes no copy there.
            Err(Code::STREAM_CAPTURE_IMPLICIT) => Ok(false),
            answer => answer,
        },
        When::Call | When::CallOfThread => Ok(false),
    }
}

/// Opens a pool, or torch's pages of an allocation, to the current device, for graphs
/// of the current context.
fn open(engine: &Engine, memory: &Memory, here: (Context, &Device)) -> Result<(), Code> {
    let graphs = Grantee::Graphs { reader: here.0 };
    let (reader, block) = (here.1.ordinal, &memory.block);
    let open = || {
        let opened = match memory.below {
            Below::Pool(_) => pool::grant(engine, memory.device, reader, graphs),
            Below::Pages(pages) => pages.open_around(block.base, block.bytes, reader),
        };
        opened.err().unwrap_or(Code::SUCCESS)
    };
    // It takes page tables, which lie on the reader's device.
    let opened = engine
        .calls
        .relaxed(|| with_room(engine, || room::Place::Device(here.1), open));
    // Devices that cannot reach each other: the copy stays refused.
    opened.ok().map_err(|_| REFUSED)
}

/// Opens what a node of a graph fills or copies to the device of a context, which makes it. Says
/// whether anything was opened that lies elsewhere; stream-ordered memory, which the driver opens
/// to nobody by itself, is not.
pub fn open_for_graph(
    engine: &Engine,
    places: impl IntoIterator<Item = Address>,
    context: Context,
) -> bool {
    let Ok(device) = engine.device_of(context) else {
        return false;
    };
    let elsewhere = |memory: &Memory| {
        memory.device.ordinal != device.ordinal && memory.block.owner == Owner::Context
    };
    let places = places.into_iter();
    let memories = places.filter_map(|at| whose::live(engine, at).filter(elsewhere));
    let opened = memories.map(|memory| open(engine, &memory, (context, device)).is_ok());
    opened.fold(false, |any, opened| any | opened)
}

/// Makes the copy, by a call that names both contexts.
fn carried(engine: &Engine, block: &Block, when: When) -> Result<Code, Code> {
    let Some(bytes) = block.bytes_in_line() else {
        return block_carried(engine, block, when);
    };
    if block.to.is_device_address() && block.from.is_device_address() {
        return line_carried(engine, block, bytes, when);
    }
    let mut code = REFUSED;
    for begin in (0..bytes).step_by(LONGEST_ROW) {
        let part = block.part_of_line(begin, LONGEST_ROW.min(bytes - begin));
        code = block_carried(engine, &part, when)?;
        code.ok()?;
    }
    Ok(code)
}

/// A line between two devices.
fn line_carried(engine: &Engine, block: &Block, bytes: usize, when: When) -> Result<Code, Code> {
    let calls = &engine.calls;
    let (to, _) = block.to.span(block).ok_or(REFUSED)?;
    let (from, _) = block.from.span(block).ok_or(REFUSED)?;
    let (into, out_of) = (block.to.context(), block.from.context());
    // SAFETY: the program's own copy, of memory that was found to be there.
    Ok(answered(unsafe {
        match when {
            When::Call => calls.copy_peer.ok_or(REFUSED)?(to, into, from, out_of, bytes),
            When::CallOfThread => {
                calls.copy_peer_ptds.ok_or(REFUSED)?(to, into, from, out_of, bytes)
            }
            When::Queued(stream) => {
                calls.copy_peer_async.ok_or(REFUSED)?(to, into, from, out_of, bytes, stream)
            }
        }
    }))
}

/// Anything else.
fn block_carried(engine: &Engine, block: &Block, when: When) -> Result<Code, Code> {
    let calls = &engine.calls;
    // SAFETY: the program's own copy; what of it is pooled was found to be there.
    Ok(answered(unsafe {
        match when {
            When::Call => calls.copy_block.ok_or(REFUSED)?(block),
            When::CallOfThread => calls.copy_block_ptds.ok_or(REFUSED)?(block),
            When::Queued(stream) => calls.copy_block_async.ok_or(REFUSED)?(block, stream),
        }
    }))
}
