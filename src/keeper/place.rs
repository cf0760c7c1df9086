//! The keeper's place: the path where clients find its socket. It may be taken away while
//! the keeper lives, as a logout does with a user's directory, and another keeper may be
//! there since. Whose it is the lock beside the socket says. Looks now and then, and takes a
//! place that is free again; never takes away what is another's.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::epoll;
use tracing::{error, info};

use super::key::Key;
use super::listen::{self, Door};
use super::serve::{End, Keeper};

/// How often it looks.
const PAUSE: Duration = Duration::from_secs(60);

impl Keeper {
    /// Is the place this keeper's?
    pub(super) fn has_place(&self) -> bool {
        let lock = self.descriptors.get(Key::Lock);
        lock.is_some_and(|lock| listen::is_place_of(&**lock, &self.options.socket))
    }

    /// Listens there again where clients do not find it any more.
    pub(super) fn look_at_place(&mut self) {
        self.place_again = Instant::now() + PAUSE;
        if self.has_place() && listen::is_heard(&self.options.socket) {
            self.displaced = false;
            return;
        }
        match self.take_place() {
            Ok(()) => {
                info!("the socket was taken away, and is there again");
                self.displaced = false;
            }
            Err(error) if !std::mem::replace(&mut self.displaced, true) => {
                let count = self.entries.items().count();
                error!(
                    "the socket was taken away; nobody comes to {count} names and exports: {error:#}"
                );
            }
            Err(_) => {}
        }
    }

    /// Listens for the group, where that was not known when the keeper began.
    pub(super) fn look_at_door(&mut self) {
        let door = Door::of(self.options.group.as_deref());
        if let Err(error) = door.and_then(|door| self.let_in(door)) {
            error!("who may come to the socket stays as it was: {error:#}");
        }
    }

    fn let_in(&mut self, door: Door) -> Result<()> {
        let former = std::mem::replace(&mut self.door, door);
        if door == former || !self.has_place() {
            return Ok(());
        }
        let entered = listen::enter(&self.options.socket, door);
        let bound = entered.and_then(|()| self.bind());
        if bound.is_err() {
            self.door = former;
        }
        bound
    }

    fn take_place(&mut self) -> Result<()> {
        let socket = &self.options.socket;
        if !self.has_place() {
            listen::enter(socket, self.door)?;
            let lock = listen::lock(socket, Duration::ZERO)?;
            self.descriptors.drop_all(&[Key::Lock]);
            self.descriptors.keep(vec![(Key::Lock, lock)]);
        }
        self.bind()
    }

    /// Listens anew, once whoever came to the former socket was heard.
    fn bind(&mut self) -> Result<()> {
        let listener = listen::bind_to(&self.options.socket, self.door)?;
        self.accept();
        if let Some(former) = self.descriptors.get(Key::Listener) {
            // The standby has it for a moment yet, and with it epoll would.
            let _ = epoll::delete(&self.epoll, &**former);
        }
        self.descriptors.drop_all(&[Key::Listener]);
        self.descriptors.keep(vec![(Key::Listener, listener)]);
        self.listen()
    }

    /// Takes the socket away, if it is this keeper's.
    pub(super) fn leave_place(&self) {
        if self.has_place() {
            let _ = fs::remove_file(&self.options.socket);
        }
    }

    /// Ends for want of work, unless somebody comes at this very moment.
    pub(super) fn end_idle(&mut self) {
        self.leave_place();
        self.accept();
        if self.connections.is_empty() {
            info!("nobody needs the keeper: it ends");
            self.end = Some(End::Stop);
        } else if self.has_place()
            && let Err(error) = self.bind()
        {
            error!("{error:#}");
        }
    }
}
