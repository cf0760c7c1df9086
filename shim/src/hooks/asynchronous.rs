//! Stream-ordered allocation and free. Served here while the device's current
//! memory pool is its default one; inside a stream capture they are the
//! driver's own (they make graph nodes).

use memcuda_core::driver::{Address, Code, Context, Stream};
use memcuda_core::pool::{Effort, Order, Owner, Release, Request, StreamKey};

use super::{foreign, frees, memory};
use crate::driver::calls::MemPool;
use crate::driver::own_pools;
use crate::engine::Engine;
use crate::engine::boundary::planted_panic;
use crate::engine::device::Device;
use crate::names::hints;
use crate::names::place::Place as Where;
use crate::pool;
use crate::record::Caller;
use crate::room::{Place, with_room_for};

crate::hooks! {
    /// `cuMemAllocAsync`.
    cuMemAllocAsync ["cuMemAllocAsync" since 11020] hit (
        out: *mut Address, bytes: usize, stream: Stream,
    ) |real, engine| {
        let plain = || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(out, bytes, stream) }
        };
        allocate(engine, out, bytes, stream.or_legacy(), None, plain)
    }

    /// `cuMemAllocAsync` whose default stream is the thread's own.
    cuMemAllocAsync_ptsz ["cuMemAllocAsync" since 11020 per_thread] hit (
        out: *mut Address, bytes: usize, stream: Stream,
    ) |real, engine| {
        let plain = || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(out, bytes, stream) }
        };
        allocate(engine, out, bytes, stream.or_per_thread(), None, plain)
    }

    /// `cuMemAllocFromPoolAsync`; served here for a device's default pool.
    cuMemAllocFromPoolAsync ["cuMemAllocFromPoolAsync" since 11020] hit (
        out: *mut Address, bytes: usize, pool: MemPool, stream: Stream,
    ) |real, engine| {
        let plain = || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(out, bytes, pool, stream) }
        };
        allocate(engine, out, bytes, stream.or_legacy(), Some(pool), plain)
    }

    /// `cuMemAllocFromPoolAsync` whose default stream is the thread's own.
    cuMemAllocFromPoolAsync_ptsz ["cuMemAllocFromPoolAsync" since 11020 per_thread] hit (
        out: *mut Address, bytes: usize, pool: MemPool, stream: Stream,
    ) |real, engine| {
        let plain = || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(out, bytes, pool, stream) }
        };
        allocate(engine, out, bytes, stream.or_per_thread(), Some(pool), plain)
    }

    /// `cuMemFreeAsync`.
    cuMemFreeAsync ["cuMemFreeAsync" since 11020] hit (
        address: Address, stream: Stream,
    ) |real, engine| {
        let plain = || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(address, stream) }
        };
        free(engine, address, stream.or_legacy(), plain)
    }, panicked {
        frees::give_up(address, || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(address, stream) }
        })
    }

    /// `cuMemFreeAsync` whose default stream is the thread's own.
    cuMemFreeAsync_ptsz ["cuMemFreeAsync" since 11020 per_thread] hit (
        address: Address, stream: Stream,
    ) |real, engine| {
        let plain = || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(address, stream) }
        };
        free(engine, address, stream.or_per_thread(), plain)
    }, panicked {
        frees::give_up(address, || {
            // SAFETY: the program's own call, passed on.
            unsafe { real(address, stream) }
        })
    }
}

fn allocate(
    engine: &Engine,
    out: *mut Address,
    bytes: usize,
    stream: Stream,
    from: Option<MemPool>,
    real: impl Fn() -> Code,
) -> Code {
    if out.is_null() || bytes == 0 {
        return real();
    }
    if !engine.lends() {
        return allocate_plainly(engine, out, bytes, stream, from, &real);
    }
    // SAFETY: not null, and the program's to write: as the driver does, before
    // anything can fail.
    unsafe { *out = 0 };
    let (context, device) = match served(engine, stream, from) {
        Ok(Some(served)) => served,
        Ok(None) => return drivers_own(engine, stream, bytes, from, real),
        Err(code) => return code,
    };
    if let Some(code) = engine.captures.refusal(&engine.calls) {
        return code;
    }
    let bytes = bytes as u64;
    if hints::active() {
        let place = Where::current(context, device);
        match hints::allocate(engine, place, bytes, || false) {
            Some(Ok(address)) => {
                // SAFETY: not null, and the program's to write, by its call.
                unsafe { *out = address };
                return Code::SUCCESS;
            }
            Some(Err(code)) => return code,
            None => {}
        }
    }
    let Some(pool) = pool::of(engine, device) else {
        return real();
    };
    let key = engine.key(context, stream);
    let request = request(key, bytes);
    let result = pool.alloc(&request);
    if let Some(recorder) = &engine.recorder {
        recorder.answered(device.ordinal, &request, result, Caller::UNKNOWN);
    }
    match result {
        Ok(address) => {
            // SAFETY: not null, and the program's to write, by its call.
            unsafe { *out = address };
            Code::SUCCESS
        }
        Err(refusal) => memory::refused(engine, device, bytes, Some(key), refusal),
    }
}

