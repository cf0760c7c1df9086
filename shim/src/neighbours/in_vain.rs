//! What other processes gave back and was of no use: the memory of who asks is bounded from outside
//! (`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, `dmem.max` of a control group), of which no call tells.
//! After some such rounds nobody is asked for a while, or else each request at the bound would
//! empty them all. Asks nobody itself.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use memcuda_core::lock::lock;

/// So often others give what is asked for, and it is taken by somebody else each time, hardly ever.
const ROUNDS: u32 = 4;
/// How long nobody is asked then.
const REST: Duration = Duration::from_secs(10);

thread_local! {
    /// Since when this thread's request fails, and how often it was given what it asked for.
    static GIVEN: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

/// Until when the others on a device are left alone.
#[derive(Default)]
pub struct InVain(Mutex<Option<Instant>>);

impl InVain {
    /// Are they, by a request that has failed since then?
    pub fn rests(&self, failed: Instant) -> bool {
        let mut until = lock(&self.0);
        let now = Instant::now();
        if rounds(failed) >= ROUNDS {
            *until = Some(now + REST);
        }
        until.is_some_and(|until| now < until)
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
        *others.0.lock().unwrap() = Some(Instant::now());
        assert!(!others.rests(next), "it is over");
    }
}
