//! A keeper of a test's own, in a directory of its own. It ends when it is
//! dropped, with all that it keeps.
#![allow(dead_code, reason = "each of those who share it uses a part")]

#[path = "../../../tests/support/leftovers.rs"]
mod leftovers;
#[path = "../../../tests/support/processes.rs"]
pub mod processes;
#[path = "../../../tests/support/waiting.rs"]
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

pub use crate::support::signal;
use crate::support::{build, profile};
use processes::{is_alive, is_stopped};
pub use waiting::until;

/// The command `memcuda` of this tree. Built by itself: what only it needs is
/// no part of the library.
pub fn memcuda() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        build(["-p", "memcuda", "--bin", "memcuda"]);
        profile().join("memcuda")
    })
}

/// A keeper, if it was started.
pub struct Keeper {
    directory: tempfile::TempDir,
    child: Option<Child>,
}

impl Keeper {
    /// The place of one that does not run.
    pub fn none() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            child: None,
        }
    }

    /// What programs are told by `MEMCUDA_KEEPER`.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("keeper.sock")
    }

    /// Starts it, and waits until it answers.
    pub fn start(&mut self) {
        let mut command = Command::new(memcuda());
        command.args(["keeper", "--foreground"]);
        command.env("MEMCUDA_KEEPER", self.socket());
        // Whoever reads what the tests say waits for everybody who might write there.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        until("the keeper answers", || {
            self.verb(&["keeper", "status"]).is_some()
        });
    }

    /// What a verb of the command says to it; `None` where that fails.
    pub fn verb(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(memcuda());
        command.args(arguments).env("MEMCUDA_KEEPER", self.socket());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(said)
    }

    /// Its processes: itself and its standby.
    pub fn pids(&self) -> [i32; 2] {
        let mut pids = [0; 2];
        until("the keeper has a standby", || {
            let said = self
                .verb(&["keeper", "status", "--json"])
                .unwrap_or_default();
            let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
            pids = ["pid", "standby_pid"].map(|name| said[name].as_i64().unwrap_or(0) as i32);
            pids.iter().all(|pid| *pid > 0)
        });
        pids
    }

    /// Kills it; its standby starts another one.
    pub fn kill(&self) {
        signal(self.pids()[0], libc::SIGKILL);
    }

    /// Stops it, so that it does nothing from now on; its number.
    pub fn stop(&self) -> i32 {
        let [keeper, _] = self.pids();
        signal(keeper, libc::SIGSTOP);
        until("the keeper stops", || is_stopped(keeper as u32));
        keeper
    }

    /// Kills it and its standby: all that it knew is gone.
    pub fn end(&mut self) {
        let [_, standby] = self.pids();
        // Stopped, it starts no other standby.
        let keeper = self.stop();
        signal(standby, libc::SIGKILL);
        signal(keeper, libc::SIGKILL);
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
        // As long as it is there it has the lock, and no other one starts.
        until("the standby is gone", || !is_alive(standby as u32));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        if self.verb(&["keeper", "stop", "--force"]).is_none() {
            leftovers::kill(self.directory.path());
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}
