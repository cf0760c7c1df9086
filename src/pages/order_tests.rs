//! Pages given up in the order of a stream, over the model driver: who waits for whom,
//! and who for nothing. A stream is *held* as long as its work runs; a wait of the host
//! lets it complete.

use std::cell::Cell;
use std::time::Duration;

use super::order::Mark;
use super::tests::{Device, HOME, LARGE};
use super::*;
use crate::driver::Stream;
use crate::driver::model::WHOLE_CONTEXT;
use crate::units::{GIB, MIB};

pub const CONTEXT: Context = Context(1);
pub const ONE: Stream = Stream(0x100);
pub const TWO: Stream = Stream(0x200);
/// Where the second stream's pages begin, in places.
pub const OTHER: u64 = 100;

pub fn key(stream: Stream) -> StreamKey {
    StreamKey::new(CONTEXT, stream, 0)
}

impl Device {
    pub fn home(&self, place: u64) -> Home {
        let start = place / OTHER * OTHER;
        Home {
            reservation: self.at(LARGE, start),
            ..HOME
        }
    }

    pub fn put(&self, place: u64) -> Lease {
        let lease = self.create(LARGE).unwrap();
        let (at, home) = (self.at(LARGE, place), self.home(place));
        self.pages.map(at, LARGE.bytes, lease, home).unwrap();
        let opened = self.pages.set_access(at, LARGE.bytes, 0, Access::Write);
        assert_eq!(opened, Some(Ok(())));
        lease
    }

    /// Gives a page up behind the work of a stream, which runs.
    pub fn give_up(&self, place: u64, lease: Lease, stream: Stream) -> Mark {
        self.model().hold(CONTEXT, stream, true);
        let mark = self.pages.instead_of_waiting(key(stream)).unwrap();
        self.give_up_behind(place, lease, mark);
        mark
    }

    fn give_up_behind(&self, place: u64, lease: Lease, mark: Mark) {
        let at = self.at(LARGE, place);
        let unmapped = self.pages.unmap(at, LARGE.bytes, Some(mark));
        assert_eq!(unmapped, Some(Ok(())));
        assert!(self.pages.release(lease));
    }

    /// Waits of streams for themselves, and of the host.
    pub fn orders(&self) -> [u64; 2] {
        let counts = self.pages.totals().counts;
        [counts.edges, counts.host_waits]
    }

    /// Does the work of a stream still run: has the host not waited for it?
    pub fn runs(&self, stream: Stream) -> bool {
        self.runs_in(CONTEXT, stream)
    }

    pub fn runs_in(&self, context: Context, stream: Stream) -> bool {
        let event = self.model().create_event(context).unwrap();
        self.model().record(event, context, stream).unwrap();
        let complete = self.model().is_complete(event).unwrap();
        self.model().destroy_event(event).unwrap();
        !complete
    }
}

#[test]
fn the_same_stream_at_the_same_address_waits_for_nothing() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.put(0);
    assert!(device.runs(ONE) && device.model().waits().is_empty());
    assert_eq!(device.orders(), [0, 0]);
}

#[test]
fn the_same_stream_at_another_address_has_an_edge_one_for_all_pages() {
    let device = Device::new(GIB);
    let leases: Vec<_> = (0..4).map(|place| device.put(place)).collect();
    device.model().hold(CONTEXT, ONE, true);
    let mark = device.pages.instead_of_waiting(key(ONE)).unwrap();
    for (place, lease) in (0..).zip(leases) {
        device.give_up_behind(place, lease, mark);
    }
    for place in 10..14 {
        device.put(place);
    }
    assert!(device.runs(ONE), "the host waited for nothing");
    assert_eq!(device.model().waits(), [(ONE, ONE)]);
    assert_eq!(device.orders(), [1, 0]);
}

/// A third stream may be ordered behind the next one already, as it stands now.
#[test]
fn for_another_stream_the_host_waits() {
    let device = Device::new(GIB);
    let (one, two) = (device.put(0), device.put(OTHER));
    device.give_up(OTHER, two, TWO);
    device.put(OTHER);
    device.give_up(0, one, ONE);
    device.put(OTHER + 1);
    assert!(!device.runs(ONE) && device.runs(TWO));
    assert!(device.model().waits().is_empty());
    assert_eq!(device.orders(), [0, 1]);
}

/// All streams wait, so the third one does, too.
#[test]
fn where_there_is_one_context_all_of_it_waits_on_the_device() {
    let device = Device::new(GIB);
    assert!(!device.pages.contexts.begins(CONTEXT));
    let leases = [0, 1, 2].map(|place| device.put(place));
    device.model().hold(CONTEXT, ONE, true);
    let mark = device.pages.instead_of_waiting(key(ONE)).unwrap();
    for (place, lease) in (0..).zip(leases) {
        device.give_up_behind(place, lease, mark);
    }
    // For a stream that is known and for one that is not: one wait.
    device.put(OTHER);
    device.put(2 * OTHER);
    assert_eq!(device.model().waits(), [(WHOLE_CONTEXT, ONE)]);
    // Of its own stream nothing more is asked.
    device.put(0);
    assert_eq!(device.model().waits().len(), 1);
    assert!(device.runs(ONE));
    assert_eq!(device.orders(), [1, 0]);
}

