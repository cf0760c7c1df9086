//! `resident.c` on a device of 1 GiB: processes that are driven line by line.

#[path = "../support/process.rs"]
mod process;
#[path = "../../../tests/support/waiting.rs"]
mod waiting;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use process::Process;
pub use waiting::{LONG, until};

use crate::support::{preloaded, scratch, shim, simulator};

/// Longer than memory must lie idle before another process gets it.
pub const A_WHILE: u64 = 1600;

pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// A device that only the processes of one test are on.
pub struct Device {
    ledger: PathBuf,
    managed: bool,
}

impl Device {
    /// With the management library.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let ledger = scratch().join(format!("room-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&ledger);
        let managed = simulator().join("nvml/libnvidia-ml.so.1");
        assert!(managed.exists(), "{} is missing", managed.display());
        Self {
            ledger,
            managed: true,
        }
    }

    pub fn without_management() -> Self {
        let mut device = Self::new();
        device.managed = false;
        device
    }

    pub fn command(&self) -> Command {
        let mut command = preloaded(crate::program("resident"), &[shim()]);
        let managed = self.managed.then(|| simulator().join("nvml"));
        let search: Vec<_> = [simulator()].into_iter().chain(managed).collect();
        command
            .env("LD_LIBRARY_PATH", std::env::join_paths(search).unwrap())
            .env("MEMCUDA_SIM_SHARED", &self.ledger)
            .env("MEMCUDA_SIM_MEMORY", "1GiB");
        command
    }

    /// A process with the library preloaded.
    pub fn preloaded(&self) -> Process {
        Process::start(&mut self.command())
    }

    pub fn preloaded_with(&self, name: &str, value: &str) -> Process {
        Process::start(self.command().env(name, value))
    }

    /// A process on the plain driver.
    pub fn plain(&self) -> Process {
        Process::start(self.command().env_remove("LD_PRELOAD"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.ledger);
    }
}

impl Process {
    pub fn number(&mut self, words: &str) -> u64 {
        self.say(words).parse().unwrap()
    }

    /// The code of an allocation, and its milliseconds.
    pub fn alloc(&mut self, words: &str) -> (u32, u64) {
        let answer = self.say(words);
        let (code, time) = answer.split_once(' ').unwrap();
        (code.parse().unwrap(), time.parse().unwrap())
    }

    /// Holds so many MiB, all of them idle.
    pub fn idle(&mut self, mib: u64) {
        assert_eq!(self.alloc(&format!("alloc {mib}")).0, 0);
        assert_eq!(self.say("free"), "0");
        assert_eq!(self.number("physical"), mib);
    }
    /// Waits until it holds so many MiB.
    #[track_caller]
    pub fn comes_to(&mut self, mib: RangeInclusive<u64>, what: &str) {
        let began = Instant::now();
        loop {
            let held = self.number("physical");
            if mib.contains(&held) {
                return;
            }
            assert!(began.elapsed() < LONG, "{what}: {held} MiB, not {mib:?}");
            pause(20);
        }
    }
}
