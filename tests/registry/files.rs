//! The keeper's end of the registry, with files for names: what a file says is
//! the generation. `create` is a shell script that makes one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use memcuda::keeper::Refusal;
use memcuda::keeper::redis::{Server, Settings, Threads, start};
use memcuda::keeper::registry::{Ask, Desk, pair};
use memcuda::names::{Dtype, Name};
use memcuda::share::protocol::{
    Backend, DeviceId, Entry, Generation, Holder, Persist, Process, Spec, State,
};

use crate::clients::address;
use crate::redis_server::Redis;
use crate::waiting::LONG;

/// A keeper whose names are the files of a directory.
pub struct Keeper {
    directory: PathBuf,
    desk: Arc<Mutex<Option<Desk>>>,
    over: Arc<AtomicBool>,
    answers: Option<JoinHandle<()>>,
    gone: bool,
    threads: Option<Threads>,
}

/// Makes a file for a name. It is in the tree: a script that a test wrote could be open
/// for writing in another thread's child when it is run.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/registry/create.sh");

/// Where there is this file among the names, the keeper takes its time to tell of them.
pub const SLOW: &str = ".slow";

/// What a keeper serves.
pub struct Place<'a> {
    /// The server's address.
    pub address: String,
    /// The namespace.
    pub namespace: &'a str,
    /// The host's number.
    pub node: u64,
    /// Where names, script and socket are.
    pub directory: &'a Path,
}

impl<'a> Place<'a> {
    /// One in front of a server.
    pub fn of(server: &Redis, namespace: &'a str, node: u64, directory: &'a Path) -> Self {
        let address = address(server.socket());
        Self {
            address,
            namespace,
            node,
            directory,
        }
    }

    /// The same without a namespace, on host 1.
    pub fn bare(server: &Redis, directory: &'a Path) -> Self {
        Self::of(server, "", 1, directory)
    }
}

impl Keeper {
    /// Starts one.
    pub fn start(place: &Place<'_>) -> Self {
        Self::patient(place, LONG)
    }

    /// The same; it waits so long for memory to be made.
    pub fn patient(place: &Place<'_>, patience: Duration) -> Self {
        let names = place.directory.join("names");
        fs::create_dir_all(&names).unwrap();
        let program = place.directory.join("memcuda");
        if !program.exists() {
            symlink(SCRIPT, &program).unwrap();
        }
        let (desk, registry) = pair().unwrap();
        let desk = Arc::new(Mutex::new(Some(desk)));
        let over = Arc::new(AtomicBool::new(false));
        let answers = {
            let (desk, over, names) = (desk.clone(), over.clone(), names.clone());
            std::thread::spawn(move || {
                let mut known = list(&names);
                while !over.load(Ordering::Relaxed) {
                    // Rests without the lock: who wants it would hardly ever get it.
                    {
                        let desk = desk.lock().unwrap();
                        let desk = desk.as_ref().unwrap();
                        // What the script made.
                        let now = list(&names);
                        desk.mark(now.difference(&known).cloned());
                        known = now;
                        desk.calm();
                        while let Some(ask) = desk.next() {
                            answer(&names, desk, ask);
                        }
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            })
        };
        let settings = Settings {
            namespace: place.namespace.to_owned(),
            node: place.node,
            socket: place.directory.join("keeper.sock"),
            program,
            patience,
        };
        Self {
            directory: names,
            desk,
            over,
            answers: Some(answers),
            gone: false,
            threads: Some(start(Server::new(&place.address).unwrap(), registry, settings).unwrap()),
        }
    }

    /// Makes names.
    pub fn add<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names: Vec<Name> = names.into_iter().map(|n| Name::new(n).unwrap()).collect();
        for name in &names {
            let random: [u8; 16] = std::array::from_fn(|_| fastrand());
            put(
                &file(&self.directory, name),
                &Generation(random).to_string(),
            );
        }
        self.with_desk(|desk| desk.mark(names));
    }

    /// Takes names away.
    pub fn remove<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names: Vec<Name> = names.into_iter().map(|n| Name::new(n).unwrap()).collect();
        for name in &names {
            fs::remove_file(file(&self.directory, name)).unwrap();
        }
        self.with_desk(|desk| desk.mark(names));
    }

