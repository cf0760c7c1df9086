//! The connection to the keeper and what is known of it: the leases that were
//! taken over it, so that they are taken up again when the connection was lost.
//! A keeper that does not answer within five seconds counts as gone; where
//! finding that out took its time, nobody is asked for as long.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use memcuda_core::config::Keeper;
use memcuda_core::share::client::{self, Client, Dialled};
use memcuda_core::share::protocol::{Code, Event, Generation, Persist, Reply, Request};
use memcuda_core::waiting::Waiting;

use super::epoch::Epoch;
use super::leases::Leases;
use super::who::{self, Heard};
use super::{Error, start};
use crate::engine::Engine;
use crate::engine::worker;
use crate::process::inherited::Inherited;

/// How long a keeper that was just started may take until it answers.
const START: Duration = Duration::from_secs(5);
/// How often a request is made where each time the connection is lost: one that was
/// begun long before may be, and the next one with a keeper that is about to go.
pub const TRIES: u32 = 4;
/// Pause between two tries to reach it.
const PAUSE: Duration = Duration::from_millis(5);
/// For how long nobody is asked after nobody answered for longer than a moment.
const REST: Duration = Duration::from_secs(5);
/// So much earlier this library itself looks again: who is not seen has [`REST`] to come back.
const EARLIER: Duration = Duration::from_secs(1);

/// An answer, with the descriptors beside it.
pub type Answer = (Reply, Vec<OwnedFd>);

/// What was found when a connection was made again.
pub struct Resumed {
    /// Leases on what is gone.
    pub lost: Vec<Generation>,
    /// This keeper knows nothing of what was before.
    pub anew: bool,
}

/// The connection as a forked child sees it.
static OPEN: Inherited = Inherited::none();

/// In a forked child: the connection is the parent's. Async-signal-safe.
pub fn in_child() {
    OPEN.close();
}

/// The connection and what is known of it.
#[derive(Default)]
pub(super) struct Line {
    client: Option<Client>,
    /// A connection that was begun before anybody asked.
    pub(super) begun: Option<Dialled>,
    /// What this process holds, as the keeper counts it.
    leases: Leases,
    node: u64,
    epoch: Option<Epoch>,
    /// The keeper was told that this process comes back.
    expected: bool,
    rest_until: Option<Instant>,
    /// One was started in vain: nobody is waited for once more.
    in_vain: bool,
    /// When one was found that knows nothing of what was before.
    anew: Option<Instant>,
    /// Not yet told to those who have something to do about it.
    pub(super) resumed: Option<Resumed>,
}

impl Line {
    /// Has nothing ever been asked?
    pub(super) fn is_new(&self) -> bool {
        self.client.is_none() && self.leases.is_empty() && self.epoch.is_none()
    }

