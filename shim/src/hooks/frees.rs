//! `cuMemFree`, where every cudaFree arrives. It names no stream, and waits as the driver's
//! does, except for a caller that is known not to rely on it.

use std::ffi::c_void;

use memcuda_core::config::Free;
use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Context, Driver, Stream, cancel};
use memcuda_core::pool::{BlockInfo, Order, Owner, Pool, Release, StreamKey};
use memcuda_core::units::MIB;

use crate::driver::marks::Which;
use crate::engine::boundary::{self, planted_panic};
use crate::engine::device::Device;
use crate::engine::{self, Engine};
use crate::entry::thunks;
use crate::hook::{ABSENT, Hook};
use crate::libraries::modules::Module;
use crate::libraries::{listener, ucx};
use crate::names::{lifetime, table};
use crate::process::{tags, threads};
use crate::record::Caller;
use crate::share::exports;
use crate::torch;

crate::slot! { cuMemFree_v2 ["cuMemFree" since 3020] Free }

/// The hook of this family.
pub static HOOKS: &[&Hook] = &[&cuMemFree_v2::HOOK];

type RealFree = unsafe extern "C" fn(Address) -> Code;

/// `cuMemFree_v2`, for programs that link to it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: Address) -> Code {
    // Who hears of it may fail to free it: MPICH before 4.2.3 calls what the driver has for
    // programs of CUDA 3, which refuses.
    if listener::has_freed(cuMemFree_v2 as *const c_void, address) {
        return Code::SUCCESS;
    }
    // SAFETY: the program's own call.
    unsafe { thunks::free_heard(Module::DIRECT, address) }
}

/// Idle bytes of a pool that has stopped which are worth a wait.
const WORTH_GIVING_BACK: u64 = 64 * MIB;

/// `cuMemFree_v2`, called through the table of a module.
///
/// # Safety
/// As for the driver's function.
pub unsafe fn free(module: Module, address: Address) -> Code {
    let real = cuMemFree_v2::HOOK.real();
    if real.is_null() {
        return ABSENT;
    }
    // SAFETY: the driver's function of this name has this signature.
    let real = unsafe { std::mem::transmute::<*mut c_void, RealFree>(real) };
    let real = || {
        let _held = cancel::hold();
        // SAFETY: the program's own call, passed on.
        boundary::answered(unsafe { real(address) })
    };
    let tag = tags::take();
    boundary::enter(
        "cuMemFree_v2",
        |engine| {
            if let Some(code) = free_named(engine, address) {
                return code;
            }
            let Some(owner) = engine.owner(address) else {
                let real = || torch::plain_free(&tag, module, address, real);
                return engine.plain_free(address, Caller::of(&tag, module), real);
            };
            take_back(engine, owner, address, &tag, module, real)
        },
        || give_up(address, || torch::plain_free(&tag, module, address, real)),
        || torch::plain_free(&tag, module, address, real),
    )
}

/// Frees memory that has a name, or refuses to where a capture forbids it;
/// `None` where it has none.
pub fn free_named(engine: &Engine, address: Address) -> Option<Code> {
    if !table::any_allocated() || !table::is_allocated(address) {
        return None;
    }
    let _held = cancel::hold();
    match engine.captures.refusal(&engine.calls) {
        Some(code) => Some(code),
        None => lifetime::free(engine, address),
    }
}

/// Before exported memory is freed: who wrote into the driver's function is called there, and
/// forgets what it knows of the memory, above all its handle. The driver refuses what is mapped.
#[inline]
pub fn announce(engine: &Engine, owner: (&Device, &Pool<Real>), address: Address) {
    if ucx::any_patched() {
        tell(engine, owner, address);
    }
}

#[cold]
fn tell(engine: &Engine, (device, pool): (&Device, &Pool<Real>), address: Address) {
    let real = cuMemFree_v2::HOOK.real();
    let exported = |block: &BlockInfo| block.base == address && exports::has(device, block);
    if real.is_null() || !pool.find(address).as_ref().is_some_and(exported) {
        return;
    }
    let _held = cancel::hold();
    // SAFETY: the driver's function of this name has this signature; it takes any address.
    let real = || unsafe { std::mem::transmute::<*mut c_void, RealFree>(real)(address) };
    let _ = boundary::outside(|| engine.driver.relaxed(real));
}

/// The answer to a free that panicked. The pool's memory may be half taken
/// back: it stays lost, and is never the driver's.
pub fn give_up(address: Address, real: impl FnOnce() -> Code) -> Code {
    match engine::is_pooled(address) {
        true => Code::SUCCESS,
        false => real(),
    }
}

