//! Other devices that may reach the pool's memory. The driver applies
//! `cuCtxEnablePeerAccess` to cudaMalloc's memory by itself but not to mappings,
//! so each existing and future one is given the access here. Never takes an
//! access away: a program that disabled it has no use for the difference.

use super::Pool;
use crate::driver::{Driver, Result};
use std::sync::PoisonError;

impl<D: Driver> Pool<D> {
    /// Lets another device read and write everything that the pool has and
    /// will have. Fails with the driver's code; memory to come is granted all
    /// the same.
    pub fn grant(&self, device: u32) -> Result<()> {
        // No stitch is made meanwhile that would miss it.
        let _builder = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if device == self.device || state.peers.contains(&device) {
            return Ok(());
        }
        state.peers.push(device);
        let mapped: Vec<_> = state
            .stitches
            .iter()
            .flatten()
            .flat_map(|stitch| {
                let pieces = stitch.pieces.iter();
                pieces.map(|piece| (stitch.at + piece.offset, piece.bytes))
            })
            .collect();
        drop(state);
        for (at, bytes) in mapped {
            self.driver.set_access(at, bytes, device)?;
        }
        Ok(())
    }
}