    /// The same, and nobody was asked in vain a moment ago.
    pub(super) fn may_begin(&self) -> bool {
        self.is_new() && self.rest_until.is_none()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    /// Is there anything that the keeper must hear, or must have heard?
    pub(super) fn is_missed(&self) -> bool {
        self.client.is_none() && (self.expected || !self.leases.is_empty())
    }

    /// Began the keeper anew a moment ago, so that others may have to come back to it first, for
    /// whom was `waited` so long?
    pub(super) fn is_young(&self, waited: Duration) -> bool {
        self.anew
            .is_some_and(|anew| anew.elapsed().max(waited) < REST)
    }

    /// What tells of events and of the end.
    pub(super) fn descriptor(&self) -> Option<i32> {
        let client = self.client.as_ref()?;
        client.is_intact().then(|| client.as_fd().as_raw_fd())
    }

    /// The host and its boot, as the keeper said.
    pub(super) fn node(&self) -> u64 {
        self.node
    }

    /// Keeps a connection for the first request, where there is none.
    pub(super) fn keep(&mut self, begun: Dialled) {
        if self.is_new() {
            OPEN.note(begun.as_fd().as_raw_fd());
            self.begun = Some(begun);
        }
    }

    /// Hears what the keeper said to the connection that is kept, where it has.
    /// Never waits.
    pub(super) fn settle(&mut self) {
        if !self.begun.as_ref().is_some_and(Dialled::is_answered) {
            return;
        }
        match self.begun.take().map(Dialled::welcome) {
            Some(Ok((client, welcome))) => self.adopt(client, Heard::of(welcome, None)),
            _ => self.hang_up(),
        }
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(
        &mut self,
        engine: &Engine,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, Error> {
        let may_be_repeated =
            !matches!(request, Request::Export { .. } | Request::ExportMore { .. });
        let began = Instant::now();
        let last_of = self.leases.last_of(request);
        let (mut tries, mut may_be_done) = (0, false);
        loop {
            tries += 1;
            self.connect(engine)?;
            if may_be_done && let (Some(ended), Some(resumed)) = (last_of, &mut self.resumed) {
                // By the try before: it is no loss.
                resumed.lost.retain(|lost| *lost != ended);
            }
            let client = self.client.as_mut().expect("connected");
            match client.call(request.clone(), descriptors) {
                Ok(answer) => return Ok(answer),
                // By the try before. In any case it is so.
                Err(client::Error::Refused(Code::NotFound, _)) if may_be_done && ends(request) => {
                    return Ok((Reply::Done, Vec::new()));
                }
                Err(client::Error::Refused(code, why)) => return Err(Error::Refused(code, why)),
                Err(error) => {
                    // What the keeper may have lent, and this process does not have, it takes
                    // back where the process comes back without it.
                    may_be_done |= client.may_be_done();
                    self.expected |= may_be_done;
                    self.hang_up();
                    if matches!(error, client::Error::NoRoom) {
                        return Err(Error::Gone(error.to_string()));
                    }
                }
            }
            // One that went away, however busy the host is, makes place for the next one;
            // one that hangs is not asked again.
            let hangs = began.elapsed() >= client::PATIENCE;
            if hangs {
                self.rest();
            }
            if hangs || tries == TRIES || !may_be_repeated {
                return Err(Error::Gone("the keeper went away".to_owned()));
            }
        }
    }

    /// Asks for something that leaves nothing behind, and waits so long for the answer where
    /// there is a connection; `None` where it has not come.
    pub(super) fn ask_for(
        &mut self,
        engine: &Engine,
        request: Request,
        patience: Duration,
    ) -> Option<Result<Answer, Error>> {
        if let Err(error) = self.connect(engine) {
            return Some(Err(error));
        }
        match self.client.as_mut()?.ask_for(request, patience) {
            Ok(answer) => answer.map(Ok),
            Err(client::Error::Refused(code, why)) => Some(Err(Error::Refused(code, why))),
            Err(error) => {
                self.hang_up();
                Some(Err(Error::Gone(error.to_string())))
            }
        }
    }

    /// Makes sure that there is a connection; starts a keeper if need be.
    pub(super) fn connect(&mut self, engine: &Engine) -> Result<(), Error> {
        if self.client.is_some() {
            return Ok(());
        }
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return Err(Error::Gone("no keeper answered a moment ago".to_owned()));
        }
        let began = Instant::now();
        let mut started: Option<Waiting> = None;
        let may_start = engine.config.keeper == Keeper::Auto && !self.in_vain;
        let reached = self.reach(engine, &mut |socket| match &mut started {
            Some(waiting) => {
                waiting.pause(PAUSE);
                waiting.lasted() < START
            }
            None => {
                started = Some(Waiting::begin());
                may_start && start::start(socket)
            }
        });
        if started.is_some() && reached.is_ok() {
            self.anew = Some(Instant::now());
        }
        if let Err(Error::Gone(_)) = reached {
            let nobody = || who::socket(engine).is_ok_and(|socket| !socket.exists());
            let waited = started.map_or(began.elapsed(), |started| started.lasted());
            self.in_vain |= waited >= START && nobody();
        }
        reached
    }

    /// Takes the leases up again where a keeper is found, of which none is started here: with
    /// one that was stopped ends what it held. Whoever asks meanwhile waits, so where nobody
    /// answers that is not done all the time.
    pub(super) fn reach_again(&mut self, engine: &Engine) {
        let soon = Instant::now() + EARLIER;
        if self.rest_until.is_none_or(|until| soon >= until) {
            let _ = self.reach(engine, &mut |_| false);
        }
    }

    /// Nobody answered. Where that took its time the program is not kept again.
    pub(super) fn rest_after(&mut self, began: Instant) {
        if began.elapsed() > who::MOMENT {
            self.rest();
        }
    }

    fn rest(&mut self) {
        self.rest_until = Some(Instant::now() + REST);
    }

    /// Connects and takes the leases up again; where nobody listens, as often as
    /// `again` says.
    pub(super) fn reach(
        &mut self,
        engine: &Engine,
        again: &mut dyn FnMut(&Path) -> bool,
    ) -> Result<(), Error> {
        if let Some(begun) = self.begun.take() {
            let began = Instant::now();
            match begun.welcome() {
                Ok((client, welcome)) => {
                    self.adopt(client, Heard::of(welcome, None));
                    return Ok(());
                }
                Err(error) => {
                    self.hang_up();
                    if who::hangs(&error, began) {
                        self.rest();
                        return Err(Error::Gone(error.to_string()));
                    }
                }
            }
        }
        let leases = self.leases.all();
        let command = who::command();
        let (began, mut tries) = (Instant::now(), 1);
        let (client, welcome) = loop {
            // Which place it is may change with who comes to one.
            let socket = who::socket(engine)?;
            // None where its socket is not.
            let (mut broke_off, mut nobody, mut own_want) = (false, true, false);
            let gone = |error: std::io::Error| Error::Gone(error.to_string());
            let trusted = match who::trusted(engine, &socket) {
                // Somebody else has the place, or nobody can: none is started there.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(gone(error));
                }
                trusted => trusted.map_err(gone),
            };
            let made = trusted.and_then(|()| {
                let (pid, command) = (std::process::id(), &command);
                let dialled = Client::dial(&socket, pid, command, &leases);
                // It may break off with its leases taken up, if there is a keeper at all.
                nobody = dialled.as_ref().is_err_and(client::Error::is_nobody);
                own_want = dialled.as_ref().is_err_and(client::Error::is_own_want);
                self.expected = !nobody && (self.expected || !leases.is_empty());
                let made = dialled.and_then(|dialled| {
                    worker::start();
                    dialled.welcome()
                });
                broke_off = matches!(made, Err(client::Error::Lost));
                made.map_err(|error| match error {
                    client::Error::Refused(code, why) => Error::Refused(code, why),
                    error => Error::Gone(format!("{}: {error}", socket.display())),
                })
            });
            match made {
                Ok(made) => break made,
                // It ended in the midst of this, and another one takes its place.
                Err(_) if broke_off && tries < TRIES && began.elapsed() < client::PATIENCE => {
                    tries += 1;
                }
                Err(Error::Gone(_)) if nobody && again(&socket) => {}
                Err(error) => {
                    // Keepers that end at once keep nobody waiting, however busy the host is.
                    // Nor does what this process lacked for a moment say anything of them.
                    if !(broke_off || own_want) || began.elapsed() >= client::PATIENCE {
                        self.rest_after(began);
                    }
                    return Err(error);
                }
            }
        };
        let heard = Heard::of(welcome, self.epoch.as_ref());
        self.adopt(client, heard);
        Ok(())
    }

    /// Goes on with a connection, of which this was heard.
    pub(super) fn adopt(&mut self, client: Client, heard: Heard) {
        OPEN.note(client.as_fd().as_raw_fd());
        self.client = Some(client);
        self.expected = false;
        self.node = heard.node;
        (self.rest_until, self.in_vain) = (None, false);
        let before = std::mem::replace(&mut self.epoch, heard.epoch);
        if let Some(before) = before {
            let anew = self.epoch.as_ref().is_none_or(|now| !now.follows(&before));
            self.leases.forget(&heard.lost);
            let lost = heard.lost;
            self.anew = anew.then(Instant::now).or(self.anew);
            self.resumed = Some(Resumed { lost, anew });
        }
    }

    /// The connection is gone, or was never used. Who holds something comes back, or may as
    /// the keeper knows it.
    pub(super) fn hang_up(&mut self) {
        OPEN.forget();
        let client = self.client.take();
        let is_expected = self.expected || !self.leases.is_empty();
        if let Some(client) = client.filter(|_| is_expected) {
            // Also where nothing is held by then: the keeper keeps it until it is told.
            self.expected = true;
            client.come_back();
        }
    }

    /// What the keeper has said unasked.
    pub(super) fn events(&mut self) -> Vec<Event> {
        let Some(client) = &mut self.client else {
            return Vec::new();
        };
        client.events().unwrap_or_else(|_| {
            self.hang_up();
            Vec::new()
        })
    }

    /// Counts the leases that a request began or ended.
    pub(super) fn count(&mut self, request: &Request, answer: &Result<Answer, Error>) {
        let reply = answer.as_ref().ok().map(|(reply, _)| reply);
        self.leases.count(request, reply);
    }
}

/// Does a request end a name, where it is nobody's else?
fn ends(request: &Request) -> bool {
    matches!(
        request,
        Request::Delete { .. }
            | Request::Persist {
                persist: Persist::No,
                ..
            }
    )
}
