//! Ladders, pauses, and what they cost a request.

use super::*;
use crate::driver::model::Model;
use crate::driver::{Context, Stream};
use crate::pool::{Order, Owner, Release, Settings, StreamKey};
use crate::units::{GIB, MIB};
use std::time::Duration;

fn stream() -> StreamKey {
    StreamKey::new(Context(1), Stream::LEGACY, 0)
}

/// A request of torch's for a segment of this many bytes.
fn of_torch(bytes: u64) -> Request {
    Request {
        bytes,
        align: 2 * MIB,
        order: Order::Stream(stream()),
        context: Context(1),
        owner: Owner::Context,
        effort: Effort::Growth,
        graph: false,
    }
}

#[test]
fn a_ladder_gets_one_soft_failure() {
    let (device, thread) = (Device::new(), Thread::new());
    assert!(thread.ask_back(&device, 64 * MIB));
    assert!(!thread.ask_back(&device, 64 * MIB), "torch's second try");
    thread.freed(64 * MIB);
    assert!(!thread.ask_back(&device, 64 * MIB), "torch's last try");
    assert!(thread.is_on_ladder());
    let (asked, brought) = (64 * MIB, 64 * MIB);
    assert_eq!(thread.served(&device), Some(Ladder { asked, brought }));
    assert!(!thread.is_on_ladder());
    assert!(thread.ask_back(&device, 64 * MIB), "a new ladder");
    thread.refused();
    assert!(!thread.is_on_ladder());
    assert_eq!(device.soft_failures(), 2);
    assert_eq!(device.ladders(), 1);
    assert_eq!(device.short_ladders(), 0);
    assert_eq!(device.bytes_brought(), 64 * MIB);
}

/// What torch says of it is meant; but it may be on its way to its last try.
#[test]
fn a_ladder_for_which_there_is_no_memory_is_over_and_no_other_one_begins_before_torch_is_served() {
    let pool = Pool::new(Model::new(GIB), 0, Settings::default()).unwrap();
    let (device, thread) = (Device::new(), Thread::new());
    let alloc = |bytes| thread.alloc(&device, &pool, &of_torch(bytes), true).0;
    assert!(alloc(2 * GIB).is_err() && thread.is_on_ladder());
    assert!(alloc(2 * GIB).is_err() && !thread.is_on_ladder());
    assert!(alloc(64 * MIB).is_ok(), "it may be its last try");
    assert_eq!(device.soft_failures(), 1);
    assert!(alloc(64 * MIB).is_err() && thread.is_on_ladder());
}

#[test]
fn a_free_before_the_first_call_may_mean_the_last_try() {
    let (device, thread) = (Device::new(), Thread::new());
    thread.freed(MIB);
    assert!(!thread.ask_back(&device, 64 * MIB));
    assert_eq!(thread.served(&device), None);
    assert!(thread.ask_back(&device, 64 * MIB));
}

#[test]
fn a_small_segment_of_the_plain_driver_never_fails_softly() {
    let (device, thread) = (Device::new(), Thread::new());
    assert!(!thread.ask_back(&device, SMALL_SEGMENT));
    assert!(thread.ask_back(&device, SMALL_SEGMENT + 1));
}

#[test]
fn a_ladder_that_brings_too_little_is_counted() {
    let (device, thread) = (Device::new(), Thread::new());
    assert!(thread.ask_back(&device, 64 * MIB));
    thread.freed(63 * MIB);
    thread.served(&device);
    assert_eq!(device.short_ladders(), 1);
}

#[test]
fn short_ladders_are_followed_by_longer_and_longer_pauses() {
    let (device, thread) = (Device::new(), Thread::new());
    for expected in [1, 2, 4, 8, 16, 16] {
        assert!(thread.ask_back(&device, 64 * MIB));
        thread.served(&device);
        let mut unasked = 0;
        while device.pauses() {
            thread.served_unasked(&device);
            unasked += 1;
        }
        assert_eq!(unasked, expected);
    }
    assert!(thread.ask_back(&device, 64 * MIB));
    thread.freed(64 * MIB);
    thread.served(&device);
    assert!(!device.pauses(), "a good ladder ends it");
}

#[test]
fn ladders_belong_to_threads() {
    let (device, one, other) = (Device::new(), Thread::new(), Thread::new());
    assert!(one.ask_back(&device, 64 * MIB));
    assert!(other.ask_back(&device, 64 * MIB));
    assert!(!one.ask_back(&device, 64 * MIB));
}

