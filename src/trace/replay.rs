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
        // Older traces name the stream that it was allocated on, again.
        let stream = match event.uses {
            Some(_) => event.stream,
            None => block.stream,
        };
        device.free(block.at, block.bytes, stream, event.uses);
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
mod tests {
    use super::*;
    use crate::trace::Reader;
    use crate::units::{GIB, MIB};

    fn play(lines: &str, profile: Profile) -> std::result::Result<Outcome, Failure> {
        let text = format!("t_us,op,id,bytes,stream,device\n{lines}");
        let reader = Reader::new(text.as_bytes())?;
        replay(reader, profile, GIB, Settings::default)
    }

    #[test]
    fn live_ends_at_free_and_memory_returns_at_free_done() {
        let lines = "0,alloc,1,4194304,0,0\n\
             10,free,1,4194304,0,0\n\
             20,alloc,2,4194304,0,0\n\
             30,free_done,1,4194304,0,0\n\
             40,alloc,3,4194304,0,0\n\
             2000000,free,3,4194304,0,0\n";
        let outcome = play(lines, Profile::Async).unwrap();
        assert_eq!(outcome.requests, 3);
        assert_eq!(outcome.peak_live_bytes, 8 * MIB);
        // The second could not take the first one's bytes, the third could.
        assert_eq!(outcome.peak_physical_bytes, 8 * MIB);
        assert_eq!(outcome.efficiency(), 1.0);
        assert!((outcome.hit_rate - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(outcome.trace_time_s, 2.0);
        assert!(outcome.driver_time_s > 0.0 && outcome.handles_mapped >= 2);
        assert!(outcome.median_alloc_ns > 0 && outcome.p99_alloc_ns >= outcome.median_alloc_ns);
    }

    #[test]
    fn each_profile_has_its_own_events_and_each_device_its_own_pool() {
        let lines = "0,segment_alloc,7f00,20971520,0,0\n\
             1,alloc,0,512,0,0\n\
             2,segment_alloc,7f00,20971520,0,1\n\
             3,segment_free,7f00,20971520,0,0\n\
             4,segment_alloc,8f00,20971520,0,0\n";
        let recorded = play(lines, Profile::Recorded).unwrap();
        assert_eq!((recorded.requests, recorded.peak_live_bytes), (3, 40 * MIB));
        assert_eq!(recorded.peak_physical_bytes, 40 * MIB);
        assert_eq!(play(lines, Profile::Async).unwrap().requests, 1);
        // One tensor of 512 bytes, in a segment of 2 MiB.
        let segments = play(lines, Profile::Segments).unwrap();
        assert_eq!((segments.requests, segments.peak_live_bytes), (1, 512));
        assert_eq!(segments.peak_physical_bytes, 2 * MIB);
        // The pool would have grown for it.
        assert_eq!(segments.soft_failures, 1);
    }

    /// 64 MiB, freed, then 96: torch has no use for the 64 itself; and two small ones.
    const GROWING: &str = "0,alloc,1,67108864,0,0\n\
         10,free,1,67108864,0,0\n\
         20,free_done,1,67108864,0,0\n\
         30,alloc,2,100663296,0,0\n\
         40,alloc,3,4194304,0,0\n\
         50,alloc,4,4194304,0,0\n";

    #[test]
    fn torch_gives_idle_segments_back_before_the_pool_grows() {
        let segments = play(GROWING, Profile::Segments).unwrap();
        assert_eq!(segments.peak_live_bytes, 104 * MIB);
        // The two small ones share a segment of 20 MiB.
        assert_eq!(segments.peak_physical_bytes, 116 * MIB);
        assert_eq!(segments.requests, 3);
        // Each was asked for softly first, and torch brought enough for none.
        assert_eq!((segments.soft_failures, segments.short_ladders), (3, 3));
    }

    #[test]
    fn native_maps_pages_where_they_are_and_asks_for_no_more_than_ever() {
        // 64 MiB are 6 pages of 12; 96 are these and two more, the small one another.
        let native = play(GROWING, Profile::Native).unwrap();
        assert_eq!(native.peak_live_bytes, 104 * MIB);
        assert_eq!(native.peak_physical_bytes, 108 * MIB);
        // Asked before the eighth page and before the ninth; the first time it brought
        // all it had, which was there again.
        assert_eq!((native.soft_failures, native.short_ladders), (2, 1));
        assert_eq!((native.requests, native.handles_mapped), (15, 9));
        assert!((native.hit_rate - 6.0 / 15.0).abs() < 1e-9);
    }

    /// 24 MiB of the pool and pages at two addresses, of which the first comes back.
    const PAGES: &str = "0,alloc,7f0000000000,12582912,0,0,any,page\n\
        1,alloc,500000,25165824,0,0,stream,context\n\
        2,free,7f0000000000,12582912,0,0,complete,page\n\
        2,free_done,7f0000000000,12582912,0,0,complete,page\n\
        3,alloc,7f0000000000,12582912,0,0,any,page\n\
        4,alloc,7f0000c00000,12582912,0,0,any,page\n";

    fn pages(profile: Profile, limit: u64) -> std::result::Result<Outcome, Failure> {
        let text = format!("t_us,op,id,bytes,stream,device,uses,owner\n{PAGES}");
        let settings = || Settings {
            limit: Some(limit),
            ..Settings::default()
        };
        replay(Reader::new(text.as_bytes())?, profile, GIB, settings)
    }

    #[test]
    fn pages_are_mapped_where_they_were_beside_the_pool_and_under_its_limit() {
        let outcome = pages(Profile::Async, GIB).unwrap();
        assert_eq!((outcome.requests, outcome.peak_live_bytes), (4, 48 * MIB));
        assert_eq!(outcome.peak_physical_bytes, 48 * MIB);
        // The one that came back was there; of the others each was mapped.
        assert!((outcome.hit_rate - 0.25).abs() < 1e-9, "{outcome:?}");
        assert!(outcome.driver_time_s > 0.0 && outcome.handles_mapped >= 3);
        let just = pages(Profile::Async, 48 * MIB).unwrap();
        assert_eq!(just.peak_physical_bytes, 48 * MIB);
        let refused = Failure::Refused(7, Code::OUT_OF_MEMORY);
        assert_eq!(pages(Profile::Async, 46 * MIB), Err(refused));
    }

    #[test]
    fn a_model_of_torch_plays_no_pages() {
        for profile in [Profile::Native, Profile::Segments, Profile::Expandable] {
            let Err(Failure::Trace(error)) = pages(profile, GIB) else {
                panic!("{profile:?} plays pages");
            };
            assert!(
                error
                    .to_string()
                    .starts_with("line 2: 7f0000000000 is a page")
            );
        }
    }

    #[test]
    fn a_trace_that_contradicts_itself_is_wrong_at_that_line() {
        for (lines, expected) in [
            (
                "0,alloc,1,5,0,0\n0,alloc,1,5,0,0\n",
                "line 3: 1 is allocated, but was not",
            ),
            ("", "line 1: the trace ends without any alloc"),
            (
                "0,segment_alloc,1,5,0,0\n",
                "line 2: the trace ends without any alloc",
            ),
            ("0,free,1,5,0,0\n", "line 2: 1 is freed, but not allocated"),
            (
                "0,alloc,1,5,0,0\n0,free_done,1,5,0,0\n",
                "line 3: 1 is done with",
            ),
            ("0,alloc,a,0,0,0\n", "line 2: a is allocated with 0 bytes"),
            (
                "0,alloc,1,5,0,0\n0,free,1,5,0,0\n0,free,1,5,0,0\n",
                "line 4: 1 is freed",
            ),
        ] {
            let Failure::Trace(error) = play(lines, Profile::Async).unwrap_err() else {
                panic!("{lines} is no failure of the pool");
            };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_request_beyond_the_device_is_refused_at_its_line() {
        let lines = "0,alloc,1,2147483648,0,0\n";
        let refused = Failure::Refused(2, Code::OUT_OF_MEMORY);
        assert_eq!(play(lines, Profile::Async), Err(refused));
    }
}
