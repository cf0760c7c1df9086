//! The keeper as a service whose manager stores its descriptors: a stand-in for
//! systemd, which speaks `sd_notify` and starts the keeper with what it stored.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use memcuda::share::client::Client;
use memcuda::share::protocol::{Code, Generation, MOST_PARTS, Persist, Reply, Request};
use memcuda::share::wire;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use tempfile::TempDir;

use crate::requests::*;
use crate::rights::{as_user, can_be_several, have_many_files};
use crate::support::*;
use crate::unsent::{flood, lengthen_journal, make_long};

/// Becomes the keeper with descriptors from number 3 on, as systemd starts it.
const START: &str = r#"
import fcntl, os, socket, sys
count, program = int(sys.argv[1]), sys.argv[2:]
inbox, arrived = socket.socket(fileno=0), []
while len(arrived) < count:
    arrived += socket.recv_fds(inbox, 16, 64)[1]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 500 + count) for fd in arrived]
for fd in arrived:
    os.close(fd)
for number, fd in enumerate(high, 3):
    os.dup2(fd, number, inheritable=True)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(program[0], program)
"#;

#[derive(Default)]
struct Stored {
    descriptors: Vec<(String, OwnedFd)>,
    ready: usize,
    /// How often a test has asked to have all read that was sent before.
    caught_up: usize,
}