#[test]
fn a_small_segment_fails_softly_only_where_the_pool_would_grow() {
    let pool = Pool::new(Model::new(GIB), 0, Settings::default()).unwrap();
    let (device, thread) = (Device::new(), Thread::new());
    let request = of_torch(SMALL_SEGMENT);
    let alloc = || thread.alloc(&device, &pool, &request, true);
    let soft = (Err(Refusal::Driver(Code::OUT_OF_MEMORY)), None);
    assert_eq!(alloc(), soft, "it would grow");
    // Torch brings a segment, which serves it.
    thread.freed(64 * MIB);
    let first = alloc().0.unwrap();
    let free = || pool.free(first, Release::Stream(stream())).unwrap();
    free();
    assert_eq!(alloc(), (Ok(first), None), "a window is there");
    assert_eq!(alloc(), soft);
    // That one it brings: the ladder is over.
    free();
    thread.freed(SMALL_SEGMENT);
    assert_eq!(alloc().1.unwrap().brought, SMALL_SEGMENT);
    assert_eq!(alloc(), soft);
    assert_eq!(alloc().1.unwrap().brought, 0);
    // That ladder was short: in the pause the pool grows unasked.
    assert!(alloc().0.is_ok());
    assert_eq!(device.soft_failures(), 3);
    assert_eq!(pool.physical(), 3 * SMALL_SEGMENT);
    assert_eq!(alloc(), soft, "the pause is over");
}

#[test]
fn what_torch_does_until_it_asks_again_is_a_stall_of_its_request() {
    let pool = Pool::new(Model::new(GIB), 0, Settings::default()).unwrap();
    let (device, thread) = (Device::new(), Thread::new());
    let request = of_torch(64 * MIB);
    let wait = Duration::from_millis(200);
    let alloc = || thread.alloc(&device, &pool, &request, true);
    assert!(alloc().0.is_err());
    std::thread::sleep(wait);
    assert_eq!(pool.stats().stalls, 0);
    assert!(alloc().0.is_ok());
    let waited = pool.stats();
    assert!(waited.stalls > 0 && waited.stall_ns >= wait.as_nanos() as u64);
    // What torch does once it was served is its own business.
    std::thread::sleep(wait);
    assert!(alloc().0.is_err(), "the window of a pause is not there");
    assert!(alloc().0.is_ok());
    // Nor has it to do with what it was asked for pages, and served, or refused.
    let ends: [fn(&Thread, &Device); 2] = [
        |thread, device| {
            thread.served(device);
        },
        |thread, _| thread.refused(),
    ];
    for end in ends {
        assert!(thread.ask_at_peak(&device, MIB));
        end(&thread, &device);
        std::thread::sleep(wait);
        thread.alloc(&device, &pool, &request, false).0.unwrap();
    }
    let more = pool.stats().stall_ns - waited.stall_ns;
    assert!(more < wait.as_nanos() as u64, "{more}");
}

#[test]
fn the_pool_serves_the_second_try_and_windows_serve_a_pause() {
    let pool = Pool::new(Model::new(GIB), 0, Settings::default()).unwrap();
    let (device, thread) = (Device::new(), Thread::new());
    let request = of_torch(64 * MIB);
    let alloc = |may_fail| thread.alloc(&device, &pool, &request, may_fail);
    let soft = (Err(Refusal::Driver(Code::OUT_OF_MEMORY)), None);
    assert_eq!(alloc(true), soft);
    let (first, ladder) = alloc(true);
    assert_eq!(ladder.unwrap().brought, 0, "torch had nothing");
    let first = first.unwrap();
    // A short ladder: one request is served unasked, if a window is there.
    assert_eq!(alloc(true), soft, "there is none");
    let (second, _) = alloc(true);
    pool.free(first, Release::Stream(stream())).unwrap();
    assert_eq!(alloc(true), (Ok(first), None));
    pool.free(first, Release::Stream(stream())).unwrap();
    // What torch gave back was not for the sake of what comes after this one.
    thread.freed(64 * MIB);
    assert_eq!(alloc(true), (Ok(first), None), "two after two short ones");
    pool.free(second.unwrap(), Release::Stream(stream()))
        .unwrap();
    assert_eq!(alloc(true), soft, "then torch is asked again");
    assert_eq!((device.soft_failures(), device.short_ladders()), (3, 2));
    // Where torch must not be asked it is not, and the ladder is over.
    assert!(alloc(false).0.is_ok());
    assert_eq!(device.ladders(), 3);
}
