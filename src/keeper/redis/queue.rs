//! A thread for each queue: takes one command after the other, so that none is
//! lost when it dies, and answers each once. A command is moved from the queue
//! to `taken`, and leaves that in the same step in which it is answered. What
//! takes long is moved on to `making` and carried out by others (`work`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Value, from_redis_value};

use super::answer::answer;
use super::command::{Fault, Refused};
use super::deliver::deliver;
use super::link::{Link, Move, Step, Trouble};
use super::parse;
use super::shared::Shared;
use super::work::{Desk, Job};
use crate::epoch::now_us;

/// How long a thread waits for a command before it looks around.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who is told sooner that there is none did not wait: the server does not serve that.
const SOON: Duration = Duration::from_millis(100);
/// How long a thread rests then, at first and at most.
const RESTS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];
/// Whoever takes an element away between a move and a look makes one such answer, too.
const MOST_SOON: u32 = 3;
/// How often a command is taken up by one process after another.
const MOST_TRIES: u64 = 3;

/// A queue, as others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Its key, without the namespace.
    pub name: String,
    /// The end that is consumed: `LEFT` or `RIGHT`.
    pub end: &'static str,
    /// The device of commands that name none.
    pub device: u32,
    /// Is it the second protocol's, which keeps a text at a tensor's path?
    pub paths: bool,
}

impl Queue {
    /// All queues of a host with so many devices.
    pub fn all(devices: u32) -> Vec<Self> {
        let queue = |name: String, end, device, paths| Self {
            name,
            end,
            device,
            paths,
        };
        let first = ["tensor:cmd", "tensor_lifecycle"];
        let first = first.map(|name| queue(name.to_owned(), "RIGHT", 0, false));
        let second = (0..devices).flat_map(|device| {
            let names = [
                format!("cmd:heap-cuda:{device}"),
                format!("/sys/ipc/cmd/heap/cuda/{device}"),
            ];
            names.map(|name| queue(name, "LEFT", device, true))
        });
        first.into_iter().chain(second).collect()
    }
}

/// A command that was taken, until it is answered.
pub struct Taken {
    /// From where.
    pub queue: Arc<Queue>,
    /// Its bytes: what it is known by in `taken` and `making`.
    pub body: Vec<u8>,
    /// The list in which it is.
    pub list: String,
    /// When: how often the keys had been another keeper's by then.
    pub since: u64,
}

impl Taken {
    /// Has no other keeper taken it up since?
    pub fn is_ours(&self, shared: &Shared) -> bool {
        self.since == shared.strangers()
    }
}

/// Runs until the keeper ends.
pub fn run(shared: &Arc<Shared>, desk: &Arc<Desk>, queue: Queue) {
    let mut lane = Lane {
        shared,
        desk,
        queue: Arc::new(queue),
        since: None,
        begun: HashSet::new(),
        link: None,
        soon: 0,
    };
    while !shared.ending() {
        let Some(term) = shared.term(PATIENCE) else {
            continue;
        };
        if let Err(trouble) = lane.serve(term) {
            lane.link = None;
            match trouble.passes() {
                // Why is the mirror's to say.
                true => shared.rest(RESTS[0]),
                false => lane.rest_deaf(&trouble),
            }
        }
    }
}

struct Lane<'a> {
    shared: &'a Arc<Shared>,
    desk: &'a Arc<Desk>,
    queue: Arc<Queue>,
    /// How often the keys had been another keeper's when this one took up what that had
    /// left, or an earlier process.
    since: Option<u64>,
    /// Of what was left, the commands that were taken since.
    begun: HashSet<Vec<u8>>,
    link: Option<Link>,
    /// So often the server did not wait for a command, and had none, or refused.
    soon: u32,
}

