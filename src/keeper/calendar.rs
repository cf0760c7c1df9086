//! By how much the clock of the host was set meanwhile: who was to
//! have a minute has it, whatever the date is said to be. Sets no clock.

use rustix::time::{ClockId, clock_gettime};

use crate::epoch::now_us;

const SECOND_US: i64 = 1_000_000;

/// How far the clock is ahead of the time since the host's boot, which nobody sets.
pub struct Calendar {
    ahead_us: i64,
}

impl Calendar {
    /// As it is now.
    pub fn new() -> Self {
        let ahead_us = ahead_us();
        Self { ahead_us }
    }

    /// By how many seconds the clock was set since the last time.
    pub fn moved_s(&mut self) -> i64 {
        self.moved_to(ahead_us())
    }

    fn moved_to(&mut self, ahead_us: i64) -> i64 {
        // To the nearest: the two clocks are not read at the very same time.
        let seconds = (ahead_us - self.ahead_us + SECOND_US / 2).div_euclid(SECOND_US);
        self.ahead_us += seconds * SECOND_US;
        seconds
    }
}

fn ahead_us() -> i64 {
    // Goes on while the host sleeps.
    let boot = clock_gettime(ClockId::Boottime);
    now_us() as i64 - (boot.tv_sec * SECOND_US + boot.tv_nsec / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_has_moved_and_one_that_runs_has_not() {
        let mut calendar = Calendar::new();
        let begun = calendar.ahead_us;
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert_eq!((calendar.moved_s(), calendar.ahead_us), (0, begun));
        for jitter in [-7, 7] {
            assert_eq!(calendar.moved_to(begun + 3600 * SECOND_US + jitter), 3600);
            assert_eq!(calendar.moved_to(begun + jitter), -3600);
        }
        // Many small steps are a large one.
        let steps = (1..=5).map(|step| calendar.moved_to(begun + step * SECOND_US * 2 / 5));
        assert_eq!(steps.collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
    }
}
