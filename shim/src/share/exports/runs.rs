//! Exports of torch's pages. Those that torch gives up are let go one by one; the rest can
//! be opened as before, also once the run has become others. Nothing of a run is parked:
//! the driver has what others have open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::driver::Address;
use memcuda_core::lock::lock;
use memcuda_core::pages::{Parts, Run};
use memcuda_core::share::protocol::{Generation, MOST_LEASES, Request};

use super::{MAKING, Which, keeper, with, withdraw};
use crate::engine::Engine;
use crate::whose::{self, Below, Memory};

/// What torch has of an exported run.
pub struct Left {
    /// The pages, by their addresses, and which part of the export each is.
    pages: BTreeMap<Address, u32>,
    /// How many parts there were.
    parts: u32,
}

impl Left {
    /// Takes out the pages in a range: the parts that they were.
    fn remove(&mut self, at: Address, bytes: u64) -> Vec<u32> {
        let gone = self.pages.range(at..at + bytes);
        let gone: Vec<(Address, u32)> = gone.map(|(&at, &part)| (at, part)).collect();
        for (at, _) in &gone {
            self.pages.remove(at);
        }
        gone.into_iter().map(|(_, part)| part).collect()
    }

    /// Has torch all of them still?
    pub fn is_all(&self) -> bool {
        self.pages.len() == self.parts as usize
    }

    /// Where they are, in the order of the parts.
    pub fn places(&self) -> Vec<Address> {
        self.pages.keys().copied().collect()
    }

    /// The parts that were taken out.
    fn removed(&self) -> impl Iterator<Item = u32> {
        let left: BTreeSet<u32> = self.pages.values().copied().collect();
        (0..self.parts).filter(move |part| !left.contains(part))
    }
}

/// Was a run of pages ever exported?
static HAS_RUNS: AtomicBool = AtomicBool::new(false);
/// How many runs stay exported that have become others: each costs the keeper a
/// descriptor a page.
pub const MOST_OLDER: usize = 64;

/// A run is exported.
pub fn mark() {
    HAS_RUNS.store(true, Ordering::Relaxed);
}

/// Were runs of pages ever exported?
pub fn has_runs() -> bool {
    HAS_RUNS.load(Ordering::Relaxed)
}

/// As long as this is held no run is exported: none loses pages while it is.
pub fn hold() -> Option<MutexGuard<'static, ()>> {
    let hold = || lock(&MAKING);
    has_runs().then(hold)
}

/// The pages of a run, by their addresses, as parts of its export.
pub fn pages_of(parts: &Parts) -> Left {
    let starts = parts.handles.iter().scan(parts.at, |next, (_, bytes)| {
        Some(std::mem::replace(next, *next + bytes))
    });
    Left {
        pages: starts.zip(0..).collect(),
        parts: parts.handles.len() as u32,
    }
}

/// Is a run what it was when it was exported?
pub fn is_whole(memory: &Memory, run: Option<Run>) -> bool {
    match (memory.below, run) {
        (Below::Pages(pages), Some(run)) => pages.has_all_of(&run),
        _ => true,
    }
}

/// Torch has given up the pages in this range. The keeper lets them go, and an export
/// of which nothing is left is withdrawn; who has them open keeps them.
pub fn unmapped(engine: &Engine, at: Address, bytes: u64) {
    if !has_runs() {
        return;
    }
    let (mut parts, mut over) = (Vec::new(), Vec::new());
    with(|table| {
        for (which, export) in table {
            let Some(left) = export.pages.as_mut().filter(|_| !export.freed) else {
                continue;
            };
            let gone = left.remove(at, bytes).into_iter();
            match left.pages.is_empty() {
                true => over.push(*which),
                false => parts.extend(gone.map(|part| (export.generation, part))),
            }
        }
    });
    over.into_iter().for_each(|which| withdraw(engine, which));
    give_up(engine, &parts);
}

/// Another connection to the keeper was made: it may not have heard all of that.
pub fn resumed(engine: &Engine) {
    let mut parts = Vec::new();
    with(|table| {
        for export in table.values().filter(|export| !export.freed) {
            let gone = export.pages.iter().flat_map(Left::removed);
            parts.extend(gone.map(|part| (export.generation, part)));
        }
    });
    give_up(engine, &parts);
}

fn give_up(engine: &Engine, parts: &[(Generation, u32)]) {
    for parts in parts.chunks(MOST_LEASES) {
        let parts = parts.to_vec();
        if let Err(error) = keeper::request(engine, Request::GiveUp { parts }, &[]) {
            crate::log!(
                Debug,
                "pages that were given up stay until the keeper is back: {error}"
            );
        }
    }
}

/// Withdraws exports of runs that have become others, all but the newest so many. Was
/// there one?
pub fn retire(engine: &Engine, most: usize) -> bool {
    let runs: Vec<(Which, Address)> = with(|table| {
        let runs = table.iter().filter(|(_, export)| !export.freed);
        let runs = runs.filter(|(_, export)| export.pages.is_some());
        runs.map(|(which, export)| (*which, export.at)).collect()
    });
    let now = |at| whose::live(engine, at).map(|memory| memory.block.id);
    let older = runs
        .into_iter()
        .filter(|((_, id), at)| now(*at) != Some(*id));
    let mut older: Vec<Which> = older.map(|(which, _)| which).collect();
    // A run that changes becomes one with a higher number.
    older.sort_by_key(|(_, id)| *id);
    let many = older.len().saturating_sub(most);
    older[..many]
        .iter()
        .for_each(|which| withdraw(engine, *which));
    many > 0
}
