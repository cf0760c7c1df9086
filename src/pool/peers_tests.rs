//! Other devices' access over the model driver: who has it, to what, and how long.

use crate::driver::{Access, Code, Context};
use crate::pool::tests::{CONTEXT, on, pool};
use crate::pool::{Grantee, Settings};
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
