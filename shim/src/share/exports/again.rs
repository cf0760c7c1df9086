//! What is exported is given to a keeper that knows nothing of it, under the number that it
//! had: handles that programs have passed on stay good. Nobody else has the memory below it, so
//! nobody is asked. Who has it open that keeper cannot know: what is freed is left to whoever
//! does, and never lent again.

use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::driver::Address;
use memcuda_core::pool::Export;
use memcuda_core::share::handle::Handle;
use memcuda_core::share::protocol::Generation;

use super::{Exported, MAKING, Which, runs, send, with, withdraw};
use crate::engine::device::Device;
use crate::engine::{Engine, worker};
use crate::whose::{self, Below};

/// There is a keeper that has not been given all of it.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// A connection was made again.
pub fn begin() {
    let any_void = with(|table| table.values().any(is_missing));
    BEGUN.store(any_void, Ordering::Relaxed);
}

/// Is there anything that the keeper is to be given?
pub fn is_to_be_given() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// For the library's own thread: gives it in a turn of its own, which waits for nobody who
/// exports just now.
pub fn give_again(engine: &Engine) {
    if !is_to_be_given() {
        return;
    }
    let Some(_turn) = worker::turn() else { return };
    match MAKING.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        Ok(_making) => give(engine),
        Err(TryLockError::Poisoned(making)) => {
            let _making = making.into_inner();
            give(engine);
        }
    }
}

/// The same for who holds [`MAKING`].
pub fn give(engine: &Engine) {
    if !BEGUN.swap(false, Ordering::Relaxed) {
        return;
    }
    let missing: Vec<Which> = with(|table| {
        let missing = table.iter().filter(|(_, export)| is_missing(export));
        missing.map(|(which, _)| *which).collect()
    });
    for which in missing {
        give_one(engine, which);
    }
}

fn is_missing(export: &Exported) -> bool {
    export.void && !export.freed
}

/// What is given.
struct Given {
    generation: Generation,
    handle: [u8; 64],
    at: Address,
    pages: Option<Vec<Address>>,
}

fn give_one(engine: &Engine, which: Which) {
    let begun = with(|table| {
        let export = table.get_mut(&which).filter(|export| is_missing(export))?;
        export.being_given = true;
        Some(Given {
            generation: export.generation,
            handle: export.handle,
            at: export.at,
            pages: export.pages.as_ref().map(runs::Left::places),
        })
    });
    let Some(given) = begun else { return };
    let below = below(engine, which, &given);
    let given =
        below.map(|(device, export)| send::under(engine, device, given.generation, &export));
    if let Some(Err(failure)) = &given {
        crate::log!(
            Info,
            "what was exported before has no handle now: {failure}"
        );
    }
    let freed = with(|table| {
        let Some(export) = table.get_mut(&which) else {
            return false;
        };
        export.being_given = false;
        export.void &= !matches!(given, Some(Ok(())));
        export.freed
    });
    if freed {
        // It was withdrawn before the keeper had it.
        withdraw(engine, which);
    }
}

/// The memory, where it is what it was.
fn below<'a>(engine: &'a Engine, which: Which, given: &Given) -> Option<(&'a Device, Export)> {
    let memory = whose::live(engine, given.at)?;
    let handle = Handle::from_bytes(&given.handle).ok()?;
    let mut export = match (memory.below, &given.pages) {
        // What was freed meanwhile is parked, and its address is nobody else's.
        (Below::Pool(pool), None) if memory.block.id == which.1 => pool.export(given.at)?,
        (Below::Pages(pages), Some(places)) => Export {
            handles: pages.handles_at(places.iter().copied())?,
            offset: handle.offset,
            block: memory.block,
        },
        _ => return None,
    };
    let mapped: u64 = export.handles.iter().map(|(_, bytes)| bytes).sum();
    // Of a run as it was then.
    export.block.bytes = handle.bytes;
    let same = (mapped, export.offset) == (handle.mapped, handle.offset);
    same.then_some((memory.device, export))
}
