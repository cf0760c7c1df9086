//! Torch's own switch for expandable segments: off for what a private pool gets (a graph's,
//! `torch.cuda.MemPool`), where nobody but the native profile turned them on. Such a pool
//! then has segments by cudaMalloc, as it would have by itself. In expandable ones torch
//! counts what a pool got by request, and what it gave back by stretch: a pool that is given
//! up while some of its tensors live ends the program by an assertion of torch's, or goes
//! with those tensors in it.
//!
//! The switch is torch's alone, for all its threads. While a private pool is open it is off,
//! and allocations go one at a time (`turns`): what no open pool takes (`filters`) finds it
//! on, so that what torch holds idle is used by other threads as without a pool. With the
//! switch on torch cuts segments by cudaMalloc up, also above its split size, but still takes
//! what is above it for whole and frees it with what lives in it. So from the first private
//! pool on torch has no split size. Changes nothing that a user turned on.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::environment;
use super::filters::{self, Filter};
use super::places::{self, Configured};

/// A private pool of torch's, by its device and torch's number for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivatePool {
    pub device: usize,
    pub id: [usize; 2],
}

/// Pools that are open, and whether the switch was on before the first.
struct Open {
    pools: Vec<(PrivatePool, Option<Filter>)>,
    was_on: bool,
}

static OPEN: Mutex<Open> = Mutex::new(Open {
    pools: Vec::new(),
    was_on: false,
});

/// How many there are, for those who only ask.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn open() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A private pool is about to open, which takes what this `std::function` of torch's says.
pub fn opens(pool: PrivatePool, function: usize) {
    let Some(Configured { switch, split }) = configured() else {
        return;
    };
    let filter = filters::copy(function);
    let mut open = open();
    if let Some(split) = split {
        split.store(usize::MAX, Ordering::Relaxed);
    }
    let was_on = switch.swap(0, Ordering::Relaxed) == 1;
    if open.pools.is_empty() {
        open.was_on = was_on;
    }
    open.pools.push((pool, filter));
    COUNT.store(open.pools.len(), Ordering::Release);
}

/// One has closed.
pub fn closed(pool: PrivatePool) {
    let Some(Configured { switch, .. }) = configured() else {
        return;
    };
    let mut open = open();
    let Some(at) = open.pools.iter().rposition(|(it, _)| *it == pool) else {
        return;
    };
    open.pools.remove(at);
    COUNT.store(open.pools.len(), Ordering::Release);
    if open.pools.is_empty() && std::mem::take(&mut open.was_on) {
        switch.store(1, Ordering::Relaxed);
    }
}

/// Is a private pool open for which the switch is off?
pub fn is_turned() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Is the switch off, for whatever reason? Then torch makes no page.
pub fn is_off() -> bool {
    configured().is_some_and(|it| it.switch.load(Ordering::Relaxed) == 0)
}

/// The switch as one allocation wants it. Dropped behind it, also where torch throws.
pub struct Turned(&'static AtomicU8);

impl Drop for Turned {
    fn drop(&mut self) {
        let open = open();
        if !open.pools.is_empty() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Turns the switch for an allocation for this stream, or torch's current one. Only of who
/// allocates alone.
pub fn turned(stream: Option<usize>) -> Option<Turned> {
    if !is_turned() {
        return None;
    }
    let Configured { switch, .. } = configured()?;
    let of = filters::allocation(stream)?;
    let open = open();
    let is_taken = |(pool, filter): &(PrivatePool, Option<Filter>)| {
        pool.device == of.device && filter.as_ref().is_none_or(|it| it.takes(of.stream))
    };
    if !open.was_on || open.pools.iter().any(is_taken) {
        return None;
    }
    switch.store(1, Ordering::Relaxed);
    Some(Turned(switch))
}

/// Torch's, where it is the profile's to turn.
fn configured() -> Option<Configured> {
    environment::turned_pages_on()
        .then(places::configured)
        .flatten()
}
