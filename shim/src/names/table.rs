//! What this process has of named memory: one mapping each for what the program
//! allocated by a rule, one for all openings of a name in a context. A handle is
//! a number that is never used again, so a wrong one harms nobody.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::names::Name;
use memcuda_core::share::handle::Handle;
use memcuda_core::share::protocol::{Entry, Generation};

use super::timeline::Page;
use super::{Failure, legacy};
use crate::device::Device;
use crate::engine::Engine;
use crate::record::Caller;
use crate::share::{held, keeper};

/// Where the bytes of a mapping come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A handle that the pool maps.
    Pool,
    /// The driver's own allocation, made here.
    Allocation,
    /// The driver's own allocation of another process.
    LegacyHandle,
}

/// Named memory at an address.
pub struct Mapped {
    /// What the keeper said when it was made or opened.
    pub entry: Entry,
    /// Its first byte.
    pub address: Address,
    /// The context that it ends with.
    pub context: Context,
    /// Ordinal of the device whose pool has the address.
    pub device: u32,
    /// May it be written?
    pub write: bool,
    /// Where it comes from.
    pub from: From,
    /// Its versions, once somebody asked.
    pub page: Mutex<Option<Arc<Page>>>,
}

impl Mapped {
    /// Its name.
    pub fn name(&self) -> &Name {
        self.entry.name.as_ref().expect("it was opened by its name")
    }

    /// The name as the API finds it again.
    fn key(&self) -> (Context, bool) {
        (self.context, self.write)
    }
}

struct Use {
    mapped: Arc<Mapped>,
    /// Handles, and the program's own allocation.
    count: u32,
    /// Of them, allocations of the program. More than one only of the driver's
    /// own handles, which it opens at one address.
    allocated: u32,
}

#[derive(Default)]
struct Table {
    at: BTreeMap<Address, Use>,
    /// Openings that others may share, with the epoch in which the keeper said
    /// that the name is this memory.
    by: HashMap<Name, Vec<Opened>>,
    handles: HashMap<u64, Address>,
    last: u64,
}

struct Opened {
    key: (Context, bool),
    address: Address,
    epoch: u64,
}

/// In place of an epoch: the keeper is to be asked before this opening is shared.
pub const UNCONFIRMED: u64 = u64::MAX;

static TABLE: Mutex<Option<Table>> = Mutex::new(None);
/// Allocations of the program, for who wants to know without a lock.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

fn lock() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn hand_out(&mut self, address: Address) -> u64 {
        self.last += 1;
        self.handles.insert(self.last, address);
        self.last
    }

    /// One use fewer; what is left of it is to be ended by who gets it.
    fn leave(&mut self, address: Address) -> Option<Arc<Mapped>> {
        let held = self.at.get_mut(&address)?;
        held.count -= 1;
        if held.count > 0 {
            return None;
        }
        let mapped = self.at.remove(&address)?.mapped;
        self.forget(&mapped);
        Some(mapped)
    }

    fn confirm(&mut self, entry: &Entry, key: (Context, bool), epoch: u64) -> Option<u64> {
        let all = self.by.get_mut(entry.name.as_ref()?)?;
        let opened = all.iter_mut().find(|opened| {
            let held = self.at.get(&opened.address);
            opened.key == key
                && held.is_some_and(|held| held.mapped.entry.generation == entry.generation)
        })?;
        opened.epoch = epoch;
        let address = opened.address;
        self.at.get_mut(&address)?.count += 1;
        Some(self.hand_out(address))
    }

    fn forget(&mut self, mapped: &Mapped) {
        if let Some(opened) = self.by.get_mut(mapped.name()) {
            opened.retain(|opened| opened.address != mapped.address);
            if opened.is_empty() {
                self.by.remove(mapped.name());
            }
        }
    }
}

/// Opens once more what is open in this context, if nothing can have changed
/// since: no call of the system or the driver. `fits` says whether it is what
/// is wanted.
pub fn again(
    name: &str,
    (context, write): (Context, bool),
    epoch: u64,
    fits: impl FnOnce(&Entry) -> Result<(), Failure>,
) -> Option<Result<u64, Failure>> {
    let mut table = lock();
    let table = table.as_mut()?;
    let opened = table.by.get(name)?.iter();
    let mut same = opened.filter(|o| o.key == (context, write) && o.epoch == epoch);
    let address = same.next()?.address;
    let held = table.at.get_mut(&address)?;
    if let Err(failure) = fits(&held.mapped.entry) {
        return Some(Err(failure));
    }
    held.count += 1;
    Some(Ok(table.hand_out(address)))
}

