//! A keeper in a directory of its own, clients, memory.

#[path = "../support/leftovers.rs"]
mod leftovers;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memcuda::names::Name;
use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{
    Backend, Code, DeviceId, Entry, Generation, Lease, Mode, Persist, Reply, Request, Spec, Status,
};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;

/// The most that anything here is waited for.
pub const LONG: Duration = Duration::from_secs(20);

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
        let status = self.settle("something stays", |status| {
            (
                status.names,
                status.dying,
                status.exports,
                status.references,
                status.bytes,
            ) == (0, 0, 0, 0, 0)
        });
        // What other connections of this test leave behind goes with them.
        for pid in [status.pid, status.standby] {
            let now = wait_for("descriptors to be closed", || {
                let now = descriptors(pid)?;
                (now <= fresh).then_some(now)
            });
            assert!(now <= fresh);
        }
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
        kill(pid);
        wait_for("a process to be gone", || (!is_alive(pid)).then_some(()));
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_memcuda"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MEMCUDA_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env_remove("NOTIFY_SOCKET");
    command.args(["keeper", "--socket"]).arg(socket);
    command.stdin(Stdio::null());
    command
}

pub fn connect(socket: &Path, leases: &[Lease]) -> Option<(Client, Vec<Generation>)> {
    let client = Client::connect(socket, std::process::id(), "test", leases);
    client.ok().map(|(client, welcome)| (client, welcome.lost))
}

/// Tries until there is an answer.
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn spec(bytes: u64) -> Spec {
    Spec {
        bytes,
        dtype: None,
        shape: Vec::new(),
        device: DeviceId(*b"0123456789abcdef"),
        ordinal: 0,
        backend: Backend::Vmm,
    }
}

/// Memory that begins with these bytes.
pub fn memory(content: &[u8], bytes: u64) -> OwnedFd {
    let file = File::from(memfd_create("memcuda-test", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    (&file).write_all(content).unwrap();
    file.into()
}

/// The first bytes of memory.
pub fn content(memory: OwnedFd, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    File::from(memory).read_exact_at(&mut content, 0).unwrap();
    content
}

pub fn open(text: &str, mode: Mode, bytes: u64) -> Request {
    Request::Open {
        name: name(text),
        mode,
        spec: spec(bytes),
        write: false,
        hidden: false,
    }
}

/// Makes a name of a page, with this content.
pub fn make(client: &mut Client, text: &str, bytes: &[u8]) -> Result<Generation, Error> {
    let (reply, _) = client.call(open(text, Mode::Create, 4096), &[])?;
    let Reply::Make { generation } = reply else {
        panic!("{reply:?}");
    };
    commit(client, generation, bytes)?;
    Ok(generation)
}

pub fn commit(client: &mut Client, generation: Generation, bytes: &[u8]) -> Result<(), Error> {
    let commit = Request::Commit {
        generation,
        mapped: 4096,
        legacy: Vec::new(),
    };
    let (reply, _) = client.call(commit, &[memory(bytes, 4096).as_fd()])?;
    assert_eq!(reply, Reply::Done);
    Ok(())
}

/// Opens a name that is there.
pub fn attach(client: &mut Client, text: &str) -> Result<(Entry, OwnedFd), Error> {
    let (reply, beside) = client.call(open(text, Mode::Attach, 0), &[])?;
    let Reply::Memory {
        entry, total: 1, ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    let [memory] = <[OwnedFd; 1]>::try_from(beside).unwrap();
    Ok((entry, memory))
}

/// Exports 4096 bytes.
pub fn export(client: &mut Client, generation: Generation) {
    let export = Request::Export {
        generation,
        spec: spec(4096),
        offset: 0,
        parts: vec![4096],
        total: 1,
    };
    client.call(export, &[memory(b"", 4096).as_fd()]).unwrap();
}

pub fn release(client: &mut Client, generation: Generation) {
    let (reply, _) = client.call(Request::Release { generation }, &[]).unwrap();
    assert_eq!(reply, Reply::Done);
}

pub fn persist(client: &mut Client, text: &str, persist: Persist) {
    let name = name(text);
    let (reply, _) = client
        .call(Request::Persist { name, persist }, &[])
        .unwrap();
    assert_eq!(reply, Reply::Done);
}

/// The code of a refusal.
pub fn code<T>(result: Result<T, Error>) -> Code {
    match result {
        Err(Error::Refused(code, message)) => {
            assert!(!message.contains('\n') && message.len() < 400, "{message}");
            code
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Every entry, page by page.
pub fn list(client: &mut Client, all: bool) -> Vec<Entry> {
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let (reply, _) = client.call(Request::List { after, all }, &[]).unwrap();
        let Reply::Entries { entries, next } = reply else {
            panic!("{reply:?}");
        };
        listed.extend(entries);
        match next {
            Some(next) => after = Some(next),
            None => return listed,
        }
    }
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
