//! The time of day as it is written down and told to others: since the Unix epoch, by the
//! host's clock, which somebody may set. Sets no clock, measures nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now; zero by a clock that is before it.
pub fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// The same in microseconds.
pub fn now_us() -> u64 {
    now().as_micros() as u64
}