fn take_back(
    engine: &Engine,
    owner: (&Device, &Pool<Real>),
    address: Address,
    tag: &tags::Tag,
    module: Module,
    real: impl Fn() -> Code,
) -> Code {
    let (device, pool) = owner;
    // The driver's free needs no context, but tells of a broken one, or one that has ended.
    let current = match engine.calls.current() {
        Ok(current) => Some(current),
        Err(Code::INVALID_CONTEXT) => None,
        Err(code) => return code,
    };
    if let Some(code) = engine.captures.refusal(&engine.calls) {
        return code;
    }
    let lent = |block: &BlockInfo| block.base == address;
    let Some(mut block) = pool.find(address).filter(lent) else {
        // The driver refuses mapped memory, or says what else is wrong.
        return real();
    };
    let other = current.filter(|current| *current != block.context);
    if let Some(Err(code)) = other.map(|other| is_whole(engine, other)) {
        return code;
    }
    if block.context == Context::default() {
        // Whose context ended: it needs another one to be ordered in, if there is any.
        let other = current
            .or_else(|| pool.context())
            .or_else(|| engine.primary_of(device));
        if let Some(other) = other {
            if let Err(code) = is_whole(engine, other) {
                return code;
            }
            pool.adopt(address, other);
            block.context = other;
        }
    }
    planted_panic("cuMemFree: found");
    let of_torch = torch::identify_free(tag, module, address);
    let in_order = of_torch && !torch::forgets_users();
    let release = match release_of(engine, owner, &block, in_order) {
        Ok(release) => release,
        Err(code) => return failed_free(engine, owner, &block, code),
    };
    announce(engine, owner, address);
    let freeing = engine.freeing(device.ordinal, address, Caller::of(tag, module));
    match pool.free(address, release) {
        Ok(freed) => {
            if let Some(freeing) = freeing {
                freeing.of_pool(&freed, release);
            }
            taken_back(engine, device, &freed);
            if of_torch {
                torch::freed(device.ordinal, block.bytes);
            }
            if !engine.lends() && pool.idle() >= WORTH_GIVING_BACK {
                // Nothing will be lent from it any more: the plain driver
                // serves from now on and needs the memory.
                pool.trim();
            }
            Code::SUCCESS
        }
        Err(_) => real(),
    }
}

/// What follows where the pool has taken a block back: its copies are as any
/// others', who has it open hears of it, and where the program wrote behind it
/// (`MEMCUDA_DEBUG=canary`) a line says so.
#[inline]
pub fn taken_back(engine: &Engine, device: &Device, freed: &BlockInfo) {
    device.memops.clear(&engine.calls, Which::Block(freed.id));
    exports::freed(engine, device, freed);
    if freed.overrun {
        crate::log!(
            Error,
            "{} bytes at {:#x}: the guard words behind them were overwritten before they were freed",
            freed.bytes,
            freed.base
        );
    }
}

/// How a block is released: in the order of torch's stream, where that is enough, else behind a wait for the
/// work of its context, as the driver's free makes. Where that could not be made, which is
/// no failure of the program's, the pool finds out later that the work is over.
fn release_of(
    engine: &Engine,
    (device, pool): (&Device, &Pool<Real>),
    block: &BlockInfo,
    in_order: bool,
) -> Result<Release, Code> {
    if block.context == Context::default() {
        // No context of the device is left in which anything could use it.
        return Ok(Release::Complete);
    }
    let at_once = match (engine.config.free, block.order) {
        (Free::Auto | Free::Ordered, Order::Stream(key)) if in_order && is_named_here(key) => {
            Some(Release::Stream(key))
        }
        (Free::Ordered, _) => Some(Release::Unknown),
        // The driver's free does not wait for memory of a memory pool.
        _ if block.owner == Owner::MemoryPool => Some(Release::Unknown),
        _ => None,
    };
    if let Some(release) = at_once {
        // What a wait would tell.
        return is_whole(engine, block.context).map(|()| release);
    }
    let _held = cancel::hold();
    match pool.synchronize_own(block.context, device.views.were_there()) {
        Ok(release) if release != Release::Unknown => {
            device.pitch.free_probe(&engine.calls, block.context);
            Ok(release)
        }
        Err(code) if code.is_sticky() => Err(code),
        Ok(_) | Err(_) => Ok(Release::Unknown),
    }
}

/// Can this thread name the stream? A thread's own default stream is another one elsewhere.
fn is_named_here(key: StreamKey) -> bool {
    key.stream != Stream::PER_THREAD || key.thread == threads::number()
}

/// Fails with the error that stays with a context, or where it is gone.
fn is_whole(engine: &Engine, context: Context) -> Result<(), Code> {
    match engine.driver.check(context) {
        Err(code) if code.is_sticky() => Err(code),
        _ => Ok(()),
    }
}

/// The wait failed: the error is the context's, and the driver's own free
/// would answer it. The block is given up all the same, never to be lent while
/// the context is broken.
fn failed_free(
    engine: &Engine,
    (device, pool): (&Device, &Pool<Real>),
    block: &BlockInfo,
    code: Code,
) -> Code {
    pool.freeze(block.context, code);
    let freeing = engine.freeing(device.ordinal, block.base, Caller::UNKNOWN);
    if let Ok(freed) = pool.free(block.base, Release::Unknown) {
        if let Some(freeing) = freeing {
            freeing.of_pool(&freed, Release::Unknown);
        }
        exports::freed(engine, device, &freed);
    }
    code
}
