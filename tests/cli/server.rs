//! A `memcuda web` to be asked by tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::{memcuda, until};

/// A server on a free port.
pub struct Server {
    child: Child,
    /// Its address and port.
    pub at: String,
}

impl Server {
    /// With these options, as soon as it says where it is.
    pub fn start(command: &mut Command, arguments: &[&str]) -> Self {
        let mut child = command
            .args(["web", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("http://").unwrap();
        let at = at.split('/').next().unwrap().to_owned();
        Self { child, at }
    }

    /// One without names.
    pub fn alone() -> Self {
        Self::start(memcuda().env("MEMCUDA_KEEPER", "off"), &[])
    }

    /// What it answers to these bytes: status, head, body.
    pub fn say(&self, bytes: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        // It may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let all = String::from_utf8(all).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    /// What it answers to a GET: status, head, body.
    pub fn get(&self, path: &str) -> (u16, String, String) {
        self.get_with(path, "")
    }

    /// The same with more lines of the head.
    pub fn get_with(&self, path: &str, headers: &str) -> (u16, String, String) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.at);
        self.say(text.as_bytes())
    }

    /// What it answers to a GET of JSON.
    pub fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The pool of this process, as soon as it is seen.
    pub fn pool(&self, pid: &str) -> Value {
        let mut pool = None;
        until("it is seen", || {
            let now = self.json("/api/now");
            let mut pools = now["pools"].as_array().unwrap().iter();
            pool = pools
                .find(|it| it["pid"].as_u64() == pid.parse().ok())
                .cloned();
            pool.is_some()
        });
        pool.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