impl Lane<'_> {
    /// Serves the queue for as long as the keys are ours under this term.
    fn serve(&mut self, term: u64) -> Result<(), Trouble> {
        let shared = self.shared;
        if self.link.is_none() {
            self.link = Some(shared.server.connect()?);
        }
        if !self.take_up(term)? {
            return Ok(());
        }
        let keys = &shared.keys;
        let queue = keys.queue(&self.queue.name);
        let taken = keys.taken(&self.queue.name);
        let next = Move {
            queue: &queue,
            end: self.queue.end,
            taken: &taken,
            patience: PATIENCE,
        };
        let look = Step::new(
            "take",
            [
                keys.owner(),
                queue.clone(),
                taken.clone(),
                keys.tries(),
                keys.notes(),
                keys.aside(),
            ],
        )
        .arg(term.to_string())
        .arg(self.queue.end)
        .arg(super::command::MOST_BYTES.to_string());
        while !shared.ending() {
            self.desk.wait_for_room(shared, &self.queue);
            let look = look.clone().arg((now_us() / 1_000_000).to_string());
            let Some(link) = &mut self.link else {
                return Ok(());
            };
            let begun = Instant::now();
            let answer: Vec<Value> = read(link.move_then(&next, &look)?)?;
            let mut answer = answer.into_iter();
            let said = text(answer.next())?;
            if said != "none" || begun.elapsed() >= SOON {
                self.hear_again();
            }
            match said.as_str() {
                "none" if begun.elapsed() < SOON => {
                    let why = self.why_deaf(&next)?;
                    self.rest_deaf(&Trouble::Refused(why));
                    // It may be no master any more, where another one is by now.
                    self.link = None;
                    return Ok(());
                }
                "none" => {}
                "command" => {
                    self.handle(read_bytes(answer.next())?, answer.next(), answer.next())?
                }
                "long" => self.refuse_long(answer.next(), answer.next(), answer.next())?,
                _ => {
                    self.lost(term);
                    return Ok(());
                }
            }
            if shared.term(Duration::ZERO) != Some(term) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The server says that this term has ended; so does one that was the master before.
    fn lost(&mut self, term: u64) {
        self.link = None;
        self.shared.ended(term);
    }

    /// Why the server does not wait for a command. The first times it may be by others who
    /// take elements away: it is not asked then.
    fn why_deaf(&mut self, next: &Move<'_>) -> Result<String, Trouble> {
        let why = match &mut self.link {
            Some(link) if self.soon + 1 >= MOST_SOON => link.refuses_move(next)?,
            _ => None,
        };
        Ok(why.unwrap_or_else(|| "BLMOVE does not wait".to_owned()))
    }

    /// The server did not wait for a command, or refused what is asked of it: rests in its
    /// place, ever longer, and says why.
    fn rest_deaf(&mut self, why: &Trouble) {
        let (shared, [first, most]) = (self.shared, RESTS);
        self.soon += 1;
        if self.soon >= MOST_SOON {
            let queue = shared.keys.queue(&self.queue.name);
            let line = format!("commands in {queue} are not taken for now: {why}");
            shared.registry.report(format!("{}: {line}", shared.server));
            if self.soon == MOST_SOON {
                tracing::warn!("{line}");
            }
        }
        shared.rest((first * 2_u32.pow(self.soon.min(8) - 1)).min(most));
    }

    /// It waits, or has one.
    fn hear_again(&mut self) {
        if std::mem::take(&mut self.soon) >= MOST_SOON {
            let (shared, queue) = (self.shared, &self.queue.name);
            let state = format!("{}: published", shared.server);
            shared.registry.report(state);
            tracing::info!("commands in {queue} are taken again");
        }
    }

    /// Puts back what was taken and not answered; are the keys still ours?
    fn take_up(&mut self, term: u64) -> Result<bool, Trouble> {
        let keys = &self.shared.keys;
        let name = &self.queue.name;
        let since = Some(self.shared.strangers());
        let first = self.since != since;
        let step = Step::new(
            "resume",
            [
                keys.owner(),
                keys.queue(name),
                keys.taken(name),
                keys.making(name),
                keys.tries(),
                keys.notes(),
            ],
        )
        .arg(term.to_string())
        .arg(self.queue.end)
        .arg(if first { "1" } else { "0" });
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        let back: i64 = read(link.call(&step)?)?;
        if back < 0 {
            self.lost(term);
            return Ok(false);
        }
        if first {
            self.since = since;
            self.begun.clear();
        }
        Ok(true)
    }

    fn handle(
        &mut self,
        body: Vec<u8>,
        tries: Option<Value>,
        note: Option<Value>,
    ) -> Result<(), Trouble> {
        let tries: u64 = text(tries)?.parse().unwrap_or(0);
        let taken = self.taken(body);
        let command = match parse::read(&taken.body) {
            Ok(command) => command,
            Err(refused) => {
                self.refuse(&taken, &refused);
                return Ok(());
            }
        };
        let address = command.address.clone();
        let reply = address.reply.as_ref();
        let refuse = |fault, message| Refused {
            fault,
            message,
            address: address.clone(),
        };
        let refused = if tries >= MOST_TRIES {
            let message = format!("taken up {tries} times, and never finished");
            Some(refuse(Fault::Poisoned, message))
        } else if let Some(key) = reply.filter(|key| !self.shared.keys.takes_answers(key)) {
            let message = format!(
                "answers do not go to the key {:?}; accepted: a list of the client's own, in the keeper's namespace",
                key.chars().take(60).collect::<String>()
            );
            Some(refuse(Fault::Invalid, message))
        } else {
            None
        };
        if let Some(refused) = refused {
            self.refuse(&taken, &refused);
            return Ok(());
        }
        // What is remembered is of the first of these very bytes: nobody had begun the others.
        let again = tries > 0 && self.begun.insert(taken.body.clone());
        let note = text(note)?;
        let job = Job {
            taken,
            command,
            again,
            note: if again { note } else { String::new() },
        };
        self.desk.hand_in(self.shared, &mut self.link, job);
        Ok(())
    }

    /// What is too long was set aside already; who sent it is told, where that
    /// can be seen.
    fn refuse_long(
        &mut self,
        bytes: Option<Value>,
        beginning: Option<Value>,
        end: Option<Value>,
    ) -> Result<(), Trouble> {
        let bytes: u64 = read(bytes.unwrap_or(Value::Nil))?;
        let (beginning, end) = (read_bytes(beginning)?, read_bytes(end)?);
        let refused = parse::too_long(bytes as usize, &beginning, &end);
        if answer(&refused.address, &self.shared.keys, &refused.outcome()).is_some() {
            self.refuse(&self.taken(Vec::new()), &refused);
        }
        Ok(())
    }

    /// A command of this queue that was taken.
    fn taken(&self, body: Vec<u8>) -> Taken {
        Taken {
            queue: self.queue.clone(),
            list: self.shared.keys.taken(&self.queue.name),
            body,
            since: self.since.unwrap_or_default(),
        }
    }

    fn refuse(&mut self, taken: &Taken, refused: &Refused) {
        let outcome = refused.outcome();
        deliver(
            self.shared,
            &mut self.link,
            taken,
            &refused.address,
            &outcome,
        );
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Trouble> {
    from_redis_value(value).map_err(|error| Trouble::Lost(error.to_string()))
}

fn read_bytes(value: Option<Value>) -> Result<Vec<u8>, Trouble> {
    read(value.unwrap_or(Value::Nil))
}

fn text(value: Option<Value>) -> Result<String, Trouble> {
    read(value.unwrap_or(Value::Nil))
}
