//! Steps that are taken however often the server is away, refuses, or is another one
//! meanwhile. Given up only where the keeper ends, or another keeper has the command by
//! now. What goes on for long is told of.

use std::time::Duration;

use redis::Value;

use super::link::{Link, Step, Trouble};
use super::queue::Taken;
use super::shared::{KeeperEnds, Shared};

/// How long one try waits for the keys to be ours.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one in vain rests.
const REST: Duration = Duration::from_millis(100);
/// So many in vain are told of.
const MANY: u32 = 20;

/// Takes a step of a command under the term that is.
pub fn insist(
    shared: &Shared,
    link: &mut Option<Link>,
    taken: &Taken,
    step: impl Fn(u64) -> Step,
) -> Result<(), KeeperEnds> {
    let mut tries = Tries::new(shared, taken);
    while let Some(term) = tries.next() {
        match connected(shared, link).and_then(|link| link.call(&step(term))) {
            Ok(said) if is_lost(&said) => tries.lost(link, term),
            Ok(_) => return Ok(()),
            Err(trouble) => tries.failed(link, &trouble),
        }
    }
    Err(KeeperEnds)
}

/// The tries to take one step.
pub struct Tries<'a> {
    shared: &'a Shared,
    taken: &'a Taken,
    in_vain: u32,
}

impl<'a> Tries<'a> {
    /// For a step of this command.
    pub fn new(shared: &'a Shared, taken: &'a Taken) -> Self {
        Self {
            shared,
            taken,
            in_vain: 0,
        }
    }

    /// The term of the next one, if there is to be one.
    pub fn next(&self) -> Option<u64> {
        while !self.shared.ending() {
            if let Some(term) = self.shared.term(PATIENCE) {
                return self.taken.is_ours(self.shared).then_some(term);
            }
        }
        None
    }

    /// It was in vain. The next one has another connection: this one may lead to a server
    /// that is no master any more, or call functions that are gone.
    pub fn failed(&mut self, link: &mut Option<Link>, why: &Trouble) {
        *link = None;
        self.in_vain += 1;
        if self.in_vain >= MANY {
            let shared = self.shared;
            let line = format!("commands in {} are held up: {why}", self.queue());
            shared.registry.report(format!("{}: {line}", shared.server));
            if self.in_vain == MANY {
                tracing::warn!("{line}");
            }
        }
        self.shared.rest(REST);
    }

    /// The server says that this term has ended; so does one that was the master before.
    pub fn lost(&self, link: &mut Option<Link>, term: u64) {
        *link = None;
        self.shared.ended(term);
    }

    fn queue(&self) -> String {
        self.shared.keys.queue(&self.taken.queue.name)
    }
}

impl Drop for Tries<'_> {
    /// The last one was not in vain, unless the keys are not ours.
    fn drop(&mut self) {
        let shared = self.shared;
        if self.in_vain >= MANY && shared.term(Duration::ZERO).is_some() {
            let state = format!("{}: published", shared.server);
            shared.registry.report(state);
            tracing::info!("commands in {} go on again", self.queue());
        }
    }
}

/// Does a step say that the keys are not ours?
pub fn is_lost(said: &Value) -> bool {
    matches!(said, Value::BulkString(said) if said == b"lost")
}

/// The connection, made if there is none.
pub fn connected<'a>(shared: &Shared, link: &'a mut Option<Link>) -> Result<&'a mut Link, Trouble> {
    match link {
        Some(link) => Ok(link),
        None => Ok(link.insert(shared.server.connect()?)),
    }
}

/// Can a step be taken there at all?
pub fn serves(shared: &Shared, link: &mut Option<Link>) -> bool {
    let edition = Step::new("edition", []);
    connected(shared, link)
        .and_then(|link| link.call(&edition))
        .is_ok()
}
