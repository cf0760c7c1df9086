//! A stand-in for the keeper: answers what the verbs on names ask, from entries
//! that a test made up. The rules of a keeper are tested where it is.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use memcuda::names::{Dtype, Name};
use memcuda::share::protocol::{
    Backend, Code, DeviceId, Entry, Generation, Hello, Holder, MOST_ENTRIES, Packet, Persist,
    Place, Process, Reply, Request, Spec, State,
};
use memcuda::share::wire;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};

/// Its entries, in the order of the list. A test may change them.
pub struct StandIn {
    pub entries: Arc<Mutex<Vec<Entry>>>,
    folder: tempfile::TempDir,
}

impl StandIn {
    pub fn with(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(place);
        let folder = tempfile::tempdir().unwrap();
        let socket = listening(&folder.path().join("keeper.sock"), 8);
        let entries = Arc::new(Mutex::new(entries));
        let shared = entries.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            while let Ok(client) = accept(&socket) {
                let entries = shared.clone();
                std::thread::spawn(move || serve(&client, &entries));
            }
        });
        Self { entries, folder }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("keeper.sock")
    }

    /// The command, to ask this one.
    pub fn memcuda(&self) -> Command {
        let mut command = crate::memcuda();
        command.env("MEMCUDA_KEEPER", self.socket());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.memcuda().args(arguments).output().unwrap()
    }
}

/// A keeper's socket, on which so many may wait to be let in.
pub fn listening(place: &Path, waiting: i32) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(place).unwrap()).unwrap();
    listen(&socket, waiting).unwrap();
    socket
}

fn serve(client: &OwnedFd, entries: &Mutex<Vec<Entry>>) {
    let mut room = vec![0; wire::MOST_BYTES];
    let (hello, _) = wire::receive_bytes(client, &mut room, false).unwrap();
    assert_eq!(Hello::from_bytes(hello), Some(Hello::OURS));
    while let Ok((bytes, _)) = wire::receive_bytes(client, &mut room, false) {
        let asked: Packet<Request> = wire::understand(bytes).unwrap();
        let page = tempfile::tempfile().unwrap();
        let (beside, body) = match asked.body {
            Request::Introduce { .. } => {
                let (node, lost) = (7, Vec::new());
                (vec![page.as_fd()], Reply::Welcome { node, lost })
            }
            other => (Vec::new(), answer(other, &mut entries.lock().unwrap())),
        };
        let number = asked.number;
        if wire::send(client, &Packet { number, body }, &beside).is_err() {
            // It has waited long enough.
            return;
        }
    }
}

fn answer(request: Request, entries: &mut Vec<Entry>) -> Reply {
    let at = |entries: &[Entry], name: &Name| {
        let mut all = entries.iter();
        all.position(|it| it.name.as_ref() == Some(name))
    };
    let missing = || Reply::Failed {
        code: Code::NotFound,
        message: "there is no such name".to_owned(),
    };
    match request {
        Request::List { after, all } => {
            let shown = |it: &&Entry| all || (it.name.is_some() && it.state != State::Dying);
            let before = |it: &Entry| after.as_ref().is_some_and(|after| place(it) <= *after);
            let behind = &entries[entries.partition_point(before)..];
            let mut list = behind.iter().filter(shown).cloned();
            let entries: Vec<Entry> = list.by_ref().take(MOST_ENTRIES).collect();
            let next = entries.last().filter(|_| list.next().is_some()).map(place);
            Reply::Entries { entries, next }
        }
        Request::Show { name } => match at(entries, &name) {
            Some(at) => Reply::Entries {
                entries: vec![entries[at].clone()],
                next: None,
            },
            None => missing(),
        },
        Request::Delete { name, generation } => match at(entries, &name) {
            Some(at) => {
                assert_eq!(generation, Some(entries[at].generation));
                entries.remove(at);
                Reply::Done
            }
            None => missing(),
        },
        Request::Persist { name, persist } => match at(entries, &name) {
            Some(at) => {
                entries[at].persist = persist;
                Reply::Done
            }
            None => missing(),
        },
        Request::Collect { dry, kept } => {
            let goes = |it: &Entry| it.references == 0 && (kept || it.persist != Persist::Yes);
            let (count, bytes) = entries
                .iter()
                .filter(|it| goes(it))
                .fold((0, 0), |(n, sum), it| (n + 1, sum + it.mapped));
            if !dry {
                entries.retain(|it| !goes(it));
            }
            Reply::Collected { count, bytes }
        }
        other => panic!("not for a verb on names: {other:?}"),
    }
}

/// Where an entry stands in the list.
fn place(entry: &Entry) -> Place {
    match &entry.name {
        Some(name) => Place::Named(name.clone(), entry.generation),
        None => Place::Unnamed(entry.generation),
    }
}

/// A process made up.
pub fn process(pid: u32, command: &str) -> Process {
    Process {
        pid,
        started: 1,
        uid: 1000,
        gid: 100,
        command: command.to_owned(),
    }
}

/// So many processes that hold memory twice each.
pub fn holders(count: u32) -> Vec<Holder> {
    let holder = |at| Holder {
        process: process(2000 + at, "trainer"),
        count: 2,
    };
    (0..count).map(holder).collect()
}

/// Memory of 256 MiB, made an age ago, that these hold.
pub fn entry(number: u8, name: &str, age_s: u64, holders: Vec<Holder>) -> Entry {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let made = (now.unwrap().as_micros() as u64).saturating_sub(age_s * 1_000_000);
    Entry {
        name: Some(Name::new(name).unwrap()),
        generation: Generation([number; 16]),
        spec: Spec {
            bytes: 256 << 20,
            dtype: Some(Dtype::Bf16),
            shape: vec![4096, 32768],
            device: DeviceId(*b"abcdefghijklmnop"),
            ordinal: 1,
            backend: Backend::Vmm,
        },
        mapped: 256 << 20,
        offset: 0,
        state: State::Ready,
        version: 3,
        persist: Persist::No,
        legacy: Vec::new(),
        maker: process(4711, "python3"),
        references: holders.iter().map(|it| u64::from(it.count)).sum(),
        holders,
        created_us: made,
        changed_us: made,
    }
}