#[test]
fn where_it_cannot_and_where_the_context_is_not_the_only_one_the_host_waits() {
    let hinder: [fn(&Device); 2] = [
        |device| device.model().fail_waits(1, Code::NOT_FOUND),
        |device| assert!(device.pages.contexts.begins(Context(2))),
    ];
    for hinder in hinder {
        let device = Device::new(GIB);
        device.pages.contexts.begins(CONTEXT);
        let one = device.put(0);
        device.give_up(0, one, ONE);
        hinder(&device);
        device.put(OTHER);
        assert!(!device.runs(ONE) && device.model().waits().is_empty());
        assert_eq!(device.orders(), [0, 1]);
    }
}

#[test]
fn others_that_come_find_nothing_that_only_the_first_context_waits_for() {
    let come: [fn(&Device, Lease); 4] = [
        |device, _| device.pages.others_come(),
        |device, lease| assert!(device.pages.share(lease).is_some()),
        |device, _| device.pages.share_range(device.at(LARGE, OTHER), 1),
        |device, _| assert!(device.pages.export(device.at(LARGE, OTHER)).is_some()),
    ];
    for come in come {
        let device = Device::new(GIB);
        device.pages.contexts.begins(CONTEXT);
        let lease = device.put(0);
        device.give_up(0, lease, ONE);
        let lease = device.put(OTHER);
        assert!(device.runs(ONE));
        come(&device, lease);
        assert!(!device.runs(ONE));
    }
}

#[test]
fn where_the_next_stream_is_not_known_the_host_waits() {
    let device = Device::new(GIB);
    let one = device.put(0);
    device.give_up(0, one, ONE);
    device.put(OTHER);
    assert!(!device.runs(ONE) && device.model().waits().is_empty());
    assert_eq!(device.orders(), [0, 1]);
}

/// One that has given up pages in the order of two streams may be used on any.
#[test]
fn a_reservation_of_several_streams_is_known_to_be_none_s() {
    let device = Device::new(GIB);
    let (zero, one) = (device.put(0), device.put(1));
    device.give_up(0, zero, ONE);
    device.give_up(1, one, TWO);
    device.put(1);
    device.put(0);
    assert!(!device.runs(TWO) && !device.runs(ONE));
    assert!(device.model().waits().is_empty());
}

#[test]
fn what_is_unmapped_in_truth_was_waited_for() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    device.put(1);
    assert!(device.runs(ONE));
    // The page went to 1 and is still mapped at 0, where another one comes.
    device.put(0);
    assert!(!device.runs(ONE));

    let device = Device::new(GIB);
    let lease = device.put(0);
    let first = device.give_up(0, lease, ONE);
    device.pages.wait(first);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    assert_eq!(device.pages.leave(device.at(LARGE, 0), LARGE.bytes), Ok(()));
    assert!(!device.runs(ONE), "the later of both");
}

