//! Is any other process on a device? Told by the doors of preloaded ones, and by
//! NVIDIA's management library, which lists the processes with a context and those that
//! draw: this one is on the list, so a list of two is company. Where that library cannot
//! be had, or lists nobody, a device that is nearly full of memory that came after this pool,
//! and is not its own, passes for company as well.
//!
//! Looks rarely, and only where there is something to give. In a container the
//! list has the processes of that container only.

use std::time::{Duration, Instant};

use memcuda_core::driver::Driver;
use memcuda_core::driver::real::Real;
use memcuda_core::pool::Pool;
use memcuda_core::units::MIB;

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::engine::worker;
use crate::room::nvml::Listed;

/// How long an answer holds.
const HOLDS: Duration = Duration::from_millis(500);

/// What is known of the others on one device.
#[derive(Default)]
pub struct Others {
    answered: Option<(Instant, bool)>,
    /// NVML's handle of the device, once it was asked for.
    listed: Option<Option<Listed>>,
}

impl Others {
    /// Is another process on the device?
    pub fn are_on(&mut self, engine: &Engine, device: &Device, pool: &Pool<Real>) -> bool {
        if let Some((when, are)) = self.answered
            && when.elapsed() < HOLDS
        {
            return are;
        }
        let preloaded = || device.door().is_some_and(|door| !door.others().is_empty());
        let are = match self.are_listed(device) {
            Some(are) => are || preloaded(),
            None => preloaded() || is_crowded(engine, device, pool),
        };
        self.answered = Some((Instant::now(), are));
        are
    }

    /// What NVML says of it. It may take seconds to start, and more for each GPU that nobody has
    /// open: contexts end meanwhile.
    fn are_listed(&mut self, device: &Device) -> Option<bool> {
        let _elsewhere = worker::elsewhere()?;
        let listed = self
            .listed
            .get_or_insert_with(|| Listed::find(device.uuid?));
        listed.as_ref()?.are_several()
    }
}

/// A sixteenth of the device or less is free, and more than before the pool is
/// neither free nor the pool's.
fn is_crowded(engine: &Engine, device: &Device, pool: &Pool<Real>) -> bool {
    const MUCH: u64 = 256 * MIB;
    let Some(_turn) = worker::turn() else {
        return false;
    };
    let asked = engine.within(pool, || pool.driver().memory_info(device.ordinal));
    let Some(Ok((free, total))) = asked else {
        return false;
    };
    let foreign = (total - free).saturating_sub(device.held());
    let before = *device.foreign_before.get_or_init(|| foreign);
    free < total / 16 && foreign > before + MUCH
}
