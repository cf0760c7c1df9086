//! Growths of several handles on a device that has too little, or says so.

use crate::driver::Code;
use crate::driver::model::Model;
use crate::pool::tests::{on, request};
use crate::pool::{Order, Pool, Release, Settings};
use crate::units::{GIB, MIB};

fn pool(total: u64, chunk: Option<u64>) -> Pool<Model> {
    let settings = Settings {
        chunk,
        ..Settings::default()
    };
    Pool::new(Model::new(total), 0, settings).unwrap()
}

/// Others may want some of it just then.
#[test]
fn what_the_device_has_too_little_for_takes_nothing_of_it() {
    for chunk in [None, Some(32 * MIB)] {
        let pool = pool(16 * GIB, chunk);
        let short = Err(Code::OUT_OF_MEMORY.into());
        pool.alloc(&on(10, 12 * GIB)).unwrap();
        assert_eq!(pool.alloc(&on(10, 6 * GIB)), short);
        assert_eq!(pool.alloc(&request(6 * GIB, Order::Unknown)), short);
        assert_eq!(pool.driver().peak(), 12 * GIB, "{chunk:?}");
        // What fits is made as ever.
        pool.alloc(&on(10, 4 * GIB)).unwrap();
        assert_eq!(pool.driver().held(), 16 * GIB);
    }
}

/// What still runs may be what lacks: it is waited for as after any handle that was refused.
#[test]
fn what_is_pending_is_waited_for_before_it_is_too_little() {
    let pool = pool(256 * MIB, None);
    let used = pool.alloc(&on(11, 128 * MIB)).unwrap();
    pool.free(used, Release::Unknown).unwrap();
    assert!(pool.alloc(&request(256 * MIB, Order::Unknown)).is_ok());
    assert_eq!(pool.driver().held(), 256 * MIB);
}

#[test]
fn a_device_that_has_more_than_it_says_serves_it() {
    let pool = pool(GIB, None);
    pool.driver().say_free(64 * MIB);
    pool.alloc(&on(10, 300 * MIB)).unwrap();
    let handles = pool.lock().chunks.iter().count();
    assert!(handles > 1, "of the sizes that it has elsewhere");
    assert_eq!(pool.driver().held(), 300 * MIB);
    // One of all bytes cannot be made for another reason.
    pool.driver()
        .fail_at(pool.driver().calls(), Code::INVALID_VALUE);
    pool.alloc(&on(10, 300 * MIB)).unwrap();
    assert_eq!(pool.driver().held(), 600 * MIB);
}
