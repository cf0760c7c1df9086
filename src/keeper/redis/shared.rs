//! What the threads of the registry share: whether the keys are ours, whether
//! it is time to end, what to say of it all. Waits for no server.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fields::Place;
use super::keys::Keys;
use super::link::Server;
use crate::epoch::now_us;
use crate::keeper::Refusal;
use crate::keeper::registry::{Ask, Registry};
use crate::lock::lock;
use crate::names::Name;
use crate::share::protocol::{Entry, Generation, Persist};

/// The keeper's own thread ends and answers nothing more; or another keeper has the command.
pub struct KeeperEnds;

/// One keeper's part of one server.
pub struct Shared {
    /// The server.
    pub server: Server,
    /// Its keys.
    pub keys: Keys,
    /// What all entries have in common.
    pub place: Place,
    /// Who we are to other keepers: the same after a restart.
    pub keeper: String,
    /// When this process began to publish: microseconds of the Unix epoch.
    pub started: u64,
    /// The host, for people.
    pub host: String,
    /// The keeper's own thread.
    pub registry: Registry,
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Default)]
struct State {
    /// Under which term the keys are ours; 0 while they are not.
    term: u64,
    /// How often they were found to be another keeper's.
    strangers: u64,
    ending: bool,
    /// Names that came through the second protocol; is it published?
    paths: HashMap<Name, bool>,
}

impl Shared {
    /// For a keeper of this registry.
    pub fn new(server: Server, keys: Keys, place: Place, registry: Registry) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            keeper: identity(&place),
            server,
            keys,
            place,
            started: now_us(),
            host: host.trim().to_owned(),
            registry,
            state: Mutex::default(),
            turned: Condvar::new(),
        }
    }

    /// A name as it is now.
    pub fn entry(&self, name: &Name) -> Result<Option<Entry>, KeeperEnds> {
        let mut entries = self.entries(vec![name.clone()])?;
        Ok(entries.pop().and_then(|(_, entry)| entry))
    }

    /// Names as they are now.
    pub fn entries(&self, names: Vec<Name>) -> Result<Vec<(Name, Option<Entry>)>, KeeperEnds> {
        self.ask(|answer| Ask::Entries(names, answer))
    }

    /// Every name, in order.
    pub fn names(&self) -> Result<Vec<Name>, KeeperEnds> {
        self.ask(Ask::Names)
    }

    /// Hides a name.
    pub fn delete(&self, name: &Name, of: Generation) -> Result<Result<(), Refusal>, KeeperEnds> {
        self.ask(|answer| Ask::Delete(name.clone(), Some(of), answer))
    }

    /// Says whether a name outlives its holders.
    pub fn persist(
        &self,
        name: &Name,
        persist: Persist,
    ) -> Result<Result<(), Refusal>, KeeperEnds> {
        self.ask(|answer| Ask::Persist(name.clone(), persist, answer))
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Ask) -> Result<T, KeeperEnds> {
        let (sender, answer): (_, Receiver<T>) = channel();
        let asked = self.registry.ask(question(sender));
        asked
            .then(|| answer.recv().ok())
            .flatten()
            .ok_or(KeeperEnds)
    }

    /// The term under which the keys are ours, waiting a while for one.
    pub fn term(&self, patience: Duration) -> Option<u64> {
        let state = self.state();
        let waiting = |state: &mut State| state.term == 0 && !state.ending;
        let (state, _) = self
            .turned
            .wait_timeout_while(state, patience, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        (state.term != 0 && !state.ending).then_some(state.term)
    }

    /// The server says that this term has ended; the mirror claims another.
    pub fn ended(&self, term: u64) {
        let mut state = self.state();
        if state.term == term {
            state.term = 0;
        }
    }

    /// The keys are ours under this term; 0: they are not.
    pub fn own(&self, term: u64) {
        self.state().term = term;
        self.turned.notify_all();
    }

    /// They are another keeper's, which takes up all that is under way.
    pub fn give_way(&self) {
        self.state().strangers += 1;
    }

    /// How often they were.
    pub fn strangers(&self) -> u64 {
        self.state().strangers
    }

    /// Is it time to end?
    pub fn ending(&self) -> bool {
        self.state().ending
    }

    /// It is time to end.
    pub fn end(&self) {
        self.state().ending = true;
        self.turned.notify_all();
    }

    /// Waits, but not beyond the end.
    pub fn rest(&self, time: Duration) {
        let waiting = |state: &mut State| !state.ending;
        let _ = self.turned.wait_timeout_while(self.state(), time, waiting);
    }

    /// This name, which is published or is about to be made, has a text at its own
    /// path, too.
    pub fn add_path(&self, name: &Name, published: bool) {
        self.state().paths.insert(name.clone(), published);
    }

    /// It is published: with such a text?
    pub fn publish_path(&self, name: &Name) -> bool {
        let mut state = self.state();
        let path = state.paths.get_mut(name);
        path.map(|published| *published = true).is_some()
    }

    /// It is published no longer; one that is about to be made keeps its path.
    pub fn retract_path(&self, name: &Name) {
        let mut state = self.state();
        if state.paths.get(name) == Some(&true) {
            state.paths.remove(name);
        }
    }

    /// It was not made.
    pub fn drop_path(&self, name: &Name) {
        self.state().paths.remove(name);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The host's boot, and which of its keepers: the directory of its socket, which
/// outlives a restart and differs between containers, and its name there.
fn identity(place: &Place) -> String {
    let socket = Path::new(&place.socket);
    let directory = socket.parent().map(fs::metadata);
    let (device, inode) = match directory {
        Some(Ok(found)) => (found.dev(), found.ino()),
        _ => (0, 0),
    };
    let name = socket.file_name().unwrap_or_default().display();
    format!("{}:{device:x}:{inode:x}:{name}", place.node_in_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sockets_in_one_directory_are_of_two_keepers() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name| {
            identity(&Place {
                node: 1,
                keeper_pid: 2,
                socket: directory.path().join(name).display().to_string(),
            })
        };
        assert_ne!(of("a.sock"), of("b.sock"));
        assert_eq!(of("a.sock"), of("a.sock"));
    }
}
