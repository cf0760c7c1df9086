//! A keeper in a directory of its own, and what tests ask of it.

#[path = "../support/leftovers.rs"]
pub mod leftovers;
#[path = "../support/processes.rs"]
mod processes;
#[path = "../support/settings.rs"]
mod settings;
#[path = "../support/waiting.rs"]
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memcuda::share::client::Client;
use memcuda::share::protocol::{Generation, Lease, Reply, Request, Status};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use processes::{has_number, is_alive, is_asleep, is_stopped, processor_time};
pub use waiting::{LONG, until, wait_for};

/// A keeper; ended with everything when it goes out of scope.
pub struct Keeper {
    pub directory: TempDir,
    first: Child,
}

impl Keeper {
    /// Starts one, and waits until it serves.
    pub fn start(arguments: &[&str]) -> Self {
        Self::prepare(|_| {
            arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect()
        })
    }

    /// The same, with arguments that depend on its directory.
    pub fn prepare(arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        Self::run(|command, directory| {
            command.args(arguments(directory));
        })
    }

    /// The same, with whatever else the command is told.
    pub fn run(tell: impl FnOnce(&mut Command, &Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = command(&Self::socket_in(&directory));
        tell(command.arg("--foreground"), directory.path());
        let first = command.spawn().unwrap();
        let keeper = Self { directory, first };
        keeper.client();
        keeper
    }

    fn socket_in(directory: &TempDir) -> PathBuf {
        directory.path().join("run/keeper.sock")
    }

    pub fn socket(&self) -> PathBuf {
        Self::socket_in(&self.directory)
    }

    /// A client; waits for a keeper that is being started anew.
    pub fn client(&self) -> Client {
        self.client_with(&[]).0
    }

    pub fn client_with(&self, leases: &[Lease]) -> (Client, Vec<Generation>) {
        wait_for("a keeper that answers", || connect(&self.socket(), leases))
    }

    pub fn status(&self) -> Status {
        wait_for("the keeper's status", || {
            let (mut client, _) = connect(&self.socket(), &[])?;
            match client.call(Request::Status, &[]) {
                Ok((Reply::Status(status), _)) => Some(status),
                _ => None,
            }
        })
    }

    /// Waits until the status is as it should be.
    pub fn settle(&self, what: &str, good: impl Fn(&Status) -> bool) -> Status {
        let end = Instant::now() + LONG;
        loop {
            let status = self.status();
            if good(&status) {
                return status;
            }
            assert!(Instant::now() < end, "{what}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until nothing is left of all names, references, bytes and descriptors.
    pub fn settle_empty(&self, fresh: usize) {
        self.settle("something stays", |status| books(status) == [0; 5]);
        // What other connections of this test leave behind goes with them. Who is the
        // standby is asked again: a new one may be on its way.
        until("descriptors to be closed", || {
            let status = self.status();
            let mut both = [status.pid, status.standby].into_iter();
            both.all(|pid| descriptors(pid).is_some_and(|now| now <= fresh))
        });
    }

    /// The most descriptors that keeper and standby have when there is nothing.
    pub fn fresh_descriptors(&self) -> usize {
        let status = self.status();
        let of = |pid| descriptors(pid).unwrap();
        // The connection that asked may be counted or not.
        of(status.pid).max(of(status.standby)) + 2
    }

    /// Waits for the end of the process that was started.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.first.wait().unwrap()
    }

    pub fn kill(&self, pid: u32) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
        until("a process to be gone", || !is_alive(pid));
    }

    /// Frees all that nobody holds, what is persisted, too.
    pub fn collect(&self) {
        let (dry, kept) = (false, true);
        let collect = Request::Collect { dry, kept };
        self.client().call(collect, &[]).unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some((mut client, _)) = connect(&self.socket(), &[]) {
            let _ = client.call(Request::Stop { force: true }, &[]);
        }
        // One that was killed or did not end is not to stay.
        let end = Instant::now() + Duration::from_secs(2);
        while self.first.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Of its standby neither: that would start another one.
        leftovers::kill(self.directory.path());
        let _ = self.first.wait();
    }
}

/// `memcuda keeper` in an environment without settings.
pub fn command(socket: &Path) -> Command {
    let mut command = settings::command(env!("CARGO_BIN_EXE_memcuda"));
    command.env_remove("NOTIFY_SOCKET");
    command.args(["keeper", "--socket"]).arg(socket);
    command.stdin(Stdio::null());
    command
}

pub fn connect(socket: &Path, leases: &[Lease]) -> Option<(Client, Vec<Generation>)> {
    let client = Client::connect(socket, std::process::id(), "test", leases);
    client.ok().map(|(client, welcome)| (client, welcome.lost))
}

pub fn client(socket: &Path) -> Client {
    connect(socket, &[]).expect("to be served").0
}

/// What a keeper has: names, deleted names, exports, references, bytes.
pub fn books(status: &Status) -> [u64; 5] {
    let held = [status.exports, status.references, status.bytes];
    [status.names, status.dying, held[0], held[1], held[2]]
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Stops a process, which does nothing from now on.
pub fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    until("a process to stop", || is_stopped(pid));
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// Where something is not possible here its test fails, unless a person wants
/// such tests left out; then this is `false`.
pub fn is_possible_or_left_out(possible: bool, what: &str) -> bool {
    if !possible {
        assert!(
            std::env::var_os("MEMCUDA_TESTS_AS_ONE_USER").is_some(),
            "{what} is root's to do; MEMCUDA_TESTS_AS_ONE_USER=1 leaves such tests out"
        );
        eprintln!("left out: {what} is root's to do");
    }
    possible
}
