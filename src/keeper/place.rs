//! The keeper's place: the path where clients find its socket. It may be taken away while
//! the keeper lives, as a logout does with a user's directory, and another keeper may be
//! there since. Whose it is the lock beside the socket says. Looks now and then, and soon
//! after the lock is gone, and takes a place that is free again, or where its user's clients
//! look now; never takes away what is another's.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::epoll;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::geteuid;
use tracing::{error, info};

use super::start::listen::{self, Door};
use super::state::{End, Keeper};
use super::succession::key::Key;
use super::token::Token;
use crate::share::place::{self, SOCKET, is_heard};

/// How often it looks.
pub(super) const PAUSE: Duration = Duration::from_secs(60);
/// How soon once the lock is gone: whoever takes the directory away has to come to an end
/// with it. From then on it looks ever more seldom.
const SOON: Duration = Duration::from_millis(100);

impl Keeper {
    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.options.socket
    }

    /// Is the place this keeper's?
    pub(super) fn has_place(&self) -> bool {
        self.is_own(self.socket())
    }

    fn is_own(&self, socket: &Path) -> bool {
        let lock = self.descriptors.get(Key::Lock);
        lock.is_some_and(|lock| listen::is_place_of(&**lock, socket))
    }

    /// Its lock was moved or taken away, or that of who has its place.
    pub(super) fn place_changes(&mut self) {
        self.place_watch = None;
        self.place_pause = SOON;
        self.place_again = Instant::now() + SOON;
    }

    /// Listens there again where clients do not find it any more, or where they look now.
    pub(super) fn look_at_place(&mut self) {
        self.place_pause = (self.place_pause * 2).min(PAUSE);
        let now = self.place_now();
        let former = std::mem::replace(&mut self.options.socket, now);
        self.watch_place();
        if self.has_place() && is_heard(self.socket()) {
            self.displaced = false;
        } else {
            let taken = self.take_place();
            self.tell_of_place(former, taken);
        }
        self.place_again = Instant::now() + self.place_pause;
    }

    fn tell_of_place(&mut self, former: PathBuf, taken: Result<()>) {
        if let Err(error) = taken {
            self.options.socket = former;
            if !std::mem::replace(&mut self.displaced, true) {
                let count = self.entries.items().count();
                error!(
                    "the socket was taken away; nobody comes to {count} names and exports: {error:#}"
                );
            }
            return;
        }
        if former == self.socket() {
            info!("the socket was taken away, and is there again");
        } else {
            info!(
                "the socket was taken away; it is {} now",
                self.socket().display()
            );
        }
        self.displaced = false;
        // This one may be taken away with the former.
        self.place_pause = SOON;
        self.watch_place();
    }

    /// Where it is to listen: among the user's own places where a predecessor of it went, or
    /// where the user's clients look now.
    fn place_now(&self) -> PathBuf {
        let uid = geteuid().as_raw();
        let variable = |name: &str| std::env::var(name).ok();
        if self.has_place() || !place::is_users(self.socket(), uid, variable) {
            return self.socket().to_owned();
        }
        let usable = place::usable(uid, variable).into_iter();
        let mut sockets = usable.map(|it| it.join(SOCKET));
        let own = sockets.find(|socket| self.is_own(socket));
        own.unwrap_or_else(|| place::directory(uid, variable).join(SOCKET))
    }

    /// Hears of the end of the lock that lies there. Without it, the pause is all that there is.
    fn watch_place(&mut self) {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        self.place_watch = watch.filter(|watch| {
            let lock = listen::lock_of(self.socket());
            // Of a file that is open it is an attribute that its last name is gone.
            let what = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DONT_FOLLOW;
            inotify::add_watch(watch, lock, what).is_ok() && self.watch(watch, Token::Place).is_ok()
        });
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
