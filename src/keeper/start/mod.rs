//! How a keeper begins: from nothing, from what a standby hands over, or from
//! systemd's store; and how its standby begins.

pub mod launch;
pub mod listen;
pub mod options;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FileType, fstat};
use tracing::{error, info, warn};

use crate::keeper::entries::{Entries, Item};
use crate::keeper::pages;
use crate::keeper::requests::access::Access;
use crate::keeper::start::launch::Launch;
use crate::keeper::start::listen::Door;
use crate::keeper::start::options::Options;
use crate::keeper::state::Keeper;
use crate::keeper::succession::descriptors::{Descriptors, raise_limit};
use crate::keeper::succession::journal::{self, FORMAT, Known, Unreadable};
use crate::keeper::succession::key::Key;
use crate::keeper::succession::orphans;
use crate::keeper::succession::standby::{self, Standby, Vault};
use crate::keeper::succession::systemd::Store;
use crate::share::place;

/// What a process of the keeper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The first one.
    First,
    /// It takes over from a standby, behind standard input.
    Successor,
}

/// Runs a keeper to its end. `ready` is called once it serves, with its socket.
pub fn run(options: Options, part: Part, ready: impl FnOnce(&Path)) -> Result<()> {
    let limit = raise_limit();
    let (vault, inherited) = inherit(part)?;
    let orphans = match &vault {
        Vault::Standby(standby) => orphans::look(standby.pid),
        Vault::None | Vault::Systemd(_) => Vec::new(),
    };
    let mut descriptors = Descriptors::new(vault, limit);
    let known = match (take_over(&mut descriptors, inherited), &descriptors.vault) {
        // The standby has the program that wrote it, and starts that.
        (Err(error), Vault::Standby(_)) => return Err(error),
        (Err(error), _) => {
            error!("{error:#}: what it tells of is gone");
            None
        }
        (Ok(known), _) => known,
    };
    let owner = rustix::process::geteuid().as_raw();
    // What is taken over is not given up for a mistake in a file.
    let goes_on = known.is_some();
    let door = match Door::of(options.group.as_deref()) {
        Err(error) if goes_on => {
            error!("{error:#}; until that is mended (SIGHUP) new sockets are the own user's");
            Door::Own
        }
        door => door?,
    };
    let mut access = match Access::load(owner, options.rules.as_deref()) {
        // Its group comes to the socket still, and learns nothing there.
        Err(error) if goes_on => {
            error!("{error:#}; until that is mended (SIGHUP) only the keeper's own user is served");
            Access::load(owner, None)?
        }
        access => access?,
    };
    complete(&mut descriptors, &options.socket, door)?;
    let restarts = known.as_ref().map_or(0, |known| known.restarts + 1);
    let next_client = known.as_ref().map_or(1, |known| known.next_client);
    let has = |generation, part| descriptors.get(Key::Part(generation, part)).is_some();
    let (entries, lost) = Entries::restore(known.unwrap_or_default(), has);
    for item in lost {
        let name = item.name.map_or_else(String::new, String::from);
        error!(
            "{} {name} was not handed over whole and is gone",
            item.generation
        );
    }
    for item in entries.items() {
        if let Some(name) = &item.name {
            access.charge(item.maker.uid, item.maker.gid, name, item.mapped);
        }
    }
    drop_strays(&mut descriptors, &entries);
    if restarts > 0 {
        let count = entries.items().count();
        info!("took over {count} names and exports");
    }
    let mut keeper = Keeper::new(options, door, access, entries, descriptors)?;
    // Not before the signals are the keeper's own, which threads inherit.
    orphans::wait_for(orphans);
    keeper.begin(restarts, next_client)?;
    if let Some(store) = Store::find() {
        store.ready();
    }
    ready(keeper.socket());
    keeper.serve()
}

/// What a predecessor left, and where that is kept.
fn inherit(part: Part) -> Result<(Vault, Vec<(Key, OwnedFd)>)> {
    Ok(match part {
        Part::Successor => {
            let inherited = Standby::inherited(standard_input()?);
            let (standby, inherited) =
                inherited.map_err(|error| anyhow!("the standby does not hand over ({error:?})"))?;
            (Vault::Standby(standby), inherited)
        }
        Part::First => match Store::find().filter(|store| store.room() > 0) {
            Some(store) => (Vault::Systemd(store), Store::stored()),
            None => (Vault::None, Vec::new()),
        },
    })
}

/// Makes what a keeper has beside memory, as far as it was not left by another.
/// What became of its place meanwhile it looks at when it begins: it is not to fail by that.
fn complete(descriptors: &mut Descriptors, socket: &Path, door: Door) -> Result<()> {
    if descriptors.get(Key::Lock).is_none() {
        listen::enter(socket, door)?;
        let lock = listen::lock(socket, listen::PATIENCE)?;
        // The file of a lock may be taken away while its keeper serves, as by who cleans /tmp.
        if descriptors.get(Key::Listener).is_none() && place::is_heard(socket) {
            bail!("a keeper serves {} already", socket.display());
        }
        descriptors.keep(vec![(Key::Lock, lock)]);
    }
    if descriptors.get(Key::Listener).is_none() {
        descriptors.keep(vec![(Key::Listener, listen::bind_to(socket, door)?)]);
    }
    if descriptors.get(Key::Epoch).is_none() {
        descriptors.keep(vec![(Key::Epoch, pages::epoch().context("no epoch page")?)]);
    }
    Ok(())
}

