//! All that the keeper has, in one structure: the loop and all that a turn does are methods of it
//! in files of their own. Here it is made; nothing is done with it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::epoll::{self, CreateFlags};

use super::awake::Awake;
use super::calendar::Calendar;
use super::clients::client::Connection;
use super::clients::late::Late;
use super::clients::leaving::Leaving;
use super::clients::process::{self, Watch};
use super::clients::strays::Strays;
use super::clients::unread::Unread;
use super::entries::{ClientId, Entries};
use super::pages::Epoch;
use super::place;
use super::registry::Desk;
use super::requests::access::Access;
use super::start::listen::Door;
use super::start::options::Options;
use super::succession::descriptors::{Descriptors, raise_limit};
use super::succession::journal::Journal;
use super::succession::key::Key;
use super::versions::Versions;
use crate::share::wire::{self};

/// How the keeper ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// For good.
    Stop,
    /// To be started again, with everything.
    Restart,
    /// By a signal; systemd may start it again with everything.
    Signal,
}

/// A client whose connection is gone, and whose leases are not: one of before the
/// keeper was started anew, or one that lives on.
pub(super) struct Ghost {
    /// Of its process; where it is a descriptor epoll has it while it is here.
    pub watch: Option<Watch>,
    /// When its leases end, if it has to come back.
    pub until: Option<Instant>,
}

/// All of it.
pub struct Keeper {
    pub(super) options: Options,
    pub(super) access: Access,
    pub(super) entries: Entries,
    pub(super) descriptors: Descriptors,
    pub(super) epoch: Epoch,
    pub(super) journal: Journal,
    /// It has not all that there is to know.
    pub(super) unwritten: bool,
    pub(super) connections: HashMap<ClientId, Connection>,
    /// What is left of this turn for users who are not the keeper's own.
    pub(super) shares: HashMap<u32, u32>,
    pub(super) ghosts: HashMap<ClientId, Ghost>,
    pub(super) leaving: Leaving,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) unread: Unread,
    pub(super) late: Late,
    /// How many files this process may have open, and the kernel lets be on their way.
    pub(super) open_files: usize,
    pub(super) desk: Option<Desk>,
    /// Answers to the registry, once the journal is written.
    pub(super) told: Vec<Box<dyn FnOnce()>>,
    pub(super) end: Option<End>,
    pub(super) node: u64,
    pub(super) restarts: u32,
    pub(super) started: Instant,
    pub(super) next_client: ClientId,
    pub(super) door: Door,
    pub(super) epoll: OwnedFd,
    pub(super) signals: SignalFd,
    /// Was it said that no client can be accepted?
    pub(super) is_shut: bool,
    /// Who has not introduced itself yet, the oldest first.
    pub(super) new: VecDeque<(Instant, ClientId)>,
    pub(super) idle_since: Option<Instant>,
    /// When it looks for processes whose end nothing tells it.
    pub(super) look_again: Option<Instant>,
    pub(super) standby_again: Option<Instant>,
    /// The last one did not live.
    pub(super) standby_failed: bool,
    /// When it looks whether clients still find it, how long after it did, what wakes it
    /// before, and whether it was said that they do not.
    pub(super) place_again: Instant,
    pub(super) place_pause: Duration,
    pub(super) place_watch: Option<OwnedFd>,
    pub(super) displaced: bool,
    pub(super) versions: Versions,
    pub(super) room: Box<[u8]>,
    pub(super) awake: Awake,
    pub(super) calendar: Calendar,
    pub(super) strays: Strays,
}

/// A packet to a client, once the journal is written.
pub(super) struct Outgoing {
    pub client: ClientId,
    pub bytes: Vec<u8>,
    pub beside: Vec<Rc<OwnedFd>>,
    pub close: bool,
}

impl Keeper {
    /// With all that it has; serves nobody yet.
    pub fn new(
        mut options: Options,
        door: Door,
        access: Access,
        entries: Entries,
        descriptors: Descriptors,
    ) -> Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let epoch = descriptors
            .get(Key::Epoch)
            .context("no epoch page")?
            .clone();
        Ok(Self {
            access,
            entries,
            descriptors,
            epoch: Epoch::of(epoch).context("the epoch page cannot be used")?,
            journal: Journal::create().context("cannot make a journal")?,
            unwritten: false,
            connections: HashMap::new(),
            shares: HashMap::new(),
            ghosts: HashMap::new(),
            leaving: Leaving::default(),
            outgoing: Vec::new(),
            unread: Unread::default(),
            late: Late::default(),
            open_files: raise_limit(),
            desk: options.desk.take(),
            told: Vec::new(),
            awake: Awake::new(options.awake),
            options,
            end: None,
            node: process::node().context("cannot read the boot's number")?,
            restarts: 0,
            started: Instant::now(),
            next_client: 1,
            door,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            signals: SignalFd::with_flags(&signals, flags).context("no signals")?,
            is_shut: false,
            new: VecDeque::new(),
            // Nobody may ever come, and then nothing wakes it.
            idle_since: Some(Instant::now()),
            look_again: None,
            standby_again: None,
            standby_failed: false,
            place_again: Instant::now(),
            place_pause: place::PAUSE,
            place_watch: None,
            displaced: false,
            versions: Versions::default(),
            room: vec![0; wire::MOST_BYTES].into_boxed_slice(),
            calendar: Calendar::new(),
            strays: Strays::default(),
        })
    }
}
