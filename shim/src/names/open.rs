//! From a name to memory at an address: the keeper is asked, and what it wants
//! made is made, what it has is mapped. No lock of ours is held meanwhile, and
//! who must wait for another process sleeps.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use memcuda_core::driver::{Access, Address, Context, Driver, Handle, Stream};
use memcuda_core::pool::Attachment;
use memcuda_core::share::protocol::{
    Backend, Code, DeviceId, Entry, Generation, Persist, Process, Reply, Request, Spec, State,
};

use super::table::{self, From, Mapped};
use super::{Failure, Wanted, legacy};
use crate::device::Device;
use crate::engine::Engine;
use crate::share::{self, held, keeper, make};

/// Pauses while another process makes what is wanted.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Where memory is wanted.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The context that the mapping ends with.
    pub context: Context,
    /// The context's device.
    pub device: &'a Device,
}

/// Memory of a name, mapped; of which this process then holds a lease.
pub fn open(engine: &Engine, place: Place<'_>, wanted: &Wanted) -> Result<Mapped, Failure> {
    match ask(engine, place, wanted)? {
        Found::Make(generation) => make_or_abort(engine, place, wanted, generation),
        Found::Memory(memory) => map(engine, place, wanted, *memory),
    }
}

/// What the keeper has for a name.
pub enum Found {
    /// Nothing yet: this process makes it.
    Make(Generation),
    /// Memory.
    Memory(Box<Memory>),
}

/// Memory that the keeper gave, with the lease on it.
pub struct Memory {
    /// What it is.
    pub entry: Entry,
    parts: Vec<u64>,
    descriptors: Vec<OwnedFd>,
    total: u32,
}

fn spec(place: Place<'_>, wanted: &Wanted) -> Result<Spec, Failure> {
    let nameless = || Failure::Invalid("the driver does not name the device".to_owned());
    Ok(Spec {
        bytes: wanted.bytes,
        dtype: wanted.dtype,
        shape: wanted.shape.clone(),
        device: DeviceId(place.device.uuid.ok_or_else(nameless)?),
        ordinal: place.device.ordinal,
        backend: wanted.backend,
    })
}

/// Asks for a name, again while another process is making it.
pub fn ask(engine: &Engine, place: Place<'_>, wanted: &Wanted) -> Result<Found, Failure> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let request = Request::Open {
            name: wanted.name.clone(),
            mode: wanted.mode,
            spec: spec(place, wanted)?,
            write: wanted.write,
            hidden: wanted.hidden,
        };
        match keeper::request(engine, request, &[]) {
            Ok((Reply::Make { generation }, _)) => return Ok(Found::Make(generation)),
            Ok((
                Reply::Memory {
                    entry,
                    parts,
                    total,
                },
                descriptors,
            )) => {
                return Ok(Found::Memory(Box::new(Memory {
                    entry,
                    parts,
                    descriptors,
                    total,
                })));
            }
            Ok(_) => return Err(Failure::odd()),
            Err(keeper::Error::Refused(Code::InProgress, _))
                if (began.elapsed().as_micros() as u64) < wanted.wait_us =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the memory of a new name and tells the keeper, also where it cannot be
/// made.
pub fn make_or_abort(
    engine: &Engine,
    place: Place<'_>,
    wanted: &Wanted,
    generation: Generation,
) -> Result<Mapped, Failure> {
    let made = make(engine, place, wanted, generation);
    if made.is_err() {
        let _ = keeper::request(engine, Request::Abort { generation }, &[]);
    }
    made
}

fn make(
    engine: &Engine,
    place: Place<'_>,
    wanted: &Wanted,
    generation: Generation,
) -> Result<Mapped, Failure> {
    let (address, from, mapped, descriptor, handle) = match wanted.backend {
        Backend::Vmm => {
            let made = make::make(engine, place.device, wanted.bytes);
            let made = made.map_err(Failure::of("cuMemCreate"))?;
            let handles = vec![(made.handle, made.mapped)];
            let address = attach(engine, place, handles, wanted, Access::Write)?;
            let handle = Vec::new();
            (
                address,
                From::Pool,
                made.mapped,
                Some(made.descriptor),
                handle,
            )
        }
        Backend::CudaIpc => {
            let (address, mapped, handle) = legacy::make(engine, place, wanted.bytes)?;
            (address, From::Allocation, mapped, None, handle)
        }
    };
    let memory = Mapped {
        entry: entry(place, wanted, generation, mapped, handle.clone())?,
        address,
        context: place.context,
        device: place.device.ordinal,
        write: true,
        from,
        page: Mutex::new(None),
    };
    let ready = || -> Result<(), Failure> {
        if wanted.zeroed {
            zero(engine, place, address, mapped)?;
        }
        let commit = Request::Commit {
            generation,
            mapped,
            legacy: handle,
        };
        let beside: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
        keeper::request(engine, commit, &beside)?;
        if wanted.persist {
            let name = wanted.name.clone();
            let persist = Persist::Yes;
            let kept = keeper::request(engine, Request::Persist { name, persist }, &[]);
            // It is made already: what is to end is the hold on it.
            kept.inspect_err(|_| held::release(engine, generation))?;
        }
        Ok(())
    };
    match ready() {
        Ok(()) => Ok(memory),
        Err(failure) => {
            unmap(engine, &memory);
            Err(failure)
        }
    }
}

/// What the keeper would say of memory that was just made.
fn entry(
    place: Place<'_>,
    wanted: &Wanted,
    generation: Generation,
    mapped: u64,
    legacy: Vec<u8>,
) -> Result<Entry, Failure> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_micros() as u64);
    Ok(Entry {
        name: Some(wanted.name.clone()),
        generation,
        spec: spec(place, wanted)?,
        mapped,
        offset: 0,
        state: if wanted.hidden {
            State::Creating
        } else {
            State::Ready
        },
        version: 0,
        persist: if wanted.persist {
            Persist::Yes
        } else {
            Persist::No
        },
        legacy,
        maker: Process {
            pid: std::process::id(),
            started: 0,
            // SAFETY: have no preconditions.
            uid: unsafe { libc::geteuid() },
            // SAFETY: as above.
            gid: unsafe { libc::getegid() },
            command: String::new(),
        },
        holders: Vec::new(),
        references: 1,
        created_us: now,
        changed_us: now,
    })
}

