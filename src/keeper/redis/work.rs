//! Carrying out commands. What is quick is done where it was taken; what makes
//! memory is done by threads of its own, a few at a time, and the commands of
//! one name stay in their order.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::allocator::Allocator;
use super::command::{Command, Create, Fault, Operation, Outcome};
use super::deliver::deliver;
use super::fields::object;
use super::insist::insist;
use super::link::{Link, Step};
use super::queue::{Queue, Taken};
use super::shared::{KeeperEnds, Shared};
use crate::epoch::now_us;
use crate::keeper::Refusal;
use crate::lock::lock;
use crate::names::Name;
use crate::share::protocol::{Code, Entry, Generation, Persist, State};

/// Most allocator processes at once.
const MOST_MAKERS: usize = 4;
/// Most bytes of a queue's commands that wait for one, or behind a name.
const MOST_WAITING: usize = 1 << 20;
/// What one of them takes beside its own bytes.
const BESIDE: usize = 1 << 10;

/// A command on its way.
pub struct Job {
    /// Where it is kept until it is answered.
    pub taken: Taken,
    /// What it says.
    pub command: Command,
    /// Did an earlier process take it up?
    pub again: bool,
    /// What that one noted of it.
    pub note: String,
}

/// Who works on what.
pub struct Desk {
    allocator: Allocator,
    state: Mutex<Work>,
    freed: Condvar,
}

#[derive(Default)]
struct Work {
    /// Names that somebody works on or waits to, with what comes behind.
    busy: HashMap<Name, VecDeque<Job>>,
    /// Of these, those that nobody works on yet.
    waiting: VecDeque<Name>,
    makers: usize,
    /// The bytes of all these, by their queues.
    bytes: HashMap<String, usize>,
}

impl Work {
    fn bytes_of(&mut self, job: &Job) -> &mut usize {
        let queue = job.taken.queue.name.clone();
        self.bytes.entry(queue).or_default()
    }
}

