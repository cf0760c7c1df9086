//! What this process exports: each allocation once, however often its handle is
//! asked for. What the program frees of it is parked in the pool until nobody
//! else has it open, which the keeper says. What is different of torch's pages is
//! in `runs`; what a keeper that knows nothing is given is in `again`.

mod again;
mod runs;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::Address;
use memcuda_core::lock;
use memcuda_core::pages::Run;
use memcuda_core::pool::{BlockInfo, Export};
use memcuda_core::share::protocol::{Code, Generation, Reply, Request};

use super::Error;
use super::keeper::{self, Resumed};
use super::send::{self, Failure, Sent};
use crate::engine::Engine;
use crate::engine::device::Device;
use crate::whose::{self, Below, Memory};

pub use again::{give_again, is_to_be_given};
pub use runs::{has_runs, hold, unmapped};

/// An allocation: its device's ordinal and its number there.
type Which = (u32, u64);

/// What is known of an export.
struct Exported {
    generation: Generation,
    /// Where the allocation begins.
    at: Address,
    /// Its handle, as programs pass it on.
    handle: [u8; 64],
    /// Where it is a run of pages: those that torch still has.
    pages: Option<runs::Left>,
    /// The program has freed it, and others have it open or may have.
    freed: bool,
    /// How often they have, as the keeper said of what is freed: to them it may be left.
    held: Option<u64>,
    /// The keeper that had it is gone for good, and the one that there is has not got it yet.
    void: bool,
    /// It is being given to that one: until it is, the handles below it stay.
    being_given: bool,
    /// How many keepers there had been when it was exported.
    keepers: u64,
    /// One that knew who has the allocation open is gone for good, as was told, by this export
    /// or by one before.
    for_good: bool,
}

impl Exported {
    /// May others have it open of whom the keeper does not know? Asked of an answer of the
    /// keeper's, when that is there: the one that gave it may have begun just before.
    fn is_for_good(&self) -> bool {
        self.for_good || self.keepers != keeper::keepers()
    }
}

static TABLE: Mutex<Option<HashMap<Which, Exported>>> = Mutex::new(None);
/// Held while an export is made; no two are made of one allocation, and torch unmaps
/// no page meanwhile.
static MAKING: Mutex<()> = Mutex::new(());
/// How many exports are freed and not gone.
static PARKED: AtomicUsize = AtomicUsize::new(0);
/// How often an export is made of pages that come and go meanwhile.
const TRIES: usize = 4;

fn with<T>(work: impl FnOnce(&mut HashMap<Which, Exported>) -> T) -> T {
    work(lock().get_or_insert_default())
}

fn lock() -> MutexGuard<'static, Option<HashMap<Which, Exported>>> {
    lock::lock(&TABLE)
}

/// The handle of the allocation around an address; `None` where there is none.
pub fn handle_of(engine: &Engine, address: Address) -> Option<Result<[u8; 64], Failure>> {
    let known = || {
        let memory = whose::live(engine, address)?;
        known(&(memory.device.ordinal, memory.block.id))
    };
    if let Some(handle) = known() {
        return Some(Ok(handle));
    }
    leave(engine);
    let _making = lock::lock(&MAKING);
    again::give(engine);
    for _ in 0..TRIES {
        if let Some(handle) = known() {
            return Some(Ok(handle));
        }
        let memory = whose::live(engine, address)?;
        let (export, pages) = marked(&memory, address)?;
        let (run, pages) = pages.unzip();
        let which = (memory.device.ordinal, export.block.id);
        let send = || send::to_keeper(engine, memory.device, &export);
        let made = send().or_else(|failure| match failure {
            Failure::Keeper(Error::Refused(Code::Unavailable, _)) if runs::retire(engine, 0) => {
                send()
            }
            failure => Err(failure),
        });
        match &made {
            Ok(sent) => {
                insert(which, export.block.base, sent, pages);
                runs::retire(engine, runs::MOST_OLDER);
            }
            Err(_) if run.is_some() || with(|table| table.contains_key(&which)) => {}
            Err(_) => end_of_block(engine, which),
        }
        // Of pages that are gone it was nothing. Who unmapped them did not wait, since
        // nothing had been exported before.
        if runs::is_whole(&memory, run) {
            return Some(made.map(|sent| sent.handle));
        }
        withdraw(engine, which);
    }
    Some(Err(Failure::Changing))
}

