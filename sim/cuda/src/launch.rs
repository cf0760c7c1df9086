//! What only a simulation has: kernels that touch ranges, a kernel that
//! crashes, and the clock (`memcuda_sim.h`).

use crate::abi::{Code, SimRange};
use crate::check::Touch;
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::stream::Effect;

api! { streams STREAM_EXPORTS |sim|
    fn cuSimLaunch | cuSimLaunch_ptsz [stream] (stream: u64, ranges: *const SimRange, count: u32, microseconds: f64) {
        let id = sim.stream(stream)?;
        if (ranges.is_null() && count > 0) || !(0.0..1e12).contains(&microseconds) {
            return Err(Code::INVALID_VALUE);
        }
        let ranges = match count {
            0 => &[],
            // SAFETY: not null; the caller passes `count` whole structures.
            _ => unsafe { std::slice::from_raw_parts(ranges, count as usize) },
        };
        let touch = |range: &SimRange| Touch {
            base: range.base,
            bytes: range.bytes as u64,
            write: range.write != 0,
            call: "cuSimLaunch",
        };
        let touches: Vec<Touch> = ranges.iter().map(touch).collect();
        sim.clock.charge(cost::LAUNCH);
        sim.submit(id, (microseconds * 1000.0) as u64, &touches, Effect::Nothing)
    }
    fn cuSimCrash | cuSimCrash_ptsz [stream] (stream: u64) {
        let id = sim.stream(stream)?;
        let context = sim.streams[&id].context;
        sim.clock.charge(cost::LAUNCH);
        sim.submit(id, 10_000, &[], Effect::Crash(context))
    }
}

api! { plain EXPORTS |sim|
    fn cuSimAdvance(ns: u64) {
        sim.clock.charge(ns);
        Ok(())
    }
    fn cuSimNow(out: *mut u64) {
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.clock.now()) }
    }
    fn cuSimProcesses(uuid: *const [u8; 16], ids: *mut u32, count: *mut u32) {
        // SAFETY: the caller's identity of a device.
        let uuid = unsafe { uuid.read() };
        let device = (0..sim.devices.len()).find(|device| sim.uuid(*device).0 == uuid);
        let processes = sim.ledger.processes(device.ok_or(Code::INVALID_DEVICE)?);
        // SAFETY: the caller's array of so many.
        unsafe {
            let room = count.read() as usize;
            count.write(processes.len() as u32);
            if processes.len() > room {
                return Err(Code::INVALID_VALUE);
            }
            std::ptr::copy_nonoverlapping(processes.as_ptr(), ids, processes.len());
        }
        Ok(())
    }
    fn cuSimPhysical(device: i32, out: *mut u64) {
        let device = sim.device(device)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.ledger.own(device)) }
    }
    fn cuSimFailures(out: *mut u64) {
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.faults.failed()) }
    }
}

/// Nanoseconds of the simulation's clock; 0 before `cuInit`.
#[unsafe(no_mangle)]
pub extern "C" fn cuSimClock() -> u64 {
    let mut now = 0;
    // SAFETY: a pointer to a local that outlives the call.
    unsafe { cuSimNow(&mut now) };
    now
}