/// A handle for memory of which the keeper just said that it is what is open
/// already; `None` where that is not so.
pub fn confirmed(entry: &Entry, context: Context, write: bool, epoch: u64) -> Option<u64> {
    lock().as_mut()?.confirm(entry, (context, write), epoch)
}

/// Enters what was opened by its name; a handle for it. Where another thread has
/// opened it meanwhile that is the one, and this mapping ends, which nobody used.
pub fn enter_opened(engine: &Engine, mapped: Mapped, epoch: u64) -> u64 {
    let mut guard = lock();
    let table = guard.get_or_insert_default();
    if mapped.from == From::Pool
        && let Some(handle) = table.confirm(&mapped.entry, mapped.key(), epoch)
    {
        drop(guard);
        let _ = end(engine, &mapped, false);
        return handle;
    }
    let address = mapped.address;
    let opened = Opened {
        key: mapped.key(),
        address,
        epoch,
    };
    let all = table.by.entry(mapped.name().clone()).or_default();
    // A name that was deleted and made again: the new one is found from now on.
    all.retain(|before| before.key != opened.key);
    all.push(opened);
    let again = enter(engine, table, mapped, 0);
    let handle = table.hand_out(address);
    drop(guard);
    give_back(engine, again);
    handle
}

/// Enters what the program allocated.
pub fn enter_allocated(engine: &Engine, mapped: Mapped) {
    ALLOCATED.fetch_add(1, Ordering::Relaxed);
    let again = enter(engine, lock().get_or_insert_default(), mapped, 1);
    give_back(engine, again);
}

/// What is entered at an address that is known already: its lease is one too
/// many.
fn enter(engine: &Engine, table: &mut Table, mapped: Mapped, allocated: u32) -> Option<Generation> {
    if let Some(held) = table.at.get_mut(&mapped.address) {
        held.count += 1;
        held.allocated += allocated;
        return Some(mapped.entry.generation);
    }
    if let Some(recorder) = &engine.recorder {
        recorder.named(&mapped);
    }
    let held = Use {
        count: 1,
        allocated,
        mapped: Arc::new(mapped),
    };
    table.at.insert(held.mapped.address, held);
    None
}

fn give_back(engine: &Engine, again: Option<Generation>) {
    if let Some(generation) = again {
        held::release(engine, generation);
    }
}

/// Where this process has memory of the driver's own already: it cannot open
/// what it made, and opens the rest at one address.
pub fn legacy_at(generation: Generation) -> Option<(Address, From)> {
    let table = lock();
    let mut all = table.as_ref()?.at.values().map(|held| &held.mapped);
    let found = all.find(|m| m.entry.generation == generation && m.from != From::Pool)?;
    Some((found.address, found.from))
}

/// This memory was sealed: whoever opens it for writing again is to ask the
/// keeper.
pub fn sealed(generation: Generation) {
    let mut table = lock();
    let Some(table) = table.as_mut() else { return };
    for opened in table.by.values_mut().flatten() {
        let held = table.at.get(&opened.address);
        if held.is_some_and(|held| held.mapped.entry.generation == generation) {
            opened.epoch = UNCONFIRMED;
        }
    }
}

/// The memory of a handle.
pub fn get(handle: u64) -> Option<Arc<Mapped>> {
    let table = lock();
    let table = table.as_ref()?;
    let address = table.handles.get(&handle)?;
    Some(table.at.get(address)?.mapped.clone())
}

/// What stands for named memory at an address where a program exports it by CUDA
/// IPC: the keeper has it already. `None` where it may not be written here, for
/// who opens such a handle may.
pub fn ipc_handle(engine: &Engine, address: Address) -> Option<[u8; 64]> {
    let mapped = lock().as_ref()?.at.get(&address)?.mapped.clone();
    let entry = &mapped.entry;
    let handle = Handle {
        node: keeper::node(engine).ok()?,
        generation: entry.generation,
        bytes: entry.spec.bytes,
        mapped: entry.mapped,
        offset: entry.offset,
        device: Handle::digest(entry.spec.device),
    };
    (mapped.write && mapped.from == From::Pool).then(|| handle.to_bytes())
}

/// A handle for the memory around an address.
pub fn find(address: Address) -> Option<u64> {
    let mut table = lock();
    let table = table.as_mut()?;
    let (&base, held) = table.at.range_mut(..=address).next_back()?;
    if address - base >= held.mapped.entry.spec.bytes {
        return None;
    }
    held.count += 1;
    Some(table.hand_out(base))
}

