//! Other devices' access over the model driver: who has it, to what, and how long.

use crate::driver::model::Model;
use crate::driver::{Access, Address, Code, Context, Stream};
use crate::pool::tests::{CONTEXT, on, pool};
use crate::pool::{Grantee, Pool, Settings};
use crate::units::MIB;

fn reader(context: u64) -> Grantee {
    Grantee::Contexts {
        reader: Context(context),
        owner: CONTEXT,
    }
}

#[test]
fn access_of_another_device_lasts_as_long_as_somebody_wants_it() {
    let pool = pool(Settings::default());
    let readers = [2, 3].map(reader);
    pool.alloc(&on(10, 40 * MIB)).unwrap();
    let calls = pool.driver().calls();
    pool.driver().fail_at(calls, Code::UNKNOWN);
    assert_eq!(pool.grant(1, readers[0]), Err(Code::UNKNOWN));
    assert!(pool.lock().peers.devices().is_empty());
    for who in readers {
        assert_eq!(pool.grant(1, who), Ok(()));
    }
    assert_eq!(pool.grant(2, Grantee::MemoryPool), Ok(()));
    pool.revoke(1, readers[0]);
    assert_eq!(pool.lock().peers.devices(), [1, 2]);
    pool.context_ends(Context(3));
    assert_eq!(pool.lock().peers.devices(), [2]);
    pool.context_ends(CONTEXT);
    assert_eq!(pool.lock().peers.devices(), [2]);

    // Graphs keep it whoever takes access away, as long as their context lives.
    let of_graphs = Grantee::Graphs { reader: Context(4) };
    assert_eq!(pool.grant(1, of_graphs), Ok(()));
    assert_eq!(pool.grant(1, reader(4)), Ok(()));
    pool.revoke(1, reader(4));
    assert_eq!(pool.lock().peers.devices(), [1, 2]);
    pool.context_ends(Context(4));
    assert_eq!(pool.lock().peers.devices(), [2]);
}

#[test]
fn where_a_part_cannot_be_opened_nothing_is() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let at = pool.alloc(&on(10, 64 * MIB)).unwrap();
    let second = pool.driver().calls() + 1;
    pool.driver().fail_at(second, Code::UNKNOWN);
    assert_eq!(pool.grant(1, reader(2)), Err(Code::UNKNOWN));
    for part in [at, at + 32 * MIB] {
        assert_eq!(pool.driver().access(part, 1), Access::None);
    }
    // What is there is opened, and what comes.
    pool.grant(1, reader(2)).unwrap();
    let later = pool.alloc(&on(10, 32 * MIB)).unwrap();
    for part in [at, at + 32 * MIB, later] {
        assert_eq!(pool.driver().access(part, 1), Access::Write);
    }
}

#[test]
fn access_is_taken_once_the_readers_work_is_over_and_not_before() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 2 * MIB)).unwrap();
    let access = || pool.driver().access(at, 1);
    pool.grant(1, reader(2)).unwrap();
    // It cannot be waited for, neither by an event nor plainly.
    pool.driver().fail_waits(2, Code::UNKNOWN);
    pool.revoke(1, reader(2));
    assert_eq!(access(), Access::Write);
    pool.grant(1, reader(2)).unwrap();
    pool.revoke(1, reader(2));
    assert_eq!(access(), Access::None);
}

#[test]
fn readers_are_the_devices_of_contexts() {
    let pool = pool(Settings::default());
    pool.grant(1, reader(2)).unwrap();
    pool.grant(2, Grantee::MemoryPool).unwrap();
    assert_eq!(pool.readers(), [1]);
}

/// Work of contexts 2 and 3 of device 1, which was let into the memory.
fn with_readers() -> (Pool<Model>, Address) {
    let pool = pool(Settings::default());
    pool.driver().hold_truly();
    let at = pool.alloc(&on(10, 2 * MIB)).unwrap();
    for context in [2, 3] {
        pool.grant(1, reader(context)).unwrap();
        pool.driver().hold(Context(context), Stream(10), true);
    }
    (pool, at)
}

fn until_awaited(pool: &Pool<Model>, context: u64) {
    while !pool.lock().streams.health.is_awaited(Context(context)) {
        std::thread::yield_now();
    }
}

