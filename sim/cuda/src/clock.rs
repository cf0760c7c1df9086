//! The clock of the process, in nanoseconds, and what each call costs the
//! host. Costs are medians measured on an H200 (driver 580, CUDA 13.0).

use std::time::Instant;

/// What advances the clock (`MEMCUDA_SIM_CLOCK`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Calls do, by their measured cost; a wait jumps to its end.
    Virtual,
    /// Wall time does; a wait sleeps.
    Real,
    /// Nothing does: calls are free and work completes at once.
    Off,
}

impl Mode {
    pub fn parse(text: &str) -> Option<Mode> {
        match text {
            "virtual" => Some(Mode::Virtual),
            "real" => Some(Mode::Real),
            "off" => Some(Mode::Off),
            _ => None,
        }
    }
}

pub struct Clock {
    mode: Mode,
    now: u64,
    start: Instant,
}

impl Clock {
    pub fn new(mode: Mode) -> Clock {
        Clock {
            mode,
            now: 0,
            start: Instant::now(),
        }
    }

    /// Nanoseconds since the start.
    pub fn now(&mut self) -> u64 {
        if self.mode == Mode::Real {
            self.now = self.now.max(self.start.elapsed().as_nanos() as u64);
        }
        self.now
    }

    /// The host spends time in a call.
    pub fn charge(&mut self, ns: u64) {
        if self.mode == Mode::Virtual {
            self.now += ns;
        }
    }

    /// Does time pass while nobody calls?
    pub fn passes_by_itself(&self) -> bool {
        self.mode == Mode::Real
    }

    /// How long work of this length takes here.
    pub fn duration(&self, ns: u64) -> u64 {
        if self.mode == Mode::Off { 0 } else { ns }
    }

    /// Passes to a moment that is to come; false where it is not, or where time
    /// passes by itself.
    pub fn skips_to(&mut self, at: u64) -> bool {
        let skips = self.mode == Mode::Virtual && at > self.now;
        if skips {
            self.now = at;
        }
        skips
    }
}

/// Host costs in nanoseconds.
pub mod cost {
    const MIB: u64 = 1 << 20;

    /// Sizes of the measured rows, in bytes.
    const SIZES: [u64; 5] = [2 * MIB, 16 * MIB, 128 * MIB, 1024 * MIB, 8192 * MIB];

    /// Between the measured rows in proportion, beyond them as the last grows.
    fn row(ns: [u64; 5], bytes: u64) -> u64 {
        if bytes <= SIZES[0] {
            return ns[0];
        }
        let i = (1..4).find(|i| bytes <= SIZES[*i]).unwrap_or(4);
        let (s0, s1, t0, t1) = (SIZES[i - 1], SIZES[i], ns[i - 1], ns[i]);
        let slope = t1.saturating_sub(t0) as f64 / (s1 - s0) as f64;
        t0 + (slope * (bytes - s0) as f64) as u64
    }

    pub fn alloc(bytes: u64) -> u64 {
        row([38_000, 38_000, 48_000, 105_000, 1_950_000], bytes)
    }
    pub fn free(bytes: u64) -> u64 {
        row([31_000, 40_000, 88_000, 430_000, 4_100_000], bytes)
    }
    pub fn reserve(bytes: u64) -> u64 {
        row([650, 1_000, 3_000, 3_000, 10_000], bytes)
    }
    pub fn create(bytes: u64) -> u64 {
        row([10_500, 10_500, 11_500, 63_000, 1_700_000], bytes)
    }
    pub fn map(bytes: u64) -> u64 {
        row([950, 950, 1_050, 1_050, 5_000], bytes)
    }
    /// Per handle in the range, so a stitch of many pays for each.
    pub fn set_access(bytes: u64) -> u64 {
        row([24_000, 24_000, 40_000, 63_000, 320_000], bytes)
    }
    /// Per handle in the range.
    pub fn unmap(bytes: u64) -> u64 {
        row([15_500, 16_000, 23_500, 30_500, 101_000], bytes)
    }
    pub fn release(bytes: u64) -> u64 {
        row([11_000, 19_000, 62_000, 400_000, 4_300_000], bytes)
    }
    pub fn free_reservation(bytes: u64) -> u64 {
        row([400, 600, 2_500, 2_500, 10_000], bytes)
    }

    /// To open a handle, or to allocate, while the host is copied to.
    pub const BESIDE_COPIES_TO_HOST: u64 = 1_057_000;
    /// Any call that is not named here.
    pub const CALL: u64 = 50;
    pub const POOL_ALLOC: u64 = 330;
    pub const POOL_FREE: u64 = 330;
    pub const EVENT_RECORD: u64 = 200;
    pub const EVENT_QUERY: u64 = 1_300;
    pub const CONTEXT_WAIT: u64 = 440;
    pub const STREAM_SYNCHRONIZE: u64 = 1_500;
    pub const CONTEXT_SYNCHRONIZE: u64 = 400;
    pub const MEM_INFO: u64 = 4_800;
    pub const EXPORT: u64 = 12_000;
    pub const IMPORT: u64 = 47_000;
    pub const LAUNCH: u64 = 2_000;

    /// Device copies: 4.3 TB/s.
    pub fn device_copy(bytes: u64) -> u64 {
        bytes / 4_300 + 1_000
    }
    /// The host link: 55 GB/s pinned, 8.1 GB/s pageable.
    pub fn host_copy(bytes: u64, pinned: bool) -> u64 {
        bytes * 1000 / if pinned { 55_000 } else { 8_100 } + 1_000
    }
    /// Fills: the write bandwidth.
    pub fn fill(bytes: u64) -> u64 {
        bytes / 4_300 + 1_000
    }
}
