//! What a program takes for allocations: *runs*, pages in use that touch each other
//! in one reservation. As pure state. A run that changes becomes another one, with
//! a number of its own.

use std::collections::BTreeMap;

use crate::driver::{Address, Context};

/// Where pages are mapped, and whose they look like; pages of different homes are
/// never one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// First address of the reservation.
    pub reservation: Address,
    /// The context that was current, or the one that it is known to be a view of.
    pub context: Context,
}

/// Pages in use, side by side.
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

#[derive(Clone, Copy)]
struct Stretch {
    end: Address,
    home: Home,
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
}

#[derive(Default)]
pub struct Runs {
    /// By their first byte.
    all: BTreeMap<Address, Stretch>,
    last: u64,
}

impl Runs {
    /// The run around an address.
    pub fn around(&self, at: Address) -> Option<Run> {
        let (&base, stretch) = self.all.range(..=at).next_back()?;
        (at < stretch.end).then(|| stretch.run(base))
    }

    /// Where a page in use belongs.
    pub fn home_of(&self, at: Address) -> Home {
        let (_, stretch) = self.all.range(..=at).next_back().expect("a run");
        stretch.home
    }

    /// All of them, in the order of their addresses.
    pub fn all(&self) -> impl Iterator<Item = Run> {
        self.all.iter().map(|(&base, stretch)| stretch.run(base))
    }

    /// A page is in use from now on; returns the number of the run that it is in.
    pub fn add(&mut self, at: Address, bytes: u64, home: Home) -> u64 {
        let (mut base, mut end) = (at, at + bytes);
        let before = self.all.range(..at).next_back();
        if let Some((&start, stretch)) = before
            && stretch.end == at
            && stretch.home == home
        {
            base = start;
        }
        if let Some(behind) = self.all.get(&end)
            && behind.home == home
        {
            let behind = end;
            end = self.all.remove(&behind).map_or(end, |stretch| stretch.end);
        }
        self.insert(base, end, home)
    }

    /// A page is not in use any more.
    pub fn remove(&mut self, at: Address, bytes: u64) {
        let (&base, &stretch) = self.all.range(..=at).next_back().expect("a run");
        self.all.remove(&base);
        for (base, end) in [(base, at), (at + bytes, stretch.end)] {
            if base < end {
                self.insert(base, end, stretch.home);
            }
        }
    }

    fn insert(&mut self, base: Address, end: Address, home: Home) -> u64 {
        self.last += 1;
        let id = self.last;
        self.all.insert(base, Stretch { end, home, id });
        id
    }
}
