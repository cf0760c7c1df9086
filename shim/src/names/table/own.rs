//! What the table has of the driver's own memory: a process cannot open what it made, and
//! opens the rest at one address. Opens and frees nothing.

use memcuda_core::driver::Address;
use memcuda_core::share::protocol::{Code, Entry, Generation};

use super::{From, lock};
use crate::names::Failure;

/// Where this process has the memory of an entry already; it has a use more then, so that
/// nobody ends it before it is entered as [`super::Mapped::is_taken`]. What was made here
/// and has no use any more is not found: its maker is about to say so. What the keeper knows
/// and its maker has not entered is still being made.
pub fn take_own(entry: &Entry) -> Result<Option<(Address, From)>, Failure> {
    let mut table = lock();
    let Some(table) = table.as_mut() else {
        return Ok(None);
    };
    if table.making.contains(&entry.generation) {
        return Err(in_progress(entry));
    }
    if table.ending.contains(&entry.generation) {
        return Err(Failure::gone(entry));
    }
    let mut all = table.at.values_mut();
    let found = all.find(|held| {
        let mapped = &held.mapped;
        mapped.entry.generation == entry.generation && mapped.from != From::Pool
    });
    Ok(found.map(|held| {
        held.count += 1;
        (held.mapped.address, held.mapped.from)
    }))
}

fn in_progress(entry: &Entry) -> Failure {
    let name = entry.name.as_ref().map_or("", |name| name.as_str());
    let why = format!("{name} is being made by another thread; ask again");
    Failure::Refused(Code::InProgress, why)
}

/// The keeper is about to know what is made here, until it is entered or
/// [`is_not_made`] after all.
pub fn is_made(generation: Generation) {
    lock().get_or_insert_default().making.push(generation);
}

/// See [`is_made`].
pub fn is_not_made(generation: Generation) {
    if let Some(table) = lock().as_mut() {
        table.making.retain(|making| *making != generation);
    }
}

/// The keeper knows that what was made here is used no more.
pub fn has_ended(generation: Generation) {
    if let Some(table) = lock().as_mut() {
        table.ending.retain(|ending| *ending != generation);
    }
}