    /// Its names.
    pub fn names(&self) -> Vec<String> {
        list(&self.directory).iter().map(Name::to_string).collect()
    }

    /// How the registry says it is.
    pub fn state(&self) -> String {
        let desk = self.desk.lock().unwrap();
        desk.as_ref().unwrap().state()
    }

    fn with_desk(&self, work: impl FnOnce(&Desk)) {
        work(self.desk.lock().unwrap().as_ref().unwrap());
    }

    /// Ends it as a keeper ends that is asked to: its names end with it.
    pub fn stop(mut self) {
        self.gone = true;
        self.end();
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(answers) = self.answers.take() {
            answers.join().unwrap();
        }
        match self.desk.lock().unwrap().take() {
            Some(desk) if self.gone => desk.close(),
            desk => drop(desk),
        }
        if let Some(threads) = self.threads.take() {
            threads.finish(Duration::from_secs(3));
        }
    }
}

impl Drop for Keeper {
    /// As a keeper ends that another one takes over from.
    fn drop(&mut self) {
        self.end();
    }
}

fn fastrand() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u8
}

fn answer(names: &Path, desk: &Desk, ask: Ask) {
    match ask {
        Ask::Entries(wanted, to) => {
            if names.join(SLOW).exists() {
                std::thread::sleep(Duration::from_millis(300));
            }
            let entry = |name: Name| {
                let entry = read(names, &name);
                (name, entry)
            };
            let _ = to.send(wanted.into_iter().map(entry).collect());
        }
        Ask::Names(to) => drop(to.send(list(names).into_iter().collect())),
        Ask::Delete(name, generation, to) => {
            let there = read(names, &name).filter(|e| generation.is_none_or(|g| g == e.generation));
            let deleted = there.ok_or_else(|| Refusal::not_found(&name)).map(|_| {
                fs::remove_file(file(names, &name)).unwrap();
            });
            desk.mark([name]);
            let _ = to.send(deleted);
        }
        // A file stays until it is taken away.
        Ask::Persist(name, _, to) => {
            let there = read(names, &name).map(drop);
            let _ = to.send(there.ok_or_else(|| Refusal::not_found(&name)));
        }
    }
}

fn file(names: &Path, name: &Name) -> PathBuf {
    names.join(name.as_str().replace('/', "%"))
}

/// Makes the file of a name, whole or not at all: who sees it reads it at once, and once.
pub fn put(file: &Path, generation: &str) {
    let new = file.with_file_name(".new");
    fs::write(&new, generation).unwrap();
    fs::rename(new, file).unwrap();
}

fn list(names: &Path) -> BTreeSet<Name> {
    let files = fs::read_dir(names).unwrap().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let names = names.filter(|name| !name.starts_with('.'));
    names
        .map(|name| Name::new(name.replace('%', "/")).unwrap())
        .collect()
}

fn read(names: &Path, name: &Name) -> Option<Entry> {
    let text = fs::read_to_string(file(names, name)).ok()?;
    let generation = u128::from_str_radix(text.trim(), 16).ok()?;
    let process = Process {
        pid: 7,
        started: 70,
        uid: 0,
        gid: 0,
        command: "maker".to_owned(),
    };
    Some(Entry {
        name: Some(name.clone()),
        generation: Generation(generation.to_be_bytes()),
        spec: Spec {
            bytes: 24,
            dtype: Some(Dtype::F32),
            shape: vec![2, 3],
            device: DeviceId([0xab; 16]),
            ordinal: 1,
            backend: Backend::Vmm,
        },
        mapped: 2 << 20,
        offset: 0,
        state: State::Ready,
        version: 5,
        persist: Persist::Yes,
        legacy: Vec::new(),
        maker: process.clone(),
        holders: vec![Holder { process, count: 2 }],
        references: 2,
        created_us: 1_700_000_000_000_000,
        changed_us: 1_700_000_001_000_000,
    })
}
