//! Runs a program once and measures it from outside: wall time, the pool's own
//! counters from the statistics page, and the memory in use on the device by a
//! meter that does not care whose allocator it is.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use memcuda::driver::inspect::{SIMULATED_GPU, inspect};
use memcuda::driver::nvml::Nvml;
use nix::sys::signal::Signal;
use tempfile::NamedTempFile;

use crate::process::{self, Page};
use crate::program::child::{Program, Signals, Streams};
use crate::program::unstarted;

/// What tells the bytes in use on the device.
pub enum Meter {
    /// NVML: all GPUs of the machine, all processes.
    Nvml(Nvml),
    /// The simulated GPU's account of all processes that name the same file.
    Simulated,
    /// Nothing can tell, and why.
    None(String),
}

impl Meter {
    /// The meter of the driver that programs started from here will load.
    pub fn find() -> Self {
        let simulated = inspect().is_ok_and(|found| {
            let mut names = found.devices.iter().map(|d| &d.name);
            names.any(|name| name.contains(SIMULATED_GPU))
        });
        match simulated {
            true => Self::Simulated,
            false => Nvml::open_meter().map_or_else(Self::None, Self::Nvml),
        }
    }

    /// Its name in the output.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::Nvml(_) => Some("nvml"),
            Self::Simulated => Some("simulated"),
            Self::None(_) => None,
        }
    }

    /// A file for the account of a run. Each has its own: one that is killed leaves its
    /// bytes in it.
    fn account(&self) -> Result<Option<NamedTempFile>> {
        let simulated = matches!(self, Self::Simulated);
        let file = simulated.then(|| NamedTempFile::with_prefix("memcuda-compare-"));
        file.transpose().context("cannot make a temporary file")
    }

    fn used_bytes(&self, account: Option<&NamedTempFile>) -> Option<u64> {
        match self {
            Self::Nvml(nvml) => nvml.used_bytes().ok(),
            Self::Simulated => simulated_bytes(account?.as_file()).ok(),
            Self::None(_) => None,
        }
    }
}

/// Sums the simulated GPU's account: two words of header, then for each
/// of 256 processes its id and its bytes on each of eight devices.
fn simulated_bytes(file: &File) -> std::io::Result<u64> {
    const HEADER: usize = 2;
    const SLOT: usize = 9;
    const SLOTS: usize = 256;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let words = bytes.chunks_exact(8).skip(HEADER);
    let words = words.take(SLOTS * SLOT).enumerate();
    let word = |w: &[u8]| u64::from_ne_bytes(w.try_into().expect("chunks of eight bytes"));
    Ok(words
        .filter(|(at, _)| at % SLOT != 0)
        .map(|(_, w)| word(w))
        .sum())
}

/// One run.
pub struct Run {
    pub status: ExitStatus,
    /// Did somebody want it to end?
    pub asked_to_end: Option<Signal>,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// By the pool: the highest sum of bytes held from the driver.
    pub peak_physical_bytes: Option<u64>,
    /// By the pool: the highest sum of bytes that the program asked for.
    pub peak_live_bytes: Option<u64>,
    /// By the meter: from the lowest to the highest use of the device.
    pub peak_device_bytes: Option<u64>,
}

/// Runs a command to its end. Its output goes to standard error, so that
/// standard output is the table's; its input is empty.
pub fn run(mut command: Command, meter: &Meter) -> Result<Run> {
    let signals = Signals::hold()?;
    let account = meter.account()?;
    if let Some(account) = &account {
        command.env("MEMCUDA_SIM_SHARED", account.path());
    }
    let used_bytes = || meter.used_bytes(account.as_ref());
    // The lowest use, not the first: the driver may still be clearing up after
    // the run before this one.
    let mut lowest = used_bytes();
    let start = Instant::now();
    let program = command.get_program().to_owned();
    let child = Program::start(&command, Streams::Beside, &signals);
    let mut child = child.map_err(|error| anyhow!(unstarted::why("compare", &program, &error)))?;
    let mut pages = Pages::default();
    let mut peak_device = None;
    let status = loop {
        pages.sample(child.id());
        let used = used_bytes();
        peak_device = peak_device.max(used);
        lowest = lowest.zip(used).map(|(lowest, used)| lowest.min(used));
        if let Some(status) = child.ended()? {
            break status;
        }
        // Closely at first, so that short programs are seen too.
        let early = start.elapsed() < Duration::from_secs(2);
        std::thread::sleep(Duration::from_millis(if early { 1 } else { 5 }));
    };
    Ok(Run {
        status,
        asked_to_end: child.asked_to_end(),
        wall_s: start.elapsed().as_secs_f64(),
        peak_physical_bytes: pages.peak(|peaks| peaks.physical),
        peak_live_bytes: pages.peak(|peaks| peaks.live),
        peak_device_bytes: peak_device.zip(lowest).map(|(peak, lowest)| peak - lowest),
    })
}

/// The statistics pages of a program's processes. An open page outlives its
/// process, so its last counters are read after the end.
#[derive(Default)]
struct Pages {
    open: HashMap<u64, Page>,
    /// Highest sums over all processes that were seen at one time.
    together: Peaks,
}

#[derive(Default, Clone, Copy)]
struct Peaks {
    physical: u64,
    live: u64,
}

impl Pages {
    fn sample(&mut self, root: u32) {
        let mut pids: BTreeSet<u32> = process::tree(root).into_iter().collect();
        // Who lost its parent, too.
        pids.extend(self.open.values().map(|page| page.pid));
        // Which page a process has; not of whom nobody can tell.
        let mut shown = HashMap::new();
        for pid in pids {
            let Ok(page) = process::page(pid) else {
                continue;
            };
            shown.insert(pid, page.as_ref().map(|page| page.inode));
            if let Some(page) = page {
                self.open.entry(page.inode).or_insert(page);
            }
        }
        // A process that starts another program in its place (`exec`) has lost its memory.
        let there = self.open.values().filter(|page| {
            let shown = shown.get(&page.pid);
            shown.is_none_or(|shown| *shown == Some(page.inode)) && process::is_alive(page.pid)
        });
        let counters = there.flat_map(|page| page.read().unwrap_or_default());
        let now = counters.fold(Peaks::default(), |sum, c| Peaks {
            physical: sum.physical + c.pool.physical_bytes,
            live: sum.live + c.pool.live_bytes,
        });
        self.together.physical = self.together.physical.max(now.physical);
        self.together.live = self.together.live.max(now.live);
    }

    /// The highest sum seen, and never less than what one process counted for
    /// itself on one device: exact where that is all, sampled for several. `None` without
    /// any page.
    fn peak(&self, which: impl Fn(&Peaks) -> u64) -> Option<u64> {
        let own = |page: &Page| {
            let counters = page.read().unwrap_or_default();
            let peaks = counters.iter().map(|c| Peaks {
                physical: c.pool.peak_physical_bytes,
                live: c.pool.peak_live_bytes,
            });
            // Each device had its own at its own time.
            peaks.map(|peaks| which(&peaks)).max().unwrap_or(0)
        };
        let highest = self.open.values().map(own).max()?;
        Some(highest.max(which(&self.together)))
    }
}