#[test]
fn others_build_while_the_readers_work_is_waited_for() {
    let (pool, at) = with_readers();
    pool.revoke(1, reader(3));
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| pool.revoke(1, reader(2)));
        until_awaited(&pool, 2);
        let (told, hears) = std::sync::mpsc::channel();
        let building = &pool;
        let builds = scope.spawn(move || {
            let later = building.alloc(&on(10, 64 * MIB)).unwrap();
            told.send(()).unwrap();
            later
        });
        let built = hears.recv_timeout(std::time::Duration::from_secs(20));
        let kept = pool.driver().access(at, 1);
        pool.driver().hold(Context(2), Stream(10), false);
        closes.join().unwrap();
        assert_eq!(kept, Access::Write, "2 may use it");
        let later = builds.join().unwrap();
        built.expect("it waited for the reader's work");
        for block in [at, later] {
            assert_eq!(pool.driver().access(block, 1), Access::None);
        }
    });
}

#[test]
fn who_is_let_in_during_that_wait_keeps_the_access() {
    let (pool, at) = with_readers();
    pool.revoke(1, reader(3));
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| pool.revoke(1, reader(2)));
        until_awaited(&pool, 2);
        let later = pool.alloc(&on(10, 64 * MIB)).unwrap();
        pool.grant(1, reader(3)).unwrap();
        pool.driver().hold(Context(2), Stream(10), false);
        closes.join().unwrap();
        for block in [at, later] {
            assert_eq!(pool.driver().access(block, 1), Access::Write);
        }
    });
}

#[test]
fn of_two_that_wait_the_last_one_closes() {
    let (pool, at) = with_readers();
    pool.revoke(1, reader(3));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| pool.revoke(1, reader(2)));
        until_awaited(&pool, 2);
        pool.grant(1, reader(3)).unwrap();
        let last = scope.spawn(|| pool.revoke(1, reader(3)));
        until_awaited(&pool, 3);
        pool.driver().hold(Context(2), Stream(10), false);
        first.join().unwrap();
        pool.grant(1, reader(4)).unwrap();
        pool.context_ends(Context(4));
        let kept = pool.driver().access(at, 1);
        pool.driver().hold(Context(3), Stream(10), false);
        last.join().unwrap();
        assert_eq!(kept, Access::Write, "3 may use it");
        assert_eq!(pool.driver().access(at, 1), Access::None);
    });
}

/// Else it would be among those that all that comes is opened to.
#[test]
fn a_device_that_cannot_be_let_in_is_refused_by_an_empty_pool_too() {
    let pool = pool(Settings::default());
    // A handle is made, its address reserved, it is mapped: then it would be opened.
    pool.driver().fail_at(3, Code::INVALID_DEVICE);
    assert_eq!(pool.grant(1, reader(2)), Err(Code::INVALID_DEVICE));
    assert!(pool.lock().peers.devices().is_empty());
    assert_eq!(pool.driver().leftovers(), (0, 0, 0));
    // What fails earlier tells nothing, and nothing is left of what went well, either.
    for call in 0..3 {
        let tried = pool.driver().calls();
        pool.driver().fail_at(tried + call, Code::OUT_OF_MEMORY);
        assert_eq!(pool.grant(1, reader(2)), Ok(()));
        pool.revoke(1, reader(2));
    }
    assert_eq!(pool.grant(1, reader(2)), Ok(()));
    assert_eq!(pool.driver().leftovers(), (0, 0, 0));
    pool.alloc(&on(10, MIB)).unwrap();
}

#[test]
fn where_a_device_cannot_be_let_into_new_memory_none_is_lent() {
    let mut refused = 0;
    for call in 0..48 {
        let pool = pool(Settings::default());
        pool.alloc(&on(10, 8 * MIB)).unwrap();
        pool.grant(1, Grantee::MemoryPool).unwrap();
        let before = pool.physical();
        let next = pool.driver().calls() + call;
        pool.driver().fail_at(next, Code::UNKNOWN);
        match pool.alloc(&on(11, 64 * MIB)) {
            Ok(at) => assert_eq!(pool.driver().access(at, 1), Access::Write, "{call}"),
            Err(_) => {
                refused += 1;
                let held = pool.driver().held();
                assert_eq!((pool.physical(), held), (before, before), "{call}");
            }
        }
    }
    assert!((1..48).contains(&refused), "{refused}");
}
