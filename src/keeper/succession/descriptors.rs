//! Every descriptor that must outlive this process, by a key, and mirrored in a
//! vault: another place of the host from which a successor gets them all. Knows
//! how many there may be; never looks into one.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::keeper::Refusal;
use crate::keeper::succession::key::Key;
use crate::keeper::succession::standby::Vault;
use crate::share::protocol::{Code, Generation};

/// All of them.
pub struct Descriptors {
    held: BTreeMap<Key, Rc<OwnedFd>>,
    /// Where their duplicates are.
    pub vault: Vault,
    /// How many this process may have open.
    pub limit: usize,
    /// How many of them may be here.
    pub most: usize,
}

/// How many files a process may have open by default, where a sandbox does not tell.
const FEW: usize = 1024;
/// Descriptors that are neither memory nor a client's.
const OVERHEAD: usize = 64;

impl Descriptors {
    /// None yet. `limit` is how many this process may have open.
    pub fn new(vault: Vault, limit: usize) -> Self {
        let held = BTreeMap::new();
        let most = limit.saturating_sub(OVERHEAD + 2 * most_clients(limit));
        let most = match &vault {
            Vault::Systemd(store) => most.min(store.room()),
            Vault::None | Vault::Standby(_) => most,
        };
        Self {
            held,
            vault,
            limit,
            most,
        }
    }

    /// Takes over what a predecessor left; the vault has it already.
    pub fn inherit(&mut self, key: Key, descriptor: OwnedFd) {
        self.held.insert(key, Rc::new(descriptor));
    }

    /// Is there room for so many more? The keeper never runs out of descriptors
    /// in the middle of something.
    pub fn room_for(&self, more: usize) -> Result<(), Refusal> {
        if self.held.len() + more <= self.most {
            return Ok(());
        }
        let (held, most) = (self.held.len(), self.most);
        let why = match &self.vault {
            Vault::Systemd(store) if store.room() == most => {
                "systemd hands no more over".to_owned()
            }
            _ => format!(
                "for more, start it anew where its limit of open files (ulimit -Hn) is over {}",
                self.limit
            ),
        };
        let message =
            format!("the keeper holds {held} descriptors of memory and may have {most}; {why}");
        Err(Refusal::new(Code::Unavailable, message))
    }

    /// Keeps these, in the vault too, before anybody is told so.
    pub fn keep(&mut self, new: Vec<(Key, OwnedFd)>) {
        let new: Vec<_> = new
            .into_iter()
            .map(|(key, fd)| (key, Rc::new(fd)))
            .collect();
        let beside: Vec<_> = new.iter().map(|(key, fd)| (*key, fd.as_fd())).collect();
        self.vault.keep(&beside);
        self.held.extend(new);
    }

    /// One of them.
    pub fn get(&self, key: Key) -> Option<&Rc<OwnedFd>> {
        self.held.get(&key)
    }

    /// The pages of versions.
    pub fn timelines(&self) -> impl Iterator<Item = (Generation, &Rc<OwnedFd>)> {
        let first = Key::Timeline(Generation([0; 16]));
        let all = self.held.range(first..);
        all.filter_map(|(key, page)| match key {
            Key::Timeline(generation) => Some((*generation, page)),
            _ => None,
        })
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.held.keys().copied()
    }

    /// Lets go of what a generation has, which is the caller's to close.
    pub fn forget(&mut self, generation: Generation) -> Vec<Rc<OwnedFd>> {
        let parts = Key::Part(generation, 0)..=Key::Part(generation, u32::MAX);
        let parts = self.held.range(parts).map(|(key, _)| *key);
        let mut keys: Vec<_> = parts.collect();
        if self.held.contains_key(&Key::Timeline(generation)) {
            keys.push(Key::Timeline(generation));
        }
        self.drop_all(&keys)
    }

    /// Lets go of these, which are the caller's to close.
    pub fn drop_all(&mut self, keys: &[Key]) -> Vec<Rc<OwnedFd>> {
        if !keys.is_empty() {
            self.vault.forget(keys);
        }
        keys.iter()
            .filter_map(|key| self.held.remove(key))
            .collect()
    }

    /// Fills a new vault, or one that lacks something.
    pub fn refill(&mut self) {
        self.vault.begin_anew();
        let all: Vec<_> = self
            .held
            .iter()
            .map(|(key, fd)| (*key, fd.as_fd()))
            .collect();
        self.vault.keep(&all);
    }
}

/// Most connections with so many descriptors: a quarter of them, two for each.
pub fn most_clients(limit: usize) -> usize {
    (limit / 8).min(4096)
}

/// Lets this process open as many files as it may; the answer is how many.
pub fn raise_limit() -> usize {
    let Ok((current, maximum)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return FEW;
    };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, maximum, maximum);
    let now = raised.map_or(current, |()| maximum);
    usize::try_from(now).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_refused() {
        let mut descriptors = Descriptors::new(Vault::None, OVERHEAD + 80);
        let most = descriptors.most;
        assert_eq!(most, 80 - 2 * 18);
        assert!(descriptors.room_for(most).is_ok());
        let generation = Generation([7; 16]);
        for key in [Key::Part(generation, 0), Key::Timeline(generation)] {
            let file = std::fs::File::open("/dev/null").unwrap();
            descriptors.keep(vec![(key, file.into())]);
        }
        assert_eq!(
            descriptors.room_for(most).unwrap_err().code,
            Code::Unavailable
        );
        descriptors.forget(generation);
        assert_eq!(descriptors.keys().count(), 0);
        assert!(descriptors.room_for(most).is_ok());
    }
}
