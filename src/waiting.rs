//! Waits that end. How long one has lasted says the clock or, where the program's clock
//! stands still (libfaketime) or creeps, what it has paused itself. A pause asks the kernel, past what
//! stands in for a function of libc's; no thread is cancelled in it, and none panics where a filter of the
//! program's refuses it. Never tells the time of day.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use rustix::thread::{ClockId, NanosleepRelativeResult, Timespec, clock_nanosleep_relative, futex};

/// No call of the kernel takes less.
const STEP: Duration = Duration::from_nanos(100);

/// A wait under way.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    began: Instant,
    paused: Duration,
}

impl Waiting {
    /// From now on.
    pub fn begin() -> Self {
        Self::since(Instant::now())
    }

    /// The same of one that began then.
    pub fn since(began: Instant) -> Self {
        Self {
            began,
            paused: Duration::ZERO,
        }
    }

    /// How long it has lasted, at least.
    pub fn lasted(&self) -> Duration {
        self.began.elapsed().max(self.paused)
    }

    /// Sleeps.
    pub fn pause(&mut self, time: Duration) {
        nap(time);
        self.passed(time);
    }

    /// Lets another thread run, if one can.
    pub fn step_aside(&mut self) {
        std::thread::yield_now();
        self.passed(STEP);
    }

    /// A call that waits has taken as long as it was to.
    pub fn passed(&mut self, time: Duration) {
        self.paused = self.paused.saturating_add(time);
    }
}

/// Sleeps so long.
pub fn nap(time: Duration) {
    let Ok(mut left) = Timespec::try_from(time) else {
        return;
    };
    loop {
        match clock_nanosleep_relative(ClockId::Monotonic, &left) {
            NanosleepRelativeResult::Ok => return,
            NanosleepRelativeResult::Interrupted(rest) => left = rest,
            NanosleepRelativeResult::Err(_) => break,
        }
    }
    // A filter refuses it. Without the call by which locks wait no thread can be; a signal may
    // end it early.
    let _ = futex::wait(&AtomicU32::new(0), futex::Flags::PRIVATE, 0, Some(&left));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_lasts_as_long_as_the_clock_says_or_its_pauses_do() {
        let hour = Duration::from_secs(3600);
        let mut ahead = Waiting::since(Instant::now() + hour);
        assert_eq!(ahead.lasted(), Duration::ZERO, "no time passes");
        ahead.pause(Duration::from_millis(1));
        ahead.step_aside();
        assert_eq!(ahead.lasted(), Duration::from_millis(1) + STEP);
        ahead.passed(Duration::MAX);
        assert_eq!(ahead.lasted(), Duration::MAX);
        let long = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(Waiting::since(long).lasted() >= Duration::from_secs(1));
    }

    #[test]
    fn a_nap_is_as_long_as_it_is_to_be() {
        let (began, time) = (Instant::now(), Duration::from_millis(3));
        nap(time);
        assert!(began.elapsed() >= time);
    }
}