/// Where nothing is lent: the driver's own, and what is noted of it.
#[cold]
fn allocate_plainly(
    engine: &Engine,
    out: *mut Address,
    bytes: usize,
    stream: Stream,
    from: Option<MemPool>,
    real: &dyn Fn() -> Code,
) -> Code {
    // A node of a graph takes nothing now.
    if in_graph(engine, stream) {
        return real();
    }
    let code = drivers_own(engine, stream, bytes, from, real);
    if code == Code::SUCCESS
        && let Ok((context, device)) = engine.of_stream(stream)
    {
        // SAFETY: the real call has just written it.
        let address = unsafe { *out };
        let request = request(engine.key(context, stream), bytes as u64);
        engine.plain_allocated(device, &request, address, Caller::UNKNOWN);
    }
    code
}

/// A request on a stream.
fn request(key: StreamKey, bytes: u64) -> Request {
    Request {
        bytes,
        align: Owner::MemoryPool.alignment(bytes),
        order: Order::Stream(key),
        context: key.context,
        owner: Owner::MemoryPool,
        effort: Effort::Growth,
        graph: false,
    }
}

/// The context and device that serve a request, if the pool may: the stream is
/// not capturing, the driver tells whose it is, and the memory pool asked for is
/// the device's default one.
fn served(
    engine: &Engine,
    stream: Stream,
    from: Option<MemPool>,
) -> Result<Option<(Context, &Device)>, Code> {
    let calls = &engine.calls;
    if engine.captures.any() && calls.captures(stream)? {
        return Ok(None);
    }
    let (context, device) = match engine.of_stream(stream) {
        Err(Code::NOT_SUPPORTED) => return Ok(None),
        found => found?,
    };
    let default = match from {
        Some(pool) => device.default_mem_pool(calls) == Some(pool),
        None => device.uses_default_mem_pool(calls),
    };
    Ok(default.then_some((context, device)))
}

/// Runs an allocation of the driver's own. In a capture there is no second try of it, which would
/// add a second node to the graph.
fn drivers_own(
    engine: &Engine,
    stream: Stream,
    bytes: usize,
    from: Option<MemPool>,
    real: impl Fn() -> Code,
) -> Code {
    if in_graph(engine, stream) {
        return real();
    }
    let place = || taken_on(engine, stream, bytes as u64, from);
    with_room_for(engine, bytes as u64, place, real)
}

/// Is what a stream is given now, or may it be, a graph's?
fn in_graph(engine: &Engine, stream: Stream) -> bool {
    engine.captures.any() && engine.calls.captures(stream) != Ok(false)
}

/// Where the driver's own allocation lies: a pool of which nothing is known may be on any device,
/// and one that is at its own limit gets nothing anywhere.
fn taken_on(engine: &Engine, stream: Stream, bytes: u64, from: Option<MemPool>) -> Place<'_> {
    let its = engine.of_stream(stream).ok().map(|(_, device)| device);
    let current = || its?.current_mem_pool(&engine.calls);
    let limited = from
        .or_else(current)
        .is_some_and(|pool| own_pools::is_at_its_limit(&engine.calls, pool, bytes));
    let place = match (from, its) {
        _ if limited => Place::Nowhere,
        (None, Some(device)) => Place::Device(device),
        (None, None) => Place::Somewhere,
        (Some(pool), _) => {
            let location = own_pools::location(pool);
            location.map_or(Place::Somewhere, |location| foreign::at(engine, location))
        }
    };
    place.holding(bytes)
}

fn free(engine: &Engine, address: Address, stream: Stream, real: impl FnOnce() -> Code) -> Code {
    let mut unknown = None;
    if engine.captures.any() {
        match engine.calls.captures(stream) {
            // In a graph only memory of that graph can be freed: the driver says so.
            Ok(true) => return real(),
            Ok(false) => {}
            Err(code) => unknown = Some(code),
        }
    }
    // Its mapping cannot end in the order of a stream: the call waits.
    if let Some(code) = frees::free_named(engine, address) {
        return code;
    }
    let Some((device, pool)) = engine.owner(address) else {
        return engine.plain_free(address, Caller::UNKNOWN, real);
    };
    if let Some(code) = unknown {
        return code;
    }
    if let Some(code) = engine.captures.refusal(&engine.calls) {
        return code;
    }
    planted_panic("cuMemFreeAsync: found");
    let release = match engine.of_stream(stream) {
        Ok((context, _)) => Release::Stream(engine.key(context, stream)),
        // A green context's, of which the driver tells nothing: the whole context's work is
        // awaited, this stream's among it.
        Err(Code::NOT_SUPPORTED) => Release::Unknown,
        Err(code) => return code,
    };
    frees::announce(engine, (device, pool), address);
    let freeing = engine.freeing(device.ordinal, address, Caller::UNKNOWN);
    match pool.free(address, release) {
        Ok(freed) => {
            if let Some(freeing) = freeing {
                freeing.of_pool(&freed, release);
            }
            frees::taken_back(engine, device, &freed);
            freed.error.unwrap_or(Code::SUCCESS)
        }
        // The driver refuses mapped memory, or says what else is wrong.
        Err(_) => real(),
    }
}
