//! What the program has waited for on the host itself: a place of each stream, noted before
//! its wait and known to be passed once that has succeeded. Without it the pool would learn
//! that from an event of its own, recorded when somebody asks, behind whatever the stream was
//! given since; where that never ends by itself, as a kernel that stays and polls, it would
//! never be told. Makes no driver call, and takes no lock but a front's.

use super::Pool;
use super::front::{COMMON, Fronts, Lane};
use super::request::StreamKey;
use super::streams::StreamId;
use crate::driver::{Context, Driver, Stream};

/// A place of a stream that the program may be about to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    stream: StreamId,
    seq: u64,
}

impl<D: Driver> Pool<D> {
    /// What a wait of the program's for a stream is for, to be asked before it begins; `None`
    /// where it tells nothing. A free on the legacy default stream is a barrier, and it is the
    /// event that follows it which makes it one: a wait that began between the two knows
    /// nothing of other streams, so only that event tells there.
    pub fn place_of(&self, key: &StreamKey) -> Option<Place> {
        if key.stream == Stream::LEGACY {
            return None;
        }
        let mut front = self.fronts.lock(Fronts::of_stream(key));
        let lane = front.find(key)?;
        awaited(front.lane(lane))
    }

    /// The same of a wait for a whole context. Not of streams that were destroyed.
    pub fn places_in(&self, context: Context) -> Vec<Place> {
        let mut places = Vec::new();
        for number in self.fronts.used().filter(|number| *number != COMMON) {
            let mut front = self.fronts.lock(number);
            let its = |lane: &&mut Lane| lane.key.context == context && !lane.is_ended();
            places.extend(front.lanes().filter(its).filter_map(awaited));
        }
        places
    }

    /// The program's wait for this place has succeeded. Its stream may be gone by now: then
    /// another one has its index only once this place was known to be passed.
    pub fn has_waited(&self, place: Place) {
        let (front, lane) = Fronts::place_of(place.stream);
        let mut front = self.fronts.lock(front);
        let lane = front.lane(lane);
        lane.awaited = lane.awaited.max(place.seq);
    }
}

/// Ends the latest place of a stream, unless it is known to be passed: what is freed while
/// the program waits has a later one.
fn awaited(lane: &mut Lane) -> Option<Place> {
    let seq = lane.tagged;
    (seq > lane.awaited).then(|| {
        lane.part();
        Place {
            stream: lane.id,
            seq,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::model::Model;
    use crate::pool::tests::{CONTEXT, key, on, pool};
    use crate::pool::{Release, Settings};
    use crate::units::MIB;

    /// A pool with 8 MiB that were freed on stream 10, and their address.
    fn freed() -> (Pool<Model>, u64) {
        let pool = pool(Settings::default());
        let at = pool.alloc(&on(10, 8 * MIB)).unwrap();
        pool.free(at, Release::Stream(key(10))).unwrap();
        (pool, at)
    }

    /// Work that never ends is all that the stream has from now on; who gets 8 MiB on another?
    fn next_on_another(pool: &Pool<Model>) -> u64 {
        pool.driver().hold(CONTEXT, Stream(10), true);
        pool.alloc(&on(11, 8 * MIB)).unwrap()
    }

    #[test]
    fn what_was_freed_before_a_wait_is_free_whatever_runs_since() {
        let (pool, at) = freed();
        let place = pool.place_of(&key(10)).unwrap();
        pool.has_waited(place);
        assert_eq!(pool.place_of(&key(10)), None, "nothing was freed since");
        assert_eq!(next_on_another(&pool), at);
        assert_eq!(
            (pool.driver().events(), pool.driver().waits().len()),
            (0, 0)
        );
    }

    #[test]
    fn so_it_is_before_a_wait_for_the_context() {
        let (pool, at) = freed();
        assert_eq!(pool.places_in(Context(CONTEXT.0 + 1)), []);
        let places = pool.places_in(CONTEXT);
        assert_eq!(places.len(), 1);
        places.into_iter().for_each(|place| pool.has_waited(place));
        assert_eq!(next_on_another(&pool), at);
    }

    #[test]
    fn a_wait_that_failed_tells_nothing() {
        let (pool, at) = freed();
        let _failed = pool.place_of(&key(10)).unwrap();
        assert_ne!(next_on_another(&pool), at);
    }

    #[test]
    fn what_is_freed_during_a_wait_is_not_known_by_it() {
        let pool = pool(Settings::default());
        let [first, during] = [0; 2].map(|_| pool.alloc(&on(10, 8 * MIB)).unwrap());
        pool.free(first, Release::Stream(key(10))).unwrap();
        let place = pool.place_of(&key(10)).unwrap();
        pool.free(during, Release::Stream(key(10))).unwrap();
        pool.has_waited(place);
        assert_eq!(next_on_another(&pool), first);
        let third = pool.alloc(&on(11, 8 * MIB)).unwrap();
        assert_ne!(third, during);
    }

    #[test]
    fn a_wait_for_the_legacy_default_stream_tells_nothing() {
        let pool = pool(Settings::default());
        let at = pool.alloc(&on(1, 8 * MIB)).unwrap();
        pool.free(at, Release::Stream(key(1))).unwrap();
        assert_eq!(pool.place_of(&key(1)), None);
    }
}
