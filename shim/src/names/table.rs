//! What this process has of named memory: one mapping each for what the program
//! allocated by a rule, one for all openings of a name in a place. A handle is
//! a number that is never used again, so a wrong one harms nobody. Maps and
//! unmaps nothing (`lifetime`).

mod contexts;
mod mapped;
mod own;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use memcuda_core::driver::{Address, Context};
use memcuda_core::lock;
use memcuda_core::names::Name;
use memcuda_core::share::protocol::{Entry, Generation};

use super::Failure;
use crate::record::Recorder;

pub use contexts::hand_over;
pub(super) use contexts::leave_context;
pub use mapped::{From, Mapped, Spot};
pub use own::take_own;
pub(super) use own::{has_ended, is_made, is_not_made};

struct Use {
    mapped: Arc<Mapped>,
    /// Handles, and the program's own allocation.
    count: u32,
    /// Of them, allocations of the program. More than one only of the driver's
    /// own handles, which it opens at one address.
    allocated: u32,
    /// The number of the last of them, those included that have ended.
    latest: u64,
}

/// What is left where a use ends.
pub(super) enum Left {
    /// Other uses.
    Uses,
    /// None: whoever gets it ends it.
    Nothing(Arc<Mapped>),
    /// This one itself, until the work of all up to this number is over.
    Work(Arc<Mapped>, u64),
}

#[derive(Default)]
struct Table {
    at: BTreeMap<Address, Use>,
    /// Openings that others may share, with the epoch in which the keeper said
    /// that the name is this memory.
    by: HashMap<Name, Vec<Opened>>,
    handles: HashMap<u64, Handle>,
    /// What is made here of the driver's own, and is not entered yet.
    making: Vec<Generation>,
    /// What was made here of it, and is used no more: its name ends.
    ending: Vec<Generation>,
    /// The last number: of a handle, or of a use that has none.
    last: u64,
}

struct Handle {
    address: Address,
    /// Was the memory made for this one?
    made: bool,
}

struct Opened {
    /// The context that is current where it is found, and whether it is for writing.
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
    lock::lock(&TABLE)
}

impl Table {
    /// A handle for what is there, which it uses; of nothing a number that is none.
    fn hand_out(&mut self, address: Address, made: bool) -> u64 {
        self.last += 1;
        if let Some(held) = self.at.get_mut(&address) {
            self.handles.insert(self.last, Handle { address, made });
            held.count += 1;
            held.latest = self.last;
        }
        self.last
    }

    /// So many allocations more, and what is new recorded.
    fn enter(&mut self, mapped: Mapped, allocated: u32, recorder: Option<&Recorder>) -> Spare {
        self.last += 1;
        let generation = mapped.entry.generation;
        self.making.retain(|making| *making != generation);
        if let Some(held) = self.at.get_mut(&mapped.address) {
            held.count = held.count + allocated - u32::from(mapped.is_taken);
            held.allocated += allocated;
            held.latest = self.last;
            return Spare::Lease(generation);
        }
        if mapped.is_taken {
            // Its context has ended meanwhile, and it is no memory any more.
            return Spare::Lease(generation);
        }
        if let Some(recorder) = recorder {
            let (bytes, at) = (
                mapped.entry.spec.bytes,
                (mapped.device, mapped.spot.context),
            );
            recorder.named(mapped.name(), mapped.address, bytes, at);
        }
        let held = Use {
            count: allocated,
            allocated,
            latest: self.last,
            mapped: Arc::new(mapped),
        };
        self.at.insert(held.mapped.address, held);
        Spare::Nothing
    }

    /// One use fewer. The last one ends only behind the work of all, which is over of
    /// those up to `over`.
    fn leave(&mut self, address: Address, over: Option<u64>, waits: bool) -> Option<Left> {
        let held = self.at.get_mut(&address)?;
        if held.count > 1 && (over.is_some() || !waits) {
            held.count -= 1;
            return Some(Left::Uses);
        }
        if over != Some(held.latest) {
            return Some(Left::Work(held.mapped.clone(), held.latest));
        }
        let mapped = self.at.remove(&address)?.mapped;
        self.forget(&mapped);
        Some(Left::Nothing(mapped))
    }

    /// What serves is found from this place, too, from now on.
    fn confirm(&mut self, entry: &Entry, spot: Spot, epoch: u64, made: bool) -> Option<u64> {
        let all = self.by.get_mut(entry.name.as_ref()?)?;
        let found = all.iter().find(|opened| {
            let mapped = self.at.get(&opened.address).map(|held| &held.mapped);
            mapped.is_some_and(|m| m.entry.generation == entry.generation && m.spot.is_as(spot))
        });
        let address = found?.address;
        note(all, spot.key(), address, epoch);
        Some(self.hand_out(address, made))
    }

    fn forget(&mut self, mapped: &Mapped) {
        if mapped.from == From::Allocation {
            self.ending.push(mapped.entry.generation);
        }
        if let Some(opened) = self.by.get_mut(mapped.name()) {
            opened.retain(|opened| opened.address != mapped.address);
            if opened.is_empty() {
                self.by.remove(mapped.name());
            }
        }
    }
}

