//! A redis-server of a test's own: on a socket in a temporary directory, gone
//! with the test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::waiting::until;

/// A running server.
pub struct Redis {
    server: Child,
    program: String,
    directory: tempfile::TempDir,
}

impl Redis {
    /// Starts one.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options.
    pub fn start_with(options: &[&str]) -> Self {
        let program = crate::program::found("redis-server", "redis");
        let directory = tempfile::tempdir().unwrap();
        let server = launch(&program, directory.path(), options);
        Self {
            server,
            program,
            directory,
        }
    }

    /// Kills it (SIGKILL) and waits for its end: it has saved nothing.
    pub fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts it again after [`Redis::kill`], empty.
    pub fn start_again(&mut self) {
        self.server = launch(&self.program, self.directory.path(), &[]);
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Is there such a key?
    pub fn has(&self, key: &str) -> bool {
        self.ask(&format!("EXISTS {key}")) == ":1"
    }

    /// Sends one inline command and gives the first line of the answer.
    pub fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream
            .write_all(format!("{command}\r\n").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        String::from_utf8(answer).unwrap().trim_end().to_owned()
    }
}

fn launch(program: &str, directory: &Path, options: &[&str]) -> Child {
    let socket = directory.join("redis.sock");
    let server = Command::new(program)
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(&socket)
        .args(options)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("redis-server to come up", || {
        UnixStream::connect(&socket).is_ok()
    });
    server
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
