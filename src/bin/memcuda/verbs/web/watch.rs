//! What the server knows: the last look at all processes, the last minutes, and
//! what was asked of single processes or of the keeper a moment ago. However many
//! pages are open, a process is asked for its picture at most once a second.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memcuda::epoch::now_us;
use memcuda::share::protocol::Generation;

use super::history::History;
use super::map::{self, Map};
use crate::survey::{self, Names, Seen, Survey};
use memcuda::lock::lock;

/// How often all processes are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// For so long an answer of a process or the keeper is good.
const FRESH: Duration = Duration::from_secs(1);
/// Pictures that are kept at once.
const PICTURES: usize = 64;

/// A map, or why there is none.
pub type Drawn = Result<Arc<Map>, String>;

type Cache<T> = Arc<Mutex<Option<(Instant, T)>>>;

/// See above.
#[derive(Default)]
pub struct Watch {
    seen: Mutex<(u64, Arc<Seen>)>,
    /// Why the last look saw nothing.
    unseen: Mutex<Option<String>>,
    history: Mutex<History>,
    names: Cache<Names>,
    /// The last of them that the keeper has told.
    known: Mutex<Option<Names>>,
    maps: Mutex<HashMap<(u32, u64), Cache<Drawn>>>,
}

impl Watch {
    /// Looks for as long as the process runs.
    pub fn run(&self, mut survey: Survey) {
        loop {
            let begin = Instant::now();
            self.look(&mut survey);
            std::thread::sleep(PERIOD.saturating_sub(begin.elapsed()));
        }
    }

    /// Looks once.
    pub fn look(&self, survey: &mut Survey) {
        let looked = survey.look();
        *lock(&self.unseen) = looked.as_ref().err().map(|why| format!("{why:#}"));
        // Nobody has ended where nobody could be looked for.
        if let Ok(seen) = looked {
            let time_ms = now_us() / 1000;
            self.history().add(&seen.rows, &seen.unread, time_ms);
            *lock(&self.seen) = (time_ms, Arc::new(seen));
        }
    }

    /// The last look, and when it was, in milliseconds of the Unix epoch; or why it saw
    /// nothing.
    pub fn seen(&self) -> Result<(u64, Arc<Seen>), String> {
        match lock(&self.unseen).clone() {
            Some(why) => Err(why),
            None => Ok(lock(&self.seen).clone()),
        }
    }

    /// The last minutes.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// The named memory.
    pub fn names(&self) -> Names {
        fresh(&self.names, || {
            let names = survey::names();
            // A keeper that is slow for once has lost none.
            if !names.are_unknown {
                let before = lock(&self.known).replace(names.clone());
                if let Some(before) = before {
                    self.tell(&before, &names);
                }
            }
            names
        })
    }

    /// Notes which names came and went.
    fn tell(&self, before: &Names, after: &Names) {
        let all = |names: &Names| -> HashSet<Generation> {
            names.entries.iter().map(|it| it.generation).collect()
        };
        let (was, is) = (all(before), all(after));
        for (kind, names, others) in [("named", after, &was), ("name gone", before, &is)] {
            let changed = names
                .entries
                .iter()
                .filter(|it| !others.contains(&it.generation));
            let mut changed = changed.filter_map(|it| it.name.as_ref());
            let Some(first) = changed.next() else {
                continue;
            };
            let text = match changed.count() {
                0 => first.to_string(),
                more => format!("{first} and {more} more"),
            };
            self.history().tell(now_us() / 1000, kind, None, text, 0);
        }
    }

    /// The map of a device of a process that was seen.
    pub fn map(&self, pid: u32, ordinal: u64) -> Drawn {
        let cache = {
            let mut maps = lock(&self.maps);
            if maps.len() >= PICTURES {
                // Those that somebody is waiting for stay.
                maps.retain(|_, cache| Arc::strong_count(cache) > 1);
            }
            maps.entry((pid, ordinal)).or_default().clone()
        };
        fresh(&cache, || {
            let picture = survey::picture(pid).map_err(|why| format!("{why:#}"))?;
            let map = map::draw(&picture, ordinal).map(Arc::new);
            map.ok_or_else(|| format!("process {pid} has no pool on device {ordinal} any more"))
        })
    }
}

/// What was found a moment ago, or now. Who asks meanwhile waits for that.
fn fresh<T: Clone>(cache: &Cache<T>, find: impl FnOnce() -> T) -> T {
    let mut cached = lock(cache);
    match &*cached {
        Some((when, known)) if when.elapsed() < FRESH => known.clone(),
        _ => {
            let found = find();
            *cached = Some((Instant::now(), found.clone()));
            found
        }
    }
}