/// Runs a standby to its end.
pub fn stand_by(launch: &Launch) -> Result<()> {
    raise_limit();
    standby::main(standard_input()?, launch).context("the standby cannot go on")
}

/// Sorts what was handed over, and reads the newest journal that can be read. Fails where
/// that is none, and one is of another version.
fn take_over(
    descriptors: &mut Descriptors,
    inherited: Vec<(Key, OwnedFd)>,
) -> Result<Option<Known>> {
    let mut journals = Vec::new();
    for (key, descriptor) in inherited {
        match key {
            Key::State(number) => journals.push((number, descriptor)),
            key => descriptors.inherit(key, descriptor),
        }
    }
    journals.sort_by_key(|(number, _)| *number);
    let (mut known, mut other) = (None, None);
    for (number, descriptor) in journals.into_iter().rev() {
        let copy = descriptor.try_clone();
        let copy = copy.map_err(|error| Unreadable::Broken(error.to_string()));
        match copy.and_then(journal::read) {
            Ok(read) if known.is_none() => known = Some(read),
            Ok(_) => {}
            Err(Unreadable::Form(form)) => other = Some(form),
            Err(Unreadable::Broken(why)) => warn!("a journal cannot be read: {why}"),
        }
        descriptors.inherit(Key::State(number), descriptor);
    }
    match (known, other) {
        (None, Some(form)) => bail!("the journal's form is {form}, and {FORMAT} is understood"),
        (known, _) => Ok(known),
    }
}

/// Descriptors of what is not there: the answer to whoever sent them was never
/// given, or the predecessor ended before it had let them go.
fn drop_strays(descriptors: &mut Descriptors, entries: &Entries) {
    let is_stray = |key: &Key| match key {
        Key::Part(generation, place) => {
            let item = entries.item(*generation);
            let is_over =
                |item: &Item| item.parts.len() <= *place as usize || item.given_up.contains(place);
            item.is_none_or(is_over)
        }
        Key::Timeline(generation) => entries.item(*generation).is_none(),
        _ => false,
    };
    let strays: Vec<_> = descriptors.keys().filter(is_stray).collect();
    for strays in strays.chunks(64) {
        descriptors.drop_all(strays);
    }
}

/// The socket that is this process's standard input.
fn standard_input() -> Result<OwnedFd> {
    let input = std::io::stdin();
    let is_socket = FileType::from_raw_mode(fstat(&input)?.st_mode) == FileType::Socket;
    anyhow::ensure!(
        is_socket,
        "this role is only for a process that a keeper starts"
    );
    let socket = input.as_fd().try_clone_to_owned()?;
    // The end of the other side is to be seen, whatever is done with the input.
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::succession::journal::{Journal, Record};
    use crate::share::protocol::{Generation, Persist};

    #[test]
    fn a_journal_of_another_version_is_not_taken_for_none() {
        let journal = |format| {
            let mut journal = Journal::create().unwrap();
            journal.add(&Record::Begin {
                format,
                restarts: 6,
                next_client: 7,
            });
            journal.write().unwrap();
            journal.descriptor().unwrap()
        };
        let take_over = |journals: Vec<OwnedFd>| {
            let inherited = (0..).map(Key::State).zip(journals).collect();
            super::take_over(&mut Descriptors::new(Vault::None, 1024), inherited)
        };
        let error = take_over(vec![journal(77)]).unwrap_err().to_string();
        assert!(error.contains("77"), "{error}");
        // One that is understood is enough, and none is none.
        let known = take_over(vec![journal(FORMAT), journal(77)]).unwrap();
        assert_eq!(known.unwrap().restarts, 6);
        let empty = Journal::create().unwrap().descriptor().unwrap();
        assert!(take_over(vec![empty]).unwrap().is_none());
    }

    #[test]
    fn a_part_that_was_given_up_and_not_let_go_yet_is_let_go() {
        let generation = Generation([1; 16]);
        let mut item = crate::keeper::entries::tests::export(generation, vec![2, 2, 2]);
        assert!(item.give_up(1));
        item.persist = Persist::Yes;
        let mut descriptors = Descriptors::new(Vault::None, 1024);
        // The last one came with a packet that was never answered.
        for place in 0..4 {
            let file = std::fs::File::open("/dev/null").unwrap();
            descriptors.inherit(Key::Part(generation, place), file.into());
        }
        let known = Known {
            items: [(generation, item)].into(),
            ..Known::default()
        };
        let (entries, lost) = Entries::restore(known, |_, _| true);
        assert_eq!(lost, []);
        drop_strays(&mut descriptors, &entries);
        let kept: Vec<_> = descriptors.keys().collect();
        assert_eq!(kept, [0, 2].map(|place| Key::Part(generation, place)));
    }
}
