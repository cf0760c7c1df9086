//! What a connection to the keeper begins with: where its socket is, whether
//! that can be trusted, what this process is called, the keeper's word, and how long
//! that may take.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memcuda_core::config::Keeper;
use memcuda_core::share::client::{Error as Broken, PATIENCE, Welcome};
use memcuda_core::share::place;
use memcuda_core::share::protocol::Generation;

use super::Error;
use super::epoch::Epoch;
use crate::engine::Engine;
use crate::process::environment;

/// Who answers sooner kept nobody waiting.
pub const MOMENT: Duration = Duration::from_millis(100);

/// Does a keeper hang that has not welcomed this process since then? One that went away,
/// however busy the host is, makes place for the next one.
pub fn hangs(error: &Broken, began: Instant) -> bool {
    let most = match error {
        Broken::Lost => PATIENCE,
        _ => MOMENT,
    };
    began.elapsed() >= most
}

/// What the process is called: the name of its first thread, which that one can
/// ask for without a file.
pub fn command() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: the buffer has the 16 bytes that the call fills, and the other
    // calls have no preconditions.
    let asked = unsafe {
        libc::gettid() == libc::getpid() && libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) == 0
    };
    if !asked {
        let name = std::fs::read("/proc/self/comm").unwrap_or_default();
        return String::from_utf8_lossy(&name).trim().to_owned();
    }
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(16);
    String::from_utf8_lossy(&name[..length]).trim().to_owned()
}

/// The socket that the settings name, or the user's own place.
pub fn socket(engine: &Engine) -> Result<PathBuf, Error> {
    match &engine.config.keeper {
        Keeper::Off => Err(Error::Off),
        Keeper::Socket(path) => Ok(path.clone()),
        Keeper::Auto => Ok(place::directory(user(), environment::text).join(place::SOCKET)),
    }
}

/// What lies at the user's own place is trusted only where nobody else can have
/// put it there. The error is that permission is denied where none can begin there.
pub fn trusted(engine: &Engine, socket: &Path) -> std::io::Result<()> {
    match (&engine.config.keeper, socket.parent()) {
        (Keeper::Auto, Some(directory)) => place::trust(directory, user(), environment::text),
        _ => Ok(()),
    }
}

fn user() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::geteuid() }
}

/// What the keeper says at the beginning, with its page mapped.
pub struct Heard {
    /// The host and its boot, as in handles.
    pub node: u64,
    /// The page that tells of deletions.
    pub epoch: Option<Epoch>,
    /// Leases that could not be taken up.
    pub lost: Vec<Generation>,
}

impl Heard {
    /// `before`: the page that is mapped.
    pub fn of(welcome: Welcome, before: Option<&Epoch>) -> Self {
        Self {
            node: welcome.node,
            epoch: Epoch::open(welcome.epoch, before),
            lost: welcome.lost,
        }
    }
}
