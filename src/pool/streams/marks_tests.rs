//! Streams with many marks, and which event is recorded for them.

use crate::driver::Stream;
use crate::driver::model::Model;
use crate::pool::streams::{Streams, Use};
use crate::pool::tests::{CONTEXT, key};

/// A stream that is held back, and the first and the last of its uses, an event behind each.
fn with_marks(marks: usize) -> (Model, Streams, [Use; 2]) {
    let (driver, mut streams) = (Model::new(0), Streams::default());
    driver.hold(CONTEXT, Stream(10), true);
    let user = streams.id(key(10));
    let mut tag = || {
        let last = streams.tag(&driver, user, 0).unwrap();
        streams.mark_free(&driver, last);
        last
    };
    let first = tag();
    let last = (1..marks).map(|_| tag()).last().unwrap();
    (driver, streams, [first, last])
}

/// A newer event covers what it covered.
#[test]
fn a_place_whose_event_was_given_up_is_passed_with_the_next_one_and_not_before() {
    let (driver, mut streams, [first, last]) = with_marks(400);
    streams.poll(&driver).unwrap();
    assert!(!streams.is_done(first));
    driver.hold(CONTEXT, Stream(10), false);
    streams.poll(&driver).unwrap();
    assert!(streams.is_done(first) && streams.is_done(last));
}

#[test]
fn the_host_waits_for_the_last_place_of_a_stream() {
    let (driver, mut streams, [_, last]) = with_marks(3);
    let (_, events) = streams.outstanding(&driver);
    let places = events.iter().map(|(stream, seq, _)| (*stream, *seq));
    assert!(places.eq([(last.stream, last.seq)]));
}

/// On that stream it would hold back all that blocks, and be held back by it.
#[test]
fn a_late_event_for_the_legacy_default_stream_is_one_of_the_whole_context() {
    let (driver, mut streams) = (Model::new(0), Streams::default());
    driver.hold(CONTEXT, Stream(11), true);
    let legacy = streams.id(key(1));
    let last = streams.tag(&driver, legacy, 0).unwrap();
    for held in [true, false] {
        driver.hold(CONTEXT, Stream(11), held);
        (0..2).for_each(|_| streams.poll(&driver).unwrap());
        assert_eq!(streams.is_done(last), !held);
    }
}
