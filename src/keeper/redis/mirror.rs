//! The thread that keeps Redis like the keeper: it is told which names changed,
//! asks the keeper what they are now, and writes that. After anything that may
//! have cost Redis its memory, or us the right to write, everything is written
//! again. What it cannot write stays as it is in the keeper, who never waits
//! for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Value;

use super::fields::{fields, path_text, text};
use super::link::{Link, Step, Trouble};
use super::shared::{KeeperEnds, Shared};
use crate::epoch::now_us;
use crate::keeper::registry::Changes;
use crate::names::Name;
use crate::share::protocol::{Entry, State};

/// How long the keys stay ours without a sign of life.
const LIFE: Duration = Duration::from_secs(15);
/// How often there is one; and so how soon it is noticed that Redis was emptied
/// while nothing changes.
const BEAT: Duration = Duration::from_millis(500);
/// Least time between two writes of the same name.
const PACE: Duration = Duration::from_millis(5);
/// Most names in one go.
const BATCH: usize = 128;
/// The longest rest between two tries to connect.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// The step that publishes a name.
const PUBLISH: &str = "publish";

/// Why names are not published at the moment.
enum Pause {
    /// The keys have to be claimed again, at once.
    Again,
    /// Something is wrong.
    Trouble(String),
    /// The keeper ends.
    End,
}

impl From<Trouble> for Pause {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble.to_string())
    }
}

impl From<KeeperEnds> for Pause {
    fn from(_: KeeperEnds) -> Self {
        Self::End
    }
}

/// Runs until the keeper ends.
pub fn run(shared: &Shared) {
    let mut mirror = Mirror {
        shared,
        changed: BTreeSet::new(),
        next: Instant::now(),
        cursor: String::new(),
        indexed: false,
        foreign: false,
        warned: false,
        term: 0,
    };
    let mut rest = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let pause = match mirror.publish() {
            Ok(never) => match never {},
            Err(pause) => pause,
        };
        shared.own(0);
        match pause {
            Pause::End => return shared.end(),
            Pause::Again => {}
            Pause::Trouble(why) => mirror.complain(&why),
        }
        if begun.elapsed() > LONGEST_REST {
            rest = Duration::ZERO;
        }
        if mirror.wait(rest) {
            return shared.end();
        }
        rest = (rest * 2).clamp(Duration::from_millis(25), LONGEST_REST);
    }
}

enum Never {}

struct Mirror<'a> {
    shared: &'a Shared,
    changed: BTreeSet<Name>,
    /// When the next sign of life is due, and where it looks for hashes that are gone.
    next: Instant,
    cursor: String,
    /// Is there a name in the set of those that are published?
    indexed: bool,
    /// Was it said that a key is somebody else's?
    foreign: bool,
    /// Was it said that names are not published?
    warned: bool,
    term: u64,
}

