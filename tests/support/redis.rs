//! A redis-server of a test's own: on a socket in a temporary directory, gone
//! with the test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server.
pub struct Redis {
    server: Child,
    directory: tempfile::TempDir,
}

impl Redis {
    /// Finds a redis-server (support/redis.sh) and starts it.
    pub fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = Command::new(root.join("tests/support/redis.sh"))
            .arg(root.join("target/redis"))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(found.status.success(), "no redis-server could be had");
        let program = String::from_utf8(found.stdout).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let server = Command::new(program.trim())
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(directory.path().join("redis.sock"))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { server, directory };
        let start = Instant::now();
        while UnixStream::connect(redis.socket()).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "redis-server did not come up"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        redis
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
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

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
