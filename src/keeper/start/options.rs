//! What a keeper is told when it begins.

use std::path::PathBuf;
use std::time::Duration;

use crate::keeper::registry::Desk;
use crate::keeper::start::launch::Launch;

/// What a keeper is told.
pub struct Options {
    /// Where it listens.
    pub socket: PathBuf,
    /// A group that may come to the socket.
    pub group: Option<String>,
    /// A file of rules.
    pub rules: Option<PathBuf>,
    /// How long it stays when nobody needs it; `None` for ever.
    pub idle: Option<Duration>,
    /// How long it waits awake after a request; nothing for never.
    pub awake: Duration,
    /// The program and the arguments of which another process of it is started.
    pub launch: Launch,
    /// The end of a registry, if there is one.
    pub desk: Option<Desk>,
}
