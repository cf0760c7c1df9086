//! A process that does what it is told, line by line: it says that it is ready, then an
//! answer to each line, and ends with its input.
#![allow(dead_code, reason = "each of those who share it uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::support::signal;

/// One of them; it ends when it is dropped.
pub struct Process {
    child: Child,
    /// `None` once it is told to end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    log: ChildStderr,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut process = Self {
            to: child.stdin.take(),
            from: BufReader::new(child.stdout.take().unwrap()),
            log: child.stderr.take().unwrap(),
            child,
        };
        assert_eq!(process.heard(), "ready");
        process
    }

    /// Says a line and hears the answer.
    pub fn say(&mut self, line: &str) -> String {
        self.tell(line);
        self.heard()
    }

    /// Says a line, of which the answer is heard later.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The answer to a line.
    pub fn heard(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!("the process ended: {}", self.log());
        }
        line.trim().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
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
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the process; what it wrote to its log.
    pub fn end(mut self) -> String {
        self.to = None;
        let log = self.log();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// What it writes to its log, up to its end.
    fn log(&mut self) -> String {
        let mut log = String::new();
        let _ = self.log.read_to_string(&mut log);
        log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("process {}:\n{}", self.child.id(), self.log());
        }
    }
}