/// Ends a handle; `None` where it is none. The last use of a mapping waits for
/// its work, as cudaFree does, and ends it.
pub fn close(engine: &Engine, handle: u64) -> Option<Result<(), Failure>> {
    let ended = {
        let mut table = lock();
        let table = table.as_mut()?;
        let address = table.handles.remove(&handle)?;
        table.leave(address)
    };
    let ended = ended.map(|mapped| end(engine, &mapped, true));
    Some(
        ended
            .unwrap_or(Ok(()))
            .map_err(Failure::of("the wait of a close")),
    )
}

/// All named memory that is open.
pub fn all() -> Vec<Arc<Mapped>> {
    let table = lock();
    let all = table.iter().flat_map(|table| table.at.values());
    all.map(|held| held.mapped.clone()).collect()
}

/// Has the program allocated anything that has a name? One load.
pub fn any_allocated() -> bool {
    ALLOCATED.load(Ordering::Relaxed) != 0
}

/// Is this an allocation of the program that has a name?
pub fn is_allocated(address: Address) -> bool {
    let table = lock();
    let held = table.as_ref().and_then(|table| table.at.get(&address));
    held.is_some_and(|held| held.allocated > 0)
}

/// The program frees what it allocated; `None` where this is nothing of it.
pub fn free(engine: &Engine, address: Address) -> Option<Code> {
    let ended = {
        let mut table = lock();
        let table = table.as_mut()?;
        let held = table
            .at
            .get_mut(&address)
            .filter(|held| held.allocated > 0)?;
        held.allocated -= 1;
        ALLOCATED.fetch_sub(1, Ordering::Relaxed);
        table.leave(address)
    };
    let ended = ended.map(|mapped| end(engine, &mapped, true));
    Some(ended.unwrap_or(Ok(())).err().unwrap_or(Code::SUCCESS))
}

/// A context is gone, and all mappings of it; its handles are none any more.
pub fn context_ended(engine: &Engine, context: Context) {
    let mut ended = Vec::new();
    {
        let mut table = lock();
        let Some(table) = table.as_mut() else { return };
        let of_it: Vec<Address> = table
            .at
            .iter()
            .filter(|(_, held)| held.mapped.context == context)
            .map(|(address, _)| *address)
            .collect();
        for address in of_it {
            let Some(held) = table.at.remove(&address) else {
                continue;
            };
            ALLOCATED.fetch_sub(held.allocated as usize, Ordering::Relaxed);
            table.forget(&held.mapped);
            ended.push(held.mapped);
        }
        let at = &table.at;
        table.handles.retain(|_, address| at.contains_key(address));
    }
    for mapped in ended {
        let _ = end(engine, &mapped, false);
    }
}

/// Takes a mapping away; the code is that of the wait before it.
fn end(engine: &Engine, mapped: &Mapped, context_lives: bool) -> Result<(), Code> {
    let device = engine.devices.get(mapped.device as usize);
    let pool = device.and_then(Device::made);
    let mut waited = Ok(());
    if let (true, Some(pool)) = (context_lives, pool) {
        waited = held::wait(engine, pool, mapped.context);
    }
    // Not locked during the driver's and the keeper's part.
    let page = {
        let page = mapped.page.lock().unwrap_or_else(PoisonError::into_inner);
        page.clone()
    };
    if let (true, Some(page)) = (context_lives, page) {
        page.unregister(engine, mapped.context);
    }
    let freeing = engine.freeing(mapped.device, mapped.address, Caller::UNKNOWN);
    match (mapped.from, pool, device) {
        (From::Pool, Some(pool), Some(device)) => {
            if let Ok(block) = pool.detach(mapped.address) {
                device.memops.clear(&engine.calls, &block);
            }
        }
        (From::Pool, ..) => {}
        _ if context_lives => legacy::end(engine, mapped),
        _ => {}
    }
    if let Some(freeing) = freeing {
        freeing.of_others();
    }
    held::release(engine, mapped.entry.generation);
    *ended_at() = Some(Instant::now());
    waited
}

fn ended_at() -> MutexGuard<'static, Option<Instant>> {
    static AT: Mutex<Option<Instant>> = Mutex::new(None);
    AT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Did this process let go of named memory within this time? Where systemd stores
/// the keeper's descriptors its bytes are free once that has closed its own, which
/// nobody waits for; nor for those of other processes that let go just now.
pub fn ended_within(time: Duration) -> bool {
    ended_at().is_some_and(|at| at.elapsed() < time)
}
