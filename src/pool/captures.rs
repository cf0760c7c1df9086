//! Stream captures under way in this process. A context-wide event or
//! synchronisation ends the capture of any thread, so the two exclude each
//! other here: beginning a capture has the lock alone, recording such an event shares
//! it. For a driver without context-wide events (before 12.5) one waits under the
//! lock.
//!
//! What goes into one stream ends no capture, but must be in none. It may wait until the stream
//! has room, so it keeps no other stream's capture from beginning, and its own alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::front::Fronts;
use super::request::StreamKey;
use crate::lock;

/// Locks that streams are spread over, as over fronts.
const SPREAD: usize = 64;

/// The process's count of captures.
pub struct Captures {
    active: RwLock<u32>,
    /// How many were about to begin so far.
    begun: AtomicU64,
    /// Of the streams in which something is put, or whose capture begins.
    streams: [RwLock<()>; SPREAD],
}

/// All captures of this process: they end each other across devices' pools.
pub static CAPTURES: Captures = Captures::new();

impl Captures {
    const fn new() -> Self {
        Self {
            active: RwLock::new(0),
            begun: AtomicU64::new(0),
            streams: [const { RwLock::new(()) }; SPREAD],
        }
    }

    /// To be held across the driver's call that begins a capture of this stream.
    pub fn begin(&self, stream: &StreamKey) -> Beginning<'_> {
        let stream = self.streams[Fronts::of_stream(stream)].write();
        let _stream = stream.unwrap_or_else(PoisonError::into_inner);
        let active = self.alone();
        self.begun.fetch_add(1, Ordering::AcqRel);
        Beginning { _stream, active }
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

    /// Runs `action`, which puts something into a stream, while no capture of that can begin.
    /// Others may: what `action` gets tells it afterwards whether any was under way
    /// meanwhile, which the stream may have joined by a mere wait.
    pub fn put<T>(&self, stream: &StreamKey, action: impl FnOnce(&dyn Fn() -> bool) -> T) -> T {
        let stream = self.streams[Fronts::of_stream(stream)].read();
        let _stream = stream.unwrap_or_else(PoisonError::into_inner);
        let (begun, under_way) = (self.begun(), self.any());
        action(&|| under_way || self.begun() != begun)
    }

    /// Is any under way?
    pub fn any(&self) -> bool {
        *self.shared() > 0
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, u32> {
        lock::write(&self.active)
    }

    fn shared(&self) -> RwLockReadGuard<'_, u32> {
        lock::read(&self.active)
    }
}

/// A capture that is being begun.
pub struct Beginning<'a> {
    _stream: RwLockWriteGuard<'a, ()>,
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
    use crate::pool::tests::key;

    /// One may wait for room on a stream while others go on.
    #[test]
    fn who_puts_something_into_a_stream_keeps_nobody_elses_capture_from_beginning() {
        let captures = Captures::new();
        let (captures, (told, hears)) = (&captures, channel());
        std::thread::scope(|scope| {
            captures.put(&key(10), |any| {
                assert!(!any());
                scope.spawn(move || {
                    let excluded = captures.exclude(|| ());
                    captures.begin(&key(11)).succeeded();
                    told.send((excluded, captures.put(&key(12), |any| any())))
                        .unwrap();
                });
                let heard = hears.recv_timeout(Duration::from_secs(20));
                assert_eq!(heard, Ok((Some(()), true)));
                assert!(any(), "the stream may have joined it");
            });
        });
        captures.ended();
        captures.put(&key(10), |any| assert!(!any()));
    }

    #[test]
    fn a_stream_begins_no_capture_while_something_is_put_into_it() {
        let captures = Captures::new();
        let (captures, (told, hears)) = (&captures, channel());
        std::thread::scope(|scope| {
            captures.put(&key(10), |any| {
                scope.spawn(move || {
                    captures.begin(&key(10)).succeeded();
                    told.send(()).unwrap();
                });
                let heard = hears.recv_timeout(Duration::from_millis(50));
                assert!(heard.is_err() && !any());
            });
            hears.recv_timeout(Duration::from_secs(20)).unwrap();
        });
    }
}
