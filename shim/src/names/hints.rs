//! Which allocations of the program get a name: the one that the program said
//! for the next allocation of a thread, else the first rule that matches. Who
//! has neither pays one load for each allocation.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use memcuda_core::config::Config;
use memcuda_core::driver::{Address, Code, cancel};
use memcuda_core::names::rules::{Asked, Facts, Match, Rules};
use memcuda_core::share::protocol;

use super::open;
use super::place::Place;
use super::{Failure, Wanted, lifetime};
use crate::engine::Engine;
use crate::libraries::caller;
use crate::process::environment;

/// Rules, and threads that said a name: how many there are.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What the program said of this thread's next allocation. A pointer, so
    /// that it needs no destructor: a thread that ends without one loses it.
    static NEXT: Cell<*mut Wanted> = const { Cell::new(ptr::null_mut()) };
}

/// The rules of the settings; where they are wrong, one line and none.
pub fn rules(config: &Config) -> Rules {
    let facts = Facts::here(environment::text);
    let file = config.names_file.as_deref();
    let rules = Rules::read(config.names.as_deref(), file, &facts);
    let rules = rules.unwrap_or_else(|error| {
        crate::log!(Error, "{error}; running without names");
        Rules::default()
    });
    if !rules.is_empty() {
        ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
    rules
}

/// May an allocation have a name at all?
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// Says what this thread's next allocation is; `None` takes that back.
pub fn set_next(wanted: Option<Wanted>) {
    let next = wanted.map_or(ptr::null_mut(), |wanted| Box::into_raw(Box::new(wanted)));
    if !next.is_null() {
        ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
    drop(take_back(NEXT.replace(next)));
}

fn take_back(next: *mut Wanted) -> Option<Box<Wanted>> {
    if next.is_null() {
        return None;
    }
    ACTIVE.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: made by `set_next`, and taken out of its place by the caller.
    Some(unsafe { Box::from_raw(next) })
}

/// Whose turn an allocation was.
enum Turn<'a> {
    /// What the program said.
    Said(Box<Wanted>),
    /// A rule's.
    Rule(Match<'a>),
}

impl Turn<'_> {
    /// There was no memory: programs free some and ask again, and that is then the one.
    fn give_back(self) {
        match self {
            Turn::Said(next) => set_next(Some(*next)),
            Turn::Rule(found) => found.give_back(),
        }
    }
}

/// Memory with a name for an allocation of the program; `None` where it is to
/// have none. `segment`: what is asked for is a segment of an allocator that
/// lends it on, so no name can stand for it.
#[cold]
pub fn allocate(
    engine: &Engine,
    place: Place<'_>,
    bytes: u64,
    segment: impl FnOnce() -> bool,
) -> Option<Result<Address, Code>> {
    let _held = cancel::hold();
    let next = take_back(NEXT.replace(ptr::null_mut()));
    let (wanted, turn) = match next {
        Some(next) => {
            let wanted = (*next).clone();
            (Wanted { bytes, ..wanted }, Turn::Said(next))
        }
        None => by_rule(engine, place, bytes)?,
    };
    if segment() {
        crate::log_once!(
            Warn,
            "{} is not given to {bytes} bytes: torch asked for them as a segment, which it lends on; \
             name a tensor by memcuda.create (include/memcuda.h, Python package memcuda), or run \
             with MEMCUDA_TORCH=async",
            wanted.name
        );
        return None;
    }
    match open::open(engine, place, &wanted) {
        Ok(mapped) => {
            let address = mapped.address;
            let how = if mapped.made { "made" } else { "found" };
            crate::log!(
                Info,
                "{} is {bytes} bytes at {address:#x}, {how}",
                wanted.name
            );
            lifetime::allocated(engine, mapped);
            Some(Ok(address))
        }
        Err(failure) => {
            if matches!(failure, Failure::Driver(Code::OUT_OF_MEMORY, _)) {
                turn.give_back();
            }
            refused(&wanted, &failure)
        }
    }
}

fn by_rule<'a>(engine: &'a Engine, place: Place<'_>, bytes: u64) -> Option<(Wanted, Turn<'a>)> {
    let device = place.device.ordinal;
    let found = engine.rules.find(&Asked {
        bytes,
        device,
        thread: &caller::thread,
        library: &caller::library,
    });
    let Some(found) = found else {
        crate::log!(
            Debug,
            "no rule names these {bytes} bytes on device {device}, thread {}, library {}",
            caller::thread(),
            caller::library()
        );
        return None;
    };
    let facts = Facts {
        device,
        n: found.n,
        ..Facts::here(environment::text)
    };
    match found.rule.name(&facts) {
        Ok(name) => {
            let wanted = Wanted::by_rule(name, &found.rule.what, bytes);
            Some((wanted, Turn::Rule(found)))
        }
        Err(error) => {
            crate::log_once!(Warn, "{error}; an allocation has no name");
            None
        }
    }
}

/// What the program gets where there is no memory of the name: an allocation
/// without a name, or an error where it would have other bytes than it counts
/// on.
fn refused(wanted: &Wanted, failure: &Failure) -> Option<Result<Address, Code>> {
    use protocol::Code as Keeper;
    let (name, bytes) = (&wanted.name, wanted.bytes);
    match failure {
        Failure::Driver(Code::OUT_OF_MEMORY, _) => {
            crate::log!(
                Info,
                "no memory for {name}, {bytes} bytes: it is the next such allocation's"
            );
            Some(Err(Code::OUT_OF_MEMORY))
        }
        Failure::Driver(code, _) if code.is_sticky() => Some(Err(*code)),
        Failure::Refused(
            Keeper::Mismatch | Keeper::Exists | Keeper::NotFound | Keeper::Sealed,
            why,
        ) if !wanted.or_unnamed => {
            crate::log!(
                Error,
                "an allocation of {bytes} bytes is refused: a rule names it {name}, but {why}"
            );
            Some(Err(Code::INVALID_VALUE))
        }
        Failure::Unavailable(why) => {
            crate::log_once!(Warn, "{name} and other allocations have no name: {why}");
            None
        }
        failure => {
            crate::log!(
                Warn,
                "an allocation of {bytes} bytes is not {name}: {failure}"
            );
            None
        }
    }
}
