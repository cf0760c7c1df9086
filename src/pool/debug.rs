//! `MEMCUDA_DEBUG`: memory filled with NaN patterns when it is lent, and guard
//! words behind every allocation that are checked when it is freed. Off, it
//! costs one comparison.

use super::Pool;
use super::request::{Order, Release, Request, StreamKey};
use crate::config::Debug;
use crate::driver::{Address, Capture, Driver, Result, Stream, cancel};

/// Guard bytes behind an allocation.
const GUARD: u64 = 512;
/// All ones: NaN as half, bfloat16, float and double.
const POISON: u32 = 0xFFFF_FFFF;
/// The guard's word.
const CANARY: u32 = 0xC0DE_CAFE;

impl<D: Driver> Pool<D> {
    /// Bytes that a request is longer than the program asked for.
    pub(super) fn padding(&self) -> u64 {
        match self.settings.debug {
            Debug::Canary => GUARD,
            Debug::None | Debug::Poison => 0,
        }
    }

    /// The request with room for the guard.
    pub(super) fn padded(&self, request: &Request) -> Request {
        Request {
            bytes: request.bytes + self.padding(),
            ..*request
        }
    }

    /// Fills what was lent, in the order of its first use.
    pub(super) fn prepare(&self, request: &Request, at: Address) -> Result<()> {
        let (from, word, bytes) = match self.settings.debug {
            Debug::None => return Ok(()),
            Debug::Poison => (at, POISON, request.bytes & !3),
            // The guard begins behind the last whole word of the program's.
            Debug::Canary => {
                let asked = (request.bytes - GUARD).next_multiple_of(4);
                (at + asked, CANARY, (request.bytes - asked) & !3)
            }
        };
        let _held = cancel::hold();
        let key = match request.order.stream() {
            Some(key) => *key,
            None => StreamKey::new(request.context, Stream::LEGACY, 0),
        };
        if self.driver.capture(key.context, key.stream)? == Capture::Active {
            // A fill would become part of the user's graph.
            if self.settings.debug == Debug::Canary {
                self.lock().unguarded.insert(at);
            }
            return Ok(());
        }
        self.driver
            .fill(key.context, key.stream, from, word, bytes)?;
        if !matches!(request.order, Order::Stream(_)) {
            // Other streams may use it at once, so the fill must be over.
            self.finish(key)?;
        }
        Ok(())
    }

    /// Were the guard words of this allocation overwritten?
    pub(super) fn is_overrun(&self, at: Address, release: Release) -> bool {
        if self.settings.debug != Debug::Canary {
            return false;
        }
        let _held = cancel::hold();
        let mut state = self.lock();
        let found = state
            .find(at)
            .filter(|info| info.base == at && !info.attached);
        let Some(info) = found.filter(|_| !state.unguarded.remove(&at)) else {
            return false;
        };
        drop(state);
        // A read would end the capture of a stream that blocks on the legacy one.
        let capture = self.driver.capture(info.context, Stream::LEGACY);
        if capture != Ok(Capture::None) {
            return false;
        }
        if let Release::Stream(key) = release
            && self.finish(key).is_err()
        {
            return false;
        }
        let asked = (info.bytes - GUARD).next_multiple_of(4);
        let mut words = vec![0; ((info.bytes - asked) & !3) as usize];
        let read = self
            .driver
            .read(info.context, info.base + asked, &mut words);
        read.is_ok() && words.chunks(4).any(|word| word != CANARY.to_ne_bytes())
    }

    fn finish(&self, key: StreamKey) -> Result<()> {
        let event = self.driver.create_event(key.context)?;
        let recorded = self.driver.record(event, key.context, key.stream);
        let waited = recorded.and_then(|()| self.driver.synchronize_event(event));
        self.driver.destroy_event(event)?;
        waited
    }
}
