//! The pages that torch mapped while a trace was recorded, mapped again at the same
//! addresses, over the pages of `memcuda::pages` and the model. When torch gave some
//! up, asked to or not, is in the trace: here it is not asked.

use std::collections::HashMap;
use std::sync::Arc;

use super::pages::{HOME, Ranges};
use crate::driver::model::Model;
use crate::driver::{Access, Address, Code, Driver as _};
use crate::pages::{Kind, Lease, Pages};

/// The pages of a device.
pub struct Mapped {
    pages: Arc<Pages<Model>>,
    ranges: Ranges,
    leases: HashMap<Address, Lease>,
}

impl Mapped {
    /// No pages yet, on a device of this many bytes.
    pub fn new(ordinal: u32, total_bytes: u64) -> Self {
        Self {
            pages: Arc::new(Pages::new(
                Model::new(total_bytes),
                ordinal,
                Arc::default(),
                None,
            )),
            ranges: Ranges::default(),
            leases: HashMap::new(),
        }
    }

    /// The pages, for who needs their memory.
    pub fn pages(&self) -> &Arc<Pages<Model>> {
        &self.pages
    }

    /// Maps a page at an address of the trace. Before one is made `room` is asked
    /// whether so many bytes more may be held.
    ///
    /// # Errors
    /// The model's code; out of memory where there is no room.
    pub fn map(
        &mut self,
        at: Address,
        bytes: u64,
        room: impl FnOnce(u64) -> bool,
    ) -> Result<Address, Code> {
        let (pages, device) = (&self.pages, self.pages.device());
        let at = self.ranges.place(at, pages.driver())?;
        let kind = Kind {
            bytes,
            properties: 0,
        };
        let lease = match pages.lend(kind) {
            Some(lease) => lease,
            None if !room(bytes) => return Err(Code::OUT_OF_MEMORY),
            None => pages.add(kind, || pages.driver().create(device, bytes))?,
        };
        pages.map(at, bytes, lease, HOME)?;
        let opened = pages.set_access(at, bytes, device, Access::Write);
        opened.unwrap_or(Err(Code::INVALID_VALUE))?;
        self.leases.insert(at, lease);
        Ok(at)
    }

    /// Unmaps the page that [`Mapped::map`] mapped at this address.
    pub fn unmap(&mut self, at: Address, bytes: u64) {
        let lease = self.leases.remove(&at);
        let lease = lease.expect("a mapped page has a lease");
        let unmapped = self.pages.unmap(at, bytes, None);
        assert_eq!(unmapped, Some(Ok(())), "a mapped page is known");
        assert!(self.pages.release(lease), "a lease is known");
    }
}
