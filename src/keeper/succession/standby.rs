//! Where duplicates of the keeper's descriptors are, so that its death loses
//! nothing: a second process of the keeper that does nothing but hold them and
//! start a new keeper, or systemd's descriptor store (`systemd`).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use crate::keeper::clients::strays::Strays;
use crate::keeper::start::launch::{Launch, Role};
use crate::keeper::succession::key::Key;
use crate::keeper::succession::relative::Relative;
use crate::keeper::succession::systemd::Store;
use crate::share::protocol::{Generation, MOST_PARTS};
use crate::share::wire::{self, Broken};

/// What keeper and standby say to each other; the descriptors of `Keep` and
/// `Given` are beside the packet. One of the two may be of a newer version after
/// an upgrade: words and keys are added at the end only.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// Hold these, in the place of those of the same keys.
    Keep(Vec<Key>),
    /// Hold these no longer.
    Forget(Vec<Key>),
    /// Give all that you hold.
    Give,
    /// Here are some.
    Given(Vec<Key>),
    /// That was all; the number of the standby's process.
    All(u32),
    /// The keeper ends and is not to be started again.
    End,
}

/// A keeper that lived no longer than this did not start, whatever it has said; and the
/// pause behind each that did not.
const SHORT: Duration = Duration::from_millis(200);
/// A standby that lived no longer than this is followed by one of the keeper's own program,
/// a little later.
const YOUNG: Duration = Duration::from_secs(1);
/// Starts that fail before the standby's own program is tried instead.
const MOST_FAILURES: u32 = 3;
/// How long the standby may take to read.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to close what it is to hold no longer; everybody waits.
const AT_ONCE: Duration = Duration::from_millis(250);

/// What shows that all before is closed; of no generation, so a successor drops it.
const MARK: Key = Key::Timeline(Generation([0xff; 16]));

/// The keeper's side.
pub enum Vault {
    /// Nowhere, for now.
    None,
    /// A second process.
    Standby(Standby),
    /// The service manager.
    Systemd(Store),
}

/// The second process, as the keeper sees it.
pub struct Standby {
    /// Readable at its end.
    pub socket: OwnedFd,
    /// Its number.
    pub pid: u32,
    /// Did it not get something that it is to hold?
    pub lacks: bool,
    /// When this process started it.
    started: Option<Instant>,
    process: Relative,
}

