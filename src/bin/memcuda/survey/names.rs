//! The named memory of this host, as its keeper tells. Starts no keeper.

use std::sync::Arc;
use std::time::Duration;

use memcuda::share::protocol::Entry;

use crate::names::entry;
use crate::names::reach::{self, Found};

/// How long the keeper is waited for: names are a part of what is shown, and whoever
/// reads all of it in turns does not wait long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Named memory, or why there is none.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// In the order of names.
    pub entries: Arc<Vec<Entry>>,
    /// In one line: nobody keeps names, or who does cannot be asked.
    pub nobody: Option<String>,
    /// Who does cannot be asked: there may be any.
    pub are_unknown: bool,
}

impl Names {
    /// Those that have this in their name, or in that of a holder.
    pub fn fitting(&self, filter: &str) -> Vec<&Entry> {
        let filter = filter.to_lowercase();
        let fits = |it: &&Entry| {
            let holders = it.holders.iter().map(|holder| entry::who(&holder.process));
            let mut words = std::iter::once(entry::title(it)).chain(holders);
            filter.is_empty() || words.any(|word| word.to_lowercase().contains(&filter))
        };
        self.entries.iter().filter(fits).collect()
    }
}

/// What the keeper knows now.
pub fn names() -> Names {
    let listed = reach::find_within(PATIENCE).and_then(|found| match found {
        Found::Keeper(mut keeper) => Ok((keeper.list(false)?, None)),
        Found::Off(why) | Found::Nobody(why) => Ok((Vec::new(), Some(why))),
    });
    let are_unknown = listed.is_err();
    let (entries, nobody) = listed.unwrap_or_else(|error| (Vec::new(), Some(format!("{error:#}"))));
    Names {
        entries: Arc::new(entries),
        nobody,
        are_unknown,
    }
}