impl Mirror<'_> {
    /// Connects and publishes for as long as that goes well.
    fn publish(&mut self) -> Result<Never, Pause> {
        let mut link = self.shared.server.connect()?;
        self.claim(&mut link)?;
        let pause = self.serve(&mut link);
        if let Err(Pause::End) = pause {
            self.leave(&mut link);
        }
        pause
    }

    /// Publishes everything, then what changes.
    fn serve(&mut self, link: &mut Link) -> Result<Never, Pause> {
        let shared = self.shared;
        // What changed until now is among all that is asked for next.
        self.changed.clear();
        self.indexed = false;
        (self.next, self.cursor) = (Instant::now() + BEAT, "0".to_owned());
        if let Changes::Over { .. } = shared.registry.wait(Duration::ZERO) {
            return Err(Pause::End);
        }
        let count = self.everything(link)?;
        if std::mem::take(&mut self.warned) {
            tracing::info!("{count} names are published at {} again", shared.server);
        }
        shared
            .registry
            .report(format!("{}: published", shared.server));
        loop {
            let patience = self.next.saturating_duration_since(Instant::now());
            let idle = self.changed.is_empty();
            self.listen(if idle { patience } else { Duration::ZERO })?;
            self.write_changed(link)?;
            self.beat(link)?;
        }
    }

    /// One line for one outage, however often it is tried.
    fn complain(&mut self, why: &str) {
        let server = &self.shared.server;
        self.shared.registry.report(format!("{server}: {why}"));
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!("names are not published at {server} for now: {why}");
        }
    }

    /// Makes the keys ours, under a new term.
    fn claim(&mut self, link: &mut Link) -> Result<(), Pause> {
        let shared = self.shared;
        self.term = now_us().max(self.term + 1);
        let place = &shared.place;
        let owner = [
            ("keeper", shared.keeper.clone()),
            ("started", shared.started.to_string()),
            ("term", self.term.to_string()),
            ("host", shared.host.clone()),
            ("node", place.node_in_hex()),
            ("socket", place.socket.clone()),
            ("pid", place.keeper_pid.to_string()),
        ];
        let mut step = Step::new("claim", [shared.keys.owner()])
            .arg(shared.keeper.as_str())
            .arg(shared.started.to_string())
            .arg(LIFE.as_millis().to_string());
        for (name, value) in owner {
            step = step.arg(name).arg(value);
        }
        let answer: Vec<String> = read(link.call(&step)?)?;
        let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
        if answer[..] != ["ours"] {
            shared.give_way();
        }
        match answer[..] {
            ["ours"] => {}
            ["taken", host, socket] => {
                let keys = match shared.keys.prefix() {
                    "" => "the keys without a namespace".to_owned(),
                    prefix => format!("the keys of the namespace {}", prefix.trim_end_matches(':')),
                };
                return Err(Pause::Trouble(format!(
                    "{keys} belong to the keeper {socket} of {host}; MEMCUDA_NAMESPACE gives each its own"
                )));
            }
            _ => {
                let why = "a later process of this keeper publishes there";
                return Err(Pause::Trouble(why.to_owned()));
            }
        }
        let paths = redis::cmd("SMEMBERS").arg(shared.keys.paths()).to_owned();
        let paths: Vec<String> = link.ask(&paths)?;
        for name in paths.into_iter().flat_map(Name::new) {
            shared.add_path(&name, true);
        }
        shared.own(self.term);
        Ok(())
    }

    /// Writes every name of the keeper, and looks again at what is published and
    /// was not among them, left by an earlier process; how many there are.
    fn everything(&mut self, link: &mut Link) -> Result<usize, Pause> {
        let names = self.shared.names()?;
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SSCAN");
            scan.arg(self.shared.keys.index()).arg(cursor);
            let (next, found): (u64, Vec<String>) = link.ask(scan.arg("COUNT").arg(500))?;
            let found = found.into_iter().flat_map(Name::new);
            self.changed
                .extend(found.filter(|name| names.binary_search(name).is_err()));
            self.beat(link)?;
            match next {
                0 => break,
                next => cursor = next,
            }
        }
        for batch in names.chunks(BATCH) {
            self.write(link, batch.to_vec())?;
            self.listen(Duration::ZERO)?;
            // With many names, or a server that is slow, this takes longer than keys live.
            self.beat(link)?;
        }
        Ok(names.len())
    }

    fn write_changed(&mut self, link: &mut Link) -> Result<(), Pause> {
        let next = || self.changed.pop_first();
        let names: Vec<Name> = std::iter::from_fn(next).take(BATCH).collect();
        let any = !names.is_empty();
        self.write(link, names)?;
        if any && self.changed.is_empty() {
            // What changes again and again is written now and then.
            std::thread::sleep(PACE);
        }
        Ok(())
    }

    /// Writes names as they are now.
    fn write(&mut self, link: &mut Link, names: Vec<Name>) -> Result<(), Pause> {
        let entries = self.shared.entries(names)?;
        let step = |(name, entry): &(Name, Option<Entry>)| match entry {
            Some(entry) if is_public(entry) => self.publication(name, entry),
            _ => self.removal(name),
        };
        let steps: Vec<Step> = entries.iter().map(step).collect();
        self.send(link, &steps)
    }

    fn send(&mut self, link: &mut Link, steps: &[Step]) -> Result<(), Pause> {
        for (answer, step) in link.batch(steps)?.into_iter().zip(steps) {
            match read::<String>(answer?)?.as_str() {
                "lost" => return Err(Pause::Again),
                "ok" if step.name == PUBLISH => self.indexed = true,
                // One that changes may come to be published in the very moment in which the set
                // is gone.
                "first" if std::mem::replace(&mut self.indexed, true) => {
                    self.changed.extend(self.shared.names()?);
                }
                "foreign" if !std::mem::replace(&mut self.foreign, true) => {
                    let hashes = self.shared.keys.hashes();
                    tracing::warn!(
                        "a key that begins with {hashes} is somebody else's: the name stays unpublished"
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A sign of life, when one is due; names whose hash is gone are written again, and all
    /// where the set of them is gone.
    fn beat(&mut self, link: &mut Link) -> Result<(), Pause> {
        if Instant::now() < self.next {
            return Ok(());
        }
        let keys = &self.shared.keys;
        let step = Step::new("beat", [keys.owner(), keys.index()])
            .arg(self.term.to_string())
            .arg(LIFE.as_millis().to_string())
            .arg(self.cursor.as_str())
            .arg(keys.hashes());
        let mut answer: std::vec::IntoIter<String> =
            read::<Vec<String>>(link.call(&step)?)?.into_iter();
        match (answer.next().as_deref(), answer.next()) {
            (Some("ok"), Some(cursor)) => {
                self.changed.extend(answer.flat_map(Name::new));
                let there = redis::cmd("EXISTS").arg(keys.index()).to_owned();
                if self.indexed && !link.ask::<bool>(&there)? {
                    self.indexed = false;
                    self.changed.extend(self.shared.names()?);
                }
                (self.next, self.cursor) = (Instant::now() + BEAT, cursor);
                Ok(())
            }
            _ => Err(Pause::Again),
        }
    }

    fn publication(&self, name: &Name, entry: &Entry) -> Step {
        let (keys, place) = (&self.shared.keys, &self.shared.place);
        let mut step = Step::new(PUBLISH, [keys.owner(), keys.hash(name), keys.index()]);
        let path = keys.path(name).filter(|_| self.shared.publish_path(name));
        let path_text = match path {
            Some(path) => {
                step = step.key(path).key(keys.paths());
                path_text(entry, place)
            }
            None => String::new(),
        };
        step = step
            .arg(self.term.to_string())
            .arg(name.as_str())
            .arg(entry.generation.to_string())
            .arg(path_text);
        for (field, value) in fields(entry, place) {
            step = step.arg(field).arg(text(&value));
        }
        step
    }

    fn removal(&self, name: &Name) -> Step {
        let keys = &self.shared.keys;
        self.shared.retract_path(name);
        let path = keys.path(name).unwrap_or_else(|| keys.hash(name));
        Step::new(
            "remove",
            [
                keys.owner(),
                keys.hash(name),
                keys.index(),
                path,
                keys.paths(),
            ],
        )
        .arg(self.term.to_string())
        .arg(name.as_str())
    }

    /// Hears what changed; waits for it where nothing has.
    fn listen(&mut self, patience: Duration) -> Result<(), Pause> {
        match self.shared.registry.wait(patience) {
            Changes::Names(names) => self.changed.extend(names),
            Changes::None => {}
            Changes::Over { .. } => return Err(Pause::End),
        }
        match self.shared.term(Duration::ZERO) {
            Some(_) => Ok(()),
            None => Err(Pause::Again),
        }
    }

    /// Waits while nothing can be written; has the keeper ended?
    fn wait(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // What changes meanwhile is published with all the rest.
            match self.shared.registry.wait(left) {
                Changes::Names(_) => {}
                Changes::None => return false,
                Changes::Over { .. } => return true,
            }
        }
    }

    /// The keeper ends: its names go from Redis, and our other keys. What a keeper
    /// after this one takes over stays for it.
    fn leave(&mut self, link: &mut Link) {
        if self.shared.registry.wait(Duration::ZERO) != (Changes::Over { gone: true }) {
            return;
        }
        let keys = &self.shared.keys;
        let step = Step::new("release", [keys.owner(), keys.index(), keys.paths()])
            .arg(self.term.to_string())
            .arg(keys.hashes())
            .arg(keys.prefix());
        // Without luck an owner that expires tells the same.
        while matches!(link.call(&step), Ok(Value::Int(1..))) {}
    }
}

/// Can it be opened?
fn is_public(entry: &Entry) -> bool {
    matches!(entry.state, State::Ready | State::Sealed)
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Pause> {
    redis::from_redis_value(value).map_err(|error| Pause::Trouble(error.to_string()))
}