#[test]
fn pages_go_back_when_nothing_runs_on_them() {
    let device = Device::new(16 * MIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    let give = |patience| device.pages.give_back(u64::MAX, patience);
    assert_eq!(give(Duration::ZERO), 0);
    assert_eq!(give(Duration::from_millis(5)), 0);
    assert!(device.runs(ONE) && device.pages.idle() == LARGE.bytes);
    device.model().hold(CONTEXT, ONE, false);
    assert_eq!(give(Duration::ZERO), LARGE.bytes);
    // By all its addresses.
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    let lease = device.put(1);
    device.give_up(1, lease, TWO);
    device.model().hold(CONTEXT, ONE, false);
    assert_eq!(give(Duration::ZERO), 0);
    device.model().hold(CONTEXT, TWO, false);
    assert_eq!(give(Duration::ZERO), LARGE.bytes);
}

#[test]
fn who_needs_their_memory_waits_for_them() {
    let device = Device::new(16 * MIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    let other = Kind {
        bytes: 6 * MIB,
        properties: 1,
    };
    let make = || device.model().create(0, other.bytes);
    assert!(device.pages.add(other, make).is_ok());
    assert!(!device.runs(ONE));
    assert_eq!(device.model().held(), other.bytes);
}

/// To wait for it would cost the time in which the device runs dry.
#[test]
fn a_little_is_held_beyond_the_peak_as_long_as_work_runs_on_it() {
    let device = Device::new(8 * GIB);
    let leases: Vec<_> = (0..32).map(|place| device.put(place)).collect();
    for (place, lease) in leases.into_iter().enumerate().take(6) {
        device.give_up(place as u64, lease, ONE);
    }
    let peak = 32 * LARGE.bytes;
    let other = Kind {
        bytes: 2 * MIB,
        properties: 1,
    };
    let add = || {
        let make = || device.model().create(0, other.bytes);
        assert!(device.pages.add(other, make).is_ok());
    };
    add();
    assert!(device.runs(ONE), "a 128th of the peak is 3 MiB");
    assert_eq!(device.model().held(), peak + other.bytes);
    // Who asks next gives it back, once that ended.
    device.model().hold(CONTEXT, ONE, false);
    device.pages.lend(other);
    assert!(device.model().held() <= peak);
    device.model().hold(CONTEXT, ONE, true);
    while device.runs(ONE) {
        assert!(device.model().held() <= peak + 3 * MIB);
        add();
    }
    assert!(
        device.model().held() <= peak,
        "more than that is waited for"
    );
}

#[test]
fn pages_that_are_not_kept_are_waited_for_when_they_are_given_up() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.pages.share(lease).unwrap();
    device.give_up(0, lease, ONE);
    assert!(!device.runs(ONE) && device.pages.physical() == 0);
    // Shared when it was unmapped already.
    let lease = device.put(1);
    device.model().hold(CONTEXT, ONE, true);
    let mark = device.pages.instead_of_waiting(key(ONE));
    let at = device.at(LARGE, 1);
    assert_eq!(device.pages.unmap(at, LARGE.bytes, mark), Some(Ok(())));
    device.pages.share(lease).unwrap();
    assert!(device.pages.release(lease));
    assert!(!device.runs(ONE) && device.pages.physical() == 0);
    // By another address, and its lease over.
    let lease = device.put(2);
    let (there, home) = (device.at(LARGE, 3), device.home(3));
    device.pages.map(there, LARGE.bytes, lease, home).unwrap();
    device.give_up(2, lease, ONE);
    device.pages.share_range(there, 1);
    assert_eq!(device.pages.unmap(there, LARGE.bytes, None), Some(Ok(())));
    assert!(!device.runs(ONE) && device.pages.physical() == 0);
}

/// Who opens a page before it is mapped knows of no order; who opens one that is used
/// comes after its users.
#[test]
fn a_page_that_others_open_before_it_is_used_was_waited_for() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    let lease = device.put(0);
    device.pages.share(lease).unwrap();
    assert!(device.runs(ONE));

    let device = Device::new(GIB);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    let lease = device.create(LARGE).unwrap();
    device.pages.share(lease).unwrap();
    assert!(!device.runs(ONE));

    // Whatever all streams wait for beside it.
    let device = Device::new(GIB);
    device.pages.contexts.begins(CONTEXT);
    let (zero, one) = (device.put(0), device.put(1));
    device.give_up(0, zero, ONE);
    device.give_up(1, one, ONE);
    device.put(OTHER);
    let lease = device.put(0);
    device.pages.share(lease).unwrap();
    assert!(device.runs(ONE));
}

/// Whoever had the page between may have done nothing there, so that its wait was for nothing.
#[test]
fn others_wait_for_a_use_before_the_last_one_too() {
    let device = Device::new(GIB);
    device.pages.contexts.begins(CONTEXT);
    let lease = device.put(0);
    device.give_up(0, lease, ONE);
    let lease = device.put(OTHER);
    device.unmap(LARGE, OTHER, lease);
    let lease = device.put(OTHER);
    assert!(device.runs(ONE) && device.pages.physical() == LARGE.bytes);
    device.pages.share(lease).unwrap();
    assert!(!device.runs(ONE));
}

/// Who waited for the stream that a graph was captured on has not waited for its replays.
#[test]
fn what_may_be_used_on_any_stream_is_given_up_behind_all_of_them() {
    let device = Device::new(GIB);
    let lease = device.put(0);
    device.pages.on_any_stream(device.at(LARGE, 0), CONTEXT);
    device.model().hold(CONTEXT, TWO, true);
    device.unmap(LARGE, 0, lease);
    assert!(!device.runs(TWO));
    // Used again, it is in the order of a stream, unless that is said again.
    let lease = device.put(0);
    device.model().hold(CONTEXT, TWO, true);
    device.unmap(LARGE, 0, lease);
    assert!(device.runs(TWO));
    let lease = device.put(0);
    device.pages.on_any_stream(device.at(LARGE, 0), CONTEXT);
    device.model().hold(CONTEXT, TWO, true);
    device.give_up(0, lease, ONE);
    assert!(!device.runs(ONE) && !device.runs(TWO));
}

/// Any other says nothing.
#[test]
fn an_error_that_stays_with_a_context_is_the_end_of_its_work() {
    let asked = Cell::new(0);
    let is_over = |code, times| {
        asked.set(0);
        order::is_over(|| match asked.replace(asked.get() + 1) < times {
            true => Err(Code(code)),
            false => Ok(false),
        })
    };
    assert!(is_over(700, u32::MAX) && asked.get() == 1);
    assert!(!is_over(999, u32::MAX) && !is_over(999, 1));
}