fn known(which: &Which) -> Option<[u8; 64]> {
    with(|table| {
        let export = table.get(which).filter(|export| !export.void)?;
        Some(export.handle)
    })
}

/// What lies below memory, marked as what others may have open.
fn marked(memory: &Memory, address: Address) -> Option<(Export, Option<(Run, runs::Left)>)> {
    match memory.below {
        Below::Pool(pool) => Some((pool.export(address)?, None)),
        Below::Pages(pages) => {
            let parts = pages.export(address)?;
            runs::mark();
            let (run, left) = (parts.run, runs::pages_of(&parts));
            let export = Export {
                block: Memory::of_run(memory.device, pages, run).block,
                handles: parts.handles,
                offset: run.base - parts.at,
            };
            Some((export, Some((run, left))))
        }
    }
}

fn insert(which: Which, at: Address, sent: &Sent, pages: Option<runs::Left>) {
    with(|table| {
        let for_good = table.get(&which).is_some_and(Exported::is_for_good);
        let export = Exported {
            generation: sent.generation,
            at,
            handle: sent.handle,
            pages,
            freed: false,
            held: None,
            void: false,
            being_given: false,
            keepers: sent.keepers,
            for_good,
        };
        table.insert(which, export);
    });
}

/// Is this one of this process's own?
pub fn is_own(generation: Generation) -> bool {
    with(|table| {
        table
            .values()
            .any(|export| export.generation == generation && !export.freed)
    })
}

/// Is this block exported?
pub fn has(device: &Device, block: &BlockInfo) -> bool {
    with(|table| table.contains_key(&(device.ordinal, block.id)))
}

/// An exported allocation was freed: the keeper is told, and where nobody else
/// has it open its bytes are free. Else it is left to who has, as far as it can be.
#[inline]
pub fn freed(engine: &Engine, device: &Device, block: &BlockInfo) {
    if block.parked {
        parked(engine, device, block);
    }
}

#[cold]
fn parked(engine: &Engine, device: &Device, block: &BlockInfo) {
    let which = (device.ordinal, block.id);
    withdraw(engine, which);
    leave(engine);
    if let Some(references) = with(|table| table.get(&which)?.held) {
        crate::log!(
            Debug,
            "freed memory stays: others have it open {references} times, as far as the keeper knows"
        );
    }
}

/// The same for all that was freed without a word, as at the end of a context.
pub fn withdraw_freed(engine: &Engine) {
    let live: Vec<Which> = match lock().as_ref() {
        Some(table) => {
            let live = table.iter().filter(|(_, export)| !export.freed);
            live.map(|(which, _)| *which).collect()
        }
        None => return,
    };
    for which in live {
        let pool = engine.pool_of(which.0);
        if pool.is_some_and(|pool| pool.is_parked(which.1)) {
            withdraw(engine, which);
        }
    }
    leave(engine);
}

fn withdraw(engine: &Engine, which: Which) {
    let marked = with(|table| {
        let export = table.get_mut(&which)?;
        if !std::mem::replace(&mut export.freed, true) {
            PARKED.fetch_add(1, Ordering::Relaxed);
        }
        Some((export.generation, export.pages.is_some()))
    });
    let Some((generation, is_run)) = marked else {
        return;
    };
    let answer = keeper::request(engine, Request::Withdraw { generation }, &[]);
    let left_to = |references| {
        with(|table| {
            if let Some(export) = table.get_mut(&which)
                && export.generation == generation
            {
                export.held = Some(references);
            }
        });
    };
    match answer {
        // Pages are not parked: the driver has those that others have open.
        Ok((Reply::Done | Reply::Held { .. }, _)) | Err(Error::Refused(Code::NotFound, _))
            if is_run =>
        {
            end(engine, which, generation)
        }
        Ok((Reply::Done, _)) | Err(Error::Refused(Code::NotFound, _)) => {
            let for_good = with(|table| table.get(&which).is_some_and(Exported::is_for_good));
            match for_good {
                true => left_to(0),
                false => end(engine, which, generation),
            }
        }
        Ok((Reply::Held { references }, _)) => left_to(references),
        Ok(_) | Err(_) => {
            crate::log!(Debug, "freed memory stays until the keeper is back")
        }
    }
}

