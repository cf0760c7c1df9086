//! Rules that give allocations names (`MEMCUDA_NAMES`, `MEMCUDA_NAMES_FILE`):
//! which allocation, which name, and what memory it then is. The first rule that
//! matches is the one. Reads text and answers questions; allocates nothing, asks
//! no keeper, and knows nothing of threads and libraries but their names.

mod file;
mod keys;
mod line;
mod template;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Backend, Dtype, Mode, Name, Pattern};
use crate::error::{Error, Result};
use crate::lock::lock;
pub use template::{Facts, Template};

/// All rules of a process, in their order.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Which allocations.
    pub when: When,
    /// The name that they get.
    pub name: Template,
    /// What the memory of the name is.
    pub what: What,
    /// Allocations so far that everything in `when` but their number matched.
    seen: AtomicU64,
    /// Numbers of those that came to nothing, and whether there are any.
    returned: (Mutex<Vec<u64>>, AtomicBool),
}

/// Which allocations a rule is for; what is not said matches all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct When {
    /// Bytes asked for.
    pub bytes: Option<RangeInclusive<u64>>,
    /// Which of those that match otherwise, from 1; where it is not said: the
    /// first, or all of them if the name has `{n}`.
    pub nth: Option<RangeInclusive<u64>>,
    /// Ordinal of the device.
    pub device: Option<u32>,
    /// Name of the calling thread.
    pub thread: Option<Pattern>,
    /// File of the library that asks, without its directories.
    pub library: Option<Pattern>,
}

/// What the memory of a name is, and how it is had.
#[derive(Debug, Clone, PartialEq)]
pub struct What {
    /// Type of an element.
    pub dtype: Option<Dtype>,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Made, opened, or whichever it is.
    pub mode: Mode,
    /// Opened for reading only.
    pub read_only: bool,
    /// A new one is filled with zeros.
    pub zeroed: bool,
    /// A new one outlives its holders.
    pub persist: bool,
    /// Where the name cannot be had so (another size, there already, not
    /// there): is the allocation unnamed, instead of failing?
    pub or_unnamed: bool,
    /// What holds the bytes.
    pub backend: Backend,
    /// Seconds to wait for one that another process is making, or is yet to make;
    /// where it is not said, only a moment while it is being made.
    pub wait_s: Option<u64>,
}

impl Default for What {
    fn default() -> Self {
        Self {
            dtype: None,
            shape: Vec::new(),
            mode: Mode::CreateOrAttach,
            read_only: false,
            zeroed: false,
            persist: false,
            or_unnamed: false,
            backend: Backend::Vmm,
            wait_s: None,
        }
    }
}

/// An allocation, as rules see it. What costs something to find out is asked
/// for only where a rule wants it.
pub struct Asked<'a> {
    /// Bytes asked for.
    pub bytes: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Finds the name of the thread.
    pub thread: &'a dyn Fn() -> String,
    /// Finds the file of the library.
    pub library: &'a dyn Fn() -> String,
}

/// A rule that matched, and the number of this allocation for it, from 1.
#[derive(Debug)]
pub struct Match<'a> {
    /// Which rule.
    pub rule: &'a Rule,
    /// The allocation's number.
    pub n: u64,
}

impl Match<'_> {
    /// The allocation came to nothing: the next one that the rule matches has its number.
    pub fn give_back(&self) {
        let (numbers, any) = &self.rule.returned;
        let mut numbers = lock(numbers);
        numbers.push(self.n);
        any.store(true, Ordering::Relaxed);
    }
}

impl Rules {
    /// Reads both variables; the first error is one line that says which rule,
    /// which value and what is accepted. Names are tried with `facts`.
    pub fn read(text: Option<&str>, file: Option<&Path>, facts: &Facts) -> Result<Self> {
        let mut rules = Vec::new();
        if let Some(text) = text {
            let read = line::read(text, facts);
            rules = read.map_err(|error| Error::new(format!("MEMCUDA_NAMES: {error}")))?;
        }
        if let Some(path) = file {
            let read = file::open(path, facts);
            let place = path.display();
            let named = |error| Error::new(format!("MEMCUDA_NAMES_FILE={place}: {error}"));
            rules.extend(read.map_err(named)?);
        }
        Ok(Self(rules))
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first rule that is for this allocation, which is counted.
    pub fn find(&self, asked: &Asked<'_>) -> Option<Match<'_>> {
        self.0.iter().find_map(|rule| {
            let n = rule.count(asked)?;
            Some(Match { rule, n })
        })
    }
}

impl Rule {
    fn count(&self, asked: &Asked<'_>) -> Option<u64> {
        let when = &self.when;
        let matches = when.bytes.as_ref().is_none_or(|b| b.contains(&asked.bytes))
            && when.device.is_none_or(|device| device == asked.device)
            && when
                .thread
                .as_ref()
                .is_none_or(|p| p.holds(&(asked.thread)()))
            && when
                .library
                .as_ref()
                .is_none_or(|p| p.holds(&(asked.library)()));
        if !matches {
            return None;
        }
        let next = || 1 + self.seen.fetch_add(1, Ordering::Relaxed);
        let n = self.returned().unwrap_or_else(next);
        let wanted = match &when.nth {
            Some(nth) => nth.contains(&n),
            None => n == 1 || self.name.counts(),
        };
        wanted.then_some(n)
    }

    /// The smallest number that was given back.
    fn returned(&self) -> Option<u64> {
        let (numbers, any) = &self.returned;
        if !any.load(Ordering::Relaxed) {
            return None;
        }
        let mut numbers = lock(numbers);
        let (place, _) = numbers.iter().enumerate().min_by_key(|(_, n)| **n)?;
        let n = numbers.swap_remove(place);
        any.store(!numbers.is_empty(), Ordering::Relaxed);
        Some(n)
    }

    /// The name for an allocation.
    pub fn name(&self, facts: &Facts) -> Result<Name> {
        self.name.fill(facts)
    }

    /// Checks what no single value shows: a rule has a name, its shape fits its
    /// size, and what it asks for can be had together.
    fn new(when: When, name: Option<Template>, what: What, facts: &Facts) -> Result<Self> {
        let name = name.ok_or_else(|| Error::new("it has no name; accepted: name=TEXT"))?;
        name.fill(facts)?;
        if !what.shape.is_empty() {
            let dtype = what.dtype.ok_or_else(|| {
                Error::new("it has a shape and no dtype; accepted: dtype=f32,shape=1024x1024")
            })?;
            let bytes = super::bytes_of(dtype, &what.shape)?;
            if when.bytes.as_ref().is_some_and(|b| !b.contains(&bytes)) {
                return Err(Error::new(format!(
                    "shape={} of {dtype} has {bytes} bytes, which its size does not match",
                    keys::show_shape(&what.shape)
                )));
            }
        }
        if what.backend == Backend::CudaIpc && (what.read_only || what.persist) {
            return Err(Error::new(
                "backend=cuda_ipc does not go with read-only or persist; accepted: backend=vmm",
            ));
        }
        if what.mode == Mode::Create && what.read_only {
            return Err(Error::new(
                "read-only does not go with mode=create; accepted: attach, create-or-attach",
            ));
        }
        Ok(Self {
            when,
            name,
            what,
            seen: AtomicU64::new(0),
            returned: Default::default(),
        })
    }
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;
