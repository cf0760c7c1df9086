//! Plays a trace against the pool over the driver model: what would this job
//! have held, and what would its driver calls have cost? Physical bytes and
//! counts are the pool's own; driver time is the model's estimate; the time of
//! an allocation is measured on this machine, without any driver call.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::device::Device;
pub use super::device::Profile;
use super::{Event, Op, Owner};
use crate::driver::{Address, Code};
use crate::error::{Error, Result};
use crate::pool::{Refusal, Settings};

/// What a replay found, over all devices of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// Requests that the pool served.
    pub requests: u64,
    /// Highest sum of bytes that the trace asks for and has not freed.
    pub peak_live_bytes: u64,
    /// Highest sum of bytes held from the driver.
    pub peak_physical_bytes: u64,
    /// Devices of the trace.
    pub devices: usize,
    /// The most bytes that one of them held.
    pub device_peak_bytes: u64,
    /// Share of the requests served with no driver call but event operations.
    pub hit_rate: f64,
    /// Handles mapped in all.
    pub handles_mapped: u64,
    /// Seconds in driver calls, by the model.
    pub driver_time_s: f64,
    /// Seconds from the first to the last event.
    pub trace_time_s: f64,
    /// Middle of the measured times of an allocation, in nanoseconds; those
    /// that built a stitch are among them.
    pub median_alloc_ns: u64,
    /// 99 of 100 allocations took no longer, in nanoseconds.
    pub p99_alloc_ns: u64,
    /// Requests answered with out-of-memory so that PyTorch gives idle segments
    /// back; 0 but in [`Profile::Native`] and [`Profile::Segments`].
    pub soft_failures: u64,
    /// Of these, those that brought less than was asked for.
    pub short_ladders: u64,
}

impl Outcome {
    /// Peak live / peak physical.
    pub fn efficiency(&self) -> f64 {
        self.peak_live_bytes as f64 / self.peak_physical_bytes.max(1) as f64
    }
}

/// Why a replay ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The trace is wrong.
    Trace(Error),
    /// The pool refused a request: the line and the driver's code.
    Refused(u64, Code),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Trace(error)
    }
}

/// Plays `events` on devices of `total_bytes` each; `settings` makes the pool's
/// settings for each device.
pub fn replay(
    events: impl Iterator<Item = Result<Event>>,
    profile: Profile,
    total_bytes: u64,
    settings: impl Fn() -> Settings,
) -> std::result::Result<Outcome, Failure> {
    let (alloc, free, done) = match profile {
        Profile::Recorded => (Op::SegmentAlloc, Op::SegmentFree, Op::SegmentFree),
        _ => (Op::Alloc, Op::Free, Op::FreeDone),
    };
    let mut player = Player::default();
    let device = |ordinal| Device::new(ordinal, total_bytes, profile, settings());
    let (mut first_us, mut last_us, mut line) = (None, 0, 1);
    for event in events {
        let event = event?;
        first_us.get_or_insert(event.t_us);
        (last_us, line) = (event.t_us, event.line);
        if event.op == alloc {
            if event.owner == Some(Owner::Page) && profile.models_torch() {
                let text = "is a page of torch's own allocator, and this profile is a model of that allocator: it needs tensors; accepted: profile async";
                return Err(wrong(&event, text));
            }
            player.alloc(&event, device)?;
        }
        if event.op == free {
            player.free(&event)?;
        }
        if event.op == done {
            player.free_done(&event)?;
        }
    }
    if player.devices.is_empty() {
        let message = format!("line {line}: the trace ends without any {}", alloc.name());
        return Err(Error::new(message).into());
    }
    let mut outcome = player.outcome();
    let duration_us = last_us.saturating_sub(first_us.unwrap_or_default());
    outcome.trace_time_s = duration_us as f64 / 1e6;
    Ok(outcome)
}

#[derive(Default)]
struct Player {
    devices: HashMap<u32, Device>,
    blocks: HashMap<(u32, u64), Block>,
    live_bytes: u64,
    peak_live_bytes: u64,
    peak_physical_bytes: u64,
}

/// An allocation of the trace, until its work is done.
struct Block {
    at: Address,
    bytes: u64,
    stream: u64,
    owner: Option<Owner>,
    freed: bool,
}

