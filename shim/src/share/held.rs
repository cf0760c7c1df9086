//! What this process has open of others' memory by its handles: each generation
//! once a context, however often it was opened there. The addresses and handles are the pool's;
//! here is who they stand for and how often they were asked for.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Context, Driver};
use memcuda_core::lock::lock;
use memcuda_core::pool::{Attachment, Pool};
use memcuda_core::share::protocol::{Generation, Request};

use super::keeper;
use crate::engine::Engine;
use crate::engine::device::Device;
use crate::pool;

/// What is open at an address.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Which memory.
    generation: Generation,
    /// The context it was opened in, and ends with.
    context: Context,
    /// How often it is open.
    count: u32,
    /// The number of the latest opening, of all in the table.
    latest: u64,
    device: u32,
}

/// Everything that is open.
#[derive(Default)]
struct Table {
    at: HashMap<Address, Held>,
    by: HashMap<(Generation, Context), Address>,
    /// Openings so far.
    openings: u64,
}

impl Table {
    /// Opens once more what is open; its address.
    fn again(&mut self, generation: Generation, context: Context) -> Option<Address> {
        let address = *self.by.get(&(generation, context))?;
        let held = self.at.get_mut(&address)?;
        self.openings += 1;
        held.count += 1;
        held.latest = self.openings;
        Some(address)
    }
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<Table>> {
    lock(&TABLE)
}

/// Opens once more what is open in this context; its address.
pub fn again(generation: Generation, context: Context) -> Option<Address> {
    table().as_mut()?.again(generation, context)
}

/// Was what begins at this address opened by a handle?
pub fn is_open(address: Address) -> bool {
    table()
        .as_ref()
        .is_some_and(|table| table.at.contains_key(&address))
}

/// Maps memory of which this process holds a lease for it, and returns its
/// address. Where another thread has opened it meanwhile, that is the one; where
/// it fails nothing is mapped; in both cases the lease is given back.
pub fn attach(
    engine: &Engine,
    device: &Device,
    generation: Generation,
    memory: Attachment,
) -> Result<Address, Code> {
    let context = memory.context;
    let pool = pool::of(engine, device);
    let attached = match pool {
        Some(pool) => pool.attach(memory),
        None => {
            for (handle, _) in memory.handles {
                let _ = engine.driver.release(handle);
            }
            Err(Code::NOT_SUPPORTED)
        }
    };
    let (address, pool) = match (attached, pool) {
        (Ok(address), Some(pool)) => (address, pool),
        (Err(code), _) => {
            release(engine, generation);
            return Err(code);
        }
        (Ok(_), None) => return Err(Code::NOT_SUPPORTED),
    };
    let mut guard = table();
    let table = guard.get_or_insert_default();
    if let Some(first) = table.again(generation, context) {
        drop(guard);
        let _ = pool.detach(address);
        release(engine, generation);
        return Ok(first);
    }
    table.by.insert((generation, context), address);
    table.openings += 1;
    let held = Held {
        generation,
        context,
        count: 1,
        latest: table.openings,
        device: device.ordinal,
    };
    table.at.insert(address, held);
    Ok(address)
}

/// Closes what is open at an address once; the last time it waits as cudaFree does, then
/// unmaps. `None` where nothing is open there; else the driver's code of the wait. What
/// cannot be waited for now may still be in use, and stays open.
pub fn close(engine: &Engine, address: Address) -> Option<Result<(), Code>> {
    let (mut over, mut waited) = (None, Ok(()));
    let (last, device) = loop {
        let last = {
            let mut table = table();
            let table = table.as_mut()?;
            let held = table.at.get_mut(&address)?;
            if held.count > 1 {
                held.count -= 1;
                return Some(waited);
            }
            let last = *held;
            if over == Some(last.latest) {
                let key = (last.generation, last.context);
                // What was opened in a view may have another address.
                if table.by.get(&key) == Some(&address) {
                    table.by.remove(&key);
                }
                table.at.remove(&address);
            }
            last
        };
        let device = engine.by_ordinal(last.device)?;
        let pool = device.pool()?;
        if over == Some(last.latest) {
            break (last, device);
        }
        // Once more where it was opened during a wait, and closed again.
        (over, waited) = (Some(last.latest), wait(engine, pool, last.context));
        if waited.is_err_and(|code| !code.is_sticky()) {
            return Some(waited);
        }
    };
    device.detach(&engine.calls, address);
    release(engine, last.generation);
    Some(waited)
}

/// A context is gone: nothing runs in it any more, and what was opened in it
/// is closed.
pub fn context_ended(engine: &Engine, context: Context) {
    let ended: Vec<(Address, Held)> = {
        let mut guard = table();
        let Some(table) = guard.as_mut() else { return };
        table.by.retain(|(_, other), _| *other != context);
        table
            .at
            .extract_if(|_, held| held.context == context)
            .collect()
    };
    for (address, held) in ended {
        if let Some(pool) = engine.pool_of(held.device) {
            let _ = pool.detach(address);
        }
        release(engine, held.generation);
    }
}

/// A view of a context is gone: what was opened in it is the context's behind it.
pub fn hand_over(view: Context, whole: Context) {
    let mut guard = table();
    let Some(table) = guard.as_mut() else { return };
    let its = |held: &&mut Held| held.context == view;
    table
        .at
        .values_mut()
        .filter(its)
        .for_each(|held| held.context = whole);
    let opened: Vec<_> = table.by.extract_if(|(_, of), _| *of == view).collect();
    for ((generation, _), address) in opened {
        table.by.entry((generation, whole)).or_insert(address);
    }
}

/// Gives one count of a lease back. A keeper that does not hear it learns of it
/// by the end of the connection.
pub fn release(engine: &Engine, generation: Generation) {
    if let Err(error) = keeper::request(engine, Request::Release { generation }, &[]) {
        crate::log!(
            Debug,
            "the keeper was not told that {generation} is closed: {error}"
        );
    }
}

/// Waits for whatever may use attached memory, as cudaFree does. While anything
/// captures, by a free of the driver's own, which a capture does not forbid to
/// a thread whose mode is relaxed.
pub fn wait(engine: &Engine, pool: &Pool<Real>, context: Context) -> Result<(), Code> {
    match pool.synchronize_device(context) {
        Ok(true) => Ok(()),
        Err(code) if code.is_sticky() => Err(code),
        Ok(false) | Err(_) => engine.driver.synchronize_by_free(context),
    }
}
