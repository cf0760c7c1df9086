//! What a program takes for allocations: *runs*, pages in use that touch each other in one
//! reservation. A large tensor for which pages were mapped is one by itself, as it would be a
//! segment by itself; so a run begins and ends where tensors do, also within a page. As pure
//! state, which any thread may ask while driver calls are made for pages. A run that changes
//! becomes another one, with a number of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::driver::{Address, Context};
use crate::lock;
use crate::units::{KIB, MIB};

/// Tensors of so many bytes have segments of their own by themselves.
const LARGE: u64 = 10 * MIB;
/// A page of the host. What begins and ends on one can be registered with a network card.
const HOST_PAGE: u64 = 4 * KIB;

/// Where pages are mapped, and whose they look like; pages of different homes are
/// never one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// First address of the reservation.
    pub reservation: Address,
    /// The context that was current, or the one that it is known to be a view of.
    pub context: Context,
}

/// Memory in use, side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its first byte.
    pub base: Address,
    /// Bytes.
    pub bytes: u64,
    /// Of these pages at these addresses alone; never given to another run.
    pub id: u64,
    /// See [`Home::context`].
    pub context: Context,
}

/// How a run came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Of pages that touch: one that is mapped beside it joins.
    Pages,
    /// A large tensor's, for which pages were mapped.
    Tensor,
    /// What came of others where tensors lay otherwise later.
    Rest,
}

#[derive(Clone, Copy)]
struct Stretch {
    end: Address,
    home: Home,
    origin: Origin,
    id: u64,
}

impl Stretch {
    fn run(&self, base: Address) -> Run {
        Run {
            base,
            bytes: self.end - base,
            id: self.id,
            context: self.home.context,
        }
    }

    /// What a part of it is, without the rest.
    fn part(&self) -> Origin {
        match self.origin {
            Origin::Pages => Origin::Pages,
            Origin::Tensor | Origin::Rest => Origin::Rest,
        }
    }

    fn takes(&self, home: Home) -> bool {
        self.origin == Origin::Pages && self.home == home
    }
}

/// The runs of a device; a copy is of the same ones.
#[derive(Clone, Default)]
pub struct Runs(Arc<RwLock<Table>>);

#[derive(Default)]
struct Table {
    /// By their first byte.
    all: BTreeMap<Address, Stretch>,
    last: u64,
}

impl Runs {
    /// The run around an address.
    pub fn around(&self, at: Address) -> Option<Run> {
        let table = self.read();
        let (base, stretch) = table.around(at)?;
        Some(stretch.run(base))
    }

    /// Where a page in use belongs.
    pub fn home_of(&self, at: Address) -> Home {
        let table = self.read();
        table.around(at).expect("a run").1.home
    }

    /// A page is in use from now on; returns the number of the run that it is in.
    pub fn add(&self, at: Address, bytes: u64, home: Home) -> u64 {
        let mut table = self.write();
        let (mut base, mut end) = (at, at + bytes);
        if let Some((&start, before)) = table.all.range(..at).next_back()
            && before.end == at
            && before.takes(home)
        {
            base = start;
        }
        if let Some(behind) = table.all.get(&end).copied()
            && behind.takes(home)
        {
            table.all.remove(&end);
            end = behind.end;
        }
        table.insert(base..end, home, Origin::Pages)
    }

    /// A page is not in use any more.
    pub fn remove(&self, at: Address, bytes: u64) {
        self.write().cut(at, at + bytes);
    }

    /// A tensor lies here, for which `new` pages were mapped or none: all of it is in one run
    /// from now on. A large one is a run by itself where there are new pages, or where it
    /// reaches into one that was: its allocator would have asked for a segment. (But one that
    /// does not begin and end on pages of the host.) What has been cut up so is not once more,
    /// so that runs come to rest where tensors come and go.
    pub fn lent(&self, at: Address, bytes: u64, new: bool) {
        let end = at.saturating_add(bytes);
        let is_large = bytes >= LARGE && (at | end).is_multiple_of(HOST_PAGE);
        let has_new = new && is_large;
        if !has_new && !self.read().has_border_in(at, end) {
            return;
        }
        let mut table = self.write();
        let Some(home) = table.home_of_all(at, end) else {
            return;
        };
        let mut touched = table.touched(at, end);
        let cuts = is_large && touched.any(|(_, it)| it.origin == Origin::Tensor);
        drop(touched);
        match (has_new, cuts) {
            (true, _) => table.carve(at, end, home, Origin::Tensor),
            (false, true) => table.carve(at, end, home, Origin::Rest),
            (false, false) => table.join(at, end, home),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        lock::read(&self.0)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        lock::write(&self.0)
    }
}

impl Table {
    fn around(&self, at: Address) -> Option<(Address, Stretch)> {
        let (&base, &stretch) = self.all.range(..=at).next_back()?;
        (at < stretch.end).then_some((base, stretch))
    }

    /// Does a run begin within this range, behind its first byte?
    fn has_border_in(&self, at: Address, end: Address) -> bool {
        self.all.range(at + 1..end.max(at + 1)).next().is_some()
    }

    /// The runs that a range touches, in the order of their addresses.
    fn touched(&self, at: Address, end: Address) -> impl Iterator<Item = (Address, Stretch)> {
        let first = self.around(at).map_or(at, |(base, _)| base);
        let touched = self.all.range(first..end.max(first));
        touched.map(|(&base, &stretch)| (base, stretch))
    }

    /// The home of a range, where all of it is in use and has one.
    fn home_of_all(&self, at: Address, end: Address) -> Option<Home> {
        let home = self.around(at)?.1.home;
        let mut reached = at;
        for (base, stretch) in self.touched(at, end) {
            if base > reached || stretch.home != home {
                return None;
            }
            reached = stretch.end;
        }
        (reached >= end).then_some(home)
    }

    /// Takes a range out of its runs; what is left of them are others.
    fn cut(&mut self, at: Address, end: Address) {
        let touched: Vec<_> = self.touched(at, end).collect();
        for (base, stretch) in touched {
            self.all.remove(&base);
            for rest in [base..at, end..stretch.end] {
                if rest.start < rest.end {
                    self.insert(rest, stretch.home, stretch.part());
                }
            }
        }
    }

    /// The range is a run by itself.
    fn carve(&mut self, at: Address, end: Address, home: Home, origin: Origin) {
        if let Some(same) = self.all.get_mut(&at).filter(|it| it.end == end) {
            same.origin = origin;
            return;
        }
        self.cut(at, end);
        self.insert(at..end, home, origin);
    }

    /// The runs that the range touches are one.
    fn join(&mut self, at: Address, end: Address, home: Home) {
        let touched: Vec<_> = self.touched(at, end).collect();
        let (Some(first), Some(last)) = (touched.first(), touched.last()) else {
            return;
        };
        let whole = first.0..last.1.end;
        touched
            .iter()
            .for_each(|(base, _)| _ = self.all.remove(base));
        self.insert(whole, home, Origin::Rest);
    }

    fn insert(&mut self, range: std::ops::Range<Address>, home: Home, origin: Origin) -> u64 {
        self.last += 1;
        let id = self.last;
        let stretch = Stretch {
            end: range.end,
            home,
            origin,
            id,
        };
        self.all.insert(range.start, stretch);
        id
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
