//! The end of a command: answered, or set aside where nobody can be told, and
//! gone from the list of those being carried out, all in one step.

use std::time::Duration;

use super::answer::answer;
use super::command::{Address, Fault, Outcome};
use super::insist::{Tries, connected, is_lost, serves};
use super::link::{Link, Step, Trouble};
use super::queue::Taken;
use super::shared::Shared;
use crate::epoch::now_us;

/// How long an answer waits for its client.
const ANSWER_LIFE: Duration = Duration::from_secs(3600);

/// Answers a command and is done with it, in one step, however often the server
/// is away meanwhile; gives up only where another keeper takes the command up.
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
    let mut tries = Tries::new(shared, taken);
    while let Some(term) = tries.next() {
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
        match connected(shared, link).map(|link| link.call(&step)) {
            // Nothing was sent.
            Err(trouble) => tries.failed(link, &trouble),
            Ok(Ok(said)) if is_lost(&said) => tries.lost(link, term),
            Ok(Ok(_)) => return,
            Ok(Err(trouble)) => {
                sure &= !matches!(trouble, Trouble::Lost(_)) && !is_of_replica(&trouble);
                tries.failed(link, &trouble);
                refused += u32::from(!trouble.passes() && serves(shared, link));
                // The list that a client named may be none that we may write to: nobody is
                // told then, and the queue goes on.
                if refused > 1
                    && let Some(told) = told.take()
                    && aside.is_empty()
                {
                    let why = format!("the answer does not go to {}: {trouble}", told.list);
                    aside = record(&taken.queue.name, &taken.body, Fault::Denied, &why);
                }
            }
        }
    }
}

/// The master that is found next may lack what was written last at this one: there the
/// command may wait in its queue, and is answered when it is taken from that.
fn is_of_replica(trouble: &Trouble) -> bool {
    let why = trouble.to_string();
    why.contains("READONLY") || why.contains("MASTERDOWN")
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
