//! The keeper, as the verbs on names ask it. Starts none, and opens no memory.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use memcuda::config::{self, Config};
use memcuda::names::Name;
use memcuda::share::client::{Client, Error};
use memcuda::share::place::{self, SOCKET};
use memcuda::share::protocol::{Code, Entry, Reply, Request};

/// What is said behind a name that is not there.
pub const NO_NAME: &str = "there is no such name";

/// A keeper that answers.
pub struct Keeper {
    client: Client,
    socket: PathBuf,
}

/// The keeper that this user's programs use, or the reason why there is none:
/// it is off, or does not run yet.
pub enum Found {
    Keeper(Keeper),
    Off(String),
    Nobody(String),
}

impl Found {
    /// The keeper; that there is none is an error.
    pub fn keeper(self) -> Result<Keeper> {
        match self {
            Self::Keeper(keeper) => Ok(keeper),
            Self::Off(why) | Self::Nobody(why) => bail!(why),
        }
    }
}

/// The settings with this variable alone: others are none of a verb's business.
pub fn setting(variable: &str) -> memcuda::error::Result<Config> {
    Config::read(|name| (name == variable).then(|| std::env::var_os(name))?)
}

/// Looks for the keeper: at `MEMCUDA_KEEPER`, else at the user's own place.
pub fn find() -> Result<Found> {
    find_by(|socket| {
        let (client, _) = Client::connect(socket, std::process::id(), "memcuda", &[])?;
        Ok(client)
    })
}

/// The same for a view, which has other things to show: a keeper that hangs lets nobody
/// in, or does not answer within this.
pub fn find_within(patience: Duration) -> Result<Found> {
    find_by(|socket| {
        let mut dialled = Client::dial_now(socket, std::process::id(), "memcuda")?;
        dialled.be_patient(patience);
        let (client, _) = dialled.welcome()?;
        Ok(client)
    })
}

fn find_by(connect: impl FnOnce(&Path) -> Result<Client, Error>) -> Result<Found> {
    let socket = match setting("MEMCUDA_KEEPER")?.keeper {
        config::Keeper::Off => {
            let why = "MEMCUDA_KEEPER is off: no memory has a name".to_owned();
            return Ok(Found::Off(why));
        }
        config::Keeper::Socket(socket) => socket,
        config::Keeper::Auto => own_socket()?,
    };
    match connect(&socket) {
        Ok(client) => Ok(Found::Keeper(Keeper { client, socket })),
        Err(error) if error.is_nobody() => {
            let socket = socket.display();
            let why = format!("no keeper runs at {socket}: no memory has a name");
            Ok(Found::Nobody(why))
        }
        Err(Error::Absent(error)) => Err(anyhow!("{}: {error}", socket.display())),
        Err(error) => Err(anyhow!("the keeper at {}: {error}", socket.display())),
    }
}

/// Where this user's keeper listens. Elsewhere than in a directory of the
/// user's own anybody could answer.
fn own_socket() -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let directory = place::directory(uid, |name| std::env::var(name).ok());
    match std::fs::metadata(&directory) {
        Ok(found) if found.uid() != uid => bail!(
            "{} belongs to user {}, not to user {uid}: what answers there is not asked",
            directory.display(),
            found.uid()
        ),
        _ => Ok(directory.join(SOCKET)),
    }
}

impl Keeper {
    /// Asks, and waits for the answer. A refusal stays an [`Error::Refused`]
    /// below the context; that there is no such name is said as verbs say it.
    pub fn ask(&mut self, request: Request) -> Result<Reply> {
        match self.client.call(request, &[]) {
            Ok((reply, _)) => Ok(reply),
            Err(Error::Refused(code @ Code::NotFound, _)) => {
                Err(Error::Refused(code, NO_NAME.to_owned()).into())
            }
            Err(error @ Error::Refused(..)) => Err(error.into()),
            Err(error) => {
                Err(error).with_context(|| format!("the keeper at {}", self.socket.display()))
            }
        }
    }

    /// Every entry in the order of names; with `all` unnamed and deleted ones, too.
    pub fn list(&mut self, all: bool) -> Result<Vec<Entry>> {
        let mut list = Vec::new();
        let mut after = None;
        loop {
            match self.ask(Request::List { after, all })? {
                Reply::Entries { entries, next } => {
                    list.extend(entries);
                    match next {
                        None => return Ok(list),
                        next => after = next,
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The entry of a name.
    pub fn show(&mut self, name: &Name) -> Result<Entry> {
        match self.ask(Request::Show { name: name.clone() })? {
            Reply::Entries { mut entries, .. } if entries.len() == 1 => Ok(entries.remove(0)),
            other => Err(unexpected(&other)),
        }
    }
}

/// An answer that belongs to another question.
pub fn unexpected(reply: &Reply) -> anyhow::Error {
    let said: String = format!("{reply:?}").chars().take(60).collect();
    anyhow!("the keeper answers what was not asked: {said}")
}
