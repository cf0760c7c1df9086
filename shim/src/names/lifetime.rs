//! How named memory comes and goes in this process: entered once it is mapped,
//! unmapped behind its last use, or with its context. What is there is in
//! `table`, whose lock is not held here.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::lock::lock;
use memcuda_core::share::handle::Handle;

use super::table::{self, From, Left, Mapped, Spare};
use super::{Failure, legacy};
use crate::engine::Engine;
use crate::record::Caller;
use crate::share::{held, keeper};

/// Enters what was opened by its name; a handle for it. Where another thread has
/// opened it meanwhile that is the one, and this mapping ends.
pub fn opened(engine: &Engine, mapped: Mapped, epoch: u64) -> u64 {
    let (handle, spare) = table::enter_opened(mapped, epoch, engine.recorder.as_ref());
    give_back(engine, spare);
    handle
}

/// Enters what the program allocated.
pub fn allocated(engine: &Engine, mapped: Mapped) {
    give_back(
        engine,
        table::enter_allocated(mapped, engine.recorder.as_ref()),
    );
}

fn give_back(engine: &Engine, spare: Spare) {
    match spare {
        Spare::Nothing => {}
        Spare::Lease(generation) => held::release(engine, generation),
        Spare::Mapping(mapped) => end(engine, &mapped, false),
    }
}

/// Ends a handle; `None` where it is none. The last use of a mapping waits for
/// its work, as cudaFree does, and ends it. What cannot be waited for now may still be in
/// use, and stays, and its handle with it.
pub fn close(engine: &Engine, handle: u64) -> Option<Result<(), Failure>> {
    let left = leave(engine, |over| table::leave(handle, over))?;
    Some(left.map_err(Failure::of("the wait of a close")))
}

/// The program frees what it allocated; `None` where this is nothing of it. It waits as
/// cudaFree does, also where handles keep the memory; what cannot be waited for stays.
pub fn free(engine: &Engine, address: Address) -> Option<Code> {
    let left = leave(engine, |over| table::leave_allocated(address, over))?;
    Some(left.err().unwrap_or(Code::SUCCESS))
}

/// Ends a use, behind what work it has to wait for: once more where the memory was opened
/// during a wait, and closed again, for what that has begun.
fn leave(
    engine: &Engine,
    end_use: impl Fn(Option<u64>) -> Option<Left>,
) -> Option<Result<(), Code>> {
    let (mut over, mut waited) = (None, Ok(()));
    loop {
        match end_use(over)? {
            Left::Uses => return Some(waited),
            Left::Nothing(mapped) => {
                end(engine, &mapped, true);
                return Some(waited);
            }
            Left::Work(mapped, latest) => {
                (over, waited) = (Some(latest), wait(engine, &mapped));
                if !is_over(waited) {
                    return Some(waited);
                }
            }
        }
    }
}

/// Was that a wait, or for what runs no more?
fn is_over(waited: Result<(), Code>) -> bool {
    waited.map_or_else(Code::is_sticky, |()| true)
}

/// A context is gone, and all mappings of it.
pub fn context_ended(engine: &Engine, context: Context) {
    for mapped in table::leave_context(context) {
        end(engine, &mapped, false);
    }
}

/// Waits for whatever may use a mapping: the work of its context, of the one that it was wanted
/// in, and of where programs work with its device's memory.
fn wait(engine: &Engine, mapped: &Mapped) -> Result<(), Code> {
    let Some(pool) = engine.pool_of(mapped.device) else {
        return Ok(());
    };
    let waited = held::wait(engine, pool, mapped.spot.context);
    if !is_over(waited) {
        return waited;
    }
    let others = [mapped.spot.beside(), mapped.primary(engine)];
    for other in others.into_iter().flatten() {
        let waited = held::wait(engine, pool, other);
        if !is_over(waited) {
            return waited;
        }
    }
    waited
}

/// Takes a mapping away on which nothing runs any more.
fn end(engine: &Engine, mapped: &Mapped, context_lives: bool) {
    // Not locked during the driver's and the keeper's part.
    let page = {
        let page = lock(&mapped.page);
        page.clone()
    };
    if let (true, Some(page)) = (context_lives, page) {
        page.unregister(engine, mapped.spot.context);
    }
    // With the maker's hold on the driver's own memory its name ends, before the memory does.
    let first = mapped.from == From::Allocation;
    if first {
        held::release(engine, mapped.entry.generation);
        table::has_ended(mapped.entry.generation);
    }
    let freeing = engine.freeing(mapped.device, mapped.address, Caller::UNKNOWN);
    match (mapped.from, engine.by_ordinal(mapped.device)) {
        (From::Pool, Some(device)) => device.detach(&engine.calls, mapped.address),
        (From::Pool, None) => {}
        _ if context_lives => legacy::end(engine, mapped),
        _ => {}
    }
    if let Some(freeing) = freeing {
        freeing.of_others();
    }
    if !first {
        held::release(engine, mapped.entry.generation);
    }
    *ended_at() = Some(Instant::now());
}

fn ended_at() -> MutexGuard<'static, Option<Instant>> {
    static AT: Mutex<Option<Instant>> = Mutex::new(None);
    lock(&AT)
}

/// Did this process let go of named memory within this time? Where systemd stores
/// the keeper's descriptors its bytes are free once that has closed its own, which
/// nobody waits for; nor for those of other processes that let go just now.
pub fn ended_within(time: Duration) -> bool {
    ended_at().is_some_and(|at| at.elapsed() < time)
}

/// What stands for named memory at an address where a program exports it by CUDA
/// IPC: the keeper has it already. `None` where it may not be written here, for
/// who opens such a handle may.
pub fn ipc_handle(engine: &Engine, address: Address) -> Option<[u8; 64]> {
    let mapped = table::at(address)?;
    let handle = Handle::of(keeper::node(engine).ok()?, &mapped.entry);
    (mapped.spot.write && mapped.from == From::Pool).then(|| handle.to_bytes())
}