/// Maps memory that the keeper gave; on failure its lease is given back.
pub fn map(
    engine: &Engine,
    place: Place<'_>,
    wanted: &Wanted,
    memory: Memory,
) -> Result<Mapped, Failure> {
    let generation = memory.entry.generation;
    let mapped =
        match wanted.here && memory.entry.spec.device.0 != place.device.uuid.unwrap_or_default() {
            true => Err(Failure::Refused(
                Code::Mismatch,
                format!(
                    "{} is on another device, {}",
                    wanted.name, memory.entry.spec.device
                ),
            )),
            false => map_memory(engine, place, wanted.write, memory),
        };
    if mapped.is_err() {
        held::release(engine, generation);
    }
    mapped
}

fn map_memory(
    engine: &Engine,
    place: Place<'_>,
    write: bool,
    memory: Memory,
) -> Result<Mapped, Failure> {
    let Memory {
        entry,
        parts,
        descriptors,
        total,
    } = memory;
    // Of a device that this process does not see, the pool of the current one
    // has the addresses.
    let home = share::device(engine, entry.spec.device).unwrap_or(place.device);
    let (address, from) = match entry.spec.backend {
        Backend::CudaIpc => match table::legacy_at(entry.generation) {
            Some(known) => known,
            None => (legacy::open(engine, place, &entry)?, From::LegacyHandle),
        },
        Backend::Vmm => {
            let handles = held::import(engine, (&entry, parts, descriptors), total)?;
            let memory = Attachment {
                handles,
                offset: entry.offset,
                bytes: entry.spec.bytes,
                context: place.context,
                access: if write { Access::Write } else { Access::Read },
                also: (home.ordinal != place.device.ordinal).then_some(place.device.ordinal),
            };
            let at = in_context(engine, place, || {
                pool(engine, home)?.attach(memory).map_err(MAP)
            })?;
            (at, From::Pool)
        }
    };
    Ok(Mapped {
        entry,
        address,
        context: place.context,
        device: home.ordinal,
        write,
        from,
        page: Mutex::new(None),
    })
}

const MAP: fn(memcuda_core::driver::Code) -> Failure = |code| Failure::Driver(code, "cuMemMap");

fn pool<'a>(
    engine: &Engine,
    device: &'a Device,
) -> Result<&'a memcuda_core::pool::Pool<memcuda_core::driver::real::Real>, Failure> {
    let none = Failure::Driver(
        memcuda_core::driver::Code::NOT_SUPPORTED,
        "virtual memory management",
    );
    device.pool(engine).ok_or(none)
}

fn attach(
    engine: &Engine,
    place: Place<'_>,
    handles: Vec<(Handle, u64)>,
    wanted: &Wanted,
    access: Access,
) -> Result<Address, Failure> {
    let memory = Attachment {
        handles,
        offset: 0,
        bytes: wanted.bytes,
        context: place.context,
        access,
        also: None,
    };
    in_context(engine, place, || {
        pool(engine, place.device)?.attach(memory).map_err(MAP)
    })
}

/// With the context of a place current.
pub fn in_context<T>(
    engine: &Engine,
    place: Place<'_>,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let within = engine.calls.within(place.context, work);
    within.map_err(Failure::of("cuCtxPushCurrent"))?
}

fn unmap(engine: &Engine, memory: &Mapped) {
    match memory.from {
        From::Pool => {
            let device = engine.devices.get(memory.device as usize);
            if let Some(pool) = device.and_then(Device::made) {
                let _ = pool.detach(memory.address);
            }
        }
        _ => legacy::end(engine, memory),
    }
}

/// Fills new memory with zeros, and waits: on a stream of its own, so that no
/// work of the program is behind or before it, and no capture sees it.
fn zero(engine: &Engine, place: Place<'_>, at: Address, bytes: u64) -> Result<(), Failure> {
    const NON_BLOCKING: u32 = 1;
    let calls = &engine.calls;
    in_context(engine, place, || {
        calls.relaxed(|| {
            let mut stream = Stream::default();
            // SAFETY: the pointer is valid for the call, and the stream is nobody
            // else's.
            unsafe { (calls.stream_create)(&mut stream, NON_BLOCKING) }
                .ok()
                .map_err(Failure::of("cuStreamCreate"))?;
            let filled = engine.driver.fill(place.context, stream, at, 0, bytes);
            // SAFETY: as above.
            let filled = filled.and_then(|()| unsafe { (calls.stream_synchronize)(stream) }.ok());
            // SAFETY: as above.
            unsafe { (calls.stream_destroy)(stream) };
            filled.map_err(Failure::of("cuMemsetD32Async"))
        })
    })
}