struct Manager {
    directory: TempDir,
    stored: Arc<Mutex<Stored>>,
    /// What it says that its store has room for.
    room: usize,
    service: Option<Child>,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        let stored = Arc::new(Mutex::new(Stored::default()));
        let theirs = stored.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            while let Some((text, descriptor)) = receive(&socket) {
                theirs.lock().unwrap().take(&text, descriptor);
            }
        });
        Self {
            directory,
            stored,
            room: 1000,
            service: None,
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("keeper.sock")
    }

    /// Starts the service with what is stored, and waits until it says it is ready.
    fn start(&mut self) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (names, descriptors, ready) = {
            let stored = self.stored.lock().unwrap();
            let all = stored.descriptors.iter();
            let both =
                all.map(|(name, descriptor)| (name.clone(), descriptor.try_clone().unwrap()));
            let (names, descriptors): (Vec<_>, Vec<_>) = both.unzip();
            (names, descriptors, stored.ready)
        };
        let keeper = command(&self.socket());
        let child = Command::new("python3")
            .args(["-c", START, &names.len().to_string()])
            .arg(keeper.get_program())
            .args(keeper.get_args())
            .arg("--foreground")
            .stdin(theirs)
            .env("NOTIFY_SOCKET", self.directory.path().join("notify"))
            .env("FDSTORE", self.room.to_string())
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .spawn()
            .unwrap();
        self.service = Some(child);
        for descriptor in &descriptors {
            wire::send_bytes(&ours, b"one", &[descriptor.as_fd()]).unwrap();
        }
        until("the service to be ready", || {
            self.stored.lock().unwrap().ready > ready
        });
    }

    /// Like systemd it reads what the service has sent before it starts another one.
    fn end(&mut self, signal: rustix::process::Signal) {
        let mut child = self.service.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        child.wait().unwrap();
        let before = self.stored.lock().unwrap().caught_up;
        let notify = self.directory.path().join("notify");
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"CAUGHT_UP=1", notify).unwrap();
        until("what was sent to be read", || {
            self.stored.lock().unwrap().caught_up > before
        });
    }

    fn names(&self) -> Vec<String> {
        let stored = self.stored.lock().unwrap();
        let mut names: Vec<_> = stored
            .descriptors
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(mut child) = self.service.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Stored {
    fn take(&mut self, text: &str, descriptor: Option<OwnedFd>) {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let name = value("FDNAME=").unwrap_or_default().to_owned();
        if value("READY=") == Some("1") {
            self.ready += 1;
        }
        if value("CAUGHT_UP=") == Some("1") {
            self.caught_up += 1;
        }
        if value("FDSTORE=") == Some("1") {
            assert_eq!(
                value("FDPOLL="),
                Some("0"),
                "it would be dropped when it is readable"
            );
            self.descriptors.push((name.clone(), descriptor.unwrap()));
        }
        if value("FDSTOREREMOVE=") == Some("1") {
            self.descriptors.retain(|(there, _)| *there != name);
        }
    }
}

fn receive(socket: &UnixDatagram) -> Option<(String, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut room = [0; 4096];
    let mut slices = [IoSliceMut::new(&mut room)];
    let got = recvmsg(socket, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut descriptor = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message {
            descriptor = rights.next();
        }
    }
    let text = String::from_utf8(room[..got.bytes].to_vec()).unwrap();
    Some((text, descriptor))
}

#[test]
fn what_systemd_stores_is_taken_over_after_a_kill_a_stop_and_an_upgrade() {
    let mut manager = Manager::new();
    manager.start();
    assert_eq!(manager.names(), ["epoch", "listener", "lock", "state-0"]);
    let (mut client, _) = connect(&manager.socket(), &[]).unwrap();
    let generation = make(&mut client, "held", b"held").unwrap();
    make(&mut client, "kept", b"kept").unwrap();
    persist(&mut client, "kept", Persist::Yes);
    let gone = make(&mut client, "gone", b"").unwrap();
    let (reply, _) = client.call(Request::Status, &[]).unwrap();
    assert!(matches!(reply, Reply::Status(status) if status.standby == 0));
    release(&mut client, gone);
    until("the store to be told", || manager.names().len() == 6);
    let lease = lease(generation, 1);
    let ends: [fn(&mut Manager, &mut memcuda::share::client::Client); 3] = [
        |manager, _| manager.end(rustix::process::Signal::KILL),
        |manager, _| manager.end(rustix::process::Signal::TERM),
        |manager, client| {
            client.call(Request::Restart, &[]).unwrap();
            let status = manager.service.take().unwrap().wait().unwrap();
            assert!(status.success());
        },
    ];
    for end in ends {
        end(&mut manager, &mut client);
        assert_eq!(manager.names().len(), 6);
        manager.start();
        let (next, lost) = connect(&manager.socket(), &[lease]).unwrap();
        client = next;
        assert!(lost.is_empty());
        for name in ["held", "kept"] {
            let (entry, memory) = attach(&mut client, name).unwrap();
            assert_eq!(content(memory, 4), name.as_bytes());
            release(&mut client, entry.generation);
        }
        // Each has journals of its own, and drops those before.
        until("one journal", || manager.names().len() == 6);
        let pid = manager.service.as_ref().unwrap().id();
        let open = descriptors(pid).unwrap();
        assert!(open < 25, "{open} descriptors");
    }
    // Stopped for good it leaves nothing in the store.
    client.call(Request::Stop { force: true }, &[]).unwrap();
    assert!(manager.service.take().unwrap().wait().unwrap().success());
    until("an empty store", || manager.names().is_empty());
    assert!(!manager.socket().exists());
}

/// Their names are one string of its environment, of which Linux takes 128 KiB.
#[test]
fn what_the_manager_could_not_hand_over_is_refused() {
    have_many_files();
    let mut manager = Manager::new();
    manager.room = 65_536;
    manager.start();
    let mut client = client(&manager.socket());
    let full = (0..30).find_map(|number| {
        let generation = Generation([number; 16]);
        let exported = try_export_in_parts(&mut client, generation);
        exported.err().map(|error| (number, error))
    });
    let (exports, error) = full.expect("to be full");
    assert_eq!(code(Err::<(), _>(error)), Code::Unavailable);
    assert!(exports > 20, "{exports}");
    manager.end(rustix::process::Signal::KILL);
    manager.start();
    let (reply, _) = connect(&manager.socket(), &[])
        .unwrap()
        .0
        .call(Request::Status, &[])
        .unwrap();
    assert!(matches!(reply, Reply::Status(status) if status.exports == u64::from(exports)));
}

/// Too many descriptors of the keeper's user are on their way.
#[test]
fn a_journal_that_systemd_does_not_get_is_not_put_in_the_place_of_the_one_it_has() {
    if !can_be_several() {
        return;
    }
    as_user(42014, 42014, || {
        let mut manager = Manager::new();
        manager.start();
        let (mut client, _) = connect(&manager.socket(), &[]).unwrap();
        make(&mut client, "kept", b"kept").unwrap();
        persist(&mut client, "kept", Persist::Yes);
        make_long(&mut client);
        let flood = flood();
        lengthen_journal(&mut client);
        manager.end(rustix::process::Signal::KILL);
        drop(flood);
        manager.start();
        has(
            &mut connect(&manager.socket(), &[]).unwrap().0,
            "kept",
            b"kept",
        );
    });
}

/// What may be on its way is the kernel's affair, not the store's.
#[test]
fn a_small_store_is_no_limit_of_what_is_read_a_moment_later() {
    let mut manager = Manager::new();
    manager.start();
    let socket = manager.socket();
    let generation = Generation([8; 16]);
    let mut exporter = client(&socket);
    export_in_parts(&mut exporter, generation);
    let import = Request::Import { generation };
    let asked: Vec<_> = (0..6)
        .map(|_| {
            let mut dialled = Client::dial(&socket, std::process::id(), "test", &[]).unwrap();
            dialled.ask(import.clone()).unwrap();
            dialled
        })
        .collect();
    // The last one is answered behind them.
    client(&socket).call(Request::Status, &[]).unwrap();
    for dialled in asked {
        let (mut client, _) = dialled.welcome().unwrap();
        let (_, beside) = client.answer().unwrap();
        assert_eq!(beside.len(), MOST_PARTS);
    }
}

/// As where a program that is a service itself starts it.
#[test]
fn a_keeper_in_the_background_speaks_to_nobodys_manager() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, notify] = ["keeper.sock", "notify"].map(|name| directory.path().join(name));
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_nonblocking(true).unwrap();
    let mut start = command(&socket);
    start.env("NOTIFY_SOCKET", &notify).env("FDSTORE", "100");
    assert!(start.status().unwrap().success());
    let mut client = client(&socket);
    let (reply, _) = client.call(Request::Status, &[]).unwrap();
    assert!(matches!(reply, Reply::Status(status) if status.standby != 0));
    let said = manager.recv(&mut [0; 100]);
    assert_eq!(said.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.call(Request::Stop { force: true }, &[]).unwrap();
}
