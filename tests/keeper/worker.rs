//! A process that makes and holds names until it is killed, as a client does:
//! when the keeper goes away it comes back with its leases. Every name's memory
//! says which name it is.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{Generation, Lease, Persist, Reply, Request};

use crate::random::Random;
use crate::requests::*;
use crate::support::*;

const SOCKET: &str = "MEMCUDA_TEST_WORKER";

/// Starts a worker.
pub fn start(socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "worker::worker"])
        .env(SOCKET, socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What the memory of a name begins with.
pub fn mark(name: &str) -> Vec<u8> {
    let mut mark = vec![name.len() as u8];
    mark.extend(name.as_bytes());
    mark
}

/// Is this the memory of that name?
pub fn check(name: &str, memory: OwnedFd) {
    assert_eq!(
        content(memory, name.len() + 1),
        mark(name),
        "{name} has other bytes"
    );
}

struct Worker {
    socket: PathBuf,
    client: Client,
    held: Vec<(String, Generation)>,
    random: Random,
    made: u32,
}

impl Worker {
    fn leases(&self) -> Vec<Lease> {
        let count = 1;
        let leases = self
            .held
            .iter()
            .map(|&(_, generation)| Lease { generation, count });
        leases.collect()
    }

    /// Makes, opens, releases or deletes one name.
    fn step(&mut self) -> Result<(), Error> {
        let pid = std::process::id();
        match self.random.index(9) {
            // As one that waited in vain, here back before that one is heard to hang up.
            8 => {
                let leases = self.leases();
                let (next, lost) = connect(&self.socket, &leases).ok_or(Error::Lost)?;
                assert!(lost.is_empty(), "the keeper lost {lost:?}");
                std::mem::replace(&mut self.client, next).come_back();
            }
            0 | 1 if self.held.len() < 12 => {
                self.made += 1;
                let name = format!("storm/{pid}/{}", self.made);
                let generation = make(&mut self.client, &name, &mark(&name))?;
                self.held.push((name, generation));
            }
            2..=4 if self.held.len() < 24 => {
                let (reply, _) = self.client.call(
                    Request::List {
                        after: None,
                        all: false,
                    },
                    &[],
                )?;
                let Reply::Entries { entries, .. } = reply else {
                    panic!("{reply:?}");
                };
                if entries.is_empty() {
                    return Ok(());
                }
                let entry = &entries[self.random.index(entries.len())];
                let name = entry.name.clone().unwrap().as_str().to_owned();
                let (entry, memory) = attach(&mut self.client, &name)?;
                check(&name, memory);
                self.held.push((name, entry.generation));
            }
            5 if !self.held.is_empty() => {
                let (name, _) = &self.held[self.random.index(self.held.len())];
                if name.starts_with("storm/") {
                    self.client.call(delete(name), &[])?;
                }
            }
            6 if self.made > 0 => {
                let name = format!("storm/{pid}/{}", self.made);
                let persist = Request::Persist {
                    name: memcuda::names::Name::new(name).unwrap(),
                    persist: if self.random.index(2) == 0 {
                        Persist::Yes
                    } else {
                        Persist::No
                    },
                };
                self.client.call(persist, &[])?;
            }
            _ if !self.held.is_empty() => {
                let at = self.random.index(self.held.len());
                // Where the answer is lost it may be released or not: it is not
                // claimed again.
                let (_, generation) = self.held.swap_remove(at);
                self.client.call(Request::Release { generation }, &[])?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
#[ignore = "a process of other tests, not a test"]
fn worker() {
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("started by a test"));
    let (client, _) = wait_for("a keeper", || connect(&socket, &[]));
    let mut worker = Worker {
        socket,
        client,
        held: Vec::new(),
        random: Random::new(u64::from(std::process::id())),
        made: 0,
    };
    loop {
        match worker.step() {
            // Others delete and release what this one was about to open.
            Ok(()) | Err(Error::Refused(..)) => {}
            Err(Error::Lost | Error::NoRoom | Error::Absent(_)) => {
                let leases = worker.leases();
                let back = || connect(&worker.socket, &leases);
                let (client, lost) = wait_for("a new keeper", back);
                assert!(lost.is_empty(), "the keeper lost {lost:?}");
                worker.client = client;
            }
        }
    }
}