impl Vault {
    /// Puts duplicates there. A standby that does not take them is ended; the
    /// keeper notices, and starts another.
    pub fn keep(&mut self, all: &[(Key, BorrowedFd<'_>)]) {
        for some in all.chunks(MOST_PARTS) {
            let keys: Vec<Key> = some.iter().map(|(key, _)| *key).collect();
            let beside: Vec<_> = some.iter().map(|(_, descriptor)| *descriptor).collect();
            match self {
                Self::None => {}
                Self::Standby(standby) => standby.say(&Word::Keep(keys), &beside),
                Self::Systemd(store) => store.keep(some),
            }
        }
    }

    /// Did something not arrive there that is to be kept?
    pub fn lacks(&self) -> bool {
        match self {
            Self::None => false,
            Self::Standby(standby) => standby.lacks,
            Self::Systemd(store) => store.lacks,
        }
    }

    /// It is about to be given all again.
    pub fn begin_anew(&mut self) {
        match self {
            Self::None => {}
            Self::Standby(standby) => standby.lacks = false,
            Self::Systemd(store) => store.lacks = false,
        }
    }

    /// Takes them away.
    pub fn forget(&mut self, keys: &[Key]) {
        for keys in keys.chunks(MOST_PARTS) {
            match self {
                Self::None => {}
                Self::Standby(standby) => standby.say(&Word::Forget(keys.to_vec()), &[]),
                Self::Systemd(store) => store.forget(keys),
            }
        }
    }

    /// Waits until a standby has closed what was taken away: memory is free only
    /// then. (systemd is not waited for.)
    pub fn settle(&mut self) {
        if let Self::Standby(standby) = self {
            standby.settle();
        }
    }

    /// The keeper ends for good: nothing is to be started again, or found.
    pub fn end(&mut self, all: &[Key]) {
        match self {
            Self::None => {}
            Self::Standby(standby) => standby.say(&Word::End, &[]),
            Self::Systemd(store) => store.forget(all),
        }
    }
}

impl Standby {
    /// Starts one, where `own` of the program that this process is.
    pub fn start(launch: &Launch, own: bool) -> std::io::Result<Self> {
        let (here, there) = pair()?;
        let child = match own {
            true => launch.start_own(Role::Standby, there),
            false => launch.start(Role::Standby, there),
        }?;
        Ok(Self {
            started: Some(Instant::now()),
            ..Self::new(here, child.id())
        })
    }

    /// Did this process start it a moment ago? One that is gone by then does not live.
    pub fn is_young(&self) -> bool {
        self.started.is_some_and(|at| at.elapsed() < YOUNG)
    }

    /// The one that started this process, or that it had before, with all that
    /// it holds.
    pub fn inherited(socket: OwnedFd) -> Result<(Self, Vec<(Key, OwnedFd)>), Broken> {
        patient(&socket)?;
        wire::send(&socket, &Word::Give, &[])?;
        let mut all = Vec::new();
        let mut room = vec![0; wire::MOST_BYTES];
        loop {
            let (bytes, beside) = wire::receive_bytes(&socket, &mut room, false)?;
            match wire::understand(bytes)? {
                Word::Given(keys) => all.extend(keys.into_iter().zip(beside)),
                Word::All(pid) => return Ok((Self::new(socket, pid), all)),
                _ => return Err(Broken::Garbled),
            }
        }
    }

    fn new(socket: OwnedFd, pid: u32) -> Self {
        Self {
            socket,
            pid,
            lacks: false,
            started: None,
            process: Relative::of(pid),
        }
    }

    fn say(&mut self, word: &Word, beside: &[BorrowedFd<'_>]) {
        match wire::send(&self.socket, word, beside) {
            Ok(()) => {}
            // Too many of this user are on their way: what it has is better than nothing.
            Err(Broken::System(Errno::TOOMANYREFS)) => {
                if !std::mem::replace(&mut self.lacks, true) {
                    warn!("the standby lacks something: too many descriptors are on their way");
                }
            }
            Err(error) => {
                warn!("the standby does not take what it is to hold ({error:?})");
                self.kill();
            }
        }
    }

    /// A descriptor is handed over and taken away again: once that is closed, so
    /// is everything before. By words that every version of it knows.
    fn settle(&mut self) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let Ok((here, there)) = socketpair(family, kind, SocketFlags::CLOEXEC, None) else {
            return;
        };
        self.say(&Word::Keep(vec![MARK]), &[there.as_fd()]);
        self.say(&Word::Forget(vec![MARK]), &[]);
        drop(there);
        let timeout = AT_ONCE.try_into().ok();
        let closed = loop {
            match poll(&mut [PollFd::new(&here, PollFlags::IN)], timeout.as_ref()) {
                Err(Errno::INTR) => {}
                closed => break closed,
            }
        };
        if closed != Ok(1) {
            warn!("the standby does not let go of what it held; starting another");
            self.kill();
        }
    }

    /// Ends it, before there is another. It is not done when this goes out of
    /// scope: a keeper that panics is to be started again.
    pub fn dismiss(self) {
        self.kill();
        self.process.wait();
    }

    /// At once, whatever it does: one that only lost its socket would start
    /// another keeper. The loop notices, and starts another standby.
    fn kill(&self) {
        self.process.kill();
    }
}

/// The other side: holds what it is given until it is told to end, and starts a
/// new keeper whenever there is none.
pub fn main(socket: OwnedFd, launch: &Launch) -> std::io::Result<()> {
    let mut held: BTreeMap<Key, OwnedFd> = BTreeMap::new();
    let strays = Strays::default();
    let mut has_begun = false;
    let mut socket = socket;
    let mut keeper: Option<Child> = None;
    let mut since = Instant::now();
    let mut failures = 0;
    let mut room = vec![0; wire::MOST_BYTES];
    loop {
        match serve(&socket, &mut held, &mut has_begun, &mut room, &strays) {
            Ok(true) => continue,
            Ok(false) => return Ok(()),
            Err(Broken::Closed) => info!("the keeper is gone"),
            Err(error) => {
                // The keeper lives, and starts another standby.
                return Err(std::io::Error::other(format!("not understood: {error:?}")));
            }
        }
        if let Some(mut child) = keeper.take() {
            // Were it alive without its socket, there would be two.
            let _ = child.kill();
            let _ = child.wait();
        }
        if !held.keys().any(|key| matches!(key, Key::State(_))) {
            // It never began: there is nothing to be saved.
            return Ok(());
        }
        // However long it took.
        let failed = !std::mem::take(&mut has_begun) || since.elapsed() < SHORT;
        failures = if failed { failures + 1 } else { 0 };
        if failed {
            std::thread::sleep(SHORT);
        }
        since = Instant::now();
        let (here, there) = match pair() {
            Ok(pair) => pair,
            Err(error) => {
                // Whoever gave up here would lose everything.
                error!("cannot start a keeper: {error}; trying again");
                std::thread::sleep(SHORT);
                continue;
            }
        };
        socket = here;
        // A new version may not even start; then it may be mended.
        let started = match failures % (MOST_FAILURES + 1) {
            MOST_FAILURES => launch.start_own(Role::Successor, there),
            _ => launch.start(Role::Successor, there),
        };
        match started {
            Ok(child) => {
                let count = held.len();
                info!("started keeper {} with {count} descriptors", child.id());
                keeper = Some(child);
            }
            Err(error) => error!("cannot start a keeper: {error}; trying again"),
        }
    }
}

/// One word; `false` at the end. A keeper has begun once it hands over a journal of its
/// own.
fn serve(
    socket: &OwnedFd,
    held: &mut BTreeMap<Key, OwnedFd>,
    has_begun: &mut bool,
    room: &mut [u8],
    strays: &Strays,
) -> Result<bool, Broken> {
    let (bytes, beside) = wire::receive_bytes(socket, room, false)?;
    match wire::understand(bytes)? {
        Word::Keep(keys) => {
            *has_begun |= keys.iter().any(|key| matches!(key, Key::State(_)));
            held.extend(keys.into_iter().zip(beside));
        }
        Word::Forget(keys) => {
            if keys == [MARK] {
                strays.settle(AT_ONCE / 2);
            }
            strays.let_go(keys.iter().filter_map(|key| held.remove(key)).collect());
        }
        Word::Give => {
            *has_begun = false;
            let all: Vec<_> = held.iter().collect();
            for some in all.chunks(MOST_PARTS) {
                let keys = some.iter().map(|(key, _)| **key).collect();
                let beside: Vec<_> = some
                    .iter()
                    .map(|(_, descriptor)| descriptor.as_fd())
                    .collect();
                hand_over(socket, &Word::Given(keys), &beside)?;
            }
            hand_over(socket, &Word::All(std::process::id()), &[])?;
        }
        Word::End => return Ok(false),
        Word::Given(_) | Word::All(_) => return Err(Broken::Garbled),
    }
    Ok(true)
}

/// To a successor, for as long as it takes: it may be slow to read, or too many descriptors
/// of this user be on their way. Whoever gave up here would lose everything.
fn hand_over(socket: &OwnedFd, word: &Word, beside: &[BorrowedFd<'_>]) -> Result<(), Broken> {
    loop {
        match wire::send(socket, word, beside) {
            sent @ (Ok(()) | Err(Broken::Closed)) => return sent,
            Err(_) => std::thread::sleep(SHORT),
        }
    }
}

/// Two ends; the keeper's waits no longer than a standby may take to read.
fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    patient(&here)?;
    Ok((here, there))
}

fn patient(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_socket_timeout(socket, Timeout::Send, Some(PATIENCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::succession::descriptors::raise_limit;

    /// More than there is room for between the two.
    const MANY: u32 = 8000;

    #[test]
    fn a_successor_that_is_slow_to_read_gets_everything() {
        assert!(raise_limit() > MANY as usize + 1000);
        let (here, there) = pair().unwrap();
        // It asks for all, is stopped for longer than a keeper waits, reads, and ends.
        let script = "exec 3<&0; printf '\\2' >&3; sleep 3; cat <&3 >/dev/null & printf '\\5' >&3";
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            quiet: true,
        };
        let standby = std::thread::spawn(move || main(there, &launch));
        let null = std::fs::File::open("/dev/null").unwrap();
        let generation = Generation([1; 16]);
        let keys = (0..MANY).map(|place| Key::Part(generation, place));
        let all: Vec<_> = keys.chain([Key::State(0)]).collect();
        let all: Vec<_> = all.into_iter().map(|key| (key, null.as_fd())).collect();
        let mut vault = Vault::Standby(Standby::new(here, 0));
        vault.keep(&all);
        drop(vault);
        standby.join().unwrap().unwrap();
    }
}
