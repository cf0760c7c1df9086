//! Stream captures under way in this process. A context-wide event or
//! synchronisation ends the capture of any thread, so the two exclude each
//! other here: beginning a capture has the lock alone, recording an event shares
//! it. For a driver without context-wide events (before 12.5) one waits under the
//! lock, and for a stream that takes no more operations until it has done some:
//! others of the process record meanwhile.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The process's count of captures.
pub struct Captures {
    active: RwLock<u32>,
}

/// All captures of this process: they end each other across devices' pools.
pub static CAPTURES: Captures = Captures {
    active: RwLock::new(0),
};

impl Captures {
    /// To be held across the driver's begin-capture call.
    pub fn begin(&self) -> Beginning<'_> {
        Beginning {
            active: self.alone(),
        }
    }

    /// A capture ended, whatever its result.
    pub fn ended(&self) {
        let mut active = self.alone();
        *active = active.saturating_sub(1);
    }

    /// Runs `action` while no capture can begin, or returns `None` where one
    /// is under way.
    pub fn exclude<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        let active = self.shared();
        (*active == 0).then(action)
    }

    /// Runs `action` while no capture can begin, and tells it whether one is
    /// under way.
    pub fn hold_back<T>(&self, action: impl FnOnce(bool) -> T) -> T {
        let active = self.shared();
        action(*active > 0)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, u32> {
        self.active.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> RwLockReadGuard<'_, u32> {
        self.active.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A capture that is being begun.
pub struct Beginning<'a> {
    active: RwLockWriteGuard<'a, u32>,
}

impl Beginning<'_> {
    /// The driver began it.
    pub fn succeeded(mut self) {
        *self.active += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// One may wait for room on a stream of one device while others go on.
    #[test]
    fn who_records_keeps_nobody_else_from_it() {
        let captures = Captures {
            active: RwLock::new(0),
        };
        let (captures, (told, hears)) = (&captures, channel());
        std::thread::scope(|scope| {
            let heard = captures.hold_back(|_| {
                scope.spawn(move || {
                    let both = (captures.exclude(|| ()), captures.hold_back(|any| any));
                    told.send(both).unwrap();
                });
                hears.recv_timeout(Duration::from_secs(20))
            });
            assert_eq!(heard, Ok((Some(()), false)));
        });
    }
}
