//! The loop. A turn hears every connection that has something to say, for a
//! bounded time each; writes the journal; then lets the answers go. Nothing in
//! it waits for a client: who does not read its answers is dropped.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::io::Errno;
use tracing::{error, info, warn};

use super::clients::process::{self, Known};
use super::clock::GRACE;
use super::entries::ClientId;
use super::requests::access::Access;
use super::state::{End, Ghost, Keeper};
use super::succession::key::Key;
use super::succession::standby::{Standby, Vault};
use super::token::Token;
use crate::epoch::now_us;

impl Keeper {
    /// Goes on where a predecessor ended, or begins.
    pub fn begin(&mut self, restarts: u32, next_client: ClientId) -> Result<()> {
        (self.restarts, self.next_client) = (restarts, next_client);
        self.entries.set_time(now_us());
        match self.renew_journal() {
            // To end would be to be given up by systemd.
            Err(error) if matches!(self.descriptors.vault, Vault::Systemd(_)) => {
                self.unwritten = true;
                error!(
                    "the journal cannot be stored ({error}); a restart now would lose what is new"
                );
            }
            renewed => renewed.context("cannot write the journal")?,
        }
        self.listen()?;
        self.watch(&self.signals, Token::Signal)?;
        if let Some(desk) = &self.desk {
            self.watch(desk, Token::Desk)?;
            // Whatever was published before may not be so any more.
            desk.mark(self.entries.names().cloned());
        }
        let ghosts: Vec<_> = self
            .entries
            .earlier()
            .map(|(id, p)| (id, p.clone()))
            .collect();
        for (client, process) in ghosts {
            let watch = match process::look_for(&process) {
                Known::Ended => {
                    self.leave(client);
                    continue;
                }
                Known::Watched(watch) => Some(watch),
                Known::Unwatched => None,
            };
            if let Some(watch) = &watch {
                self.mind(client, watch)?;
            }
            let until = watch.is_none().then(|| Instant::now() + GRACE);
            let ghost = Ghost { watch, until };
            self.ghosts.insert(client, ghost);
        }
        match &self.descriptors.vault {
            Vault::None => self.start_standby(),
            Vault::Standby(standby) => self.watch(&standby.socket, Token::Standby)?,
            Vault::Systemd(_) => {}
        }
        self.look_at_place();
        self.finish_turn();
        Ok(())
    }

    /// Turns, until the end.
    pub fn serve(mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            while self.end.is_none() {
                match self.wait(&mut events) {
                    Ok(()) | Err(Errno::INTR) => {}
                    Err(error) => bail!("cannot wait for clients: {error}"),
                }
                self.tell_time();
                self.shares.clear();
                self.go_on_leaving();
                for event in events.drain(..) {
                    self.hear(Token::of(event.data));
                }
                self.look_at_clock();
                self.finish_turn();
            }
            match self.end.take() {
                Some(End::Restart) => self.restart(),
                Some(end) => return self.stop(end),
                None => {}
            }
        }
    }

    fn hear(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Signal => self.hear_signal(),
            Token::Standby => self.replace_standby(),
            Token::Desk => self.answer_desk(),
            Token::Place => self.place_changes(),
            Token::Client(client) => self.hear_client(client),
            Token::Watch(client) => self.has_ended(client),
        }
    }

    fn hear_signal(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo != Signal::SIGHUP as u32 {
                self.end = Some(End::Signal);
                return;
            }
            self.look_at_door();
            self.look_at_place();
            // What is gone by now is not to be taken from what is counted anew.
            self.finish_turn();
            let owner = rustix::process::geteuid().as_raw();
            match Access::load(owner, self.options.rules.as_deref()) {
                Ok(mut access) => {
                    for item in self.entries.items() {
                        if let Some(name) = &item.name {
                            access.charge(item.maker.uid, item.maker.gid, name, item.mapped);
                        }
                    }
                    self.access = access;
                    info!("the rules were read again");
                }
                Err(error) => error!("the rules stay as they were: {error}"),
            }
        }
    }

    pub(super) fn listen(&self) -> Result<()> {
        let listener = self.descriptors.get(Key::Listener).context("no socket")?;
        self.watch(&**listener, Token::Listener)
    }

    pub(super) fn watch(&self, what: impl AsFd, token: Token) -> Result<()> {
        epoll::add(&self.epoll, what, token.data(), EventFlags::IN).context("cannot watch")
    }

    /// Its standby is gone.
    fn replace_standby(&mut self) {
        self.standby_failed = false;
        if let Vault::Standby(former) = std::mem::replace(&mut self.descriptors.vault, Vault::None)
        {
            self.standby_failed = former.is_young();
            former.dismiss();
        }
        if self.standby_failed {
            // Another one at once would be one after the other, as fast as can be.
            warn!("the standby is gone before long; starting another in a second");
            self.standby_again = Some(Instant::now() + Duration::from_secs(1));
        } else {
            warn!("the standby is gone; starting another");
            self.start_standby();
        }
    }

    pub(super) fn start_standby(&mut self) {
        match Standby::start(&self.options.launch, self.standby_failed) {
            Ok(standby) => {
                let _ = self.watch(&standby.socket, Token::Standby);
                self.descriptors.vault = Vault::Standby(standby);
                self.descriptors.refill();
            }
            Err(error) => {
                error!("cannot start a standby: {error}; trying again");
                self.standby_again = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    /// Its standby's process; 0 where there is none.
    pub(super) fn standby_pid(&self) -> u32 {
        match &self.descriptors.vault {
            Vault::Standby(standby) => standby.pid,
            Vault::None | Vault::Systemd(_) => 0,
        }
    }

    fn stop(mut self, end: End) -> Result<()> {
        let count = self.entries.items().count();
        if end == End::Signal && matches!(self.descriptors.vault, Vault::Systemd(_)) {
            info!("the keeper ends; systemd stores its {count} names and exports");
        } else {
            if count > 0 {
                warn!("the keeper ends, and {count} names and exports with it");
            }
            self.leave_place();
            let all: Vec<_> = self.descriptors.keys().collect();
            self.descriptors.vault.end(&all);
            if let Some(desk) = self.desk.take() {
                desk.close();
            }
        }
        Ok(())
    }

    /// Becomes the program that is there now; returns where that failed.
    fn restart(&mut self) {
        if self.lacks() {
            self.complete_vault();
        }
        if self.lacks() {
            return error!("not started anew: a successor would lose what is new");
        }
        let socket = match &self.descriptors.vault {
            Vault::Standby(standby) => standby.socket.try_clone(),
            // The service manager starts it again.
            Vault::Systemd(_) => std::process::exit(0),
            Vault::None => return error!("not started anew: there is no standby"),
        };
        let error = match socket {
            Ok(socket) => self.options.launch.become_successor(socket),
            Err(error) => error,
        };
        error!("cannot be started anew: {error}");
    }
}