/// Leaves what is freed to those who have it open, as far as nothing runs on it any more. Makes
/// driver calls: the library's own thread has a turn for it.
pub fn leave(engine: &Engine) {
    let held = held();
    for device in engine.devices.iter() {
        let here = held.iter().filter(|((at, _), _)| *at == device.ordinal);
        let ids: Vec<u64> = here.map(|((_, id), _)| *id).collect();
        let Some(pool) = device.pool().filter(|_| !ids.is_empty()) else {
            continue;
        };
        // Whatever context is current: one that is made so may be another thread's, which ends it.
        for id in pool.leave(&ids) {
            let which = (device.ordinal, id);
            end(engine, which, held[&which]);
        }
    }
}

/// What is freed and may be left to others, by generation.
fn held() -> HashMap<Which, Generation> {
    if !any_parked() {
        return HashMap::new();
    }
    with(|table| {
        let held = |export: &Exported| export.held.is_some() && !export.being_given;
        let held = table.iter().filter(|(_, export)| held(export));
        held.map(|(which, export)| (*which, export.generation))
            .collect()
    })
}

/// Is there any of that?
pub fn any_held() -> bool {
    !held().is_empty()
}

/// Nobody else has a freed export open any more.
pub fn let_go(engine: &Engine, generation: Generation) {
    let found = with(|table| {
        let mut all = table.iter();
        let found = all.find(|(_, export)| export.generation == generation && export.freed);
        found.map(|(which, export)| (*which, export.is_for_good()))
    });
    if let Some((which, false)) = found {
        end(engine, which, generation);
    }
}

fn end(engine: &Engine, which: Which, generation: Generation) {
    let same = |export: &Exported| export.generation == generation;
    let ended = with(|table| {
        let ended = table.get(&which).is_some_and(same);
        ended.then(|| table.remove(&which)).flatten()
    });
    if let Some(export) = ended {
        PARKED.fetch_sub(1, Ordering::Relaxed);
        if export.pages.is_none() {
            end_of_block(engine, which);
        }
    }
}

fn end_of_block(engine: &Engine, (device, id): Which) {
    if let Some(pool) = engine.pool_of(device) {
        pool.export_ends(id);
    }
}

/// Is anything freed and waiting for the keeper's word?
pub fn any_parked() -> bool {
    PARKED.load(Ordering::Relaxed) > 0
}

/// The connection to the keeper was made again. One that knows what was before
/// is told once more of what was freed; one that does not can never say who
/// has it open, and is given what is live.
pub fn resumed(engine: &Engine, resumed: &Resumed) {
    let forgets = |export: &Exported| {
        resumed.anew || (!export.freed && resumed.lost.contains(&export.generation))
    };
    let freed: Vec<Which> = with(|table| {
        let mut freed = Vec::new();
        // Of pages nothing has to be known.
        let over = |export: &Exported| match &export.pages {
            Some(left) => forgets(export) && (export.freed || !left.is_all()),
            None => false,
        };
        for (_, export) in table.extract_if(|_, export| over(export)) {
            PARKED.fetch_sub(usize::from(export.freed), Ordering::Relaxed);
        }
        for (which, export) in table {
            match forgets(export) {
                true => {
                    (export.void, export.for_good) = (true, export.pages.is_none());
                    // It has nothing of this that it could hand out.
                    export.held = export.freed.then_some(0);
                }
                false if export.freed => freed.push(*which),
                false => {}
            }
        }
        freed
    });
    if resumed.anew && any_parked() {
        crate::log_once!(
            Warn,
            "the keeper is gone for good: memory that was freed while others had it open, and lies \
             with other memory on a handle of the driver's, stays with this process"
        );
    }
    for which in freed {
        withdraw(engine, which);
    }
    runs::resumed(engine);
    again::begin();
}
