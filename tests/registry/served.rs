//! A process of its own that plays the keeper: this program again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::files::{Keeper, Place};

const ROLE: &str = "MEMCUDA_TEST_SERVES_IN";
const SERVER: &str = "MEMCUDA_TEST_SERVER";

/// Not a test: what `Served` starts, this program again, as a process that serves the
/// queue until it is killed.
#[test]
#[ignore = "a process of other tests, not a test"]
fn serving_process() {
    let [directory, address] =
        [ROLE, SERVER].map(|name| std::env::var(name).expect("started by a test"));
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let place = Place {
        address,
        namespace: "",
        node: 1,
        directory: directory.as_ref(),
    };
    // Tests end it before.
    let _keeper = Keeper::patient(&place, Duration::from_secs(600));
    std::thread::sleep(Duration::from_secs(600));
}

/// A process that serves the queue; killed when it is dropped.
pub struct Served {
    process: Child,
    log: PathBuf,
}

impl Served {
    /// Starts one.
    pub fn start(server: &str, directory: &Path) -> Self {
        let log = directory.join("log");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "served::serving_process"])
            .env(ROLE, directory)
            .env(SERVER, server)
            .stdout(Stdio::null())
            .stderr(
                fs::File::options()
                    .create(true)
                    .append(true)
                    .open(&log)
                    .unwrap(),
            )
            .spawn();
        Self {
            process: child.unwrap(),
            log,
        }
    }

    /// Lets it have no more than so many bytes of addresses than it has now; `None`: as many
    /// as it likes.
    pub fn addresses(&self, more: Option<u64>) {
        let limit = more.map(|more| self.status("VmSize:") + more);
        let limit = Rlimit {
            current: limit,
            maximum: None,
        };
        let pid = Pid::from_child(&self.process);
        prlimit(Some(pid), Resource::As, limit).unwrap();
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Most bytes that it ever had in memory.
    pub fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib << 10
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
