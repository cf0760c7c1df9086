//! What is below torch's expandable segments in a replay: the plain driver, or the
//! pages of `memcuda::pages` over the model, with torch asked to give back as the
//! shim asks it. Decides nothing itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::torch_expandable::{Driver, RANGE, Rules};
use super::torch_native::LARGE_SEGMENT;
use crate::driver::model::Model;
use crate::driver::{Access, Address, Code, Context, Driver as _};
use crate::pages::{Home, Kind, Lease, Pages};
use crate::reclaim::{self, PAGE_MB, PAGES_SPLIT_MB};
use crate::units::MIB;

/// Torch's own settings.
pub const ALONE: Rules = Rules {
    page: LARGE_SEGMENT,
    max_split: u64::MAX,
};
/// Those that the shim sets (`MEMCUDA_TORCH=native`).
pub const ASKED: Rules = Rules {
    page: PAGE_MB * MIB,
    max_split: PAGES_SPLIT_MB * MIB,
};

/// A replay asks for no allocations: all of it is one.
pub const HOME: Home = Home {
    reservation: 0,
    context: Context(0),
};

/// The plain driver: torch holds what it has mapped.
pub struct Plain {
    total_bytes: u64,
    physical_bytes: u64,
    /// Highest `physical_bytes`.
    pub peak_bytes: u64,
}

impl Plain {
    /// A device of which so many bytes may be held.
    pub fn new(total_bytes: u64) -> Self {
        Self {
            total_bytes,
            physical_bytes: 0,
            peak_bytes: 0,
        }
    }

    /// Bytes held.
    pub fn physical(&self) -> u64 {
        self.physical_bytes
    }
}

impl Driver for Plain {
    fn create(&mut self, bytes: u64) -> Result<u64, Code> {
        if self.physical_bytes + bytes > self.total_bytes {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.physical_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.physical_bytes);
        Ok(0)
    }

    fn map(&mut self, _: Address, _: u64, _: u64) -> Result<(), Code> {
        Ok(())
    }

    fn unmap(&mut self, _: Address, _: u64) {}

    fn release(&mut self, _: u64, bytes: u64) {
        self.physical_bytes -= bytes;
    }
}

/// Pages that are kept. Torch's allocator is taken to run on one thread.
pub struct Kept {
    /// The pages.
    pub pages: Pages<Model>,
    /// What cooperative reclaim did.
    pub reclaim: reclaim::Device,
    thread: reclaim::Thread,
    limit: Option<u64>,
    ranges: Ranges,
    /// Highest number of bytes held.
    pub peak_bytes: u64,
    /// The times of making or finding and mapping each page, in nanoseconds.
    pub page_ns: Vec<u32>,
    making_ns: u32,
}

impl Kept {
    /// The pages of a device of this many bytes, of which so many may be held.
    pub fn new(ordinal: u32, total_bytes: u64, limit: Option<u64>) -> Self {
        Self {
            pages: Pages::new(Model::new(total_bytes), ordinal, Arc::default(), None),
            reclaim: reclaim::Device::new(),
            thread: reclaim::Thread::new(),
            limit,
            ranges: Ranges::default(),
            peak_bytes: 0,
            page_ns: Vec::new(),
            making_ns: 0,
        }
    }

    fn place(&mut self, at: Address) -> Result<Address, Code> {
        self.ranges.place(at, self.pages.driver())
    }
}

/// Where torch's ranges of addresses lie in the model.
#[derive(Default)]
pub struct Ranges(HashMap<u64, Address>);

impl Ranges {
    /// The model's address for one of torch's.
    pub fn place(&mut self, at: Address, model: &Model) -> Result<Address, Code> {
        let (range, offset) = (at / RANGE, at % RANGE);
        if let Some(base) = self.0.get(&range) {
            return Ok(base + offset);
        }
        let base = model.reserve(RANGE)?;
        self.0.insert(range, base);
        Ok(base + offset)
    }
}

impl Driver for Kept {
    fn create(&mut self, bytes: u64) -> Result<u64, Code> {
        let began = Instant::now();
        let kind = Kind {
            bytes,
            properties: 0,
        };
        let lease = match self.pages.lend(kind) {
            Some(lease) => lease,
            None => {
                let ask = || self.thread.ask_at_peak(&self.reclaim, bytes);
                if self.pages.is_above_peak(bytes) && ask() {
                    return Err(Code::OUT_OF_MEMORY);
                }
                let over = |limit| (self.pages.physical() + bytes).saturating_sub(limit);
                if let Some(limit) = self.limit {
                    self.pages.give_back(over(limit), Duration::ZERO);
                    if over(limit) > 0 {
                        return Err(Code::OUT_OF_MEMORY);
                    }
                }
                let (model, device) = (self.pages.driver(), self.pages.device());
                self.pages.add(kind, || model.create(device, bytes))?
            }
        };
        self.peak_bytes = self.peak_bytes.max(self.pages.physical());
        self.making_ns = nanoseconds(began);
        Ok(lease.0)
    }

    fn map(&mut self, at: Address, bytes: u64, handle: u64) -> Result<(), Code> {
        let at = self.place(at)?;
        let began = Instant::now();
        self.pages.map(at, bytes, Lease(handle), HOME)?;
        let opened = self
            .pages
            .set_access(at, bytes, self.pages.device(), Access::Write);
        let ns = nanoseconds(began) + std::mem::take(&mut self.making_ns);
        self.page_ns.push(ns);
        self.thread.served(&self.reclaim);
        opened.unwrap_or(Err(Code::INVALID_VALUE))
    }

    fn unmap(&mut self, at: Address, bytes: u64) {
        let at = self.place(at).expect("a mapped page lies somewhere");
        let unmapped = self.pages.unmap(at, bytes, None);
        assert_eq!(unmapped, Some(Ok(())), "a mapped page is known");
        self.thread.freed(bytes);
    }

    fn release(&mut self, handle: u64, _: u64) {
        assert!(self.pages.release(Lease(handle)), "a lease is known");
    }
}

fn nanoseconds(began: Instant) -> u32 {
    u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX)
}
