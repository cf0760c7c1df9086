//! What the other preloaded processes on a device would give if they were asked for it: it counts
//! as free, as it would be without this library. Asks them without taking anything, now and then
//! and for a moment; no lock is held meanwhile, so that who comes then has what was heard before.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memcuda_core::driver::cancel;
use memcuda_core::lock;

use crate::neighbours::Door;

/// How long an answer holds.
const HOLDS: Duration = Duration::from_millis(250);
/// How long answers are waited for: a stopped process gives none.
const MOMENT: Duration = Duration::from_millis(10);

/// Of one device.
#[derive(Default)]
pub struct Offers {
    last: Mutex<Heard>,
}

/// Bytes that were offered, and those that the driver had free then.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    asked: Option<Instant>,
    free: u64,
    bytes: u64,
}

impl Offers {
    /// Bytes that others offer beside those that the driver has `free` now. What they have given
    /// back since they were asked is free already.
    pub fn beside(&self, free: u64, door: &Door) -> u64 {
        if self.is_due() {
            let _held = cancel::hold();
            let bytes = door.offered(MOMENT);
            let mut last = self.lock();
            (last.free, last.bytes) = (free, bytes);
        }
        let last = *self.lock();
        let left = last.free.saturating_add(last.bytes).saturating_sub(free);
        left.min(last.bytes)
    }

    /// Others gave: they are to be asked anew.
    pub fn forget(&self) {
        *self.lock() = Heard::default();
    }

    /// Is this thread the one to ask?
    fn is_due(&self) -> bool {
        let mut last = self.lock();
        let is_due = last.asked.is_none_or(|when| when.elapsed() > HOLDS);
        if is_due {
            last.asked = Some(Instant::now());
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        lock::lock(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_since_is_not_counted_twice() {
        let offers = Offers::default();
        *offers.lock() = Heard {
            asked: Some(Instant::now() + 1000 * HOLDS),
            free: 100,
            bytes: 50,
        };
        let door = Door::new([7; 16]);
        let beside = [90, 100, 120, 200].map(|free| offers.beside(free, &door));
        assert_eq!(beside, [50, 50, 30, 0]);
        offers.forget();
        assert_eq!(offers.beside(100, &door), 0, "nobody is there");
    }
}
