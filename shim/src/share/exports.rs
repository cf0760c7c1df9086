//! What this process exports: each allocation once, however often its handle is
//! asked for. What the program frees of it is parked in the pool until nobody
//! else has it open, which the keeper says.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcuda_core::driver::{Address, Code, Driver};
use memcuda_core::pool::{BlockInfo, Export};
use memcuda_core::share::handle::Handle;
use memcuda_core::share::protocol::{
    self, Backend, DeviceId, Generation, MOST_PARTS, Reply, Request, Spec,
};

use super::Error;
use super::keeper::{self, Resumed};
use crate::device::Device;
use crate::engine::Engine;

/// An allocation: its device's ordinal and its number there.
type Which = (u32, u64);

/// What is known of an export.
struct Exported {
    generation: Generation,
    /// Its handle, as programs pass it on.
    handle: [u8; 64],
    /// The program has freed it, and others have it open or may have.
    freed: bool,
    /// A keeper that knew who has it open is gone for good: its memory stays
    /// parked once it is freed.
    forgotten: bool,
}

static TABLE: Mutex<Option<HashMap<Which, Exported>>> = Mutex::new(None);
/// Held while an export is made; no two are made of one allocation.
static MAKING: Mutex<()> = Mutex::new(());
/// How many exports are freed and not gone.
static PARKED: AtomicUsize = AtomicUsize::new(0);

/// Why memory cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The keeper's part failed.
    Keeper(Error),
    /// The driver's part failed.
    Driver(Code),
    /// The device has no identity that other processes know.
    Nameless,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keeper(error) => error.fmt(f),
            Self::Driver(code) => write!(f, "the driver answers {code:?}"),
            Self::Nameless => f.write_str("the driver does not name the device"),
        }
    }
}

fn with<T>(work: impl FnOnce(&mut HashMap<Which, Exported>) -> T) -> T {
    work(lock().get_or_insert_default())
}

