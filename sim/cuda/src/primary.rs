//! Primary contexts: one of each device, kept as long as somebody retains it.

use crate::abi::{Answer, Code, MAP_HOST};
use crate::entry::{api, must_put, put};
use crate::state::{Device, Sim};

impl Sim {
    /// As [`Self::drain_ending`], where the next release of a primary context ends it.
    pub fn wait_for_last(&mut self, primary: u64) -> Answer {
        let device = self.contexts.get(&primary).map(|context| context.device);
        match device.filter(|device| self.devices[*device].retains <= 1) {
            Some(_) => self.drain_ending(primary),
            None => Ok(()),
        }
    }

    /// Another use of the primary context of a device.
    pub fn retain_primary(&mut self, device: usize) -> u64 {
        let id = self.devices[device].primary;
        self.devices[device].retains += 1;
        if !self.contexts.contains_key(&id) {
            self.add_context(id, device, MAP_HOST, None);
        }
        id
    }

    pub fn primary_release(&mut self, device: i32) -> Answer {
        let device = self.device(device)?;
        let Device {
            primary, retains, ..
        } = self.devices[device];
        match retains {
            0 => return Err(Code::INVALID_CONTEXT),
            1 if self.contexts.contains_key(&primary) => self.destroy_context(primary)?,
            _ => {}
        }
        self.devices[device].retains -= 1;
        Ok(())
    }

    fn primary_reset(&mut self, device: i32) -> Answer {
        let primary = self.devices[self.device(device)?].primary;
        if self.contexts.values().any(|c| c.whole == Some(primary)) {
            return Err(Code::NOT_PERMITTED);
        }
        if self.contexts.contains_key(&primary) {
            self.destroy_context(primary)?;
        }
        Ok(())
    }
}

api! { plain EXPORTS |sim|
    fn cuDevicePrimaryCtxRetain(out: *mut u64, device: i32) {
        let device = sim.device(device)?;
        let primary = sim.retain_primary(device);
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, primary) }
    }
    fn cuDevicePrimaryCtxRelease(device: i32) {
        sim.primary_release(device)
    }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        sim.primary_release(device)
    }
    fn cuDevicePrimaryCtxReset(device: i32) {
        sim.primary_reset(device)
    }
    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        sim.primary_reset(device)
    }
    fn cuDevicePrimaryCtxSetFlags(device: i32, _flags: u32) {
        sim.device(device).map(|_| ())
    }
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        let primary = sim.devices[sim.device(device)?].primary;
        if let Some(context) = sim.contexts.get_mut(&primary) {
            context.flags = flags | (context.flags & MAP_HOST);
        }
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let primary = sim.devices[sim.device(device)?].primary;
        let context = sim.contexts.get(&primary);
        // SAFETY: the caller's pointers; null is legal.
        unsafe {
            put(flags, context.map_or(0, |c| c.flags));
            put(active, i32::from(context.is_some()));
        }
        Ok(())
    }
}