impl Player {
    fn alloc(
        &mut self,
        event: &Event,
        new_device: impl Fn(u32) -> std::result::Result<Device, Code>,
    ) -> std::result::Result<(), Failure> {
        let key = (event.device, event.id);
        if self.blocks.contains_key(&key) {
            return Err(wrong(event, "is allocated, but was not freed before"));
        }
        if event.bytes == 0 {
            return Err(wrong(event, "is allocated with 0 bytes"));
        }
        let refused = |code| Failure::Refused(event.line, code);
        let device = match self.devices.entry(event.device) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(new_device(event.device).map_err(refused)?),
        };
        let at = device.alloc(event);
        let at = at.map_err(|refusal| match refusal {
            Refusal::Driver(code) => refused(code),
            Refusal::NoWindow => refused(Code::OUT_OF_MEMORY),
        })?;
        let block = Block {
            at,
            bytes: event.bytes,
            stream: event.stream,
            owner: event.owner,
            freed: false,
        };
        self.blocks.insert(key, block);
        self.live_bytes += event.bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        let physical = self.devices.values().map(Device::physical).sum();
        self.peak_physical_bytes = self.peak_physical_bytes.max(physical);
        Ok(())
    }

    /// The program gave the block up: it is live no more, its bytes are still
    /// in use.
    fn free(&mut self, event: &Event) -> std::result::Result<(), Failure> {
        let block = self.blocks.get_mut(&(event.device, event.id));
        let block = block.filter(|block| !block.freed);
        let block = block.ok_or_else(|| wrong(event, "is freed, but not allocated"))?;
        block.freed = true;
        self.live_bytes -= block.bytes;
        Ok(())
    }

    /// The bytes may be used again, behind the work of the block's stream.
    fn free_done(&mut self, event: &Event) -> std::result::Result<(), Failure> {
        let key = (event.device, event.id);
        let block = self.blocks.remove(&key).filter(|block| block.freed);
        let block = block.ok_or_else(|| wrong(event, "is done with, but was not freed"))?;
        let device = self.devices.get_mut(&event.device);
        let device = device.expect("the device that its block is on");
        if block.owner == Some(Owner::Page) {
            device.unmap(block.at, block.bytes);
            return Ok(());
        }
        // Older traces name the stream that it was allocated on, again.
        let stream = match event.uses {
            Some(_) => event.stream,
            None => block.stream,
        };
        device.free(block.at, stream, event.uses);
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        let devices = || self.devices.values();
        let mut alloc_ns: Vec<u32> = devices().flat_map(Device::alloc_ns).copied().collect();
        alloc_ns.sort_unstable();
        let quantile = |of_100: usize| {
            let at = alloc_ns.len().saturating_sub(1) * of_100 / 100;
            alloc_ns.get(at).map_or(0, |ns| u64::from(*ns))
        };
        let sum = |counter: fn(&Device) -> u64| devices().map(counter).sum::<u64>();
        Outcome {
            requests: alloc_ns.len() as u64,
            peak_live_bytes: self.peak_live_bytes,
            // A device's own peak may lie between two events.
            peak_physical_bytes: match devices().collect::<Vec<_>>()[..] {
                [one] => one.peak_physical(),
                _ => self.peak_physical_bytes,
            },
            devices: self.devices.len(),
            device_peak_bytes: devices().map(Device::peak_physical).max().unwrap_or(0),
            hit_rate: sum(Device::hits) as f64 / alloc_ns.len().max(1) as f64,
            handles_mapped: sum(Device::handles_mapped),
            driver_time_s: sum(Device::driver_time_ns) as f64 / 1e9,
            trace_time_s: 0.0,
            median_alloc_ns: quantile(50),
            p99_alloc_ns: quantile(99),
            soft_failures: devices().map(|d| d.reclaim().soft_failures()).sum(),
            short_ladders: devices().map(|d| d.reclaim().short_ladders()).sum(),
        }
    }
}

fn wrong(event: &Event, what: &str) -> Failure {
    Failure::Trace(Error::new(format!(
        "line {}: {:x} {what}",
        event.line, event.id
    )))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
