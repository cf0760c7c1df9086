//! The memory of a new name: made, filled with zeros if wanted, mapped, and given
//! to the keeper. Where one step fails nothing is left of it.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use memcuda_core::driver::{Access, Address, Code, Driver, Handle, Stream};
use memcuda_core::epoch::now_us;
use memcuda_core::pool::Attachment;
use memcuda_core::share::protocol::{Backend, Entry, Generation, Persist, Process, Request, State};
use memcuda_core::waiting::Waiting;

use super::place::Place;
use super::table::{self, From, Mapped, Spot};
use super::{Failure, Wanted, legacy, lifetime};
use crate::engine::Engine;
use crate::room::{self, with_room};
use crate::share::{held, keeper, make};

/// Makes the memory of a new name and tells the keeper, also where it cannot be
/// made.
pub fn make_or_abort(
    engine: &Engine,
    place: Place<'_>,
    wanted: &Wanted,
    generation: Generation,
) -> Result<Mapped, Failure> {
    let made = place
        .settled(engine)
        .and_then(|place| make(engine, place, wanted, generation));
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
            let made = make_handle(engine, place, wanted.bytes);
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
        spot: Spot::of(&place, true),
        device: place.device.ordinal,
        from,
        made: true,
        is_taken: false,
        page: Mutex::new(None),
        sealed: AtomicBool::new(false),
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
    // No process opens a handle of its own: other threads wait until this is entered.
    let is_own = memory.from == From::Allocation;
    if is_own {
        table::is_made(generation);
    }
    match ready() {
        Ok(()) => Ok(memory),
        Err(failure) => {
            if is_own {
                table::is_not_made(generation);
            }
            unmap(engine, &memory);
            Err(failure)
        }
    }
}

/// A handle; where there is no memory while some that was let go a moment ago
/// is about to be free, again a little later.
fn make_handle(engine: &Engine, place: Place<'_>, bytes: u64) -> Result<make::Made, Code> {
    const SOON: Duration = Duration::from_millis(500);
    let mut waiting = Waiting::begin();
    let mut pause = Duration::from_millis(2);
    loop {
        // Not as long as others end theirs again and again.
        let is_early = waiting.lasted() < SOON;
        match make::make(engine, place.device, bytes) {
            Err(Code::OUT_OF_MEMORY) if is_early && lifetime::ended_within(SOON) => {
                waiting.pause(pause);
                pause *= 2;
            }
            made => return made,
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
    let now = now_us();
    Ok(Entry {
        name: Some(wanted.name.clone()),
        generation,
        spec: place.spec(wanted)?,
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
        beside: None,
        opened: false,
    };
    place.attach(engine, place.device, memory)
}

fn unmap(engine: &Engine, memory: &Mapped) {
    match memory.from {
        From::Pool => {
            if let Some(pool) = engine.pool_of(memory.device) {
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
    place.within(engine, || {
        calls.relaxed(|| {
            let stream = Cell::new(Stream::default());
            // SAFETY: the pointer is valid for the call, and the stream is nobody
            // else's.
            let create = || unsafe { (calls.stream_create)(stream.as_ptr(), NON_BLOCKING) };
            let code = with_room(engine, || room::Place::Device(place.device), create);
            code.ok().map_err(Failure::of("cuStreamCreate"))?;
            let stream = stream.get();
            let filled = engine.driver.fill(place.context, stream, at, 0, bytes);
            // SAFETY: as above.
            let filled = filled.and_then(|()| unsafe { (calls.stream_synchronize)(stream) }.ok());
            // SAFETY: as above.
            unsafe { (calls.stream_destroy)(stream) };
            filled.map_err(Failure::of("cuMemsetD32Async"))
        })
    })
}
