//! From a name to memory at an address: the keeper is asked, and what it wants
//! made is made, what it has is mapped. No lock of ours is held meanwhile, and
//! who must wait for another process sleeps.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memcuda_core::driver::Access;
use memcuda_core::pool::Pool;
use memcuda_core::share::protocol::{Backend, Code, Entry, Generation, Mode, Reply, Request};
use memcuda_core::waiting::Waiting;

use super::place::{NONE, Place};
use super::table::{self, From, Mapped, Spot};
use super::{Failure, Wanted, legacy, make};
use crate::engine::Engine;
use crate::pool;
use crate::share::given::Given;
use crate::share::{self, held, keeper};

/// Pauses until another process has made what is wanted.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How long somebody has waited for a name.
pub struct Patience {
    waiting: Waiting,
    pause: Duration,
    /// Has the keeper just answered with what was wanted?
    had: bool,
}

impl Patience {
    /// Pauses, if what is wanted may come in the time that is left for it.
    fn pauses(&mut self, wanted: &Wanted, may_come: bool) -> bool {
        if !may_come || self.waiting.lasted().as_micros() as u64 >= wanted.wait_us {
            return false;
        }
        self.waiting.pause(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// Asks for a name and does what the answer wants, again where what the keeper had is gone before
/// it is opened, or not yet there.
pub fn patiently<T>(
    wanted: &Wanted,
    attempt: impl Fn(&mut Patience) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut patience = Patience {
        waiting: Waiting::begin(),
        pause: FIRST_PAUSE,
        had: false,
    };
    loop {
        let done = attempt(&mut patience);
        let is_other_by_now = match &done {
            Err(Failure::Refused(Code::InProgress, _)) => patience.had,
            // What may be made does not lack.
            Err(Failure::Refused(Code::NotFound, _)) => {
                patience.had && (wanted.awaited || wanted.mode == Mode::CreateOrAttach)
            }
            _ => false,
        };
        if !patience.pauses(wanted, is_other_by_now) {
            return done;
        }
    }
}

/// Memory of a name, mapped; of which this process then holds a lease.
pub fn open(engine: &Engine, place: Place<'_>, wanted: &Wanted) -> Result<Mapped, Failure> {
    patiently(wanted, |patience| {
        match ask(engine, place, wanted, patience)? {
            Found::Make(generation) => make::make_or_abort(engine, place, wanted, generation),
            Found::Memory(memory) => {
                let place = settle(engine, place, wanted, &memory.entry)?;
                map(engine, place, wanted, *memory)
            }
        }
    })
}

/// What the keeper has for a name.
pub enum Found {
    /// Nothing yet: this process makes it.
    Make(Generation),
    /// Memory, with the lease on it.
    Memory(Box<Given>),
}

/// Asks for a name, again while what it lacks may come.
pub fn ask(
    engine: &Engine,
    place: Place<'_>,
    wanted: &Wanted,
    patience: &mut Patience,
) -> Result<Found, Failure> {
    patience.had = false;
    loop {
        let request = Request::Open {
            name: wanted.name.clone(),
            mode: wanted.mode,
            spec: place.spec(wanted)?,
            write: wanted.write,
            hidden: wanted.hidden,
        };
        let asked = Instant::now();
        let answer = keeper::request_first(engine, request, || prepare(engine, place));
        let answered = asked.elapsed().as_micros();
        crate::log!(
            Debug,
            "{}: the keeper answered in {answered} us",
            wanted.name
        );
        match answer {
            Ok((Reply::Make { generation }, _)) => {
                patience.had = true;
                return Ok(Found::Make(generation));
            }
            Ok(answer) => {
                patience.had = true;
                let memory = Given::of(answer).ok_or_else(Failure::odd)?;
                return Ok(Found::Memory(Box::new(memory)));
            }
            Err(error) if patience.pauses(wanted, may_come(wanted, &error)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// May what is wanted be had a little later? Another process is making it, or is
/// awaited to; so is a keeper.
fn may_come(wanted: &Wanted, error: &share::Error) -> bool {
    match error {
        share::Error::Refused(Code::InProgress, _) => true,
        share::Error::Refused(Code::NotFound, _) | share::Error::Gone(_) => wanted.awaited,
        share::Error::Refused(..) | share::Error::Off => false,
    }
}

/// Makes all that a mapping needs beside the memory: the pool, and addresses.
fn prepare(engine: &Engine, place: Place<'_>) {
    // Which device it will be is not known before the answer is.
    if place.context == NONE {
        return;
    }
    // What fails here fails again where it is needed, and is told there.
    let _ = place.within(engine, || {
        pool::of(engine, place.device).map(Pool::reserve_ahead);
        Ok(())
    });
}

/// Where memory that the keeper gave is to be mapped; on failure its lease is given back.
pub fn settle<'a>(
    engine: &'a Engine,
    place: Place<'a>,
    wanted: &Wanted,
    entry: &Entry,
) -> Result<Place<'a>, Failure> {
    let there = is_where_wanted(place, wanted, entry);
    let there = there.and_then(|()| place.for_memory(engine, entry));
    there.inspect_err(|_| held::release(engine, entry.generation))
}

/// Maps memory that the keeper gave there; on failure its lease is given back.
pub fn map(
    engine: &Engine,
    place: Place<'_>,
    wanted: &Wanted,
    memory: Given,
) -> Result<Mapped, Failure> {
    let (generation, on) = (memory.entry.generation, memory.entry.spec.device);
    let is_own = memory.entry.spec.backend == Backend::CudaIpc;
    let own = is_own.then(|| memory.entry.clone());
    let mapped = map_memory(engine, place, wanted.write, memory);
    if mapped.is_err() {
        held::release(engine, generation);
    }
    mapped.map_err(|failure| match (failure, &own) {
        (Failure::Driver(code, _), _) if share::device(engine, on).is_none() => {
            Failure::Unseen(code, on)
        }
        (Failure::Driver(..), Some(entry)) if is_over(engine, entry) => Failure::gone(entry),
        (failure, _) => failure,
    })
}

/// Is it on the device where it must be?
pub fn is_where_wanted(place: Place<'_>, wanted: &Wanted, entry: &Entry) -> Result<(), Failure> {
    let on = entry.spec.device;
    if !wanted.here || on.0 == place.device.uuid.unwrap_or_default() {
        return Ok(());
    }
    let why = format!("{} is on another device, {on}", wanted.name);
    Err(Failure::Refused(Code::Mismatch, why))
}

/// Has the maker of the driver's own memory freed it meanwhile? Told once nothing is held of it
/// here, or the maker may be this process.
fn is_over(engine: &Engine, entry: &Entry) -> bool {
    let Some(name) = entry.name.clone() else {
        return false;
    };
    let is_it = |there: &Entry| there.generation == entry.generation;
    match keeper::request(engine, Request::Show { name }, &[]) {
        Ok((Reply::Entries { entries, .. }, _)) => !entries.iter().any(is_it),
        answer => matches!(answer, Err(share::Error::Refused(Code::NotFound, _))),
    }
}

fn map_memory(
    engine: &Engine,
    place: Place<'_>,
    write: bool,
    memory: Given,
) -> Result<Mapped, Failure> {
    let entry = memory.entry.clone();
    let home = memory.home(engine, place.device);
    let mut is_taken = false;
    let (address, from) = match entry.spec.backend {
        Backend::CudaIpc => match table::take_own(&entry)? {
            Some(own) => {
                is_taken = true;
                own
            }
            None => (legacy::open(engine, place, &entry)?, From::LegacyHandle),
        },
        Backend::Vmm => {
            let began = Instant::now();
            let access = if write { Access::Write } else { Access::Read };
            let mut memory = memory.import(engine, (place.context, place.device), access)?;
            let beside = place.beside().and_then(|it| engine.device_of(it).ok());
            memory.beside = beside.map(|device| device.ordinal);
            let imported = began.elapsed();
            let address = place.attach(engine, home, memory)?;
            let (imported, both) = (imported.as_micros(), began.elapsed().as_micros());
            let mapped = both - imported;
            crate::log!(
                Debug,
                "{}: imported in {imported} us, mapped in {mapped} us",
                entry.name.as_ref().map_or("", |name| name.as_str())
            );
            (address, From::Pool)
        }
    };
    Ok(Mapped {
        entry,
        address,
        spot: Spot::of(&place, write),
        device: home.ordinal,
        from,
        made: false,
        is_taken,
        page: Mutex::new(None),
        sealed: AtomicBool::new(false),
    })
}
