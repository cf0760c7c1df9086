//! What the keeper and a registry outside of it (Redis) say to each other. The
//! keeper's thread only notes which names changed and answers what it is asked:
//! it never waits for a registry. A registry has threads of its own, takes the
//! notes when it can, and asks for the entries then, so that many changes of a
//! name are one entry. What it makes (the command `create`) it makes as any
//! client does, over the socket.
//!
//! ```text
//! registry thread                     keeper thread
//! changes.wait() -> names     <----   mark(name), at the end of each turn
//! asks.send(Ask::Entries)     ---->   eventfd wakes epoll; answers by the sender
//! asks.report("connected")    ---->   Status.redis
//! ```

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::Refusal;
use crate::lock::lock;
use crate::names::Name;
use crate::share::protocol::{Entry, Generation, Persist};

/// What a registry asks of the keeper. The answer comes over the sender within
/// a turn of the keeper; a dropped sender means that the keeper ends.
pub enum Ask {
    /// The entries of these names as they are now, in this order; `None` for a
    /// name that is not there (any more). One being made is there, as
    /// `State::Creating`. Takes no lease. For the queue's `get`, and for
    /// publishing.
    Entries(Vec<Name>, Sender<Vec<(Name, Option<Entry>)>>),
    /// Every name that can be opened, in order; for publishing again.
    Names(Sender<Vec<Name>>),
    /// Hides a name, only this generation if said, with the keeper's own
    /// rights. For the queue's `delete`.
    Delete(Name, Option<Generation>, Sender<Result<(), Refusal>>),
    /// Says whether a name outlives its holders, with the keeper's own rights. For the
    /// queue's `persist`.
    Persist(Name, Persist, Sender<Result<(), Refusal>>),
}

/// Makes both ends.
pub fn pair() -> std::io::Result<(Desk, Registry)> {
    let (asks, received) = channel();
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let shared = Arc::new(Shared::default());
    let desk = Desk {
        asks: received,
        wake: wake.clone(),
        shared: shared.clone(),
    };
    Ok((desk, Registry { asks, wake, shared }))
}

#[derive(Default)]
struct Shared {
    notes: Mutex<Notes>,
    news: Condvar,
}

#[derive(Default)]
struct Notes {
    changed: BTreeSet<Name>,
    state: String,
    over: bool,
    gone: bool,
}

impl Shared {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }
}

/// The registry's end; shared between its threads by cloning.
#[derive(Clone)]
pub struct Registry {
    asks: Sender<Ask>,
    wake: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

/// What became of waiting for changes.
#[derive(Debug, PartialEq, Eq)]
pub enum Changes {
    /// These names are not as they were: ask for their entries. Each is told
    /// once; who could not publish it keeps it for later.
    Names(BTreeSet<Name>),
    /// Nothing within the time.
    None,
    /// The keeper ends, and answers nothing any more. Its names end with it where
    /// `gone`; else a keeper after this one takes them over.
    Over {
        /// Do they end?
        gone: bool,
    },
}

impl Registry {
    /// Takes the names that changed; waits for some for at most this long.
    pub fn wait(&self, patience: Duration) -> Changes {
        let quiet = |notes: &mut Notes| notes.changed.is_empty() && !notes.over;
        let waited = self
            .shared
            .news
            .wait_timeout_while(self.shared.notes(), patience, quiet);
        let (mut notes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if notes.over {
            return Changes::Over { gone: notes.gone };
        }
        match std::mem::take(&mut notes.changed) {
            names if names.is_empty() => Changes::None,
            names => Changes::Names(names),
        }
    }

    /// Asks the keeper; `false` where it has ended.
    pub fn ask(&self, ask: Ask) -> bool {
        let sent = self.asks.send(ask).is_ok();
        // A full counter wakes just as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        sent
    }

    /// How the registry is, in a line, for `memcuda keeper status`; empty where
    /// there is none.
    pub fn report(&self, state: impl Into<String>) {
        self.shared.notes().state = state.into();
    }
}

/// The keeper's end.
pub struct Desk {
    asks: Receiver<Ask>,
    wake: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

impl Desk {
    /// Notes that names changed.
    pub fn mark(&self, names: impl IntoIterator<Item = Name>) {
        let mut notes = self.shared.notes();
        notes.changed.extend(names);
        if !notes.changed.is_empty() {
            self.shared.news.notify_one();
        }
    }

    /// The next question, if there is one; never waits.
    pub fn next(&self) -> Option<Ask> {
        self.asks.try_recv().ok()
    }

    /// Takes the wake-up away; before [`Desk::next`], so that none is missed.
    pub fn calm(&self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
    }

    /// The keeper ends, and every name with it. (Dropped without this, the desk
    /// says that another keeper takes them over.)
    pub fn close(self) {
        self.shared.notes().gone = true;
    }

    /// What the registry said of itself.
    pub fn state(&self) -> String {
        self.shared.notes().state.clone()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.shared.notes().over = true;
        self.shared.news.notify_all();
    }
}

impl AsFd for Desk {
    /// Readable when there are questions.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_of_a_name_are_one_and_the_end_is_told() {
        let (desk, registry) = pair().unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        assert_eq!(registry.wait(Duration::ZERO), Changes::None);
        desk.mark([name("a"), name("b")]);
        desk.mark([name("a")]);
        let both = BTreeSet::from([name("a"), name("b")]);
        assert_eq!(registry.wait(Duration::ZERO), Changes::Names(both));
        desk.mark([name("a")]);
        drop(desk);
        let over = registry.wait(Duration::from_secs(60));
        assert_eq!(over, Changes::Over { gone: false });
        let (answer, _) = channel();
        assert!(!registry.ask(Ask::Names(answer)));
    }

    #[test]
    fn a_question_wakes_the_keeper_and_is_answered() {
        let (desk, registry) = pair().unwrap();
        let (sender, answer) = channel();
        assert!(registry.ask(Ask::Names(sender)));
        let mut waits = [rustix::event::PollFd::new(
            &desk,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(
            rustix::event::poll(&mut waits, Some(&Default::default())),
            Ok(1)
        );
        desk.calm();
        let Some(Ask::Names(sender)) = desk.next() else {
            panic!("another question")
        };
        sender.send(Vec::new()).unwrap();
        assert_eq!(answer.recv().unwrap(), Vec::new());
        assert!(desk.next().is_none());
    }
}
