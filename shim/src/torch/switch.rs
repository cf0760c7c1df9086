//! Torch's own switch for expandable segments: off for what a private pool gets (a graph's,
//! `torch.cuda.MemPool`), where nobody but the native profile turned them on. Such a pool
//! then has segments by cudaMalloc, as it would have by itself, and of the same size. In
//! expandable ones torch counts what a pool got by request, and what it gave back by
//! stretch: a pool that is given up while some of its tensors live ends the program by an
//! assertion of torch's, or goes with those tensors in it. Off for good where a device can have
//! no pages, which is known once CUDA starts: torch would end the program at its first one.
//!
//! The switch is one for all of torch's threads. While a private pool is open an allocation
//! that no open pool takes (`filters`) finds it on, so that other threads use what torch
//! holds idle as they do without a pool, and the pool's own find it off; the ones wait for
//! the others (`sides`). Where not all that allocates is seen (`scopes`) it stays off for all. With the switch on torch cuts segments by cudaMalloc up, also above
//! its split size, but still takes what is above it for whole and frees it with what lives
//! in it. So from the first private pool on torch has no split size, whoever set it; without a
//! switch to turn, none of this library's (`split`). A program may turn the switch, too, as
//! servers do around memory that they share: the size of segments goes with it. Turns off
//! nothing that a user turned on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use memcuda_core::lock::lock;
use memcuda_core::reclaim::{PAGE_MB, SPLIT_MB};

use super::filters::{self, Filter};
use super::places::{self, Configured};
use super::sides::{Side, Sides};
use super::{environment, split};

/// A private pool of torch's, by its device and torch's number for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivatePool {
    pub device: usize,
    pub id: [usize; 2],
}

/// Pools that are open and who allocates meanwhile.
struct Open {
    pools: Vec<(PrivatePool, Option<Filter>)>,
    sides: Sides,
    /// What torch is to have again, where its switch was on before the first pool.
    before: Option<Before>,
}

/// Bytes of torch's segments, where they are turned with the switch.
struct Before {
    large: Option<usize>,
}

static OPEN: Mutex<Open> = Mutex::new(Open {
    pools: Vec::new(),
    sides: Sides::NONE,
    before: None,
});

/// Somebody has left a side.
static LEFT: Condvar = Condvar::new();

/// How many pools there are, for those who only ask.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn open() -> MutexGuard<'static, Open> {
    lock(&OPEN)
}

/// A private pool is about to open, which takes what this `std::function` of torch's says.
pub fn opens(pool: PrivatePool, function: usize) {
    let Some(torch) = configured() else {
        split::leave();
        return;
    };
    split::end();
    let filter = filters::copy(function);
    let mut open = open();
    if open.pools.is_empty() && torch.switch.load(Ordering::Relaxed) == 1 {
        let sized = torch.large.filter(|_| environment::sized_segments());
        let large = sized.map(|(word, _)| word.load(Ordering::Relaxed));
        open.before = Some(Before { large });
        open.turn(&torch, Side::Off);
    }
    open.pools.push((pool, filter));
    COUNT.store(open.pools.len(), Ordering::Release);
}

/// One has closed.
pub fn closed(pool: PrivatePool) {
    let Some(torch) = configured() else { return };
    let mut open = open();
    let Some(at) = open.pools.iter().rposition(|(it, _)| *it == pool) else {
        return;
    };
    open.pools.remove(at);
    COUNT.store(open.pools.len(), Ordering::Release);
    open.settle(&torch);
}

/// Is the switch off, for whatever reason? Then torch makes no page.
pub fn is_off() -> bool {
    configured().is_some_and(|it| it.switch.load(Ordering::Relaxed) == 0)
}

