//! `resident.c` on a device of 1 GiB: processes that are driven line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::signals::signal;
use crate::support::{preloaded, scratch, shim, simulator};

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

pub struct Process {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        assert_eq!(process.hear(), "ready");
        process
    }

    pub fn tell(&mut self, words: &str) {
        writeln!(self.input.as_mut().unwrap(), "{words}").unwrap();
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, words: &str) -> String {
        self.tell(words);
        self.hear()
    }

    pub fn number(&mut self, words: &str) -> u64 {
        self.ask(words).parse().unwrap()
    }

    /// The code of an allocation, and its milliseconds.
    pub fn alloc(&mut self, words: &str) -> (u32, u64) {
        let answer = self.ask(words);
        let (code, time) = answer.split_once(' ').unwrap();
        (code.parse().unwrap(), time.parse().unwrap())
    }

    /// Holds so many MiB, all of them idle.
    pub fn idle(&mut self, mib: u64) {
        assert_eq!(self.alloc(&format!("alloc {mib}")).0, 0);
        assert_eq!(self.ask("free"), "0");
        assert_eq!(self.number("physical"), mib);
    }

    pub fn signal(&self, which: i32) {
        signal(self.child.id() as i32, which);
    }

    /// Stops it: the first thread to hear of it tells the others, which go on until then.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let threads = format!("/proc/{}/task", self.child.id());
        let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
            let about = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            about.rsplit(") ").next().unwrap().starts_with('T')
        };
        while !std::fs::read_dir(&threads).unwrap().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    pub fn end(mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