/// From now on an opening there finds this. What it found before may be a name that was deleted
/// and made again.
fn note(all: &mut Vec<Opened>, key: (Context, bool), address: Address, epoch: u64) {
    all.retain(|before| before.key != key);
    all.push(Opened {
        key,
        address,
        epoch,
    });
}

/// Opens once more what is open where this context is current, if nothing can have changed
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
    let mut opened = table.by.get(name)?.iter();
    let same = opened.find(|o| o.key == (context, write) && o.epoch == epoch);
    let address = same?.address;
    let mapped = &table.at.get(&address)?.mapped;
    if mapped.is_hidden() {
        return None;
    }
    if let Err(failure) = fits(&mapped.entry) {
        return Some(Err(failure));
    }
    Some(Ok(table.hand_out(address, false)))
}

/// A handle for memory of which the keeper just said that it is what is open
/// already; `None` where that is not so.
pub fn confirmed(entry: &Entry, spot: Spot, epoch: u64) -> Option<u64> {
    lock().as_mut()?.confirm(entry, spot, epoch, false)
}

/// What one entry too many leaves behind, to be given back with no lock held.
pub(super) enum Spare {
    /// Nothing: the entry is new.
    Nothing,
    /// The lease: its address was known already.
    Lease(Generation),
    /// All of it, which nobody used: another thread has opened it meanwhile.
    Mapping(Box<Mapped>),
}

/// Enters what was opened by its name, of which the keeper said so in this epoch;
/// a handle for it.
pub(super) fn enter_opened(
    mapped: Mapped,
    epoch: u64,
    recorder: Option<&Recorder>,
) -> (u64, Spare) {
    let mut table = lock();
    let table = table.get_or_insert_default();
    if mapped.from == From::Pool
        && let Some(handle) = table.confirm(&mapped.entry, mapped.spot, epoch, mapped.made)
    {
        return (handle, Spare::Mapping(mapped.into()));
    }
    let (address, made, name) = (mapped.address, mapped.made, mapped.name().clone());
    let key = mapped.spot.key();
    let spare = table.enter(mapped, 0, recorder);
    if table.at.contains_key(&address) {
        note(table.by.entry(name).or_default(), key, address, epoch);
    }
    (table.hand_out(address, made), spare)
}

/// Enters what the program allocated.
pub(super) fn enter_allocated(mapped: Mapped, recorder: Option<&Recorder>) -> Spare {
    ALLOCATED.fetch_add(1, Ordering::Relaxed);
    lock().get_or_insert_default().enter(mapped, 1, recorder)
}

/// The memory of a handle.
pub fn get(handle: u64) -> Option<Arc<Mapped>> {
    let table = lock();
    let table = table.as_ref()?;
    let address = table.handles.get(&handle)?.address;
    Some(table.at.get(&address)?.mapped.clone())
}

/// Was the memory made for this handle, or for the allocation that it was found for?
pub fn is_made_for(handle: u64) -> bool {
    let table = lock();
    let found = table.as_ref().and_then(|table| table.handles.get(&handle));
    found.is_some_and(|handle| handle.made)
}

/// The named memory that begins at an address.
pub fn at(address: Address) -> Option<Arc<Mapped>> {
    Some(lock().as_ref()?.at.get(&address)?.mapped.clone())
}

/// A handle for the memory around an address.
pub fn find(address: Address) -> Option<u64> {
    let mut table = lock();
    let table = table.as_mut()?;
    let (&base, held) = table.at.range(..=address).next_back()?;
    if address - base >= held.mapped.entry.spec.bytes {
        return None;
    }
    Some(table.hand_out(base, held.mapped.made && held.allocated > 0))
}

/// All named memory that is open.
pub fn all() -> Vec<Arc<Mapped>> {
    let table = lock();
    let all = table.iter().flat_map(|table| table.at.values());
    all.map(|held| held.mapped.clone()).collect()
}

/// The keeper has sealed this, for whatever of it is open here.
pub fn note_sealed(generation: Generation) {
    let table = lock();
    let all = table.iter().flat_map(|table| table.at.values());
    for held in all.filter(|held| held.mapped.entry.generation == generation) {
        held.mapped.sealed.store(true, Ordering::Relaxed);
    }
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

/// A handle ends; `None` where it is none.
pub(super) fn leave(handle: u64, over: Option<u64>) -> Option<Left> {
    let mut table = lock();
    let table = table.as_mut()?;
    let left = table.leave(table.handles.get(&handle)?.address, over, false)?;
    if !matches!(left, Left::Work(..)) {
        table.handles.remove(&handle);
    }
    Some(left)
}

/// The program frees what it allocated, behind all work; `None` where this is nothing of it.
pub(super) fn leave_allocated(address: Address, over: Option<u64>) -> Option<Left> {
    let mut table = lock();
    let table = table.as_mut()?;
    table.at.get(&address).filter(|held| held.allocated > 0)?;
    let left = table.leave(address, over, true)?;
    if !matches!(left, Left::Work(..)) {
        ALLOCATED.fetch_sub(1, Ordering::Relaxed);
        if let Some(held) = table.at.get_mut(&address) {
            held.allocated -= 1;
        }
    }
    Some(left)
}
