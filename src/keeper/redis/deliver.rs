//! The end of a command: answered, or set aside where nobody can be told, and
//! gone from the list of those being carried out, all in one step.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::answer::answer;
use super::command::{Address, Fault, Outcome};
use super::link::{Link, Step, Trouble};
use super::queue::Queue;
use super::shared::Shared;
use crate::epoch::now_us;

/// How long an answer waits for its client.
const ANSWER_LIFE: Duration = Duration::from_secs(3600);

/// How long one try waits for the keys to be ours.
const PATIENCE: Duration = Duration::from_secs(2);

/// A command that was taken, until it is answered.
pub struct Taken {
    /// From where.
    pub queue: Arc<Queue>,
    /// Its bytes: what it is known by in `taken` and `making`.
    pub body: Vec<u8>,
    /// The list in which it is.
    pub list: String,
}

/// Answers a command and is done with it, in one step, however often the server
/// is away meanwhile; gives up only where the keeper ends, and then the next one
/// takes the command up.
pub fn deliver(
    shared: &Shared,
    link: &mut Option<Link>,
    taken: &Taken,
    address: &Address,
    outcome: &Outcome,
) {
    let mut told = answer(address, &shared.keys, outcome);
    // A refusal that nobody is told of is kept for whoever looks.
    let mut aside = match (outcome, &told) {
        (Err((fault, why)), told) if told.is_none() || *fault == Fault::Poisoned => {
            record(&taken.queue.name, &taken.body, *fault, why)
        }
        _ => String::new(),
    };
    let keys = &shared.keys;
    // May it have been answered by a try whose end is unknown?
    let mut sure = true;
    let mut refused = 0;
    while !shared.ending() {
        let Some(term) = shared.term(PATIENCE) else {
            continue;
        };
        let lists = [
            keys.owner(),
            taken.list.clone(),
            keys.tries(),
            keys.notes(),
            keys.aside(),
        ];
        let mut step = Step::new("finish", lists)
            .arg(term.to_string())
            .arg(taken.body.as_slice())
            .arg(if sure { "1" } else { "0" })
            .arg(told.as_ref().map_or("", |told| told.push))
            .arg(told.as_ref().map_or("", |told| told.text.as_str()))
            .arg(ANSWER_LIFE.as_millis().to_string())
            .arg(aside.as_str());
        if let Some(told) = &told {
            step = step.key(told.list.clone());
        }
        let done = match connected(shared, link) {
            Ok(link) => link.call(&step),
            // Nothing was sent.
            Err(_) => {
                shared.rest(Duration::from_millis(100));
                continue;
            }
        };
        match done {
            Ok(Value::BulkString(said)) if said == b"lost" => shared.ended(term),
            Ok(_) => return,
            Err(Trouble::Lost(_)) => (sure, *link) = (false, None),
            Err(trouble @ Trouble::Refused(_)) => {
                refused += u32::from(!trouble.passes());
                // The list that a client named may be none that we may write to: nobody is
                // told then, and the queue goes on.
                if refused > 1
                    && let Some(told) = told.take()
                    && aside.is_empty()
                {
                    let why = format!("the answer does not go to {}: {trouble}", told.list);
                    aside = record(&taken.queue.name, &taken.body, Fault::Denied, &why);
                }
                shared.rest(Duration::from_millis(100));
            }
        }
    }
}

/// The connection, made if there is none.
pub fn connected<'a>(shared: &Shared, link: &'a mut Option<Link>) -> Result<&'a mut Link, Trouble> {
    match link {
        Some(link) => Ok(link),
        None => Ok(link.insert(shared.server.connect()?)),
    }
}

fn record(queue: &str, body: &[u8], fault: Fault, why: &str) -> String {
    let beginning = &body[..body.len().min(200)];
    serde_json::json!({
        "why": why,
        "code": fault.text(),
        "at": now_us() / 1_000_000,
        "queue": queue,
        "bytes": body.len(),
        "message": String::from_utf8_lossy(beginning),
    })
    .to_string()
}