impl Desk {
    /// One that makes memory by this allocator.
    pub fn new(allocator: Allocator) -> Self {
        Self {
            allocator,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Waits until one more command of a queue may be taken. Other queues go on.
    pub fn wait_for_room(self: &Arc<Self>, shared: &Arc<Shared>, queue: &Queue) {
        let mut state = self.state();
        loop {
            // Those for which no thread could be started have nobody to come to.
            if state.makers == 0 && !state.waiting.is_empty() {
                self.start_maker(shared, &mut state);
            }
            let waiting = state.bytes.get(&queue.name);
            if waiting.is_none_or(|bytes| *bytes < MOST_WAITING) || shared.ending() {
                return;
            }
            let waited = self.freed.wait_timeout(state, Duration::from_millis(500));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Carries a command out, now or behind others.
    pub fn hand_in(self: &Arc<Self>, shared: &Arc<Shared>, link: &mut Option<Link>, mut job: Job) {
        let operation = &job.command.operation;
        let long = matches!(operation, Operation::Create(_) | Operation::Clone { .. });
        let name = operation.name().clone();
        if !long && !self.state().busy.contains_key(&name) {
            let outcome = self.carry_out(shared, link, &job);
            // Else another keeper takes it up.
            if let Ok(outcome) = outcome {
                deliver(shared, link, &job.taken, &job.command.address, &outcome);
            }
            return;
        }
        if put_off(shared, link, &mut job.taken).is_err() {
            return;
        }
        let mut state = self.state();
        *state.bytes_of(&job) += job.taken.body.len() + BESIDE;
        if let Some(behind) = state.busy.get_mut(&name) {
            behind.push_back(job);
            return;
        }
        state.busy.insert(name.clone(), VecDeque::from([job]));
        state.waiting.push_back(name);
        if state.makers < MOST_MAKERS {
            self.start_maker(shared, &mut state);
        }
    }

    /// One more thread that works on what waits. Without it the others come to that, or one
    /// that is started later (`wait_for_room`).
    fn start_maker(self: &Arc<Self>, shared: &Arc<Shared>, state: &mut Work) {
        let (desk, shared) = (self.clone(), shared.clone());
        let maker = std::thread::Builder::new().name("memcuda-create".to_owned());
        let started = maker.spawn(move || or_end(|| desk.work(&shared)));
        state.makers += usize::from(started.is_ok());
    }

    /// Works on one name after the other until none waits.
    fn work(&self, shared: &Shared) {
        let mut link = None;
        let mut state = self.state();
        while let Some(name) = state.waiting.pop_front() {
            while let Some(job) = state.busy.get_mut(&name).and_then(VecDeque::pop_front) {
                drop(state);
                if let Ok(outcome) = self.carry_out(shared, &mut link, &job) {
                    deliver(
                        shared,
                        &mut link,
                        &job.taken,
                        &job.command.address,
                        &outcome,
                    );
                }
                state = self.state();
                *state.bytes_of(&job) -= job.taken.body.len() + BESIDE;
                self.freed.notify_all();
            }
            state.busy.remove(&name);
        }
        state.makers -= 1;
    }

    fn state(&self) -> MutexGuard<'_, Work> {
        lock(&self.state)
    }

    fn carry_out(
        &self,
        shared: &Shared,
        link: &mut Option<Link>,
        job: &Job,
    ) -> Result<Outcome, KeeperEnds> {
        if !job.taken.is_ours(shared) {
            return Err(KeeperEnds);
        }
        match &job.command.operation {
            Operation::Get(name) => get(shared, name),
            Operation::Delete(name) => delete(shared, link, job, name),
            Operation::Persist { name, seconds } => persist(shared, job, name, *seconds),
            Operation::Create(create) => {
                let wanted = |there: &Entry| is_as_wanted(create, there);
                self.make(shared, link, job, &create.name, &wanted, |allocator| {
                    allocator.create(create, job.taken.queue.device)
                })
            }
            Operation::Clone {
                source,
                name,
                device,
            } => {
                let there = shared.entry(source)?.filter(is_there);
                let Some(of) = there else {
                    return Ok(missing(source));
                };
                let wanted = |there: &Entry| there.spec.bytes == of.spec.bytes;
                self.make(shared, link, job, name, &wanted, |allocator| {
                    allocator.copy(&of, source, name, device.as_ref())
                })
            }
        }
    }

    /// Makes a name by the allocator, unless it is there.
    fn make(
        &self,
        shared: &Shared,
        link: &mut Option<Link>,
        job: &Job,
        name: &Name,
        is_wanted: &dyn Fn(&Entry) -> bool,
        allocate: impl FnOnce(&Allocator) -> Result<(), (Fault, String)>,
    ) -> Result<Outcome, KeeperEnds> {
        let exists = || (Fault::Exists, format!("there is a {name} already"));
        // One that an earlier process made, or its allocator made after its
        // death, is what was asked for.
        let ours = |there: &Entry| {
            job.again && job.note == NOTE_MAKING && is_there(there) && is_wanted(there)
        };
        let there = shared.entry(name)?.filter(|e| e.state != State::Dying);
        let is_taken = |there: &Entry| is_there(there) && !ours(there);
        if there.as_ref().is_some_and(is_taken) {
            return Ok(Err(exists()));
        }
        if job.taken.queue.paths {
            shared.add_path(name, false);
        }
        if let Some(there) = there.filter(&ours) {
            return Ok(shown(shared, &there));
        }
        note(shared, link, job, NOTE_MAKING).inspect_err(|_| shared.drop_path(name))?;
        let allocated = allocate(&self.allocator);
        let there = shared.entry(name)?.filter(is_there);
        let outcome = match (allocated, there) {
            (Ok(()), Some(there)) => shown(shared, &there),
            // Deleted by somebody in between.
            (Ok(()), None) => Ok(None),
            (Err((Fault::Exists, _)), Some(there)) if ours(&there) => shown(shared, &there),
            (Err(refused), _) => Err(refused),
        };
        if !matches!(outcome, Ok(Some(_))) {
            shared.drop_path(name);
        }
        Ok(outcome)
    }
}

const NOTE_MAKING: &str = "making";

fn get(shared: &Shared, name: &Name) -> Result<Outcome, KeeperEnds> {
    let entry = shared.entry(name)?.filter(is_there);
    Ok(entry.map_or_else(|| missing(name), |entry| shown(shared, &entry)))
}

/// Deletes the generation that was there when the command was first taken up.
fn delete(
    shared: &Shared,
    link: &mut Option<Link>,
    job: &Job,
    name: &Name,
) -> Result<Outcome, KeeperEnds> {
    let noted = generation(&job.note);
    let generation = match noted {
        Some(generation) => generation,
        None => {
            let Some(entry) = shared.entry(name)?.filter(is_there) else {
                return Ok(missing(name));
            };
            note(shared, link, job, &entry.generation.to_string())?;
            entry.generation
        }
    };
    Ok(match shared.delete(name, generation)? {
        Ok(()) => Ok(None),
        // An earlier process deleted it and died before it could say so.
        Err(refusal) if refusal.code == Code::NotFound && noted.is_some() => Ok(None),
        Err(refusal) => Err(of_refusal(refusal)),
    })
}

/// Says how long a name stays; it may be gone by that.
fn persist(
    shared: &Shared,
    job: &Job,
    name: &Name,
    seconds: Option<u64>,
) -> Result<Outcome, KeeperEnds> {
    let persist = seconds.map_or(Persist::Yes, |it| Persist::for_seconds(it, now_us()));
    Ok(match shared.persist(name, persist)? {
        Ok(()) => {
            let entry = shared.entry(name)?.filter(is_there);
            entry.map_or(Ok(None), |entry| shown(shared, &entry))
        }
        // It went by the try before.
        Err(refusal) if refusal.code == Code::NotFound && job.again && seconds == Some(0) => {
            Ok(None)
        }
        Err(refusal) => Err(of_refusal(refusal)),
    })
}

/// Moves a command to where those are that take long.
fn put_off(shared: &Shared, link: &mut Option<Link>, taken: &mut Taken) -> Result<(), KeeperEnds> {
    let keys = &shared.keys;
    let making = keys.making(&taken.queue.name);
    // No error where it is not there any more: a try before moved it, or Redis was
    // emptied.
    insist(shared, link, taken, |term| {
        Step::new("defer", [keys.owner(), taken.list.clone(), making.clone()])
            .arg(term.to_string())
            .arg(taken.body.as_slice())
    })?;
    taken.list = making;
    Ok(())
}

/// Notes something of a command for a process after this one, which could not tell
/// otherwise what was done: nothing is before it is noted.
fn note(shared: &Shared, link: &mut Option<Link>, job: &Job, text: &str) -> Result<(), KeeperEnds> {
    let keys = &shared.keys;
    insist(shared, link, &job.taken, |term| {
        Step::new("note", [keys.owner(), keys.notes()])
            .arg(term.to_string())
            .arg(job.taken.body.as_slice())
            .arg(text)
    })
}

/// Ends the whole process where this panics: its standby takes over, and the
/// command that did it is set aside when it has done so a few times.
pub fn or_end(work: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("a thread that carries out commands has failed: the keeper starts anew");
        std::process::abort();
    }
}

fn is_there(entry: &Entry) -> bool {
    matches!(entry.state, State::Ready | State::Sealed)
}

fn is_as_wanted(create: &Create, there: &Entry) -> bool {
    let spec = &there.spec;
    (spec.bytes, spec.dtype, &spec.shape) == (create.bytes, create.dtype, &create.shape)
}

fn shown(shared: &Shared, entry: &Entry) -> Outcome {
    Ok(Some(object(entry, &shared.place)))
}

fn missing(name: &Name) -> Outcome {
    Err((Fault::NotFound, format!("there is no {name}")))
}

/// From its 32 digits.
fn generation(text: &str) -> Option<Generation> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then(|| Generation(number.to_be_bytes()))
}

fn of_refusal(refusal: Refusal) -> (Fault, String) {
    (fault(refusal.code), refusal.message)
}

/// What the keeper's codes are called in answers.
pub fn fault(code: Code) -> Fault {
    match code {
        Code::NotFound => Fault::NotFound,
        Code::Exists => Fault::Exists,
        Code::Mismatch | Code::Invalid | Code::Version => Fault::Invalid,
        Code::InProgress => Fault::InProgress,
        Code::Denied | Code::Sealed => Fault::Denied,
        Code::Quota => Fault::Quota,
        Code::Unavailable => Fault::Unavailable,
    }
}