fn lock() -> MutexGuard<'static, Option<HashMap<Which, Exported>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of the allocation around an address of a pool; `None` where there
/// is no allocation.
pub fn handle_of(
    engine: &Engine,
    device: &Device,
    address: Address,
) -> Option<Result<[u8; 64], Failure>> {
    let pool = device.made()?;
    let id = pool.find(address)?.id;
    let known = |table: &mut HashMap<Which, Exported>| {
        let export = table.get(&(device.ordinal, id))?;
        (!export.forgotten).then_some(export.handle)
    };
    if let Some(handle) = with(known) {
        return Some(Ok(handle));
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = with(known) {
        return Some(Ok(handle));
    }
    let export = pool.export(address)?;
    let made = export_to_keeper(engine, device, &export);
    let which = (device.ordinal, export.block.id);
    match &made {
        Ok((generation, handle)) => with(|table| {
            let forgotten = table.get(&which).is_some_and(|before| before.forgotten);
            let export = Exported {
                generation: *generation,
                handle: *handle,
                freed: false,
                forgotten,
            };
            table.insert(which, export);
        }),
        Err(_) if with(|table| table.contains_key(&which)) => {}
        Err(_) => pool.export_ends(export.block.id),
    }
    Some(made.map(|(_, handle)| handle))
}

/// Is this one of this process's own?
pub fn is_own(generation: Generation) -> bool {
    with(|table| {
        table
            .values()
            .any(|export| export.generation == generation && !export.freed)
    })
}

fn export_to_keeper(
    engine: &Engine,
    device: &Device,
    export: &Export,
) -> Result<(Generation, [u8; 64]), Failure> {
    let id = DeviceId(device.uuid.ok_or(Failure::Nameless)?);
    crate::log_once!(
        Info,
        "device memory is exported by CUDA IPC: a process that opens it must be preloaded, too; \
         to others the driver answers INVALID_VALUE"
    );
    let sent = send(engine, device, id, export);
    // Where the keeper that had half of it is gone: once more, as another one.
    let generation = sent.or_else(|failure| match failure {
        Failure::Keeper(Error::Gone(_)) => send(engine, device, id, export).map_err(|_| failure),
        failure => Err(failure),
    })?;
    let handle = Handle {
        node: keeper::node(engine).map_err(Failure::Keeper)?,
        generation,
        bytes: export.block.bytes,
        mapped: export.handles.iter().map(|(_, bytes)| bytes).sum(),
        offset: export.offset,
        device: Handle::digest(id),
    };
    Ok((generation, handle.to_bytes()))
}

/// Sends everything below an allocation to the keeper, so many descriptors at a
/// time that a process with few to spare can do it.
fn send(
    engine: &Engine,
    device: &Device,
    id: DeviceId,
    export: &Export,
) -> Result<Generation, Failure> {
    let odd = || Failure::Keeper(Error::Gone("the kernel gives no randomness".to_owned()));
    let generation = Generation::random().ok_or_else(odd)?;
    let mut spec = Some(Spec {
        bytes: export.block.bytes,
        dtype: None,
        shape: Vec::new(),
        device: id,
        ordinal: device.ordinal,
        backend: Backend::Vmm,
    });
    for handles in export.handles.chunks(MOST_PARTS) {
        let descriptors: Result<Vec<OwnedFd>, Code> = handles
            .iter()
            .map(|(handle, _)| engine.driver.export(*handle))
            .collect();
        let parts = handles.iter().map(|(_, bytes)| *bytes).collect();
        let request = match spec.take() {
            Some(spec) => Request::Export {
                generation,
                spec,
                offset: export.offset,
                parts,
                total: export.handles.len() as u32,
            },
            None => Request::ExportMore { generation, parts },
        };
        let sent = descriptors
            .map_err(Failure::Driver)
            .and_then(|descriptors| {
                let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                keeper::request(engine, request, &descriptors).map_err(Failure::Keeper)
            });
        if let Err(failure) = sent {
            // What the keeper has of it goes.
            let _ = keeper::request(engine, Request::Withdraw { generation }, &[]);
            return Err(failure);
        }
    }
    Ok(generation)
}

/// An exported allocation was freed: the keeper is told, and where nobody else
/// has it open its bytes are free.
pub fn freed(engine: &Engine, device: &Device, block: &BlockInfo) {
    if block.parked {
        withdraw(engine, (device.ordinal, block.id));
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
        let pool = engine.devices.get(which.0 as usize).and_then(Device::made);
        if pool.is_some_and(|pool| pool.is_parked(which.1)) {
            withdraw(engine, which);
        }
    }
}

fn withdraw(engine: &Engine, which: Which) {
    let marked = with(|table| {
        let export = table.get_mut(&which)?;
        if !std::mem::replace(&mut export.freed, true) {
            PARKED.fetch_add(1, Ordering::Relaxed);
        }
        Some((export.generation, export.forgotten))
    });
    let Some((generation, forgotten)) = marked else {
        return;
    };
    let answer = keeper::request(engine, Request::Withdraw { generation }, &[]);
    match answer {
        _ if forgotten => {}
        Ok((Reply::Done, _)) | Err(Error::Refused(protocol::Code::NotFound, _)) => {
            end(engine, which, generation);
        }
        Ok((Reply::Held { references }, _)) => crate::log!(
            Debug,
            "freed memory stays: others have it open {references} times"
        ),
        Ok(_) | Err(_) => crate::log!(Debug, "freed memory stays until the keeper is back"),
    }
}

/// Nobody else has a freed export open any more.
pub fn let_go(engine: &Engine, generation: Generation) {
    let found = with(|table| {
        let mut all = table.iter();
        let found = all.find(|(_, export)| export.generation == generation && export.freed);
        found.map(|(which, export)| (*which, export.forgotten))
    });
    if let Some((which, false)) = found {
        end(engine, which, generation);
    }
}

fn end(engine: &Engine, which: Which, generation: Generation) {
    let same = |export: &Exported| export.generation == generation;
    let ended = with(|table| {
        let ended = table.get(&which).is_some_and(same);
        ended.then(|| table.remove(&which)).is_some()
    });
    if ended {
        PARKED.fetch_sub(1, Ordering::Relaxed);
        if let Some(pool) = engine.devices.get(which.0 as usize).and_then(Device::made) {
            pool.export_ends(which.1);
        }
    }
}

/// Is anything freed and waiting for the keeper's word?
pub fn any_parked() -> bool {
    PARKED.load(Ordering::Relaxed) > 0
}

/// The connection to the keeper was made again. One that knows what was before
/// is told once more of what was freed; one that does not can never say who
/// has it open.
pub fn resumed(engine: &Engine, resumed: &Resumed) {
    let freed: Vec<Which> = with(|table| {
        let mut freed = Vec::new();
        for (which, export) in table {
            if resumed.anew || (!export.freed && resumed.lost.contains(&export.generation)) {
                export.forgotten = true;
            } else if export.freed {
                freed.push(*which);
            }
        }
        freed
    });
    if resumed.anew && any_parked() {
        crate::log_once!(
            Warn,
            "the keeper is gone for good: memory that was freed while others had it open stays with \
             this process"
        );
    }
    for which in freed {
        withdraw(engine, which);
    }
}
