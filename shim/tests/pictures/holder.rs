//! `holder.c`, driven line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::{compile, preloaded, program, shim, simulator};

pub const MIB: u64 = 1 << 20;

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command of a holder on a device of 1 GiB of its own.
pub fn command() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    command_of(BUILT.get_or_init(|| program("holder.c", "holder")))
}

/// The same, of a holder with so much thread-local memory.
pub fn command_with_local(bytes: usize) -> Command {
    let directory = format!("-L{}", simulator().display());
    let local = format!("-DLOCAL={bytes}");
    let arguments = [&local, &directory, "-l:libcuda.so.1"];
    command_of(&compile("holder.c", "holder-local", &arguments))
}

fn command_of(built: &Path) -> Command {
    let mut command = preloaded(built, &[shim()]);
    command.env("MEMCUDA_SIM_MEMORY", "1GiB");
    command
}

pub struct Holder {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Holder {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let output = BufReader::new(output);
        let mut holder = Self {
            child,
            input,
            output,
        };
        assert_eq!(holder.hear(), "ready");
        holder
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, words: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{words}").unwrap();
        self.hear()
    }

    /// The address of an allocation that is served.
    pub fn alloc(&mut self, words: &str) -> u64 {
        let answer = self.ask(words);
        let (code, at) = answer.split_once(' ').unwrap();
        assert_eq!(code, "0", "{words}");
        u64::from_str_radix(at.trim_start_matches("0x"), 16).unwrap()
    }

    /// Ends it well; what it wrote to standard error.
    pub fn end(mut self) -> String {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        let error = self.child.stderr.as_mut().unwrap();
        error.read_to_string(&mut said).unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
