//! Stream captures under way in this process. A context-wide event or
//! synchronisation ends the capture of any thread, so the two exclude each
//! other here: beginning a capture holds the lock, and so does recording a
//! context-wide event. Only a driver without such events (before 12.5) is waited
//! for under the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The process's count of captures.
pub struct Captures {
    active: Mutex<u32>,
}

/// All captures of this process: they end each other across devices' pools.
pub static CAPTURES: Captures = Captures {
    active: Mutex::new(0),
};

impl Captures {
    /// To be held across the driver's begin-capture call.
    pub fn begin(&self) -> Beginning<'_> {
        Beginning {
            active: self.lock(),
        }
    }

    /// A capture ended, whatever its result.
    pub fn ended(&self) {
        let mut active = self.lock();
        *active = active.saturating_sub(1);
    }

    /// Runs `action` while no capture can begin, or returns `None` where one
    /// is under way.
    pub fn exclude<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        let active = self.lock();
        (*active == 0).then(action)
    }

    /// Runs `action` while no capture can begin, and tells it whether one is
    /// under way.
    pub fn hold_back<T>(&self, action: impl FnOnce(bool) -> T) -> T {
        let active = self.lock();
        action(*active > 0)
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A capture that is being begun.
pub struct Beginning<'a> {
    active: MutexGuard<'a, u32>,
}

impl Beginning<'_> {
    /// The driver began it.
    pub fn succeeded(mut self) {
        *self.active += 1;
    }
}
