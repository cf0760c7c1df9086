//! How quickly the counters of a pool change, from two readings.

use std::time::Duration;

use memcuda::stats_page::Counters;
use serde::Serialize;

/// What happens each second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Allocations asked for.
    pub requests_rate: f64,
    /// Of them, served with no driver call but event operations.
    pub hits_rate: f64,
    /// Address ranges stitched.
    pub stitches_rate: f64,
    /// Seconds spent in driver calls; above 1 where several threads make them.
    pub driver_time_rate: f64,
}

impl Rates {
    /// Rates between two readings so far apart; `None` where they say nothing:
    /// too close, or not of one pool.
    pub fn between(before: &Counters, after: &Counters, apart: Duration) -> Option<Self> {
        let seconds = apart.as_secs_f64();
        if seconds < 0.001 {
            return None;
        }
        let (before, after) = (&before.pool, &after.pool);
        let rate = |before: u64, after: u64| {
            let more = after.checked_sub(before)?;
            Some(more as f64 / seconds)
        };
        Some(Self {
            requests_rate: rate(before.requests, after.requests)?,
            hits_rate: rate(before.hits, after.hits)?,
            stitches_rate: rate(before.stitches, after.stitches)?,
            driver_time_rate: rate(before.driver_ns, after.driver_ns)? / 1e9,
        })
    }

    /// The share of requests that were hits, from 0 to 1; `None` of no requests.
    pub fn hit_share(&self) -> Option<f64> {
        (self.requests_rate > 0.0).then(|| (self.hits_rate / self.requests_rate).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(requests: u64, hits: u64, stitches: u64, driver_ns: u64) -> Counters {
        let mut counters = Counters::default();
        counters.pool.requests = requests;
        counters.pool.hits = hits;
        counters.pool.stitches = stitches;
        counters.pool.driver_ns = driver_ns;
        counters
    }

    #[test]
    fn rates_are_differences_over_time() {
        let (before, after) = (reading(100, 90, 5, 10), reading(300, 280, 6, 1_000_000_010));
        let rates = Rates::between(&before, &after, Duration::from_secs(2)).unwrap();
        assert_eq!((rates.requests_rate, rates.hits_rate), (100.0, 95.0));
        assert_eq!((rates.stitches_rate, rates.driver_time_rate), (0.5, 0.5));
        assert_eq!(rates.hit_share(), Some(0.95));
    }

    #[test]
    fn two_readings_that_say_nothing_have_no_rates() {
        let (one, two) = (reading(100, 90, 5, 10), reading(300, 280, 6, 20));
        assert_eq!(Rates::between(&two, &one, Duration::from_secs(1)), None);
        assert_eq!(Rates::between(&one, &two, Duration::ZERO), None);
        let same = Rates::between(&one, &one, Duration::from_secs(1)).unwrap();
        assert_eq!(same.hit_share(), None);
    }
}
