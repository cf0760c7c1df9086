//! What was asked of other processes in vain. What they gave back was of no use where the memory
//! of who asks is bounded from outside (`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, `dmem.max` of a control
//! group), of which no call tells: after some such rounds nobody is asked for a while, or else each
//! request at the bound would empty them all. What would have been idle soon did not come where
//! they use it again and again: then it is not waited for for a while. Asks nobody itself.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use memcuda_core::lock::lock;

/// So often others give what is asked for, and it is taken by somebody else each time, hardly ever.
const ROUNDS: u32 = 4;
/// How long nobody is asked then, and the longest that nobody waits.
const REST: Duration = Duration::from_secs(10);

thread_local! {
    /// Since when this thread's request fails, and how often it was given what it asked for.
    static GIVEN: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

/// Until when the others on a device are left alone.
#[derive(Default)]
pub struct InVain {
    asked: Mutex<Option<Instant>>,
    /// And are not waited for, and how long that is.
    waited: Mutex<Option<(Instant, Duration)>>,
}

impl InVain {
    /// Are they, by a request that has failed since then?
    pub fn rests(&self, failed: Instant) -> bool {
        let mut until = lock(&self.asked);
        let now = Instant::now();
        if rounds(failed) >= ROUNDS {
            *until = Some(now + REST);
        }
        until.is_some_and(|until| now < until)
    }

    /// Is it worth while to wait for what will be idle soon?
    pub fn is_patient(&self) -> bool {
        lock(&self.waited).is_none_or(|(until, _)| until <= Instant::now())
    }

    /// It was waited for so long, and did not come: nobody does for as long, and where that was
    /// not the first time for longer.
    pub fn waited(&self, time: Duration) {
        let mut waited = lock(&self.waited);
        let now = Instant::now();
        let rest = match *waited {
            // By another thread at the same time.
            Some((until, _)) if now < until => return,
            Some((_, before)) => time + 2 * before,
            None => time,
        };
        *waited = Some((now + rest.min(REST), rest.min(REST)));
    }

    /// Something was given.
    pub fn came(&self) {
        *lock(&self.waited) = None;
    }
}

/// Others gave all that was asked for, by a request that has failed since then.
pub fn given(failed: Instant) {
    GIVEN.set(Some((failed, rounds(failed) + 1)));
}

fn rounds(failed: Instant) -> u32 {
    let own = GIVEN.get().filter(|(since, _)| *since == failed);
    own.map_or(0, |(_, rounds)| rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_some_rounds_in_vain_all_requests_rest_for_a_while() {
        let (others, elsewhere) = (InVain::default(), InVain::default());
        let failed = Instant::now();
        for _ in 0..ROUNDS {
            assert!(!others.rests(failed));
            given(failed);
        }
        let next = failed + Duration::from_millis(1);
        assert!(!others.rests(next), "it was served meanwhile");
        assert!(others.rests(failed));
        assert!(others.rests(next));
        assert!(!elsewhere.rests(next));
        *others.asked.lock().unwrap() = Some(Instant::now());
        assert!(!others.rests(next), "it is over");
    }

    #[test]
    fn after_each_wait_in_vain_nobody_waits_for_longer() {
        let (others, second) = (InVain::default(), Duration::from_secs(1));
        for rest in [1, 3, 7, 10, 10] {
            assert!(others.is_patient());
            others.waited(second);
            others.waited(second);
            assert!(!others.is_patient());
            let waited = &mut *others.waited.lock().unwrap();
            let (until, took) = waited.as_mut().unwrap();
            assert_eq!(*took, Duration::from_secs(rest));
            *until = Instant::now();
        }
        others.waited(second);
        others.came();
        assert!(others.is_patient());
    }
}