/// Torch has segments by cudaMalloc from now on, as if it had been told of nothing else, where
/// it had expandable ones by this profile alone. Was that so?
pub fn off_for_good() -> bool {
    let Some(torch) = configured() else {
        return false;
    };
    let sized = torch.large.filter(|_| environment::sized_segments());
    if let Some((word, own)) = sized {
        word.store(own, Ordering::Relaxed);
    }
    let split = torch.split.filter(|_| split::was_told());
    if let Some(word) = split {
        // Torch wants it to be at least the segment's size.
        let large = torch
            .large
            .map_or(0, |(word, _)| word.load(Ordering::Relaxed));
        word.store(large.max((SPLIT_MB as usize) << 20), Ordering::Relaxed);
    }
    torch.switch.store(0, Ordering::Relaxed);
    environment::has_segments();
    true
}

/// An allocation that has the switch on its side. Dropped behind it, also where torch throws.
pub struct Allocation {
    side: Side,
    torch: Configured,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut open = open();
        open.sides.leave(self.side);
        open.settle(&self.torch);
        LEFT.notify_all();
    }
}

/// Turns the switch for an allocation for this stream, or torch's current one; nothing where
/// no pool is open. Is everything that allocates `seen` (`scopes`)?
pub fn for_allocation(stream: Option<usize>, seen: bool) -> Option<Allocation> {
    follow_the_program();
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let torch = configured()?;
    let of = seen.then(|| filters::allocation(stream)).flatten();
    let mut open = open();
    open.before.as_ref()?;
    loop {
        let wanted = match open.takes(of.as_ref()) {
            true => Side::Off,
            false => Side::On,
        };
        let (mut entered, side) = Sides::enter(open, |open| &mut open.sides, &LEFT, wanted);
        // A pool may have opened meanwhile.
        if side == Side::On && entered.takes(of.as_ref()) {
            entered.sides.leave(side);
            open = entered;
            continue;
        }
        entered.turn(&torch, side);
        return Some(Allocation { side, torch });
    }
}

/// Where the program has turned the switch off, torch has segments by cudaMalloc of its own size,
/// and, since nobody asks it for them, no split size; where it is on again, pages of ours.
fn follow_the_program() {
    if !environment::maps_pages() || !environment::sized_segments() {
        return;
    }
    let Some(torch) = places::configured() else {
        return;
    };
    let Some((word, own)) = torch.large else {
        return;
    };
    let pages = (PAGE_MB as usize) << 20;
    let amiss = || match torch.switch.load(Ordering::Relaxed) {
        0 => (word.load(Ordering::Relaxed) == pages).then_some(own),
        _ => (word.load(Ordering::Relaxed) == own).then_some(pages),
    };
    if amiss().is_none() {
        return;
    }
    // It may be turned here meanwhile.
    let open = open();
    if let Some(bytes) = amiss().filter(|_| open.before.is_none()) {
        word.store(bytes, Ordering::Relaxed);
        if bytes == own {
            split::leave();
        }
    }
}

impl Open {
    /// Is an allocation an open pool's? Torch asks the one that opened last first. Where
    /// nothing is known of the allocation it may be.
    fn takes(&self, of: Option<&filters::Allocation>) -> bool {
        let Some(of) = of else { return true };
        let takes = |(pool, filter): &(PrivatePool, Option<Filter>)| {
            pool.device == of.device && filter.as_ref().is_none_or(|it| it.takes(of.stream))
        };
        self.pools.iter().rev().any(takes)
    }

    /// Turns the switch, where it was on before.
    fn turn(&self, torch: &Configured, side: Side) {
        let Some(before) = &self.before else { return };
        if let (Some((word, own)), Some(large)) = (torch.large, before.large) {
            let bytes = if side == Side::On { large } else { own };
            word.store(bytes, Ordering::Relaxed);
        }
        torch
            .switch
            .store(u8::from(side == Side::On), Ordering::Relaxed);
    }

    /// Nobody allocates, or no pool is open: the switch is as it is between allocations.
    fn settle(&mut self, torch: &Configured) {
        if self.sides.is_any(Side::Off) {
            return;
        }
        if self.pools.is_empty() {
            self.turn(torch, Side::On);
            self.before = None;
        } else if !self.sides.is_any(Side::On) {
            self.turn(torch, Side::Off);
        }
    }
}

/// Torch's, where it is the profile's to turn.
fn configured() -> Option<Configured> {
    environment::turned_pages_on()
        .then(places::configured)
        .flatten()
}
