//! Makes the new handles of a plan, all of them or none, and gives handles up. What is more
//! than the driver has is refused before the first one is made. Maps nothing, and decides no
//! sizes.

use super::Pool;
use crate::driver::{Code, Driver, Handle, Result};

impl<D: Driver> Pool<D> {
    /// Handles of these sizes, with which they are returned.
    pub(super) fn create(&self, sizes: &[u64]) -> Result<Vec<(Handle, u64)>> {
        if sizes.len() > 1 {
            self.may_create(sizes.iter().sum())?;
        }
        let mut made: Vec<(Handle, u64)> = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            match self.driver.create(self.device, bytes) {
                Ok(handle) => made.push((handle, bytes)),
                Err(code) => {
                    self.release(&made);
                    return Err(code);
                }
            }
        }
        Ok(made)
    }

    /// Fails where there is no memory for so many bytes. To find that out by one handle after
    /// the other would take all that is left from others, for as long as it lasts; one of all
    /// these bytes is refused at once, as a program's own request would be. It is asked for only
    /// where the driver says that less is free. That alone proves nothing: others free meanwhile,
    /// and where the host's memory is the device's more can be had.
    fn may_create(&self, bytes: u64) -> Result<()> {
        match self.driver.memory_info(self.device) {
            Ok((free, _)) if free < bytes => {}
            _ => return Ok(()),
        }
        match self.driver.create(self.device, bytes) {
            Ok(whole) => self.release(&[(whole, bytes)]),
            Err(Code::OUT_OF_MEMORY) => return Err(Code::OUT_OF_MEMORY),
            // What else may be wrong with one so large is no answer.
            Err(_) => {}
        }
        Ok(())
    }

    /// Gives handles up that are mapped nowhere.
    pub(super) fn release(&self, handles: &[(Handle, u64)]) {
        for &(handle, _) in handles {
            // A failure cannot be retried: the memory is lost, to nobody's harm.
            let _ = self.driver.release(handle);
        }
    }
}

#[cfg(test)]
#[path = "handles_tests.rs"]
mod tests;
