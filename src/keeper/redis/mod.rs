//! The registry in Redis: every name as a hash that programs of any language
//! read, and queues of commands (docs/redis.md). Redis is a copy: the keeper
//! knows all, never waits for it, and writes it anew whenever it was lost. Has
//! threads of its own: one that publishes (`mirror`), one for each queue
//! (`queue`), some for commands that take long (`work`).

#[cfg(test)]
mod address_tests;
mod allocator;
mod answer;
mod command;
mod deliver;
mod fields;
mod insist;
mod keys;
mod link;
mod mirror;
mod nodes;
mod parse;
mod queue;
mod shared;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use command::Fault;
pub use link::Server;
pub use nodes::{Listed, Node, nodes};
pub use work::fault;

use self::allocator::Allocator;
use self::fields::Place;
use self::keys::Keys;
use self::queue::Queue;
use self::shared::Shared;
use self::work::Desk;
use super::registry::Registry;
use crate::error::{Error, Result};

/// What the registry is to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What every key begins with (`MEMCUDA_NAMESPACE`); empty for nothing.
    pub namespace: String,
    /// The host and its boot, as in handles.
    pub node: u64,
    /// The keeper's socket.
    pub socket: PathBuf,
    /// The `memcuda` program, which makes what `create` asks for.
    pub program: PathBuf,
    /// How long that may take.
    pub patience: Duration,
}

/// The threads of the registry.
pub struct Threads {
    shared: Arc<Shared>,
    mirror: JoinHandle<()>,
}

/// Most devices whose queues are served.
const MOST_DEVICES: u32 = 16;
/// Enough for a message as deep as the parser takes, and for TLS.
const STACK: usize = 512 << 10;

/// Starts the registry's threads. That the server is away is no error: it is
/// tried again and again.
pub fn start(server: Server, registry: Registry, settings: Settings) -> Result<Threads> {
    let socket = settings.socket.display().to_string();
    let place = Place {
        node: settings.node,
        keeper_pid: std::process::id(),
        socket: socket.clone(),
    };
    registry.report(format!("{server}: connecting"));
    let keys = Keys::new(&settings.namespace);
    let shared = Arc::new(Shared::new(server, keys, place, registry));
    let desk = Arc::new(Desk::new(Allocator {
        program: settings.program,
        socket,
        patience: settings.patience,
    }));
    for queue in Queue::all(devices()) {
        let (shared, desk) = (shared.clone(), desk.clone());
        spawn("memcuda-queue", move || {
            work::or_end(|| queue::run(&shared, &desk, queue));
        })?;
    }
    let publishing = shared.clone();
    let mirror = spawn("memcuda-redis", move || mirror::run(&publishing))?;
    Ok(Threads { shared, mirror })
}

impl Threads {
    /// Waits, once the keeper's end of the registry is gone, until Redis knows
    /// that, but no longer than this. Commands that were not answered are left
    /// to the next keeper.
    pub fn finish(self, patience: Duration) {
        let begun = Instant::now();
        while !self.mirror.is_finished() && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.shared.end();
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.stack_size(STACK).spawn(body);
    started.map_err(|error| Error::new(format!("a thread for Redis cannot be started: {error}")))
}

/// How many devices the host has, by what lies in /dev, since the keeper has no
/// driver; at least one.
fn devices() -> u32 {
    let names = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_device = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let count = names.filter(|file| file.file_name().to_str().is_some_and(is_device));
    (count.count() as u32).clamp(1, MOST_DEVICES)
}
